/* bloom_layer: one layer of a filter in memory, and the operations on an item's bits there: derive, test, set. Internal
 * to bloomcore.
 *
 * The layout is made for millions of small filters. A filter is one pointer and its first layer; a layer is 16 bytes
 * and its words. The class has all that depends on parameters only. So a filter costs 24 bytes in addition to its bits:
 *
 *     filter:  newest | first: geometry items | words ...             (words_inline)
 *     filter:  newest | first: geometry items | pointer to words      (larger layers)
 *
 * `newest` points to `first` until the filter grows. The layers after the first are allocations of their own, each with
 * its own geometry and a pointer to the layer below. The first layer's geometry is in the class, which leads from a
 * filter to its class and its pool. Layers are never moved or freed before the filter is.
 *
 * Bits of words are only ever set, so relaxed loads are enough: a reader that has learnt of an add, by any means,
 * happens after it and sees its bits. A reader that has found the item's bits also sees the add's other writes: an add
 * makes these before it sets the bits (bloom_set_bits()), and a query ends with bloom_found(). */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include "bloom_geometry.h"
#include "bloom_shared.h"
#include "bloom_types.h"
#include "bloom_vector.h"
#include "check.h"

struct bloom_layer {
    const struct bloom_geometry *geometry;
    _Atomic uint64_t items; /* places taken; never above geometry->capacity by adds */
};

struct bloom_filter {
    struct bloom_layer *_Atomic newest;
    struct bloom_layer first;
};

/* A layer made by growth. */
struct bloom_chained_layer {
    struct bloom_layer *older;
    struct bloom_layer *jump; /* further down: bloom_layer_jump() */
    struct bloom_geometry geometry;
    struct bloom_layer layer;
};

_Static_assert(sizeof(struct bloom_filter) == 24, "a million small filters pay for every byte");
_Static_assert(offsetof(struct bloom_chained_layer, layer) + sizeof(struct bloom_layer) ==
                   sizeof(struct bloom_chained_layer),
               "the words follow the layer at once");

/* Bytes that follow a layer's header. */
static inline size_t bloom_layer_tail_bytes(const struct bloom_geometry *geometry)
{
    return geometry->words_inline ? (size_t)bloom_geometry_nwords(geometry) * 8 : sizeof(void *);
}

static inline _Atomic uint64_t *bloom_layer_words(const struct bloom_layer *layer)
{
    void *tail = (void *)(layer + 1);

    return layer->geometry->words_inline ? (_Atomic uint64_t *)tail : *(_Atomic uint64_t **)tail;
}

/* The words for a caller that can do without the bits: NULL when the words are dropped (bloom_resident.h). Another
 * thread may drop them, or bring them back, at the same time. */
static inline _Atomic uint64_t *bloom_layer_words_or_null(const struct bloom_layer *layer)
{
    const void *tail = layer + 1;

    return layer->geometry->words_inline ? (_Atomic uint64_t *)tail
                                         : __atomic_load_n((_Atomic uint64_t **)tail, __ATOMIC_RELAXED);
}

/* Of a layer whose words are not after it. */
static inline void bloom_layer_set_words(struct bloom_layer *layer, _Atomic uint64_t *words)
{
    __atomic_store_n((_Atomic uint64_t **)(void *)(layer + 1), words, __ATOMIC_RELAXED);
}

static inline bool bloom_filter_is_window(const struct bloom_filter *filter)
{
    return filter->first.geometry->window;
}

/* Whether words of a layer with this geometry can be dropped (bloom_resident.h). The layers of a window are emptied and
 * taken again at any time, those of a cuckoo filter taken off: they stay. */
static inline bool bloom_geometry_is_droppable(const struct bloom_geometry *geometry)
{
    return !geometry->words_inline && !geometry->window && !bloom_geometry_has_slots(geometry);
}

static inline struct bloom_chained_layer *bloom_layer_chained(const struct bloom_layer *layer)
{
    return (struct bloom_chained_layer *)(void *)((char *)layer - offsetof(struct bloom_chained_layer, layer));
}

/* The layer below, NULL for the first. */
static inline struct bloom_layer *bloom_layer_older(const struct bloom_layer *layer)
{
    return layer->geometry->index == 0 ? NULL : bloom_layer_chained(layer)->older;
}

/* A layer further down. The jumps reach any layer in logarithmically many steps: their lengths are the digits of a
 * counter with the place values 1, 3, 7, 15, ... The first layer jumps to itself. */
static inline const struct bloom_layer *bloom_layer_jump(const struct bloom_layer *layer)
{
    return layer->geometry->index == 0 ? layer : bloom_layer_chained(layer)->jump;
}

static inline struct bloom_layer *bloom_filter_newest(const struct bloom_filter *filter)
{
    return atomic_load_explicit(&filter->newest, memory_order_acquire);
}

static inline struct bloom_class *bloom_filter_class(const struct bloom_filter *filter)
{
    return (struct bloom_class *)(void *)((char *)filter->first.geometry - offsetof(struct bloom_class, geometry));
}

/* ---- an item's bits ---- */

/* A function that walks is written once for all kinds of walks, with `kind` as a constant of each copy
 * (BLOOM_BY_WALK()). In the hottest ones the copies for other walks than Cassandra's are functions of their own, so
 * that this one stays small enough to be inlined. */
#define BLOOM_WALKS static inline __attribute__((always_inline))

BLOOM_WALKS void bloom_walk_bits(const struct bloom_geometry *geometry, struct bloom_hash hash, uint64_t *bit,
                                 enum bloom_walk_kind kind)
{
    struct bloom_walk walk = bloom_walk_start(geometry, hash);

    for (unsigned i = 0, k = geometry->k; i < k; i++)
        bit[i] = bloom_walk_step(&walk, kind);
}

/* The item's bits; whether they are set: by another walk. */
void bloom_geometry_bits_other(const struct bloom_geometry *geometry, struct bloom_hash hash,
                               uint64_t bit[BLOOM_PROBE_BITS]);
bool bloom_layer_test_other(const struct bloom_layer *layer, struct bloom_hash hash);

static inline void bloom_geometry_bits(const struct bloom_geometry *geometry, struct bloom_hash hash,
                                       uint64_t bit[BLOOM_PROBE_BITS])
{
    if (bloom_vector_fits(geometry))
        bloom_vector_bits(geometry, hash, bit);
    else if (geometry->walk == BLOOM_WALK_SIGNED)
        bloom_walk_bits(geometry, hash, bit, BLOOM_WALK_SIGNED);
    else
        bloom_geometry_bits_other(geometry, hash, bit);
}

static inline void bloom_layer_bits(const struct bloom_layer *layer, struct bloom_hash hash,
                                    uint64_t bit[BLOOM_PROBE_BITS])
{
    bloom_geometry_bits(layer->geometry, hash, bit);
}

/* Called after loads of words that may have found an item. The caller's next reads see the writes of the item's add
 * before its bits: its record, the bits in a twin. Free on x86-64, where loads are in order. On ARM a later load could
 * otherwise come first. Of two queries in a pipeline, around an exchange of twins, the first would find an item and the
 * second would not. */
static inline void bloom_found(void)
{
    atomic_thread_fence(memory_order_acquire);
}

/* Whether the n bits are set. All are loaded and ANDed without a branch: the first missing bit is random, and a
 * mispredicted branch costs more than a few more loads. */
static inline bool bloom_test_bits(const _Atomic uint64_t *words, const uint64_t *bit, unsigned n)
{
    uint64_t all = 1;

    for (unsigned i = 0; i < n; i++)
        all &= atomic_load_explicit(&words[bit[i] >> 6], memory_order_relaxed) >> (bit[i] & 63);
    return all;
}

/* The cache lines of an item. */
static inline unsigned bloom_geometry_lines(const struct bloom_geometry *geometry)
{
    return geometry->walk == BLOOM_WALK_BLOCK ? 1 : geometry->k;
}

/* Whether the walk's next n bits are set: bloom_test_bits(). */
BLOOM_WALKS bool bloom_walk_test_next(const _Atomic uint64_t *words, struct bloom_walk *walk, unsigned n,
                                      enum bloom_walk_kind kind)
{
    uint64_t all = 1;

    for (; n > 0; n--) {
        uint64_t bit = bloom_walk_step(walk, kind);
        all &= atomic_load_explicit(&words[bit >> 6], memory_order_relaxed) >> (bit & 63);
    }
    return all;
}

/* The bits that are tested before the others: in a half full layer they tell three of four absent items. */
static inline unsigned bloom_geometry_first_bits(const struct bloom_geometry *geometry)
{
    return geometry->k < BLOOM_FIRST_BITS ? geometry->k : BLOOM_FIRST_BITS;
}

static inline bool bloom_layer_test_bits(const struct bloom_layer *layer, const uint64_t bit[BLOOM_PROBE_BITS])
{
    const _Atomic uint64_t *words = bloom_layer_words(layer);
    unsigned first = bloom_geometry_first_bits(layer->geometry);

    return bloom_test_bits(words, bit, first) && bloom_test_bits(words, bit + first, layer->geometry->k - first);
}

BLOOM_WALKS bool bloom_walk_test(const struct bloom_layer *layer, struct bloom_hash hash, enum bloom_walk_kind kind)
{
    const _Atomic uint64_t *words = bloom_layer_words(layer);
    struct bloom_walk walk = bloom_walk_start(layer->geometry, hash);
    unsigned first = bloom_geometry_first_bits(layer->geometry);

    return bloom_walk_test_next(words, &walk, first, kind) &&
           bloom_walk_test_next(words, &walk, layer->geometry->k - first, kind);
}

/* Whether the item's bits are set. An absent item seldom waits for words that only a present one needs. */
static inline bool bloom_layer_test(const struct bloom_layer *layer, struct bloom_hash hash)
{
    return layer->geometry->walk == BLOOM_WALK_SIGNED ? bloom_walk_test(layer, hash, BLOOM_WALK_SIGNED)
                                                      : bloom_layer_test_other(layer, hash);
}

/* ---- memory ---- */

/* Makes a layer's words. The caller's memory after `layer` has bloom_layer_tail_bytes(geometry) bytes. 0 or -ENOMEM. */
int bloom_layer_init(struct bloom_pool *pool, const struct bloom_filter *filter, struct bloom_layer *layer,
                     const struct bloom_geometry *geometry, struct errbuf *err);
void bloom_layer_deinit(struct bloom_pool *pool, struct bloom_layer *layer);

/* Accounts for a new layer whose words are in memory, of a filter that had `before` bytes of droppable words. */
static inline void bloom_pool_note_layer(struct bloom_pool *pool, const struct bloom_geometry *geometry,
                                         uint64_t before)
{
    uint64_t bytes = bloom_geometry_nwords(geometry) * 8;

    if (!bloom_geometry_is_droppable(geometry))
        return;
    atomic_fetch_add_explicit(&pool->evictable.bytes, bytes, memory_order_relaxed);
    bloom_pool_resize(pool, before, before + bytes);
}
