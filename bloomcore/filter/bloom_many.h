/* bloom_many: finds those of very many hashed items that one filter may have. The opposite of bloom_find.h.
 *
 * Items are tested bit by bit: the first bit of all, the second one of those that remain, and so on. An absent item of
 * a half full filter takes two reads, none of which waits for a decision. So the cost is that of random reads of words,
 * from the second-level cache if the filter fits there. The answers are those of bloom_filter_query() for each item.
 *
 * Thread: any; other threads may add to the filter meanwhile. */
#ifndef BLOOMERY_BLOOM_MANY_H
#define BLOOMERY_BLOOM_MANY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "bloom_vector.h"

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

#endif
