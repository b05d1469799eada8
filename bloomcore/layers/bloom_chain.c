/* Growth. The new layer is complete before one store publishes it; readers start at `newest` and find either the old
 * chain or the new one. Growth does not take the filter's lock. An add that holds the lock may continue with the layer
 * below, but finds it full, as the growing thread did. Layers leave the chain of a cuckoo filter only, which keeps
 * them, so none is reclaimed before the filter's end. */
#include "bloom_chain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bloom_layer.h"
#include "bloom_part.h"
#include "bloom_resident.h"
#include "bloom_run.h"
#include "bloom_scaling.h"
#include "check.h"
#include "cuckoo_part.h"
#include "lock.h"

/* ---- layers ---- */

const struct bloom_params *bloom_filter_params(const struct bloom_filter *filter)
{
    return &bloom_filter_class(filter)->params;
}

struct bloom_class *bloom_filter_class_of(const struct bloom_filter *filter)
{
    return bloom_filter_class(filter);
}

unsigned bloom_filter_nlayers(const struct bloom_filter *filter)
{
    return bloom_filter_newest(filter)->geometry->index + 1u;
}

struct bloom_layer *bloom_filter_layer_at(const struct bloom_filter *filter, unsigned index)
{
    const struct bloom_layer *layer = bloom_filter_newest(filter);

    if (index > layer->geometry->index && bloom_filter_is_cuckoo(filter))
        layer = cuckoo_spare(filter, layer); /* it has been taken off since the caller counted the layers */
    CHECK(layer && index <= layer->geometry->index);
    while (layer->geometry->index != index) {
        const struct bloom_layer *jump = bloom_layer_jump(layer);

        layer = jump->geometry->index >= index ? jump : bloom_layer_older(layer);
    }
    return (struct bloom_layer *)layer;
}

void bloom_filter_layer(const struct bloom_filter *filter, unsigned index, struct bloom_layer_view *view_out)
{
    const struct bloom_layer *layer = bloom_filter_layer_at(filter, index);
    const struct bloom_geometry *geometry = layer->geometry;
    _Atomic uint64_t *words = bloom_layer_words_or_null(layer);
    uint64_t items = atomic_load_explicit(&layer->items, memory_order_relaxed);

    *view_out = (struct bloom_layer_view){
        .capacity = geometry->capacity,
        .error_rate = geometry->error_rate,
        .items = items,
        .ordinal = items,
        .words = words,
        .room = geometry->words_inline || !words
                    ? NULL
                    : bloom_words_room(&bloom_filter_class(filter)->pool->maps, words, bloom_geometry_nwords(geometry)),
    };
    bloom_geometry_shape(geometry, &view_out->shape);
    view_out->index = index;
    if (bloom_filter_is_cuckoo(filter) && cuckoo_of(filter)->still)
        view_out->still = filter;
    if (geometry->window) {
        struct bloom_part *part = bloom_layer_part(layer);

        view_out->forgotten = !bloom_part_is_alive(part);
        view_out->turn = atomic_load_explicit(&part->turn, memory_order_acquire);
        view_out->base = atomic_load_explicit(&part->base, memory_order_relaxed);
        view_out->items = !view_out->forgotten && items > view_out->base ? items - view_out->base : 0;
        view_out->started_us = atomic_load_explicit(&part->started_us, memory_order_relaxed);
    } else if (bloom_filter_is_cuckoo(filter) && index == 0) {
        view_out->turn = atomic_load_explicit(&cuckoo_of(filter)->ordinal, memory_order_relaxed);
        view_out->started_us = (int64_t)atomic_load_explicit(&cuckoo_of(filter)->deletes, memory_order_relaxed);
    }
}

void bloom_filter_expect_fill(struct bloom_filter *filter)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;

    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer))
        if (!layer->geometry->words_inline)
            bloom_layer_set_words(
                (struct bloom_layer *)layer,
                bloom_words_fill(&pool->maps, bloom_layer_words(layer), bloom_geometry_nwords(layer->geometry)));
    bloom_filter_follow_words(filter);
}

void bloom_filter_set_items(struct bloom_filter *filter, unsigned index, uint64_t items)
{
    atomic_store_explicit(&bloom_filter_layer_at(filter, index)->items, items, memory_order_relaxed);
}

void bloom_room_empty(unsigned char *from, size_t len)
{
    (void)madvise(from, len, MADV_DONTNEED);
}

uint64_t bloom_filter_words_bytes(const struct bloom_filter *filter)
{
    uint64_t bytes = 0;

    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer))
        bytes += bloom_geometry_nwords(layer->geometry) * 8;
    return bytes;
}

/* ---- bytes ---- */

#define PAGE 4096 /* bytes that are compared before they are written */

bool bloom_filter_find_byte(const struct bloom_filter *filter, uint64_t *at, unsigned *layer_out, uint64_t *left_out)
{
    unsigned n = bloom_filter_nlayers(filter);

    for (unsigned i = 0; i < n; i++) {
        const struct bloom_geometry *geometry = bloom_filter_layer_at(filter, i)->geometry;
        uint64_t bytes = bloom_geometry_nwords(geometry) * 8 - geometry->spare_bytes;

        if (*at < bytes) {
            *layer_out = i;
            *left_out = bytes - *at;
            return true;
        }
        *at -= bytes;
    }
    return false;
}

/* Bytes in memory are those of a file or dump (bloom_geometry.c asserts the order), in a range that is checked. */
static unsigned char *bytes_at(const struct bloom_filter *filter, unsigned layer, uint64_t offset, size_t len)
{
    struct bloom_layer_view view;

    bloom_filter_layer(filter, layer, &view);
    uint64_t bytes = bloom_shape_bytes(&view.shape);
    CHECK(offset <= bytes && len <= bytes - offset);
    return (unsigned char *)(void *)view.words + offset;
}

void bloom_filter_put_bytes(struct bloom_filter *filter, unsigned layer, uint64_t offset, const void *bytes, size_t len)
{
    unsigned char *to = bytes_at(filter, layer, offset, len);
    const unsigned char *from = bytes;

    while (len > 0) {
        size_t run = len < PAGE ? len : PAGE;

        if (memcmp(to, from, run) != 0) /* a comparison does not allocate a missing page */
            memcpy(to, from, run);
        to += run;
        from += run;
        len -= run;
    }
}

/* Word by word: adds may continue. */
void bloom_filter_get_bytes(const struct bloom_filter *filter, unsigned layer, uint64_t offset, void *out, size_t len)
{
    const unsigned char *base = bytes_at(filter, layer, offset, len) - offset;
    const _Atomic uint64_t *words = (const _Atomic uint64_t *)(const void *)base;
    unsigned char *to = out;

    while (len > 0) {
        size_t skip = offset % 8, run = len < 8 - skip ? len : 8 - skip;
        uint64_t word = atomic_load_explicit(&words[offset / 8], memory_order_relaxed);

        memcpy(to, (unsigned char *)&word + skip, run);
        to += run;
        offset += run;
        len -= run;
    }
}

/* ---- growth ---- */

/* The header of a layer made by growth, with its run in front of it, and the words of a small layer behind. */
static struct bloom_chained_layer *chained_alloc(const struct bloom_pool *pool, const struct bloom_geometry *geometry)
{
    size_t front = bloom_run_bytes(geometry);
    size_t bytes = front + sizeof(struct bloom_chained_layer) + bloom_layer_tail_bytes(geometry) +
                   (geometry->window ? sizeof(struct bloom_part) : 0);
    char *memory = pool->maps.memory ? pool->maps.memory->zeroed(bytes) : malloc(bytes);

    if (!memory)
        return NULL;
    struct bloom_chained_layer *chained = (void *)(memory + front);
    chained->geometry = *geometry;
    return chained;
}

void bloom_chained_free(const struct bloom_pool *pool, struct bloom_chained_layer *chained)
{
    if (!chained)
        return;
    void *memory = (char *)chained - bloom_run_bytes(&chained->geometry);
    if (pool->maps.memory)
        pool->maps.memory->release(memory);
    else
        free(memory);
}

/* The target of the jump of the layer above `below`: two jumps of equal length below it become one. */
static const struct bloom_layer *jump_above(const struct bloom_layer *below)
{
    const struct bloom_layer *once = bloom_layer_jump(below), *twice = bloom_layer_jump(once);

    return below->geometry->index - once->geometry->index == once->geometry->index - twice->geometry->index ? twice
                                                                                                            : below;
}

/* bloom_filter_push_layer() of a layer whose words are charged, or do not count. */
static int push(struct bloom_filter *filter, const struct bloom_shape *shape, uint64_t capacity, double rate,
                const struct bloom_turn *turn, const struct bloom_journal *journal, struct errbuf *err)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;
    struct bloom_layer *newest = bloom_filter_newest(filter);
    struct bloom_geometry geometry;
    struct bloom_chained_layer *chained;
    uint64_t bytes = shape->nwords * 8;
    int rc;

    bloom_geometry_init(&geometry, shape, newest->geometry->index + 1u, capacity, rate);
    geometry.window = bloom_filter_is_window(filter);
    geometry.key = newest->geometry->key;
    chained = chained_alloc(pool, &geometry);
    if (!chained) {
        errbuf_set(err, "cannot allocate %llu bytes", (unsigned long long)bytes);
        rc = -ENOMEM;
        goto err;
    }
    chained->older = newest;
    chained->jump = (struct bloom_layer *)jump_above(newest);
    rc = bloom_layer_init(pool, filter, &chained->layer, &chained->geometry, err);
    if (rc != 0)
        goto err;
    if (geometry.window)
        bloom_part_init(&chained->layer);
    if (bloom_layer_has_run(&geometry))
        bloom_run_init(&chained->layer);
    if (journal && turn)
        rc = journal->ops->turn(journal->ctx, journal->id, geometry.index, shape, turn, err);
    else if (journal)
        rc = journal->ops->grow(journal->ctx, journal->id, geometry.index, shape, err);
    if (rc != 0) {
        bloom_layer_deinit(pool, &chained->layer);
        goto err;
    }
    CHECK(bloom_filter_newest(filter) == newest); /* the caller excludes other growth, whose layer would be lost */
    atomic_fetch_add_explicit(&pool->header_bytes, bloom_chained_bytes(&geometry), memory_order_relaxed);
    bloom_pool_note_layer(pool, &chained->geometry, bloom_filter_droppable(filter));
    atomic_store_explicit(&filter->newest, &chained->layer, memory_order_release);
    return 0;

err:
    bloom_chained_free(pool, chained);
    return rc;
}

int bloom_filter_push_layer(struct bloom_filter *filter, const struct bloom_shape *shape, uint64_t capacity,
                            double rate, const struct bloom_turn *turn, const struct bloom_journal *journal,
                            struct errbuf *err)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;
    uint64_t bytes = shape->nwords * 8;
    const struct bloom_charge charge = {
        .bytes = bytes,
        .filter_bytes = bloom_filter_words_bytes(filter),
        .droppable =
            shape->nwords > BLOOM_INLINE_WORDS && !bloom_filter_is_window(filter) && !bloom_filter_is_cuckoo(filter),
        .dropped_with = bloom_filter_droppable(filter),
    };

    TRY(bloom_pool_charge(pool, &charge, err));
    int rc = push(filter, shape, capacity, rate, turn, journal, err);
    if (rc != 0)
        bloom_pool_discharge(pool, bytes);
    return rc;
}

int bloom_filter_push_uncharged(struct bloom_filter *filter, const struct bloom_shape *shape, struct errbuf *err)
{
    return push(filter, shape, shape->capacity, shape->error_rate, NULL, NULL, err);
}

int bloom_filter_push_anyway(struct bloom_filter *filter, const struct bloom_shape *shape, struct errbuf *err)
{
    TRY(bloom_filter_push_uncharged(filter, shape, err));
    bloom_pool_charge_anyway(bloom_filter_class(filter)->pool, shape->nwords * 8);
    return 0;
}

int bloom_filter_grow(struct bloom_filter *filter, const struct bloom_layer *full, const struct bloom_journal *journal,
                      struct errbuf *err)
{
    const struct bloom_class *class = bloom_filter_class(filter);
    uint64_t capacity = 0;
    double rate = 0;
    struct bloom_shape shape;
    int rc;

    lock_take(&class->pool->lock);
    if (bloom_filter_newest(filter) != full) {
        rc = BLOOM_OK;
        goto out;
    }
    rc = bloom_next_capacity(&class->params, full->geometry, 0, &capacity, &rate, err);
    if (rc != 0)
        goto out;
    rc = bloom_layer_shape(full->geometry->variant, class->params.redisbloom, capacity, rate, &shape, err);
    if (rc == BLOOM_OK)
        rc = bloom_filter_push_layer(filter, &shape, capacity, rate, NULL, journal, err);
    if (rc == BLOOM_OK)
        atomic_fetch_add_explicit(&class->pool->growths, 1, memory_order_relaxed);
    else
        errbuf_prefix(err, "cannot grow by layer %u (capacity %llu, error rate %g)", full->geometry->index + 1u,
                      (unsigned long long)capacity, rate);
out:
    lock_give(&class->pool->lock);
    return rc;
}

int bloom_filter_append_layer(struct bloom_filter *filter, const struct bloom_shape *shape, struct errbuf *err)
{
    return bloom_filter_append_at(filter, bloom_filter_nlayers(filter), shape, err);
}

int bloom_filter_append_at(struct bloom_filter *filter, unsigned index, const struct bloom_shape *shape,
                           struct errbuf *err)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;
    uint8_t variant = bloom_filter_newest(filter)->geometry->variant;
    uint64_t capacity;
    double rate;
    int rc = BLOOM_OK;

    if (!bloom_shape_valid(shape, err))
        return BLOOM_REFUSED;
    if (shape->variant != variant)
        return errbuf_fail(err, BLOOM_REFUSED, "its variant is %s, and that of the filter's other layers %s",
                           bloom_variant_name(shape->variant), bloom_variant_name(variant));
    lock_take(&pool->lock);
    if (bloom_filter_nlayers(filter) <= index) {
        rc = bloom_next_capacity(bloom_filter_params(filter), bloom_filter_newest(filter)->geometry, shape->level,
                                 &capacity, &rate, err);
        if (rc == BLOOM_OK)
            rc = bloom_filter_push_layer(filter, shape, capacity, rate, NULL, NULL, err);
    }
    lock_give(&pool->lock);
    return rc;
}

/* ---- one layer ---- */

void bloom_geometry_bits_other(const struct bloom_geometry *geometry, struct bloom_hash hash,
                               uint64_t bit[BLOOM_PROBE_BITS])
{
    BLOOM_BY_WALK(geometry, bloom_walk_bits, geometry, hash, bit);
}

/* bloom_walk_test() by indexes in the block alone. The line decides nothing earlier: all bits are tested at once. */
static bool test_block(const struct bloom_layer *layer, struct bloom_hash hash)
{
    const struct bloom_walk walk = bloom_walk_start(layer->geometry, hash);
    const _Atomic uint64_t *block = bloom_layer_words(layer) + bloom_walk_block(&walk);
    uint64_t all = 1, x = walk.step;

    for (unsigned i = layer->geometry->k; i > 0; i--, x *= BLOOM_WALK_MIX)
        all &= atomic_load_explicit(&block[x >> 61], memory_order_relaxed) >> (x >> 55 & 63);
    return all;
}

bool bloom_layer_test_other(const struct bloom_layer *layer, struct bloom_hash hash)
{
    if (layer->geometry->walk == BLOOM_WALK_BLOCK)
        return test_block(layer, hash);
    return layer->geometry->walk == BLOOM_WALK_PRIME ? bloom_walk_test(layer, hash, BLOOM_WALK_PRIME)
                                                     : bloom_walk_test(layer, hash, BLOOM_WALK_UNSIGNED);
}

int bloom_layer_init(struct bloom_pool *pool, const struct bloom_filter *filter, struct bloom_layer *layer,
                     const struct bloom_geometry *geometry, struct errbuf *err)
{
    uint64_t nwords = bloom_geometry_nwords(geometry);

    layer->geometry = geometry;
    atomic_init(&layer->items, 0);
    if (geometry->words_inline) {
        memset((void *)(layer + 1), 0, (size_t)nwords * 8);
        return 0;
    }

    _Atomic uint64_t *words = bloom_words_alloc(&pool->maps, filter, layer, nwords);
    if (!words)
        return errbuf_fail(err, -ENOMEM, "cannot allocate %llu bytes", (unsigned long long)(nwords * 8));
    bloom_layer_set_words(layer, words);
    return 0;
}

void bloom_layer_deinit(struct bloom_pool *pool, struct bloom_layer *layer)
{
    if (!layer->geometry->words_inline)
        bloom_words_free(&pool->maps, bloom_layer_words(layer), bloom_geometry_nwords(layer->geometry));
}

/* ---- replays ---- */

/* Items of a log come in the order of their adds, and their bits are at random places: each item is k cache misses. To
 * overlap them, the bits of an item are set only after those of the next items have been prefetched. */

#define AHEAD 16 /* a power of two */

/* Does not write a word that has the bit already: words of the loaded file stay clean in the caches, and untouched
 * pages of zeros stay unmapped. */
static void set_bits(_Atomic uint64_t *words, const uint64_t *bit, unsigned k)
{
    for (unsigned i = 0; i < k; i++) {
        uint64_t mask = UINT64_C(1) << (bit[i] & 63);

        if (!(atomic_load_explicit(&words[bit[i] >> 6], memory_order_relaxed) & mask))
            atomic_fetch_or_explicit(&words[bit[i] >> 6], mask, memory_order_relaxed);
    }
}

uint64_t bloom_filter_replay(struct bloom_filter *filter, unsigned index, uint64_t counted,
                             const struct bloom_replay_item *items, size_t n)
{
    struct bloom_layer *layer = bloom_filter_layer_at(filter, index);
    _Atomic uint64_t *words = bloom_layer_words(layer);
    uint64_t bit[AHEAD * BLOOM_PROBE_BITS];
    uint64_t from = layer->geometry->window ? atomic_load(&bloom_layer_part(layer)->base) + 1 : 0; /* this part's */
    unsigned k = layer->geometry->k, stride = bloom_vector_stride(layer->geometry);
    uint64_t added = 0;

    for (size_t i = 0; i < n + AHEAD; i++) {
        uint64_t *slot = bit + i % AHEAD * stride;

        if (i >= AHEAD && i - AHEAD < n && items[i - AHEAD].ordinal >= from) {
            set_bits(words, slot, k);
            added += items[i - AHEAD].ordinal > counted;
        }
        if (i >= n)
            continue;
        bloom_layer_bits(layer, items[i].hash, slot);
        for (unsigned j = 0; j < k; j++)
            __builtin_prefetch((const void *)&words[slot[j] >> 6], 1, 2);
    }
    atomic_fetch_add_explicit(&layer->items, added, memory_order_relaxed);
    return added;
}
