/* bloom_find: finds those of many filters that may have one item.
 *
 * The item is hashed once for each of the hashes that the layouts have. The words of its first bits are prefetched from
 * all filters before any is tested, so the cache misses overlap. The other words are fetched only from the filters in
 * which these bits are set. The answers are those of bloom_filter_query() for each filter, at some moment of the call.
 *
 * Thread: any; other threads may add to the filters meanwhile. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"

/* Words of `found_out` for n filters. */
#define BLOOM_FIND_WORDS(n) (((n) + 63) / 64)

/* Sets bit i of found_out (bit i % 64 of word i / 64) if filters[i] may have the item, and clears it otherwise. Bits
 * from n on are clear. Returns the number of bits set. */
size_t bloom_find(const struct bloom_item *item, const struct bloom_filter *const *filters, size_t n,
                  uint64_t *found_out);
