/* bloom_ahead: an item's bits before its filter has been looked up, and their words on their way from memory. In the
 * module's engines one command on one item follows another, and the look-up of the key takes as long as the words. So
 * both run at the same time.
 *
 * It is a guess, by the filter that was used last: a copy of its numbers. That filter may be gone meanwhile. Nothing of
 * it is read: prefetches of memory that is no longer there do nothing. When the filter is known, the guess is compared
 * with it, and made again if it was wrong.
 *
 * Thread: one for each object, and for its filters: no other thread may query them or add to them meanwhile. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "bloom_filter.h"
#include "bloom_geometry.h"

/* In the caller's storage; the fields are internal. */
struct bloom_ahead {
    const void *newest; /* the layer that was copied */
    const void *words;
    bool first_words; /* of a far layer; set by the caller, when most queries find nothing */
    struct bloom_geometry geometry;
};

/* An item and its k bits in that layer. */
struct bloom_aim {
    struct bloom_hash hash;
    uint64_t bit[BLOOM_PROBE_BITS];
};

/* Copies the numbers of the filter's newest layer. */
void bloom_ahead_take(struct bloom_ahead *ahead, const struct bloom_filter *filter);

/* Whether the filter, which was taken from, has got no layer since. */
bool bloom_ahead_is_new(const struct bloom_ahead *ahead, const struct bloom_filter *filter);

/* Derives the item's bits, and has their words fetched, or only the first ones (first_words). */
void bloom_ahead_aim(const struct bloom_ahead *ahead, const void *data, size_t len, struct bloom_aim *aim_out);

/* bloom_filter_query() and bloom_filter_add_journaled() of the item, with bits of the filter's newest layer. */
bool bloom_ahead_query(const struct bloom_filter *filter, const struct bloom_aim *aim);
enum bloom_add bloom_ahead_add(struct bloom_filter *filter, const struct bloom_aim *aim,
                               const struct bloom_journal *journal, struct errbuf *err);
