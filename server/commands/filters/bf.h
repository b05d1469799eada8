/* bf: shared by the BF.* and CF.* commands, in the pipeline or one by one.
 *
 * Thread: the worker's, in an RCU read section. */
#pragma once

#include <stdbool.h>

#include "bf_request.h"
#include "bloom_batch.h"
#include "cf_request.h"
#include "command.h"
#include "registry.h"
#include "reply.h"
#include "server.h"

/* One command on one filter. */
struct bf_call {
    struct server *server;
    struct stats *stats;
    struct reply *reply;
    struct journal_ring *ring; /* the worker's ring for records of adds; NULL: no log (journal.h) */
    struct slice name;
    uint64_t name_hash;
    struct command_ctx *ctx; /* for many items: the command's context, which may have slices (command_slice()) */
    struct entry *entry;     /* the name's entry at an earlier moment of this read section; NULL: there was none */
    enum bf_missing missing;
    bool read_only; /* `entry` is an SSTable's (sstables.h) */
    bool no_touch;  /* CLIENT NO-TOUCH: does not count as use */
    bool waits;     /* a creation waits for the memory of removed filters, and the command is called again */
};

/* The call of a command whose argument 1 is the filter's name. */
struct bf_call bf_call_of(struct command_ctx *ctx);

/* Queries or adds one item: looks the filter up if call->entry is NULL, creates a missing filter for an add, replies,
 * counts. The entry of an earlier moment gives a valid answer: the command came before later changes. */
void bf_query_one(struct bf_call *call, struct slice item);
void bf_add_one(struct bf_call *call, struct slice item);

/* Like these for the n items, or items `from` to n - 1, of a batch that was started on the filter of call->entry, with
 * one reply per item. Of queries, returns how many items were found. A refused add is the last: returns the index after
 * the last item with a reply, and *error_at_out is buf_len() before the error; SIZE_MAX: no error. */
unsigned bf_query_batch(struct bf_call *call, struct bloom_filter *filter, const struct bloom_batch *batch, size_t n);
size_t bf_add_batch(struct bf_call *call, struct bloom_filter *filter, struct bloom_batch *batch, size_t from, size_t n,
                    size_t *error_at_out);

/* Queries or adds n items, or the next slice of them, with one reply each; `item(ctx, i)` returns item i. An add that
 * fails ends the array with the error as its last element, as in RedisBloom. So does the deletion of the filter between
 * two slices of adds; a query's remaining items are then answered by `missing`. */
void bf_query_many(struct bf_call *call, size_t n, struct bloom_item (*item)(const void *items, size_t i),
                   const void *ctx);
void bf_add_many(struct bf_call *call, size_t n, struct bloom_item (*item)(const void *items, size_t i),
                 const void *ctx);

/* bf_add_many(), of claims if the owner has bytes. */
void bf_insert_many(struct bf_call *call, size_t n, struct slice owner,
                    struct bloom_item (*item)(const void *items, size_t i), const void *ctx);

/* The filter of a call for reading, looked up again if needed; for callers that need no bits: these may not be in
 * memory (entry_is_evicted()). NULL: none, or it is quarantined, after an error reply (*replied_out). */
struct bloom_filter *bf_filter_shape(struct bf_call *call, bool *replied_out);
struct bloom_filter *bf_existing_shape(struct bf_call *call); /* likewise, and an error reply if there is none */

/* For a new KEYED filter when there is no key: one is made in the background, and the handler is called again. */
void bf_wait_for_first_key(struct command_ctx *ctx);

/* Creates the filter of a call with the given parameters and expiry (Unix time; 0: never). True: call->entry is the new
 * filter, or one that another client has just created, with *existed_out set. False after an error reply. */
bool bf_create(struct bf_call *call, const struct bloom_params *params, int64_t expires_ms, bool *existed_out);

/* The same, with a first layer of this shape, which never expires. */
bool bf_create_shaped(struct bf_call *call, const struct bloom_params *params, const struct bloom_shape *shape,
                      bool *existed_out);

/* ---- cuckoo filters ---- */

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

/* CF.EXISTS, CF.ADD, CF.ADDNX and CF.DEL of one item, as bf_query_one() and bf_add_one(). */
void cf_query_one(struct bf_call *call, struct slice item);
void cf_add_one(struct bf_call *call, struct slice item);
void cf_addnx_one(struct bf_call *call, struct slice item);
void cf_delete_one(struct bf_call *call, struct slice item);

/* The journal of the call's operations; NULL: none. */
const struct bloom_journal *cf_journal(const struct bf_call *call, struct bloom_journal *journal);

/* The call has changed its filter, this many times. */
void cf_changed(struct bf_call *call, uint64_t changes);
