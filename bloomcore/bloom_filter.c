/* Adds. Whoever adds to a filter holds its lock, after a query that needs none. Of two threads that add the same item
 * the second one then finds the first one's bits and answers PRESENT. That holds across growth: under the lock all layers
 * are tested that may have changed since the query. A place in the layer is reserved before bits are set. Under the lock
 * nobody else writes, so bits are set by a load and a store: a locked instruction for each bit, and a lock for each item,
 * took more than all the rest of an add, as long as the filter is in the cache. The exception are filters that are being
 * merged into (bloom_twins.c).
 *
 * Growth. The new layer is complete before it is published with one store; readers come from `newest` and find either
 * the old chain or the new one. It does not take the filter's lock: an adder who holds it may go on with the layer
 * below, but finds it full, as whoever made the new one did under the lock. Nothing is ever taken out of a chain, so there
 * is nothing to reclaim before the end. */
#include "bloom_filter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_layer.h"
#include "bloom_twins.h"
#include "bloom_words.h"
#include "check.h"

/* ---- one layer -------------------------------------------------------------------------------------------------- */

/* The caller's memory behind `layer` has bloom_layer_tail_bytes(geometry) bytes. */
static int layer_init(struct bloom_pool *pool, struct bloom_layer *layer, const struct bloom_geometry *geometry,
                      bool ahead, struct errbuf *err)
{
    uint64_t nwords = bloom_geometry_nwords(geometry);

    layer->geometry = geometry;
    atomic_init(&layer->items, 0);
    if (geometry->words_inline) {
        memset((void *)(layer + 1), 0, (size_t)nwords * 8);
        return 0;
    }

    _Atomic uint64_t *words = bloom_words_alloc(&pool->maps, nwords, ahead);
    if (!words) {
        errbuf_set(err, "cannot allocate %llu bytes", (unsigned long long)(nwords * 8));
        return -ENOMEM;
    }
    *(_Atomic uint64_t **)(void *)(layer + 1) = words;
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

/* ---- filter ----------------------------------------------------------------------------------------------------- */

size_t bloom_filter_bytes(const struct bloom_class *class)
{
    return sizeof(struct bloom_filter) + bloom_layer_tail_bytes(&class->geometry);
}

static int init_charged(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err)
{
    int rc = layer_init(class->pool, &filter->first, &class->geometry, true, err);

    if (rc != 0) {
        bloom_pool_discharge(class->pool, bloom_geometry_nwords(&class->geometry) * 8);
        return rc;
    }
    atomic_init(&filter->newest, &filter->first);
    bloom_class_retain(class);
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

    bloom_pool_discharge(class->pool, words_bytes(filter));
    while (layer != &filter->first) {
        struct bloom_grown_layer *grown = bloom_layer_grown(layer);

        layer_deinit(class->pool, layer);
        layer = grown->older;
        free(grown);
    }
    layer_deinit(class->pool, layer);
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

uint64_t bloom_filter_items(const struct bloom_filter *filter)
{
    uint64_t items = 0;

    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer))
        items += atomic_load_explicit(&layer->items, memory_order_relaxed);
    return items;
}

uint64_t bloom_filter_capacity(const struct bloom_filter *filter)
{
    uint64_t capacity = 0;

    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        if (__builtin_add_overflow(capacity, layer->geometry->capacity, &capacity))
            return UINT64_MAX;
    }
    return capacity;
}

uint64_t bloom_filter_memory(const struct bloom_filter *filter)
{
    uint64_t bytes = sizeof(*filter) - sizeof(filter->first);

    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        const struct bloom_geometry *geometry = layer->geometry;

        bytes += geometry->index == 0 ? sizeof(struct bloom_layer) : sizeof(struct bloom_grown_layer);
        bytes += bloom_layer_tail_bytes(geometry);
        if (!geometry->words_inline)
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
    while (layer->geometry->index != index)
        layer = bloom_layer_older(layer);
    return (struct bloom_layer *)layer;
}

void bloom_filter_layer(const struct bloom_filter *filter, unsigned index, struct bloom_layer_view *view_out)
{
    const struct bloom_layer *layer = bloom_filter_layer_at(filter, index);
    const struct bloom_geometry *geometry = layer->geometry;

    *view_out = (struct bloom_layer_view){
        .shape = {.nwords = bloom_geometry_nwords(geometry), .k = geometry->k, .variant = geometry->variant},
        .capacity = geometry->capacity,
        .error_rate = geometry->error_rate,
        .items = atomic_load_explicit(&layer->items, memory_order_relaxed),
        .words = bloom_layer_words(layer),
        .room = geometry->words_inline ? NULL : bloom_words_room(bloom_layer_words(layer), bloom_geometry_nwords(geometry)),
    };
}

void bloom_filter_expect_fill(struct bloom_filter *filter)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;

    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        if (!layer->geometry->words_inline)
            bloom_words_fill(&pool->maps, bloom_layer_words(layer), bloom_geometry_nwords(layer->geometry));
    }
}

void bloom_filter_set_items(struct bloom_filter *filter, unsigned index, uint64_t items)
{
    atomic_store_explicit(&bloom_filter_layer_at(filter, index)->items, items, memory_order_relaxed);
}

/* ---- growth ----------------------------------------------------------------------------------------------------- */

/* The capacity and the rate of the layer above `newest`. 0 or BLOOM_REFUSED. */
static int next_layer(const struct bloom_params *params, const struct bloom_geometry *newest, uint64_t *capacity_out,
                      double *rate_out, struct errbuf *err)
{
    if (params->expansion == 0) {
        errbuf_set(err, "a filter of fixed size has one layer");
        return BLOOM_REFUSED;
    }
    if (newest->index + 1 >= BLOOM_MAX_LAYERS) {
        errbuf_set(err, "a filter has at most %d layers", BLOOM_MAX_LAYERS);
        return BLOOM_REFUSED;
    }
    if (__builtin_mul_overflow(newest->capacity, (uint64_t)params->expansion, capacity_out)) {
        errbuf_set(err, "capacity %llu times expansion %u is more than 64 bits hold",
                   (unsigned long long)newest->capacity, params->expansion);
        return BLOOM_REFUSED;
    }
    *rate_out = newest->error_rate * 0.5;
    return BLOOM_OK;
}

/* Makes a layer of this shape, tells the journal of it (NULL: there is none), publishes it. Needs exclusion from other
 * growth of the filter. */
static int push_layer(struct bloom_filter *filter, const struct bloom_shape *shape, uint64_t capacity, double rate,
                      const struct bloom_journal *journal, struct errbuf *err)
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

    grown = malloc(sizeof(*grown) + bloom_layer_tail_bytes(&geometry));
    if (!grown) {
        errbuf_set(err, "cannot allocate %llu bytes", (unsigned long long)bytes);
        rc = -ENOMEM;
        goto err_charged;
    }
    grown->older = newest;
    grown->geometry = geometry;
    rc = layer_init(pool, &grown->layer, &grown->geometry, false, err);
    if (rc != 0)
        goto err_charged;
    if (journal)
        rc = journal->ops->grow(journal->ctx, journal->id, geometry.index, shape, err);
    if (rc != 0) {
        layer_deinit(pool, &grown->layer);
        goto err_charged;
    }
    atomic_store_explicit(&filter->newest, &grown->layer, memory_order_release);
    return 0;

err_charged:
    free(grown);
    bloom_pool_discharge(pool, bytes);
    return rc;
}

int bloom_filter_grow(struct bloom_filter *filter, const struct bloom_layer *full, const struct bloom_journal *journal,
                      struct errbuf *err)
{
    const struct bloom_class *class = bloom_filter_class(filter);
    uint64_t capacity = 0;
    double rate = 0;
    struct bloom_size size;
    struct bloom_shape shape;
    int rc;

    pthread_mutex_lock(&class->pool->growth);
    if (bloom_filter_newest(filter) != full) {
        rc = BLOOM_OK;
        goto out;
    }
    rc = next_layer(&class->params, full->geometry, &capacity, &rate, err);
    if (rc != 0)
        goto out;
    if (bloom_size_plan(capacity, rate, &size, err) != BLOOM_SIZE_OK) {
        rc = BLOOM_REFUSED;
    } else {
        shape = (struct bloom_shape){size.nwords, (uint8_t)size.k, full->geometry->variant};
        rc = push_layer(filter, &shape, capacity, rate, journal, err);
    }
    if (rc == 0)
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
        errbuf_set(err, "its variant is %u, and that of the filter's other layers %u", shape->variant, variant);
        return BLOOM_REFUSED;
    }
    pthread_mutex_lock(&pool->growth);
    if (bloom_filter_nlayers(filter) <= index) {
        rc = next_layer(bloom_filter_params(filter), bloom_filter_newest(filter)->geometry, &capacity, &rate, err);
        if (rc == BLOOM_OK)
            rc = push_layer(filter, shape, capacity, rate, NULL, err);
    }
    pthread_mutex_unlock(&pool->growth);
    return rc;
}

/* ---- query and add ---------------------------------------------------------------------------------------------- */

bool bloom_filter_query(const struct bloom_filter *filter, struct bloom_hash hash)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);
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

    bloom_layer_bits(newest, hash, bit);
    if (bloom_layer_test_bits(newest, bit) || bloom_layer_test_below(newest, hash)) {
        bloom_found();
        return BLOOM_PRESENT;
    }
    return bloom_filter_add_absent(filter, hash, newest, bit, journal, err);
}
