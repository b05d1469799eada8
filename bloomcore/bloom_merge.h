/* bloom_merge: one filter out of several, while others go on adding to them.
 *
 * Bits of filters of equal layout can be OR-ed: the result holds every item of each. What makes this more than a loop
 * is that the result takes the place of one of the filters, to which others are adding: an add that was answered 1
 * before, during or after the exchange must be in the result, and two adders of one item, one on either side of the
 * exchange, must not both be answered 1. Twins are for that (below).
 *
 * Thread: any number of these on distinct destinations; adds and queries may go on everywhere. */
#ifndef BLOOMERY_BLOOM_MERGE_H
#define BLOOMERY_BLOOM_MERGE_H

#include <stdbool.h>

#include "bloom_filter.h"

/* Whether bit i of every layer means the same in both: equal parameters and variant, and equal shapes of the layers
 * that both have. BLOOM_OK, or BLOOM_REFUSED with what differs in `err`. */
int bloom_filter_same_layout(const struct bloom_filter *a, const struct bloom_filter *b, struct errbuf *err);

/* Gives `filter` empty layers until it has `nlayers`, of the shapes that `like` has. If `filter` has a twin it may grow
 * by itself meanwhile: whether the layouts are equal is to be looked at afterwards. 0, BLOOM_REFUSED, BLOOM_LIMIT or
 * -ENOMEM. */
int bloom_filter_append_like(struct bloom_filter *filter, const struct bloom_filter *like, unsigned nlayers,
                             struct errbuf *err);

/* What the sources have counted, layer by layer: with what the union itself has counted, bounds of what it holds.
 * Zero-initialise. */
struct bloom_union {
    uint64_t most[BLOOM_MAX_LAYERS]; /* the largest count of a source */
    uint64_t sum[BLOOM_MAX_LAYERS];
};

/* ORs the bits of the oldest `nlayers` layers of `src` into those of `dst`, which has at least as many, of equal
 * layout. Words without new bits are not written. `counts` may be NULL, for an older twin, whose items `dst` has counted
 * already. About 1 ms per 3 MB: not on a loop for large filters. */
void bloom_filter_or(struct bloom_filter *dst, const struct bloom_filter *src, unsigned nlayers,
                     struct bloom_union *counts);

/* Sets the item counts of a union: in each layer the estimate that the bits suggest, but at least the largest count of
 * a source or its own, at most the sum of all these, and never above the layer's capacity; adds that go on meanwhile are counted
 * besides. BLOOM_REFUSED, with nothing changed, when a layer holds clearly more than its capacity, and than the same
 * layer of `before` (whose place the union is to take; may be NULL) does already, and so the rate, as the bits have it,
 * is above the one that was asked for; `err` has the numbers. Not if `any_rate`. */
int bloom_filter_count_union(struct bloom_filter *dst, const struct bloom_union *counts,
                             const struct bloom_filter *before, bool any_rate, struct errbuf *err);

/* ---- twins ------------------------------------------------------------------------------------------------------- */

/* While two filters are twins, an add to the older one also goes into the younger one, which is to take its place, and
 * an add to the younger one is noted in the older one, so that adders of the same item on both sides meet: exactly one
 * gets BLOOM_ADDED. Adds to all other filters cost one load more.
 *
 * The order of events, where "wait" means that every thread that was inside an add has left it (a grace period):
 *
 *     bloom_filter_append_like() the older one; bloom_twins_begin(); wait; the same again, for it may have grown;
 *     bloom_twins_level(); bloom_filter_or() of the older one and the others into the younger one; publish the younger
 *     one in the place of the older one; wait; bloom_twins_end(); wait; free the older one.
 *
 * The younger one may grow meanwhile. If it cannot take another item by count (its layer is full and it may not or
 * cannot grow), the bits of the few adds of that moment are set all the same: an item that was acknowledged is present.
 *
 * `added` (may be NULL) is called after an add to the older one has changed the younger one, before it can be seen in the
 * older one; any thread, holding the locks of both: it must be quick. bloom_twins_begin() returns false when too many
 * filters have twins at this moment, or one of these has: try later. */
struct bloom_twins {
    struct bloom_filter *older;
    struct bloom_filter *younger;
    void (*added)(void *ctx);
    void *ctx;
    uint64_t younger_id; /* by which journals know the younger one: an add to the older one is noted for both */
};

#define BLOOM_MAX_TWINS 16

bool bloom_twins_begin(struct bloom_pool *pool, const struct bloom_twins *twins);

/* Gives the younger one the counts of the older one, of which it has those from before the first wait. */
void bloom_twins_level(struct bloom_pool *pool, const struct bloom_filter *older);

void bloom_twins_end(struct bloom_pool *pool, struct bloom_filter *older);

#endif
