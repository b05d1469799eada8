/* bloom_run: 16 layers of a deep chain side by side. A walk from layer to layer waits for one cache miss after the
 * other: the next layer's header, then a word. The arithmetic of 16 layers and the places of their words lie here one
 * after the other, so the misses of their words overlap.
 *
 * A run belongs to the layer above it, whose index is a multiple of 16, and lies in front of it in the same allocation.
 * It has the constant numbers of its layers, and pointers to their words. It has none of their bits, so code that sets
 * bits need not know of it. Only Cassandra's walk and blocks have runs, and no windows: in others layers are tested
 * otherwise.
 *
 * Internal to bloomcore. Thread: a run is complete when its layer is published; then any. */
#pragma once

#include "bloom_layer.h"

#define BLOOM_RUN 16u

struct bloom_run {
    const struct bloom_layer *oldest; /* of the run */
    struct bloom_run_lane {
        const _Atomic uint64_t *words; /* as bloom_layer_words_or_null() */
        uint64_t bits, magic;          /* as in the geometry, and these */
        uint8_t shift, k;
    } lanes[BLOOM_RUN]; /* the newest layer first */
};

/* Whether the layer has a run below it: of a layer that is its filter's newest, or was. */
static inline bool bloom_layer_has_run(const struct bloom_geometry *geometry)
{
    return geometry->index % BLOOM_RUN == 0 && geometry->index != 0 && !geometry->window &&
           (geometry->walk == BLOOM_WALK_SIGNED || geometry->walk == BLOOM_WALK_BLOCK);
}

static inline size_t bloom_run_bytes(const struct bloom_geometry *geometry)
{
    return bloom_layer_has_run(geometry) ? sizeof(struct bloom_run) : 0;
}

/* The header of a layer made by growth, with its run. */
static inline size_t bloom_chained_bytes(const struct bloom_geometry *geometry)
{
    return bloom_run_bytes(geometry) + sizeof(struct bloom_chained_layer);
}

/* Needs bloom_layer_has_run(). */
static inline struct bloom_run *bloom_layer_run(const struct bloom_layer *layer)
{
    return (struct bloom_run *)(void *)bloom_layer_chained(layer) - 1;
}

/* Writes the run of a layer that is not published yet. */
void bloom_run_init(const struct bloom_layer *layer);

/* Called after the words of layers have moved, gone or come back, while no other thread uses the filter's words. */
void bloom_filter_follow_words(const struct bloom_filter *filter);

/* Whether the item is in one of the layers of the layer's run. */
bool bloom_run_test(const struct bloom_layer *layer, struct bloom_hash hash);

/* Whether the item is in one of the layers below, of which there is one. Not inlined: a filter of one layer would save
 * registers for it in each query. */
bool bloom_layer_test_older(const struct bloom_layer *layer, struct bloom_hash hash);
