/* bloom_many: very many hashed items, one filter: which of them may it have? The opposite of bloom_find.h.
 *
 * Items are tested bit by bit: the first bit of all, the second one of those that remain, and so on. An absent item of
 * a half full filter takes two reads, none of which waits for a decision. So what it costs is reading words at random,
 * from the second-level cache where the filter fits there. The answers are those of bloom_filter_query() for each item.
 *
 * Thread: any; other threads may add to the filter meanwhile. */
#ifndef BLOOMERY_BLOOM_MANY_H
#define BLOOMERY_BLOOM_MANY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "bloom_vector.h"

/* Items of a call, at most: what is known of them stays in the first-level cache. */
#define BLOOM_MANY BLOOM_VECTOR_MANY

/* Whether both filters have the same hashes of items: a loop over filters hashes once for all such. */
bool bloom_many_same_hash(const struct bloom_filter *a, const struct bloom_filter *b);

/* Prefetches the words of the items' first bits for a later query of these items, if the filter is not in the cache and
 * the items read only a small part of it. */
void bloom_many_fetch(const struct bloom_filter *filter, const uint64_t *h1, const uint64_t *h2, size_t n);

/* h1[i] and h2[i] are the halves of item i's hash (bloom_filter_hash()), for n items, at most BLOOM_MANY. The numbers
 * of those that the filter may have go to found_out, in rising order. Returns how many they are. */
size_t bloom_many_query(const struct bloom_filter *filter, const uint64_t *h1, const uint64_t *h2, size_t n,
                        uint16_t found_out[BLOOM_MANY]);

#endif
