#include "bloom_window_follow.h"

#include "bloom_part.h"
#include "bloom_layer_add.h"

#define PIECE_WORDS ((uint64_t)(2 << 20) / 8)

static uint64_t turn_of(const struct bloom_layer *layer)
{
    return atomic_load_explicit(&bloom_layer_part(layer)->turn, memory_order_relaxed);
}

static int state_of(const struct bloom_layer *layer)
{
    return atomic_load_explicit(&bloom_layer_part(layer)->state, memory_order_relaxed);
}

static struct bloom_layer *older(const struct bloom_layer *layer)
{
    return (struct bloom_layer *)bloom_layer_older(layer);
}

/* ---- items ---- */

/* The layer that takes the newest part's items, forgotten or not; NULL: there is no part. */
static struct bloom_layer *newest_part(struct bloom_filter *filter)
{
    struct bloom_window *window = bloom_filter_window(filter);
    struct bloom_layer *found;
    uint64_t turn;

    bloom_window_forget(filter); /* after loading it finds the layer that takes the adds */
    found = atomic_load_explicit(&window->current, memory_order_relaxed);
    turn = atomic_load_explicit(&window->turn, memory_order_relaxed);
    if (found || turn == 0)
        return found;
    for (struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = older(layer)) {
        if (turn_of(layer) == turn && (!found || layer->geometry->level > found->geometry->level))
            found = layer;
    }
    return found;
}

bool bloom_window_place(struct bloom_filter *filter, struct bloom_hash hash)
{
    struct bloom_window *window = bloom_filter_window(filter);
    struct bloom_layer *layer = newest_part(filter);
    uint64_t bit[BLOOM_PROBE_BITS], items, base;

    if (!layer)
        return false;
    bloom_layer_bits(layer, hash, bit);
    items = atomic_load_explicit(&layer->items, memory_order_relaxed);
    base = atomic_load_explicit(&bloom_layer_part(layer)->base, memory_order_relaxed);
    if (items - base < layer->geometry->capacity) {
        atomic_store_explicit(&layer->items, items + 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&window->placed, 1, memory_order_relaxed);
    }
    bloom_set_bits(bloom_layer_words(layer), bit, layer->geometry->k);
    return true;
}

bool bloom_window_part_started(const struct bloom_filter *filter, uint64_t number, int64_t *started_us_out)
{
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        if (turn_of(layer) != number)
            continue;
        *started_us_out = atomic_load_explicit(&bloom_layer_part(layer)->started_us, memory_order_relaxed);
        return true;
    }
    return false;
}

/* ---- dropped parts ---- */

uint64_t bloom_window_droppable(const struct bloom_filter *filter)
{
    const struct bloom_window *window = bloom_filter_window(filter);
    uint64_t oldest = atomic_load_explicit(&window->turn, memory_order_relaxed) + 1;
    bool any = false;

    if (!bloom_window_forget((struct bloom_filter *)filter))
        return 0;
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = older(layer)) {
        if (bloom_part_is_alive(bloom_layer_part(layer)) && turn_of(layer) < oldest)
            oldest = turn_of(layer);
    }
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer && !any; layer = older(layer))
        any = turn_of(layer) != 0 && turn_of(layer) < oldest && !bloom_window_is_small(layer);
    return any ? oldest : 0;
}

void bloom_window_drop(struct bloom_filter *filter, uint64_t below)
{
    struct bloom_window *window = bloom_filter_window(filter);

    for (struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = older(layer)) {
        struct bloom_part *part = bloom_layer_part(layer);

        if (turn_of(layer) == 0 || turn_of(layer) >= below)
            continue;
        atomic_store_explicit(&part->turn, 0, memory_order_relaxed);
        if (state_of(layer) != PART_ALIVE)
            continue;
        atomic_store_explicit(&part->state, PART_STALE, memory_order_relaxed);
        atomic_fetch_add_explicit(&window->forgotten, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&window->nstale, 1, memory_order_relaxed);
        if (layer == atomic_load_explicit(&window->current, memory_order_relaxed))
            atomic_store_explicit(&window->current, NULL, memory_order_relaxed);
    }
}

/* The layer that is being emptied, or the next one to be. */
static struct bloom_layer *dropped_layer(struct bloom_filter *filter)
{
    struct bloom_layer *next = NULL;

    for (struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = older(layer)) {
        if (state_of(layer) == PART_EMPTYING)
            return layer;
        if (state_of(layer) == PART_STALE && turn_of(layer) == 0)
            next = layer;
    }
    if (next) {
        atomic_store_explicit(&bloom_layer_part(next)->state, PART_EMPTYING, memory_order_relaxed);
        bloom_filter_window(filter)->emptied = 0;
    }
    return next;
}

bool bloom_window_clean_piece(struct bloom_filter *filter)
{
    struct bloom_window *window = bloom_filter_window(filter);
    struct bloom_layer *layer;

    if (atomic_load_explicit(&window->nstale, memory_order_relaxed) == 0 || !(layer = dropped_layer(filter)))
        return false;
    uint64_t nwords = bloom_geometry_nwords(layer->geometry), from = window->emptied;
    uint64_t to = nwords - from > PIECE_WORDS ? from + PIECE_WORDS : nwords;

    bloom_empty_words(bloom_layer_words(layer) + from, to - from);
    window->emptied = to;
    if (to == nwords) {
        atomic_store_explicit(&bloom_layer_part(layer)->state, PART_FREE, memory_order_relaxed);
        atomic_fetch_sub_explicit(&window->nstale, 1, memory_order_relaxed);
    }
    return atomic_load_explicit(&window->nstale, memory_order_relaxed) != 0;
}
