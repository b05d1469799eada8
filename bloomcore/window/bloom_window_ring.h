/* bloom_window_ring: the ring of a window's parts, for the files that change it: turns and forgetting (bloom_window.c),
 * adds (bloom_window_add.c), unions (bloom_window_merge.c). Internal to bloomcore. Thread: any; "locked": under the
 * filter's lock. */
#pragma once

#include "bloom_part.h"

/* due_us: the window was loaded or united and needs a look before its next use. */
#define BLOOM_NOT_SETTLED INT64_MIN

static inline uint64_t bloom_part_turn(const struct bloom_part *part)
{
    return atomic_load_explicit(&part->turn, memory_order_relaxed);
}

static inline int64_t bloom_part_started(const struct bloom_part *part)
{
    return atomic_load_explicit(&part->started_us, memory_order_relaxed);
}

/* Places that the layer's part has taken. */
static inline uint64_t bloom_part_items(const struct bloom_layer *layer)
{
    uint64_t items = atomic_load_explicit(&layer->items, memory_order_relaxed);
    uint64_t base = atomic_load_explicit(&bloom_layer_part(layer)->base, memory_order_relaxed);

    return items > base ? items - base : 0;
}

static inline bool bloom_window_is_due(const struct bloom_window *window, int64_t now)
{
    return now >= atomic_load_explicit(&window->due_us, memory_order_relaxed);
}

/* Marks the layers of parts whose time is over, and finds the next time. Locked. */
void bloom_window_forget_locked(struct bloom_filter *filter, int64_t now);

/* The state of the ring that an add saw under the lock when it found no place. */
struct bloom_seen {
    struct bloom_filter *filter;
    struct bloom_layer *current;
    uint64_t turn;
    bool grows; /* the part continues in another layer; otherwise a new part begins */
};

/* Checks the ring as an add of n items does, and marks expired parts. Returns whether a turn comes before. Locked. */
bool bloom_window_look(struct bloom_filter *filter, unsigned n, struct bloom_seen *seen_out);

/* Makes place, unless another thread has. 0; otherwise the reason is in `err`. */
int bloom_window_make_place(const struct bloom_seen *seen, const struct bloom_journal *journal, struct errbuf *err);

/* Appends a layer, whose first turn this is; the caller then states it by bloom_part_set(). Under pool->growth.
 * BLOOM_OK, BLOOM_REFUSED, BLOOM_LIMIT or -errno. */
int bloom_window_append(struct bloom_filter *filter, unsigned level, const struct bloom_turn *turn,
                        const struct bloom_journal *journal, struct errbuf *err);
void bloom_part_set(struct bloom_part *part, const struct bloom_turn *turn);
