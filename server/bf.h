/* bf: what the BF.* commands have in common, whether they come through the window or one by one.
 *
 * Thread: the worker's, in an RCU read section. */
#ifndef BLOOMERY_BF_H
#define BLOOMERY_BF_H

#include <stdbool.h>

#include "bloom_filter.h"
#include "registry.h"
#include "reply.h"
#include "server.h"

/* One command on one filter. */
struct bf_call {
    struct server *server;
    struct stats *stats;
    struct reply *reply;
    struct slice name;
    uint64_t name_hash;
    struct entry *entry; /* of that name as of some earlier moment of this read section; NULL: there was none */
};

/* Finishes a query or an add that was prepared with bloom_probe_start() if call->entry has a filter: looks at the
 * registry again if there was none, creates the filter of an add that is still missing, replies, counts. The entry of an
 * earlier moment is good enough for an answer: the command then simply came before what happened to the name since. */
void bf_finish_query(struct bf_call *call, struct slice item, const struct bloom_probe *probe);
void bf_finish_add(struct bf_call *call, struct slice item, const struct bloom_probe *probe);

/* Queries or adds n items with one reply each, `item(ctx, i)` giving them; the array is as long as it can be: an add that
 * fails ends it with the error as its last element, as RedisBloom does. */
void bf_query_many(struct bf_call *call, size_t n, struct slice (*item)(const void *ctx, size_t i), const void *ctx);
void bf_add_many(struct bf_call *call, size_t n, struct slice (*item)(const void *ctx, size_t i), const void *ctx);

/* The filter of a call for reading: looks it up anew if needed. NULL if there is none, or when it is quarantined and this
 * has been replied (*replied_out). */
struct bloom_filter *bf_filter(struct bf_call *call, bool *replied_out);

/* Creates the filter of a call with the given parameters. true: call->entry is it (or the one somebody else has just
 * created, with *existed_out set). false: the reason has been replied. */
bool bf_create(struct bf_call *call, const struct bloom_params *params, bool *existed_out);

/* The parameters of a filter that an add creates: the settings bf-initial-size, bf-error-rate, bf-expansion-factor. */
struct bloom_params bf_default_params(const struct server *server);

#endif
