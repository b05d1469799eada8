/* bloom_batch: queries and adds of many items of one filter. The items are hashed together, and their cache misses
 * overlap.
 *
 * The answers equal those of bloom_filter_query() and bloom_filter_add_journaled(), one item after the other, at the
 * time of the second call. A batch is faster for two reasons. A processor with AVX-512 computes hashes, bits and tests
 * of eight items at once. And for a filter larger than the cache the first call starts the cache misses, which end
 * before the second.
 *
 * Lifetime: the caller's storage. After bloom_batch_start() a batch is valid as long as the filter, for any number of
 * calls. The items' bytes are borrowed for that call only. Thread: any, on distinct batches; other threads may use the
 * filter meanwhile. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"

/* Fields are internal. */
struct bloom_batch {
    uint32_t n;
    uint32_t present;                 /* items that a test has found */
    const struct bloom_layer *tested; /* the newest layer at the items' test for adds; NULL: not tested yet */
    uint64_t h1[BLOOM_BATCH], h2[BLOOM_BATCH];
};

/* Hashes n items (0..BLOOM_BATCH) for this filter. Beyond the cache it also prefetches the lines of their bits. */
void bloom_batch_start(struct bloom_batch *batch, const struct bloom_filter *filter, const struct bloom_item *items,
                       size_t n);

/* Takes hashes of n items (0..BLOOM_BATCH), computed before, for queries of any filter with the same hash. */
void bloom_batch_start_hashed(struct bloom_batch *batch, const uint64_t *h1, const uint64_t *h2, size_t n);
bool bloom_same_hash(const struct bloom_filter *a, const struct bloom_filter *b);

/* bloom_batch_start(), for queries whose items are probably absent. For a filter larger than the last cache it returns
 * true and prefetches only the words of the items' first bits: most absent items fail there. When these words have
 * arrived, bloom_batch_narrow() prefetches the other words of the remaining items. The answers are those of
 * bloom_batch_start(), even if adds or growth happen meanwhile, or if the narrowing is left out. False: all words are
 * on their way. */
bool bloom_batch_start_staged(struct bloom_batch *batch, const struct bloom_filter *filter,
                              const struct bloom_item *items, size_t n);
void bloom_batch_narrow(const struct bloom_batch *batch, const struct bloom_filter *filter);

/* After the start, for a small filter, one of many, that was not used for a while: prefetches its items' lines, too. */
void bloom_batch_fetch(const struct bloom_batch *batch, const struct bloom_filter *filter);

/* The most items of a batch of adds that takes less than a millisecond: BLOOM_BATCH. At the beginning of a large layer
 * it is less, because the kernel allocates a page for each bit. */
size_t bloom_batch_adds(const struct bloom_filter *filter);

/* The bits of an item of which each may be the first in its page: k at the beginning of a large layer, otherwise 0. */
unsigned bloom_filter_young_bits(const struct bloom_filter *filter);

/* Bit i is set if item i may have been added, clear if it certainly was not. The answer is that of this call, even if
 * the filter was added to or grew since the start. Bits from n on are clear. */
uint32_t bloom_batch_query(const struct bloom_batch *batch, const struct bloom_filter *filter);

/* The items `first` to `end` - 1, to be asked for in batches: item() gives item i, whose bytes stay until its answer.
 * answer() gets the answers of the n items before `next` as bits, in order, and returns whether to go on. */
struct bloom_questions {
    size_t first, end;
    struct bloom_item (*item)(const void *items, size_t i);
    const void *items;
    bool (*answer)(void *ctx, size_t next, uint32_t present, size_t n);
    void *ctx;
    bool cold; /* even a small filter's words may have left the second-level cache */
};

/* Asks the filter. While a batch is answered, the words of the next ones are on their way. */
void bloom_query_all(const struct bloom_filter *filter, const struct bloom_questions *questions);

/* Adds item i (below n), with the answer of bloom_filter_add_journaled(). `journal` and `err` may be NULL. The first
 * add of a batch tests all of its items. */
enum bloom_add bloom_batch_add(struct bloom_batch *batch, size_t i, struct bloom_filter *filter,
                               const struct bloom_journal *journal, struct errbuf *err);

/* Adds the items `from` to n - 1, in this order, until one is refused. Returns its index, with BLOOM_FULL or
 * BLOOM_NO_ROOM in *refused_out, or n. Bit i of *added_out is set if item i was BLOOM_ADDED, clear otherwise. */
size_t bloom_batch_add_all(const struct bloom_batch *batch, size_t from, struct bloom_filter *filter,
                           const struct bloom_journal *journal, struct errbuf *err, uint32_t *added_out,
                           enum bloom_add *refused_out);

/* Whether the filter's words exceed the cache, so that time between start and query pays. */
bool bloom_filter_beyond_cache(const struct bloom_filter *filter);
