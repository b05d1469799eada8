/* bloom_window: filters that forget. A window filter reports an item as present for at least a time, or a number of
 * later items, and forgets it soon after. Its layers are a ring of parts (bloom_window.c has the design). The functions
 * of bloom_filter.h and bloom_batch.h query it and add to it as to any filter; this file has the functions for windows
 * only.
 *
 * Times are microseconds of the pool's clock, which never goes back; its zero is the host's choice.
 *
 * Thread: any, except the functions marked "loading", which need exclusive access. */
#ifndef BLOOMERY_BLOOM_WINDOW_H
#define BLOOMERY_BLOOM_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "bloom_types.h"
#include "bloom_window_times.h"

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

/* Forgets the parts whose time is over. Cheap when none is. Returns whether dead layers wait for
 * bloom_window_clean(). */
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

#endif
