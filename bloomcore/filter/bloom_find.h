/* bloom_find: finds those of many filters that may have one item; and those of many items that one filter may have.
 *
 * The item is hashed once for each of the hashes that the layouts have. The words of its first bits are prefetched from
 * all filters before any is tested, so the cache misses overlap. The other words are fetched only from the filters in
 * which these bits are set. The answers are those of bloom_filter_query() for each filter, at some moment of the call.
 *
 * Thread: any; other threads may add to the filters meanwhile. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_batch.h"
#include "bloom_filter.h"
#include "bloom_vector.h"

/* Words of `found_out` for n filters. */
#define BLOOM_FIND_WORDS(n) (((n) + 63) / 64)

/* Sets bit i of found_out (bit i % 64 of word i / 64) if filters[i] may have the item, and clears it otherwise. Bits
 * from n on are clear. Returns the number of bits set. */
size_t bloom_find(const struct bloom_item *item, const struct bloom_filter *const *filters, size_t n,
                  uint64_t *found_out);

/* ---- many items in one filter ---- */

/* Finds those of very many hashed items that one filter may have.
 *
 * Items are tested bit by bit: the first bit of all, the second one of those that remain, and so on. An absent item of
 * a half full filter takes two reads, none of which waits for a decision. So the cost is that of random reads of words,
 * from the second-level cache if the filter fits there. The answers are those of bloom_filter_query() for each item.
 *
 * Thread: any; other threads may add to the filter meanwhile. */

/* The most items of a call: their state stays in the first-level cache. */
#define BLOOM_MANY BLOOM_VECTOR_MANY

/* Whether both filters have the same hashes of items: a loop over filters hashes once for all of these. */
bool bloom_many_same_hash(const struct bloom_filter *a, const struct bloom_filter *b);

/* Prefetches the words of the items' first bits for a later query of these items, if the filter is not in the cache and
 * the items read only a small part of it. */
void bloom_many_fetch(const struct bloom_filter *filter, const uint64_t *h1, const uint64_t *h2, size_t n);

/* h1[i] and h2[i] are the halves of item i's hash (bloom_filter_hash()), for n items, at most BLOOM_MANY. The numbers
 * of the items that the filter may have go to found_out, in rising order. Returns their count. */
size_t bloom_many_query(const struct bloom_filter *filter, const uint64_t *h1, const uint64_t *h2, size_t n,
                        uint16_t found_out[BLOOM_MANY]);
