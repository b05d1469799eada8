/* Adds. An add first queries without the lock; if the item is absent, it takes the filter's lock and tests again. Of
 * two threads that add the same item, the second one then finds the first one's bits and answers PRESENT. That holds
 * across growth: under the lock all layers are tested that may have changed since the query. A place in the layer is
 * reserved before bits are set. Under the lock no other thread writes, so a load and a store set a bit: a locked
 * instruction per bit, and a lock per item, took more time than the rest of an add while the filter is in the cache.
 * The exception are filters that are being merged into (bloom_twins.c).
 *
 * Growth. The new layer is complete before one store publishes it; readers start at `newest` and find either the old
 * chain or the new one. Growth does not take the filter's lock: an add that holds it may go on with the layer below,
 * but finds it full, as the growing thread did under the lock. Layers never leave a chain, so none is reclaimed before
 * the filter's end. */
#include "bloom_filter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_layer.h"
#include "bloom_layer_add.h"
#include "bloom_part.h"
#include "bloom_resident.h"
#include "bloom_twins.h"
#include "bloom_window.h"
#include "bloom_words.h"
#include "check.h"
#include "redisbloom.h"

/* ---- one layer ---- */

/* The caller's memory behind `layer` has bloom_layer_tail_bytes(geometry) bytes. */
static int layer_init(struct bloom_pool *pool, const struct bloom_filter *filter, struct bloom_layer *layer,
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
    if (!words) {
        errbuf_set(err, "cannot allocate %llu bytes", (unsigned long long)(nwords * 8));
        return -ENOMEM;
    }
    bloom_layer_set_words(layer, words);
    return 0;
}

static void layer_deinit(struct bloom_pool *pool, struct bloom_layer *layer)
{
    if (!layer->geometry->words_inline)
        bloom_words_free(&pool->maps, bloom_layer_words(layer), bloom_geometry_nwords(layer->geometry));
}

static uint64_t words_bytes(const struct bloom_filter *filter)
{
    uint64_t bytes = 0;

    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer))
        bytes += bloom_geometry_nwords(layer->geometry) * 8;
    return bytes;
}

/* The header of a layer made by growth, with the words of a small one. */
static struct bloom_grown_layer *grown_alloc(const struct bloom_pool *pool, size_t bytes)
{
    return pool->maps.memory ? pool->maps.memory->zeroed(bytes) : malloc(bytes);
}

static void grown_free(const struct bloom_pool *pool, struct bloom_grown_layer *grown)
{
    if (pool->maps.memory && grown)
        pool->maps.memory->release(grown);
    else if (!pool->maps.memory)
        free(grown);
}

/* ---- filter ---- */

size_t bloom_filter_bytes(const struct bloom_class *class)
{
    size_t window = class->geometry.window ? sizeof(struct bloom_part) + sizeof(struct bloom_window) : 0;

    return sizeof(struct bloom_filter) + bloom_layer_tail_bytes(&class->geometry) + window;
}

/* Bytes of the words that lie behind the layer's header. */
static uint64_t inline_bytes(const struct bloom_geometry *geometry)
{
    return geometry->words_inline ? bloom_geometry_nwords(geometry) * 8 : 0;
}

static int init_charged(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err)
{
    int rc = layer_init(class->pool, filter, &filter->first, &class->geometry, err);

    if (rc != 0) {
        bloom_pool_discharge(class->pool, bloom_geometry_nwords(&class->geometry) * 8);
        return rc;
    }
    atomic_init(&filter->newest, &filter->first);
    if (class->geometry.window)
        bloom_window_init(filter);
    bloom_class_retain(class);
    atomic_fetch_add_explicit(&class->pool->inline_bytes, inline_bytes(&class->geometry), memory_order_relaxed);
    return 0;
}

int bloom_filter_init(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err)
{
    int rc = bloom_pool_charge(class->pool, 0, bloom_geometry_nwords(&class->geometry) * 8, err);

    return rc != 0 ? rc : init_charged(filter, class, err);
}

int bloom_filter_init_instead(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err)
{
    bloom_pool_charge_anyway(class->pool, bloom_geometry_nwords(&class->geometry) * 8);
    return init_charged(filter, class, err);
}

void bloom_filter_deinit(struct bloom_filter *filter)
{
    struct bloom_class *class = bloom_filter_class(filter);
    struct bloom_layer *layer = bloom_filter_newest(filter);

    uint64_t bytes = words_bytes(filter);
    if (bloom_filter_is_dropped(filter)) {
        uint64_t dropped = bloom_filter_droppable(filter);
        bytes -= dropped;
        atomic_fetch_sub_explicit(&class->pool->dropped, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&class->pool->dropped_bytes, dropped, memory_order_relaxed);
    }
    bloom_pool_discharge(class->pool, bytes);
    while (layer != &filter->first) {
        struct bloom_grown_layer *grown = bloom_layer_grown(layer);

        layer_deinit(class->pool, layer);
        layer = grown->older;
        grown_free(class->pool, grown);
        atomic_fetch_sub_explicit(&class->pool->header_bytes, sizeof(*grown), memory_order_relaxed);
    }
    layer_deinit(class->pool, layer);
    atomic_fetch_sub_explicit(&class->pool->inline_bytes, inline_bytes(&class->geometry), memory_order_relaxed);
    bloom_class_release(class);
}

const struct bloom_params *bloom_filter_params(const struct bloom_filter *filter)
{
    return &bloom_filter_class(filter)->params;
}

struct bloom_class *bloom_filter_class_of(const struct bloom_filter *filter)
{
    return bloom_filter_class(filter);
}

/* Places that have been taken, in a window those of forgotten parts, too. */
static uint64_t places(const struct bloom_filter *filter)
{
    uint64_t items = 0;

    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer))
        items += atomic_load_explicit(&layer->items, memory_order_relaxed);
    return items;
}

uint64_t bloom_filter_items(const struct bloom_filter *filter)
{
    struct bloom_window_state state;

    if (!bloom_filter_is_window(filter))
        return places(filter);
    bloom_window_state(filter, &state);
    return state.items;
}

uint64_t bloom_filter_changes(const struct bloom_filter *filter)
{
    uint64_t forgotten = 0;

    if (bloom_filter_is_window(filter)) {
        bloom_window_forget((struct bloom_filter *)filter);
        forgotten = atomic_load_explicit(&bloom_filter_window(filter)->forgotten, memory_order_relaxed);
    }
    return places(filter) + forgotten;
}

/* An add counts itself before it sets its bits, both under the lock. */
uint64_t bloom_filter_changes_settled(const struct bloom_filter *filter)
{
    struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(filter)->pool, filter);

    bloom_lock_take(lock);
    bloom_lock_give(lock);
    return bloom_filter_changes(filter);
}

uint64_t bloom_filter_capacity(const struct bloom_filter *filter)
{
    uint64_t capacity = 0;

    if (bloom_filter_is_window(filter))
        return bloom_filter_params(filter)->capacity;
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        if (__builtin_add_overflow(capacity, layer->geometry->capacity, &capacity))
            return UINT64_MAX;
    }
    return capacity;
}

uint64_t bloom_filter_memory(const struct bloom_filter *filter)
{
    uint64_t bytes = sizeof(*filter) - sizeof(filter->first);

    if (bloom_filter_is_window(filter))
        bytes += sizeof(struct bloom_window) + bloom_filter_nlayers(filter) * sizeof(struct bloom_part);
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        const struct bloom_geometry *geometry = layer->geometry;

        bytes += geometry->index == 0 ? sizeof(struct bloom_layer) : sizeof(struct bloom_grown_layer);
        bytes += bloom_layer_tail_bytes(geometry);
        if (!geometry->words_inline && bloom_layer_words_or_null(layer))
            bytes += bloom_geometry_nwords(geometry) * 8;
    }
    return bytes;
}

unsigned bloom_filter_nlayers(const struct bloom_filter *filter)
{
    return bloom_filter_newest(filter)->geometry->index + 1u;
}

struct bloom_layer *bloom_filter_layer_at(const struct bloom_filter *filter, unsigned index)
{
    const struct bloom_layer *layer = bloom_filter_newest(filter);

    CHECK(index <= layer->geometry->index);
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
    if (geometry->window) {
        struct bloom_part *part = bloom_layer_part(layer);

        view_out->forgotten = !bloom_part_is_alive(part);
        view_out->turn = atomic_load_explicit(&part->turn, memory_order_acquire);
        view_out->base = atomic_load_explicit(&part->base, memory_order_relaxed);
        view_out->items = !view_out->forgotten && items > view_out->base ? items - view_out->base : 0;
        view_out->started_us = atomic_load_explicit(&part->started_us, memory_order_relaxed);
    }
}

bool bloom_filter_is_blank(const struct bloom_filter *filter)
{
    struct bloom_layer_view view;

    bloom_filter_layer(filter, 0, &view);
    if (bloom_filter_nlayers(filter) > 1 || view.ordinal > 0 || view.turn > 0)
        return false;
    for (uint64_t i = 0; i < view.shape.nwords; i++) {
        if (atomic_load_explicit(&view.words[i], memory_order_relaxed))
            return false;
    }
    return true;
}

void bloom_filter_expect_fill(struct bloom_filter *filter)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;

    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        if (!layer->geometry->words_inline)
            bloom_layer_set_words(
                (struct bloom_layer *)layer,
                bloom_words_fill(&pool->maps, bloom_layer_words(layer), bloom_geometry_nwords(layer->geometry)));
    }
}

void bloom_filter_set_items(struct bloom_filter *filter, unsigned index, uint64_t items)
{
    atomic_store_explicit(&bloom_filter_layer_at(filter, index)->items, items, memory_order_relaxed);
}

/* ---- growth ---- */

/* Computes the capacity and the rate of the layer above `newest`, in a window of that level. BLOOM_OK or BLOOM_REFUSED.
 */
static int next_layer(const struct bloom_params *params, const struct bloom_geometry *newest, unsigned level,
                      uint64_t *capacity_out, double *rate_out, struct errbuf *err)
{
    if (newest->index + 1 >= BLOOM_MAX_LAYERS) {
        errbuf_set(err, "a filter has at most %d layers", BLOOM_MAX_LAYERS);
        return BLOOM_REFUSED;
    }
    if (bloom_params_is_window(params))
        return bloom_window_level(params, level, capacity_out, rate_out, err);
    if (params->expansion == 0) {
        errbuf_set(err, "a filter of fixed size has one layer");
        return BLOOM_REFUSED;
    }
    if (__builtin_mul_overflow(newest->capacity, (uint64_t)params->expansion, capacity_out)) {
        errbuf_set(err, "capacity %llu times expansion %u is more than 64 bits hold",
                   (unsigned long long)newest->capacity, params->expansion);
        return BLOOM_REFUSED;
    }
    *rate_out = bloom_geometry_is_redisbloom(newest) ? newest->error_rate * 0.5
                                                     : bloom_size_share(params->error_rate, newest->index + 1u);
    return BLOOM_OK;
}

/* Sizes that layer. BLOOM_OK or BLOOM_REFUSED. */
static int size_next(const struct bloom_params *params, const struct bloom_geometry *newest, uint64_t capacity,
                     double rate, struct bloom_shape *shape_out, struct errbuf *err)
{
    struct bloom_size size;

    if (bloom_geometry_is_redisbloom(newest))
        return redisbloom_size(params->redisbloom, capacity, rate, shape_out, err);
    if (bloom_size_plan(capacity, rate, &size, err) != BLOOM_SIZE_OK)
        return BLOOM_REFUSED;
    *shape_out = (struct bloom_shape){.nwords = size.nwords, .k = (uint8_t)size.k, .variant = newest->variant};
    return BLOOM_OK;
}

/* The target of the jump of the layer above `below`: two jumps of equal length below it become one. */
static const struct bloom_layer *jump_above(const struct bloom_layer *below)
{
    const struct bloom_layer *once = bloom_layer_jump(below), *twice = bloom_layer_jump(once);

    return below->geometry->index - once->geometry->index == once->geometry->index - twice->geometry->index ? twice
                                                                                                            : below;
}

int bloom_filter_push_layer(struct bloom_filter *filter, const struct bloom_shape *shape, uint64_t capacity,
                            double rate, const struct bloom_turn *turn, const struct bloom_journal *journal,
                            struct errbuf *err)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;
    struct bloom_layer *newest = bloom_filter_newest(filter);
    struct bloom_geometry geometry;
    struct bloom_grown_layer *grown;
    uint64_t bytes = shape->nwords * 8;
    int rc;

    bloom_geometry_init(&geometry, shape, newest->geometry->index + 1u, capacity, rate);
    rc = bloom_pool_charge(pool, words_bytes(filter), bytes, err);
    if (rc != 0)
        return rc;

    geometry.window = bloom_filter_is_window(filter);
    grown = grown_alloc(pool, sizeof(*grown) + bloom_layer_tail_bytes(&geometry) +
                                  (geometry.window ? sizeof(struct bloom_part) : 0));
    if (!grown) {
        errbuf_set(err, "cannot allocate %llu bytes", (unsigned long long)bytes);
        rc = -ENOMEM;
        goto err_charged;
    }
    grown->older = newest;
    grown->jump = (struct bloom_layer *)jump_above(newest);
    grown->geometry = geometry;
    rc = layer_init(pool, filter, &grown->layer, &grown->geometry, err);
    if (rc != 0)
        goto err_charged;
    if (geometry.window)
        bloom_part_init(&grown->layer);
    if (journal && turn)
        rc = journal->ops->turn(journal->ctx, journal->id, geometry.index, shape, turn, err);
    else if (journal)
        rc = journal->ops->grow(journal->ctx, journal->id, geometry.index, shape, err);
    if (rc != 0) {
        layer_deinit(pool, &grown->layer);
        goto err_charged;
    }
    atomic_fetch_add_explicit(&pool->header_bytes, sizeof(*grown), memory_order_relaxed);
    atomic_store_explicit(&filter->newest, &grown->layer, memory_order_release);
    return 0;

err_charged:
    grown_free(pool, grown);
    bloom_pool_discharge(pool, bytes);
    return rc;
}

int bloom_filter_grow(struct bloom_filter *filter, const struct bloom_layer *full, const struct bloom_journal *journal,
                      struct errbuf *err)
{
    const struct bloom_class *class = bloom_filter_class(filter);
    uint64_t capacity = 0;
    double rate = 0;
    struct bloom_shape shape;
    int rc;

    pthread_mutex_lock(&class->pool->growth);
    if (bloom_filter_newest(filter) != full) {
        rc = BLOOM_OK;
        goto out;
    }
    rc = next_layer(&class->params, full->geometry, 0, &capacity, &rate, err);
    if (rc != 0)
        goto out;
    rc = size_next(&class->params, full->geometry, capacity, rate, &shape, err);
    if (rc == BLOOM_OK)
        rc = bloom_filter_push_layer(filter, &shape, capacity, rate, NULL, journal, err);
    if (rc == BLOOM_OK)
        atomic_fetch_add_explicit(&class->pool->grown, 1, memory_order_relaxed);
    else
        errbuf_prefix(err, "cannot grow by layer %u (capacity %llu, error rate %g)", full->geometry->index + 1u,
                      (unsigned long long)capacity, rate);
out:
    pthread_mutex_unlock(&class->pool->growth);
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
    if (shape->variant != variant) {
        errbuf_set(err, "its variant is %s, and that of the filter's other layers %s",
                   bloom_variant_name(shape->variant), bloom_variant_name(variant));
        return BLOOM_REFUSED;
    }
    pthread_mutex_lock(&pool->growth);
    if (bloom_filter_nlayers(filter) <= index) {
        rc = next_layer(bloom_filter_params(filter), bloom_filter_newest(filter)->geometry, shape->level, &capacity,
                        &rate, err);
        if (rc == BLOOM_OK)
            rc = bloom_filter_push_layer(filter, shape, capacity, rate, NULL, NULL, err);
    }
    pthread_mutex_unlock(&pool->growth);
    return rc;
}

/* ---- query and add ---- */

void bloom_geometry_bits_unsigned(const struct bloom_geometry *geometry, struct bloom_hash hash,
                                  uint64_t bit[BLOOM_PROBE_BITS])
{
    bloom_walk_bits(geometry, hash, bit, true);
}

bool bloom_layer_test_unsigned(const struct bloom_layer *layer, struct bloom_hash hash, unsigned n)
{
    return bloom_walk_test(layer, hash, n, true);
}

struct bloom_hash bloom_filter_hash(const struct bloom_filter *filter, const void *data, size_t len)
{
    return bloom_geometry_hash(filter->first.geometry, data, len);
}

bool bloom_filter_query(const struct bloom_filter *filter, struct bloom_hash hash)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);

    if (newest->geometry->window)
        return bloom_window_query(filter, hash);
    bool present = bloom_layer_test(newest, hash) || bloom_layer_test_below(newest, hash);

    bloom_found();
    return present;
}

enum bloom_add bloom_filter_add_absent(struct bloom_filter *filter, struct bloom_hash hash,
                                       const struct bloom_layer *layer, const uint64_t bit[BLOOM_PROBE_BITS],
                                       const struct bloom_journal *journal, struct errbuf *err)
{
    const struct bloom_class *class = bloom_filter_class(filter);
    const struct bloom_twin_slot *twin = bloom_pool_twin(class->pool, filter);
    uint64_t own_bit[BLOOM_PROBE_BITS];

    for (;;) {
        const struct bloom_layer *tested = twin ? NULL : layer;
        struct bloom_layer *newest;
        enum bloom_add answer;
        struct bloom_locks locks;

        bloom_locks_take(&locks, class->pool, filter, twin);
        newest = bloom_filter_newest(filter);
        if (newest != layer) {
            bloom_layer_bits(newest, hash, own_bit);
            bit = own_bit;
            layer = newest;
        }
        answer = bloom_layer_place(newest, tested, hash, bit, journal);
        if (answer == BLOOM_ADDED) {
            if (__builtin_expect(twin != NULL, 0))
                bloom_twins_pass_on(twin, filter, hash, journal);
            bloom_set_bits(bloom_layer_words(newest), bit, newest->geometry->k);
        }
        bloom_locks_give(&locks);

        if (answer != BLOOM_FULL || class->params.expansion == 0)
            return answer;
        if (bloom_filter_grow(filter, newest, journal, err) != 0)
            return BLOOM_NO_ROOM;
    }
}

enum bloom_add bloom_filter_add(struct bloom_filter *filter, struct bloom_hash hash, struct errbuf *err)
{
    return bloom_filter_add_journaled(filter, hash, NULL, err);
}

enum bloom_add bloom_filter_add_journaled(struct bloom_filter *filter, struct bloom_hash hash,
                                          const struct bloom_journal *journal, struct errbuf *err)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);
    uint64_t bit[BLOOM_PROBE_BITS];

    if (newest->geometry->window)
        return bloom_window_add(filter, hash, journal, err);
    bloom_layer_bits(newest, hash, bit);
    if (bloom_layer_test_bits(newest, bit) || bloom_layer_test_below(newest, hash)) {
        bloom_found();
        return BLOOM_PRESENT;
    }
    return bloom_filter_add_absent(filter, hash, newest, bit, journal, err);
}
