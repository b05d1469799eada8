/* bloom_window_merge: the union of windows by time, while other threads continue adding to them.
 *
 * An item must stay as long as its own window has promised, so its bits go into a part of the union that expires no
 * earlier. Time is divided into spans as long as a part takes items. The parts of all windows that began in one span
 * become one, as old as the youngest of them. So an item stays for up to a part longer than in its own window, after
 * any number of merges: the spans do not move. Two parts of one window never begin in one span. So a part of the union
 * has at most the items that each window may hold in the time of a part. The union has at most one part more than the
 * largest of the windows may have.
 *
 * Windows by items have no union: the adds of two filters have no common order.
 *
 * The union is made as that of other filters (bloom_merge.h has counts and twins). The order of calls is
 *
 *     bloom_ring_take() of each window; bloom_ring_make(); with a window that is to be replaced: bloom_twins_begin();
 *     wait; bloom_window_or() of that one with `counts` NULL; bloom_twins_level(); in either case bloom_window_or() of
 *     the others; bloom_filter_count_union().
 *
 * Thread: any, on distinct unions; adds and queries may continue in all windows. */
#ifndef BLOOMERY_BLOOM_WINDOW_MERGE_H
#define BLOOMERY_BLOOM_WINDOW_MERGE_H

#include "bloom_merge.h"
#include "bloom_window.h"

/* Whether two windows can have a union: equal parameters and shapes. BLOOM_OK, or BLOOM_REFUSED with the difference. */
int bloom_window_same(const struct bloom_filter *a, const struct bloom_filter *b, struct errbuf *err);

/* Parts within their window begin in at most PARTS + 3 spans. */
#define BLOOM_RING_PARTS (BLOOM_WINDOW_MAX_PARTS + 3)

/* The parts of a union. Zero-initialise. */
struct bloom_ring {
    unsigned nparts;
    int64_t started_us[BLOOM_RING_PARTS]; /* ascending */
    uint64_t turn;                        /* the highest one of the windows */
};

/* Takes the living parts of a window. Returns the number of its newest turn: later parts have later adds only. */
uint64_t bloom_ring_take(struct bloom_ring *ring, struct bloom_filter *filter);

/* Makes the parts in a filter that is empty and that no other thread uses. 0, BLOOM_REFUSED, BLOOM_LIMIT or -ENOMEM. */
int bloom_ring_make(const struct bloom_ring *ring, struct bloom_filter *filter, struct errbuf *err);

/* The targets of the bits of a window: its layer i went into layer to[i] - 1 of the union; 0: nowhere. */
struct bloom_layer_map {
    uint16_t to[BLOOM_MAX_LAYERS];
};

/* ORs the parts of `src` up to that turn into those of `dst`. Takes time as bloom_filter_or() does, with `counts` as
 * there; `places_out` may be NULL. 0, BLOOM_REFUSED, BLOOM_LIMIT or -ENOMEM. */
int bloom_window_or(struct bloom_filter *dst, struct bloom_filter *src, uint64_t turn, struct bloom_union *counts,
                    struct bloom_layer_map *places_out, struct errbuf *err);

/* ORs layer `from` of `src` into layer `to` of `dst`, as bloom_window_or() did on the primary. BLOOM_OK, or
 * BLOOM_REFUSED: there are no such layers of equal shape. */
int bloom_window_or_layer(struct bloom_filter *dst, unsigned to, const struct bloom_filter *src, unsigned from,
                          struct errbuf *err);

#endif
