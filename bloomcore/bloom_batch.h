/* bloom_batch: queries and adds of many items of one filter, hashed together and on their way to memory together.
 *
 * The answers equal those of bloom_filter_query() and bloom_filter_add_journaled(), one item after the other, at the time
 * of the second call. What the batch is for: hashes, bits and tests of eight items are computed at once where the processor
 * can; and for a filter beyond the cache the first call starts the cache misses, which the second one finds done.
 *
 * Lifetime: in the caller's storage; what bloom_batch_start() leaves there is valid as long as the filter, however often it
 * is used. The items' bytes are borrowed for that call only.
 * Thread: any, on distinct batches; the filter may be used by others meanwhile. */
#ifndef BLOOMERY_BLOOM_BATCH_H
#define BLOOMERY_BLOOM_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"

/* As many as have their cache misses overlapped; with more the lines that come first are gone when they are needed. */
#define BLOOM_BATCH 32

struct bloom_item {
    const char *ptr; /* may be NULL when len is 0 */
    size_t len;
};

/* Fields are internal. */
struct bloom_batch {
    uint32_t n;
    uint32_t present; /* items that a test has found */
    const struct bloom_layer *tested; /* the newest layer when they were tested for adds; NULL: they have not been */
    uint64_t h1[BLOOM_BATCH], h2[BLOOM_BATCH];
};

/* Hashes n items (0..BLOOM_BATCH) for this filter. If it is beyond the cache, their bits' lines are fetched as well. */
void bloom_batch_start(struct bloom_batch *batch, const struct bloom_filter *filter, const struct bloom_item *items,
                       size_t n);

/* The same, for queries of items most of which are expected to be absent. Of a filter that is beyond the last cache, too, it
 * fetches only the words of the items' first bits, which most absent items do not get past, and returns true: when these
 * have arrived bloom_batch_narrow() fetches the others of the items that do. The answers are the same as without, also when
 * the filter is added to or grows meanwhile, or if the narrowing is left out. False: everything is on its way. */
bool bloom_batch_start_staged(struct bloom_batch *batch, const struct bloom_filter *filter, const struct bloom_item *items,
                              size_t n);
void bloom_batch_narrow(const struct bloom_batch *batch, const struct bloom_filter *filter);

/* After the start, for a filter that is small but has not been used for a while, one of very many: fetches its items' lines
 * all the same. */
void bloom_batch_fetch(const struct bloom_batch *batch, const struct bloom_filter *filter);

/* Bit i is set if item i may have been added, clear if it certainly was not: as of now, also when the filter has been added
 * to or has grown since. Bits from n on are clear. */
uint32_t bloom_batch_query(const struct bloom_batch *batch, const struct bloom_filter *filter);

/* Adds item i (below n): the answer of bloom_filter_add_journaled() as of now. `journal` and `err` may be NULL. The first
 * add of a batch tests all of its items. */
enum bloom_add bloom_batch_add(struct bloom_batch *batch, size_t i, struct bloom_filter *filter,
                               const struct bloom_journal *journal, struct errbuf *err);

/* Adds the items `from` to n - 1, in this order, until one is refused. Returns that one's index, with BLOOM_FULL or
 * BLOOM_NO_ROOM in *refused_out; n if there is none. Bit i of *added_out is set if item i was BLOOM_ADDED, clear otherwise. */
size_t bloom_batch_add_all(const struct bloom_batch *batch, size_t from, struct bloom_filter *filter,
                           const struct bloom_journal *journal, struct errbuf *err, uint32_t *added_out,
                           enum bloom_add *refused_out);

/* Whether the filter's words are more than stay in a cache, so that it pays to have time between start and query. */
bool bloom_filter_beyond_cache(const struct bloom_filter *filter);

#endif
