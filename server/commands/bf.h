/* bf: what the BF.* commands have in common, whether they come through the window or one by one.
 *
 * Thread: the worker's, in an RCU read section. */
#ifndef BLOOMERY_BF_H
#define BLOOMERY_BF_H

#include <stdbool.h>

#include "bloom_batch.h"
#include "command.h"
#include "registry.h"
#include "reply.h"
#include "server.h"

/* What queries of a filter that does not exist answer: that no item is in it, as RedisBloom does, or something that can be
 * told from that. */
enum bf_missing {
    MISSING_BY_SETTING = 0, /* bf-missing-filter-reply */
    MISSING_ABSENT,         /* 0 for each item */
    MISSING_NULL,           /* a null for each item */
    MISSING_ERROR,          /* -ERR not found, once */
};

/* One command on one filter. */
struct bf_call {
    struct server *server;
    struct stats *stats;
    struct reply *reply;
    struct journal_ring *ring; /* of the worker: where adds are noted; NULL: nowhere (journal.h) */
    struct slice name;
    uint64_t name_hash;
    struct command_ctx *ctx; /* for many items: the command's, which may do them in slices (command_slice()) */
    struct entry *entry; /* of that name as of some earlier moment of this read section; NULL: there was none */
    enum bf_missing missing;
    bool no_touch; /* CLIENT NO-TOUCH: the use is not noted */
};

/* The call of a command whose argument 1 is the filter's name. */
struct bf_call bf_call_of(struct command_ctx *ctx);

/* Queries or adds one item: looks the filter up if call->entry is NULL, creates the filter of an add that is missing,
 * replies, counts. The entry of an earlier moment is good enough for an answer: the command then simply came before what
 * happened to the name since. */
void bf_query_one(struct bf_call *call, struct slice item);
void bf_add_one(struct bf_call *call, struct slice item);

/* The same for the n items, or items `from` to n - 1, of a batch that was started on the filter of call->entry, each with a
 * reply of its own. Of queries, returns how many items were found. An add that is refused is the last: returns the index
 * behind the last item that was replied to, and *error_at_out is what buf_len() was before the error; SIZE_MAX: there was
 * none. */
unsigned bf_query_batch(struct bf_call *call, struct bloom_filter *filter, const struct bloom_batch *batch, size_t n);
size_t bf_add_batch(struct bf_call *call, struct bloom_filter *filter, struct bloom_batch *batch, size_t from, size_t n,
                    size_t *error_at_out);

/* Queries or adds n items, or the next slice of them, with one reply each, `item(ctx, i)` giving them; the array is as long
 * as it can be: an add that fails ends it with the error as its last element, as RedisBloom does. So does the end of the
 * filter between two slices of adds; a query's remaining items are then answered as `missing` says, each. */
void bf_query_many(struct bf_call *call, size_t n, struct slice (*item)(const void *ctx, size_t i), const void *ctx);
void bf_add_many(struct bf_call *call, size_t n, struct slice (*item)(const void *ctx, size_t i), const void *ctx);

/* The filter of a call for reading: looks it up anew if needed. NULL if there is none, or when it is quarantined and this
 * has been replied (*replied_out). */
struct bloom_filter *bf_filter(struct bf_call *call, bool *replied_out);

/* Creates the filter of a call with the given parameters, to expire at `expires_ms` (Unix time; 0: never). true: call->entry
 * is it (or the one somebody else has just created, with *existed_out set). false: the reason has been replied. */
bool bf_create(struct bf_call *call, const struct bloom_params *params, int64_t expires_ms, bool *existed_out);

/* The parameters of a filter that an add creates: the settings bf-initial-size, bf-error-rate, bf-expansion-factor. */
struct bloom_params bf_default_params(const struct server *server);

/* ---- options (bf_options.c): false means that the reason has been replied -------------------------------------------- */

/* A floating-point number that is the whole argument; hexadecimal, infinite and denormal ones too, but no NaN, and none
 * that is too small or too large to be told from 0 or infinity. */
bool slice_to_double(struct slice arg, double *value_out);

/* The largest capacity that a first layer with this rate can have; 0 if the rate cannot be had. */
uint64_t bf_max_capacity(const struct bloom_params *params);

bool bf_read_rate(struct command_ctx *ctx, size_t i, double *rate_out);             /* argument i, 0 < rate < 1 */
bool bf_read_capacity(struct command_ctx *ctx, size_t i, int64_t *capacity_out);   /* argument i, any number */
bool bf_read_expansion(struct command_ctx *ctx, size_t i, uint32_t *expansion_out); /* argument i, if there is one */
bool bf_read_ttl(struct command_ctx *ctx, struct slice value, int64_t *expires_ms_out); /* seconds; Unix time in ms */

/* Puts a capacity into `params`, or replies the range for their rate and expansion, which must be there already. */
bool bf_take_capacity(struct command_ctx *ctx, int64_t capacity, struct bloom_params *params);

/* Reads EXPANSION n and NONSCALING from argument `first` on into params->expansion. Other words are offered to `other`,
 * which returns true and moves *i to the last argument it has used; or false, having replied an error or not (the word is
 * unknown then, and `takes` says what would be right). */
bool bf_read_scaling(struct command_ctx *ctx, size_t first, const char *takes, struct bloom_params *params,
                     bool (*other)(struct command_ctx *ctx, size_t *i, void *more), void *more);

#endif
