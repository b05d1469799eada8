/* bloom_ahead: an item's words on their way from memory before its filter has been looked up. Where one command on one
 * item follows the other, as in the module's engines, the look-up of the key takes as long as the words: so both happen
 * at a time.
 *
 * It is a guess, by the filter that was used last: a copy of its numbers. That filter may be gone meanwhile. Nothing of
 * it is read: prefetches of memory that is no longer there do nothing.
 *
 * Thread: one for each object. */
#ifndef BLOOMERY_BLOOM_AHEAD_H
#define BLOOMERY_BLOOM_AHEAD_H

#include <stdbool.h>
#include <stddef.h>

#include "bloom_filter.h"
#include "bloom_geometry.h"

/* In the caller's storage; the fields are internal. */
struct bloom_ahead {
    const void *newest; /* the layer that was copied */
    const void *words;
    struct bloom_geometry geometry;
};

/* Copies the numbers of the filter's newest layer. False: the layer is so small that it does not pay. */
bool bloom_ahead_take(struct bloom_ahead *ahead, const struct bloom_filter *filter);

/* Whether the filter, which was taken from, has got no layer since. */
bool bloom_ahead_is_new(const struct bloom_ahead *ahead, const struct bloom_filter *filter);

/* Has the item's words fetched. Returns its hash for that filter. */
struct bloom_hash bloom_ahead_fetch(const struct bloom_ahead *ahead, const void *data, size_t len);

#endif
