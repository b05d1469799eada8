/* bloom_merge: the union of several filters, while other threads continue adding to them.
 *
 * Bits of filters of equal layout can be OR-ed: the result holds every item of each. The difficulty is that the result
 * replaces one of the filters while clients add to it. An add that was answered 1 before, during or after the exchange
 * must be in the result. Of two adds of one item, one on either side of the exchange, at most one may be answered 1.
 * Twins ensure that (below).
 *
 * Thread: any, on distinct destinations; adds and queries may continue in all filters. */
#pragma once

#include <stdbool.h>

#include "bloom_chain.h"

/* Whether bit i of every layer means the same in both: equal parameters and variant, and equal shapes of the layers
 * that both have. Never true for windows: bloom_window.h. BLOOM_OK, or BLOOM_REFUSED with the difference in `err`. */
int bloom_filter_same_layout(const struct bloom_filter *a, const struct bloom_filter *b, struct errbuf *err);

/* Appends empty layers of the shapes of `like` to `filter` until it has `nlayers`. A `filter` with a twin may grow by
 * itself meanwhile: the caller compares the layouts afterwards. 0, BLOOM_REFUSED, BLOOM_LIMIT or -ENOMEM. */
int bloom_filter_append_like(struct bloom_filter *filter, const struct bloom_filter *like, unsigned nlayers,
                             struct errbuf *err);

/* The counts of the sources, layer by layer. They and the union's own counts bound its items. Zero-initialise. */
struct bloom_union {
    uint64_t most[BLOOM_MAX_LAYERS]; /* the largest count of a source */
    uint64_t sum[BLOOM_MAX_LAYERS];
};

/* ORs the bits of the oldest `nlayers` layers of `src` into those of `dst`, which has at least as many, of equal
 * layout. Does not write words without new bits. `counts` may be NULL, for an older twin, whose items `dst` has counted
 * already. About 1 ms per 3 MB: not on a loop for large filters. */
void bloom_filter_or(struct bloom_filter *dst, const struct bloom_filter *src, unsigned nlayers,
                     struct bloom_union *counts);

/* Sets the item counts of a union to the estimates from the bits. A layer's count is at least the largest count of a
 * source or its own, at most the sum of these, and never above the layer's capacity. Concurrent adds are counted in
 * addition. BLOOM_REFUSED, with nothing changed and the numbers in `err`: the rate computed from the bits exceeds the
 * requested one. A layer then holds clearly more than its capacity, and more than the same layer of `before`, the
 * filter that the union replaces (may be NULL). Never refused with `any_rate`. */
int bloom_filter_count_union(struct bloom_filter *dst, const struct bloom_union *counts,
                             const struct bloom_filter *before, bool any_rate, struct errbuf *err);

/* Whether a union equals the filter `before`: equal layers, counts and bits, in a window parts, too. Then it need not
 * replace that filter. With adds under way in both, as in twins, true means that `before` has all bits that the union
 * had when this was called. */
bool bloom_filter_union_is(const struct bloom_filter *made, const struct bloom_filter *before);

/* ---- twins ---- */

/* While two filters are twins, an add to the older one also goes into the younger one, which will replace it. An add to
 * the younger one is noted in the older one. So of two adds of the same item, one on either side, exactly one gets
 * BLOOM_ADDED. Adds to all other filters cost one more load.
 *
 * The order of events follows. "wait" is a grace period: every thread that was inside an add has left it.
 *
 *     bloom_filter_append_like() the older one; bloom_twins_begin(); wait; the same again, for it may have grown;
 *     bloom_twins_level(); bloom_filter_or() of the older one and the others into the younger one; publish the younger
 *     one instead of the older one; wait; bloom_twins_end(); wait; free the older one.
 *
 * The younger one may grow meanwhile. If its layer is full and it may not or cannot grow, the bits of the few adds of
 * that moment are set nevertheless: an acknowledged item is present.
 *
 * `added` (may be NULL) is called after an add to the older one has changed the younger one, and before the add is
 * visible in the older one. Any thread calls it, under the locks of both: it must be quick. bloom_twins_begin() returns
 * false when too many filters have twins at this moment, or one of these two has one: retry later. */
struct bloom_twins {
    struct bloom_filter *older;
    struct bloom_filter *younger;
    void (*added)(void *ctx);
    void *ctx;
    uint64_t younger_id; /* the younger one's id for journals: an add to the older one is recorded for both */
};

bool bloom_twins_begin(struct bloom_pool *pool, const struct bloom_twins *twins);

/* Raises the counts of the younger one to those of the older one; it has those from before the first wait. */
void bloom_twins_level(struct bloom_pool *pool, const struct bloom_filter *older);

void bloom_twins_end(struct bloom_pool *pool, struct bloom_filter *older);

/* ---- internal to bloomcore ---- */

/* ORs words into others, which other threads may write, too. Does not write words without new bits. */
void bloom_or_words(_Atomic uint64_t *dst, const _Atomic uint64_t *src, uint64_t nwords);

/* BLOOM_OK, or BLOOM_REFUSED with the difference in `err`. */
int bloom_params_equal(const struct bloom_params *a, const struct bloom_params *b, struct errbuf *err);
int bloom_shapes_equal(const struct bloom_shape *a, const struct bloom_shape *b, unsigned layer, struct errbuf *err);
