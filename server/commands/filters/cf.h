/* cf: shared by the CF.* commands.
 *
 * Thread: the worker's, in an RCU read section. */
#ifndef BLOOMERY_CF_H
#define BLOOMERY_CF_H

#include "bf.h"
#include "cf_request.h"

/* Slots that a compaction visits: in a turn of CF.COMPACT and in the CF.DEL that begins one, for about a millisecond;
 * and with each change during a compaction. */
#define CF_LOOKS_AT_ONCE UINT64_C(40960)
#define CF_LOOKS_BESIDE  UINT64_C(640)

enum cf_found {
    CF_IS_THERE,
    CF_IS_NONE,
    CF_IS_OTHER, /* a Bloom filter, or an SSTable's */
    CF_IS_LOST,  /* in quarantine */
};

/* The numbers of a filter that a command does not state. */
struct cuckoo_numbers cf_defaults_of(const struct server *server);

/* The cuckoo filter of a call; call->entry becomes the name's entry. NULL: *found_out has the reason. */
struct bloom_filter *cf_look(struct bf_call *call, enum cf_found *found_out);

/* False, after an error reply, if the name has something else. */
bool cf_reply_unless(struct bf_call *call, enum cf_found found);

/* The cuckoo filter of a call. NULL: it is none, after an error reply. */
struct bloom_filter *cf_existing(struct bf_call *call);

/* CF.EXISTS and CF.ADD of one item, as bf_query_one() and bf_add_one(). */
void cf_query_one(struct bf_call *call, struct slice item);
void cf_add_one(struct bf_call *call, struct slice item);

/* The journal of the call's operations; NULL: none. */
const struct bloom_journal *cf_journal(const struct bf_call *call, struct bloom_journal *journal);

/* The call has changed its filter, this many times. */
void cf_changed(struct bf_call *call, uint64_t changes);

#endif
