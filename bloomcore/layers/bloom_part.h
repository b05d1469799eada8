/* bloom_part: the storage of a window (bloom_window.h): each of its layers belongs to a part, and the filter knows its
 * newest one. For code that treats layers of all filters; bloom_window_ring.h is for the windows' own files. */
#pragma once

#include <string.h>

#include "bloom_layer.h"

/* Behind the words, or the pointer to them, of each layer of a window. */
struct bloom_part {
    _Atomic uint64_t turn; /* struct bloom_turn */
    _Atomic uint64_t base;
    _Atomic int64_t started_us;
    _Atomic int state; /* enum part_state */
};

/* FREE: no bits, no part. ALIVE: of a part that takes items, or has. STALE: of an expired part, with bits,
 * which a thread removes while it is EMPTYING. */
enum part_state { PART_FREE, PART_ALIVE, PART_STALE, PART_EMPTYING };

/* Behind the bloom_part of a window's first layer. */
struct bloom_window {
    struct bloom_layer *_Atomic current; /* it takes the adds; NULL: a turn is needed before */
    _Atomic uint64_t turn;               /* of the newest part so far */
    _Atomic int64_t due_us;              /* when the next part expires; INT64_MAX: none will */
    _Atomic int64_t ends_us;             /* when the newest part takes no more items */
    _Atomic uint64_t placed;             /* items that the newest part has taken */
    _Atomic uint64_t forgotten;          /* layers so far */
    _Atomic unsigned nstale;             /* layers */
    atomic_bool clean_wanted;            /* a caller has been told to call bloom_window_clean() */
    uint64_t emptied;                    /* words of the layer that bloom_window_clean_piece() works on */
};

static inline struct bloom_part *bloom_layer_part(const struct bloom_layer *layer)
{
    return (void *)((char *)(layer + 1) + bloom_layer_tail_bytes(layer->geometry));
}

static inline struct bloom_window *bloom_filter_window(const struct bloom_filter *filter)
{
    return (void *)(bloom_layer_part(&filter->first) + 1);
}

static inline bool bloom_part_is_alive(const struct bloom_part *part)
{
    return atomic_load_explicit(&part->state, memory_order_acquire) == PART_ALIVE;
}

/* A new layer is free. */
static inline void bloom_part_init(struct bloom_layer *layer)
{
    memset(bloom_layer_part(layer), 0, sizeof(struct bloom_part)); /* PART_FREE */
}

/* Of a window whose storage is there: its first layer is free. Before other threads use it. */
void bloom_window_init(struct bloom_filter *filter);

/* bloom_filter_query() and, with n = 1 and 2, bloom_filter_add_journaled() and bloom_filter_claim() of a window. */
bool bloom_window_query(const struct bloom_filter *filter, struct bloom_hash hash);
enum bloom_add bloom_window_add(struct bloom_filter *filter, const struct bloom_hash *hash, unsigned n,
                                const struct bloom_journal *journal, struct errbuf *err);

bool bloom_window_is_small(const struct bloom_layer *layer); /* BLOOM_WINDOW_SMALL_BYTES */

/* Of twins: the count of each layer of the younger one is at least that of a layer that it gets from the older one. */
void bloom_window_raise_counts(struct bloom_filter *younger, const struct bloom_filter *older);
