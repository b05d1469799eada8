/* bloom_window: filters that forget. A window filter reports an item as present for at least a time, or a number of
 * later items, and forgets it soon after. Its layers are a ring of parts (bloom_window.c has the design). The functions
 * of bloom_filter.h and bloom_batch.h query it and add to it as to any filter; this file has the functions for windows
 * only.
 *
 * Times are microseconds of the pool's clock, which never goes back; its zero is the host's choice.
 *
 * Thread: any, except the functions marked "loading", which need exclusive access. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bloom_merge.h"
#include "bloom_scaling.h"
#include "bloom_types.h"

#define BLOOM_WINDOW_PARTS 8 /* the usual number */

int64_t bloom_window_now_us(const struct bloom_filter *filter); /* of its pool */

/* A window as a whole. */
struct bloom_window_state {
    uint64_t parts;    /* that are alive */
    uint64_t turn;     /* the number of the newest part so far; 0: none */
    int64_t oldest_us; /* when the oldest living part began; 0: none */
    uint64_t items;    /* places taken in living parts */
    bool stale;        /* dead layers wait for bloom_window_clean() */
};
void bloom_window_state(const struct bloom_filter *filter, struct bloom_window_state *state_out);

/* Forgets the parts whose time is over. Cheap if none is. Returns whether dead layers wait for bloom_window_clean(). */
bool bloom_window_forget(struct bloom_filter *filter);

bool bloom_filter_forgets(const struct bloom_filter *filter); /* whether it is a window */

/* Whether the caller should have bloom_window_clean() called: for large layers, and once until that is done. */
bool bloom_window_wants_clean(struct bloom_filter *filter);
void bloom_window_clean_later(struct bloom_filter *filter); /* not possible now: the next caller tries it */

/* Empties dead layers, so that parts can take them again, and gives their memory back to the system: milliseconds for
 * gigabytes, so not on a loop. Adds continue. */
void bloom_window_clean(struct bloom_filter *filter);

/* Layers up to this many bytes are emptied by the add that needs one. */
#define BLOOM_WINDOW_SMALL_BYTES 65536

/* Loading: states the turn of a layer whose bits and count are those of this turn. */
void bloom_window_set_turn(struct bloom_filter *filter, unsigned index, const struct bloom_turn *turn);

/* Loading: replays a turn of a journal. The layer `index` is appended if it is the next one; if its turn is an older
 * one it is emptied and takes this turn. 0, BLOOM_REFUSED, BLOOM_LIMIT or -ENOMEM. */
int bloom_window_replay(struct bloom_filter *filter, unsigned index, const struct bloom_shape *shape,
                        const struct bloom_turn *turn, struct errbuf *err);

int64_t bloom_window_latest_us(const struct bloom_filter *filter); /* when its newest part began; 0: it has none */

/* ---- windows of a host whose replicas follow a primary ---- */

/* The layers of a replica have the same parts, bits and counts as the primary's, independent of its clock. It follows
 * the primary: turns by bloom_window_replay(), items by bloom_window_place(), dropped parts by bloom_window_drop(). The
 * clock of each decides only which parts a query asks.
 *
 * Neither primary nor replica calls bloom_window_clean(). An expired part keeps its bits until its layer gets a turn,
 * or until the primary drops the part. Thread: one, for each filter. */

/* Places an item in the newest part, without a look at the clock or at the filter. Beyond the capacity of the part its
 * bits are set and it is not counted. False: there is no part yet. */
bool bloom_window_place(struct bloom_filter *filter, struct bloom_hash hash);

/* Forgotten parts with large layers wait to be dropped: those below the returned number. 0: none. */
uint64_t bloom_window_droppable(const struct bloom_filter *filter);

/* Drops the parts below this number: their layers are unused from here on, with turn 0. */
void bloom_window_drop(struct bloom_filter *filter, uint64_t below);

/* Empties at most 2 MB of the layers of dropped parts. Whether more is left. Cheap when there are none. */
bool bloom_window_clean_piece(struct bloom_filter *filter);

/* When the part with this number began; false: no layer has it. */
bool bloom_window_part_started(const struct bloom_filter *filter, uint64_t number, int64_t *started_us_out);

/* ---- unions ---- */

/* The union of windows by time, while other threads continue adding to them.
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
