/* A hash table finds classes by their parameters; a class is freed with its last reference. A reference count goes from
 * 1 to 0 only under the mutex that a look-up takes, too, so a class that was found is alive. */
#include "bloom_pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_keyring.h"
#include "bloom_scaling.h"
#include "bloom_shared.h"
#include "check.h"
#include "lock.h"

static uint64_t params_hash(const struct bloom_params *params)
{
    uint64_t rate, seed, x;

    memcpy(&rate, &params->error_rate, sizeof(rate));
    x = params->capacity * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ rate) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 32 ^ params->expansion ^ (uint64_t)params->redisbloom << 32) * UINT64_C(0x94d049bb133111eb);
    memcpy(&seed, &params->seed, sizeof(seed));
    x ^= params->key ^ seed ^ (params->window ^ (uint64_t)params->window_parts << 48) * UINT64_C(0x9e3779b97f4a7c15);
    return x >> 32;
}

static bool params_equal(const struct bloom_params *a, const struct bloom_params *b)
{
    return a->capacity == b->capacity && a->error_rate == b->error_rate && a->expansion == b->expansion &&
           a->redisbloom == b->redisbloom && a->window == b->window && a->window_parts == b->window_parts &&
           a->window_flags == b->window_flags && a->key == b->key && a->iterations == b->iterations &&
           a->tightening == b->tightening && bloom_seed_equal(&a->seed, &b->seed);
}

/* The class with these parameters and this first layer; any planned one when `shape` is NULL. Needs the mutex. */
static struct bloom_class *find(const struct bloom_pool *pool, const struct bloom_params *params,
                                const struct bloom_shape *shape)
{
    struct hash_link *link = hash_table_first(&pool->classes, params_hash(params));

    for (; link; link = hash_table_next(link)) {
        struct bloom_class *class = HASH_OBJECT(link, struct bloom_class, link);
        struct bloom_shape own;

        if (!params_equal(&class->params, params))
            continue;
        bloom_geometry_shape(&class->geometry, &own);
        if (shape ? bloom_shape_equal(&own, shape) : class->planned)
            return class;
    }
    return NULL;
}

/* Needs the mutex. */
static void destroy(struct bloom_class *class)
{
    if (class->params.key)
        bloom_keyring_release(class->pool, (struct bloom_key *)class->geometry.key);
    free(class);
}

/* A new class in the table; NULL without memory. Needs the mutex. */
static struct bloom_class *make(struct bloom_pool *pool, const struct bloom_params *params,
                                const struct bloom_shape *shape)
{
    struct bloom_key *key = params->key ? bloom_keyring_get(pool, params->key) : NULL;
    struct bloom_class *class = params->key && !key ? NULL : aligned_alloc(alignof(struct bloom_class), sizeof(*class));
    double rate;

    if (!class) {
        if (key)
            bloom_keyring_release(pool, key);
        return NULL;
    }
    class->params = *params;
    class->pool = pool;
    class->planned = false;
    atomic_init(&class->refs, 1);
    uint64_t capacity = bloom_first_capacity(params, &rate);
    bloom_geometry_init(&class->geometry, shape, 0, capacity, rate);
    class->geometry.window = bloom_params_is_window(params);
    class->geometry.key = key;
    if (bloom_geometry_is_seeded(&class->geometry))
        class->geometry.seed = &class->params.seed;
    class->link.hash = params_hash(params);
    if (hash_table_insert(&pool->classes, &class->link) == 0)
        return class;
    destroy(class);
    return NULL;
}

/* Finds or creates the class with this first layer. 0 or -ENOMEM. */
static int get_with_shape(struct bloom_pool *pool, const struct bloom_params *params, const struct bloom_shape *shape,
                          bool planned, struct bloom_class **class_out)
{
    struct bloom_class *class;

    lock_take(&pool->lock);
    class = find(pool, params, shape);
    if (class)
        atomic_fetch_add_explicit(&class->refs, 1, memory_order_relaxed);
    else
        class = make(pool, params, shape);
    if (class)
        class->planned = class->planned || planned;
    lock_give(&pool->lock);
    if (!class)
        return -ENOMEM;
    *class_out = class;
    return 0;
}

int bloom_class_get(struct bloom_pool *pool, const struct bloom_params *params, const struct bloom_shape *shape,
                    struct bloom_class **class_out, struct errbuf *err)
{
    struct bloom_shape plan;

    if (!bloom_params_valid(params, err))
        return BLOOM_REFUSED;
    if (shape) {
        if (!bloom_shape_valid(shape, err) || !bloom_shape_fits(params, shape, err))
            return BLOOM_REFUSED;
        if (shape->level != 0) { /* a window's ring begins with a part: it is the model for all parts */
            return errbuf_fail(err, BLOOM_REFUSED, "the first layer is of level %u of a part, not the part's first",
                               shape->level);
        }
        return get_with_shape(pool, params, shape, false, class_out);
    }

    lock_take(&pool->lock);
    struct bloom_class *known = find(pool, params, NULL);
    if (known)
        atomic_fetch_add_explicit(&known->refs, 1, memory_order_relaxed);
    lock_give(&pool->lock);
    if (known) {
        *class_out = known;
        return 0;
    }

    if (bloom_first_shape(params, &plan, err) != BLOOM_OK)
        return BLOOM_REFUSED;
    return get_with_shape(pool, params, &plan, true, class_out);
}

struct bloom_class *bloom_class_retain(struct bloom_class *class)
{
    atomic_fetch_add_explicit(&class->refs, 1, memory_order_relaxed);
    return class;
}

uint64_t bloom_class_bytes(const struct bloom_class *class)
{
    return bloom_geometry_nwords(&class->geometry) * 8;
}

void bloom_class_release(struct bloom_class *class)
{
    struct bloom_pool *pool;
    uint64_t refs;

    if (!class)
        return;
    refs = atomic_load_explicit(&class->refs, memory_order_relaxed);
    while (refs > 1)
        if (atomic_compare_exchange_weak_explicit(&class->refs, &refs, refs - 1, memory_order_release,
                                                  memory_order_relaxed))
            return;

    pool = class->pool;
    lock_take(&pool->lock);
    refs = atomic_fetch_sub_explicit(&class->refs, 1, memory_order_acq_rel);
    CHECK(refs >= 1);
    if (refs == 1) {
        hash_table_remove(&pool->classes, &class->link);
        destroy(class);
    }
    lock_give(&pool->lock);
}
