/* A hash table finds classes by their parameters; a class is freed with its last reference. A reference count goes from
 * 1 to 0 only under the mutex that a look-up takes, too, so a class that was found is alive. */
#include "bloom_pool.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "redisbloom.h"
#include "bloom_window.h"

#define BUCKETS_MIN 64

/* ---- pool ---- */

int bloom_pool_create(struct bloom_pool **pool_out)
{
    return bloom_pool_create_in(NULL, pool_out);
}

int bloom_pool_create_in(const struct bloom_memory *memory, struct bloom_pool **pool_out)
{
    struct bloom_pool *pool = aligned_alloc(alignof(struct bloom_pool), sizeof(*pool));
    struct bloom_class **buckets = calloc(BUCKETS_MIN, sizeof(*buckets));

    if (!pool || !buckets) {
        free(pool);
        free(buckets);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < BLOOM_LOCKS; i++)
        atomic_init(&pool->locks[i].taken, false);
    atomic_init(&pool->bytes, 0);
    atomic_init(&pool->grown, 0);
    atomic_init(&pool->max_filter_bytes, 0);
    atomic_init(&pool->max_total_bytes, 0);
    atomic_init(&pool->inline_bytes, 0);
    atomic_init(&pool->header_bytes, 0);
    pool->beside = NULL;
    pool->beside_ctx = NULL;
    pool->now_us = NULL;
    atomic_init(&pool->ntwins, 0);
    for (unsigned i = 0; i < BLOOM_MAX_TWINS; i++)
        pool->twins[i] = (struct bloom_twin_slot){NULL};
    pthread_mutex_init(&pool->growth, NULL);
    bloom_maps_init(&pool->maps, memory);
    pthread_mutex_init(&pool->classes_mutex, NULL);
    pool->buckets = buckets;
    pool->nbuckets = BUCKETS_MIN;
    pool->nclasses = 0;
    *pool_out = pool;
    return 0;
}

void bloom_pool_destroy(struct bloom_pool *pool)
{
    if (!pool)
        return;
    CHECK(pool->nclasses == 0);
    CHECK(atomic_load(&pool->bytes) == 0);
    CHECK(atomic_load(&pool->ntwins) == 0);
    bloom_maps_deinit(&pool->maps);
    pthread_mutex_destroy(&pool->classes_mutex);
    pthread_mutex_destroy(&pool->growth);
    free(pool->buckets);
    free(pool);
}

uint64_t bloom_pool_bytes(const struct bloom_pool *pool)
{
    return atomic_load_explicit(&pool->bytes, memory_order_relaxed);
}

uint64_t bloom_pool_grown(const struct bloom_pool *pool)
{
    return atomic_load_explicit(&pool->grown, memory_order_relaxed);
}

void bloom_pool_settle(struct bloom_pool *pool, bool (*go_on)(void *ctx), void *ctx)
{
    bloom_words_settle(pool, go_on, ctx);
}

bool bloom_pool_is_settled(struct bloom_pool *pool)
{
    pthread_mutex_lock(&pool->maps.lock);
    bool settled = pool->maps.n == 0;
    pthread_mutex_unlock(&pool->maps.lock);
    return settled;
}

void bloom_pool_set_limits(struct bloom_pool *pool, uint64_t max_filter_bytes, uint64_t max_total_bytes)
{
    atomic_store_explicit(&pool->max_filter_bytes, max_filter_bytes, memory_order_relaxed);
    atomic_store_explicit(&pool->max_total_bytes, max_total_bytes, memory_order_relaxed);
}

void bloom_pool_count_beside(struct bloom_pool *pool, uint64_t (*beside)(void *ctx), void *ctx)
{
    pool->beside = beside;
    pool->beside_ctx = ctx;
}

uint64_t bloom_pool_inline_bytes(const struct bloom_pool *pool)
{
    return atomic_load_explicit(&pool->inline_bytes, memory_order_relaxed);
}

uint64_t bloom_pool_header_bytes(const struct bloom_pool *pool)
{
    return atomic_load_explicit(&pool->header_bytes, memory_order_relaxed);
}

/* Whether `bytes` more fit the limit of the pool, if the words take `held`. */
static bool total_allows(struct bloom_pool *pool, uint64_t held, uint64_t bytes, struct errbuf *err)
{
    uint64_t max_total = atomic_load_explicit(&pool->max_total_bytes, memory_order_relaxed);
    uint64_t used = max_total != 0 && pool->beside ? held + pool->beside(pool->beside_ctx) : held;

    if (max_total == 0 || used + bytes <= max_total)
        return true;
    /* An eighth more: others may have passed the limit since the caller was let in. */
    if (atomic_load_explicit(&pool->overshoot, memory_order_relaxed) && used < max_total + max_total / 8 &&
        bytes <= max_total)
        return true;
    errbuf_set(err, "%llu bytes more are needed, %llu are in use, the limit for all filters is %llu",
               (unsigned long long)bytes, (unsigned long long)used, (unsigned long long)max_total);
    return false;
}

int bloom_pool_room(struct bloom_pool *pool, uint64_t bytes, struct errbuf *err)
{
    return total_allows(pool, bloom_pool_bytes(pool), bytes, err) ? BLOOM_OK : BLOOM_LIMIT;
}

int bloom_pool_charge(struct bloom_pool *pool, uint64_t filter_bytes, uint64_t bytes, struct errbuf *err)
{
    uint64_t max_filter = atomic_load_explicit(&pool->max_filter_bytes, memory_order_relaxed);

    /* No sum here can overflow: a layer has less than 2^34 bytes, a chain less than 2^40. */
    if (max_filter != 0 && filter_bytes + bytes > max_filter) {
        errbuf_set(err, "the filter would need %llu bytes, the limit for one filter is %llu",
                   (unsigned long long)(filter_bytes + bytes), (unsigned long long)max_filter);
        return BLOOM_LIMIT;
    }
    return bloom_pool_charge_total(pool, bytes, err);
}

int bloom_pool_charge_total(struct bloom_pool *pool, uint64_t bytes, struct errbuf *err)
{
    uint64_t held = bloom_pool_bytes(pool);

    do {
        if (!total_allows(pool, held, bytes, err))
            return BLOOM_LIMIT;
    } while (!atomic_compare_exchange_weak_explicit(&pool->bytes, &held, held + bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    return BLOOM_OK;
}

void bloom_pool_charge_anyway(struct bloom_pool *pool, uint64_t bytes)
{
    atomic_fetch_add_explicit(&pool->bytes, bytes, memory_order_relaxed);
}

void bloom_pool_discharge(struct bloom_pool *pool, uint64_t bytes)
{
    uint64_t held = atomic_fetch_sub_explicit(&pool->bytes, bytes, memory_order_relaxed);

    CHECK(held >= bytes);
}

/* ---- locks ---- */

struct bloom_lock *bloom_pool_lock_of(struct bloom_pool *pool, const struct bloom_filter *filter)
{
    uint64_t mixed = (uintptr_t)filter * UINT64_C(0x9e3779b97f4a7c15);

    return &pool->locks[mixed >> (64 - BLOOM_LOCKS_LOG2)];
}

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void bloom_lock_take(struct bloom_lock *lock)
{
    unsigned spins = 0;

    while (atomic_exchange_explicit(&lock->taken, true, memory_order_acquire)) {
        do {
            /* The holder needs some thousand cycles; if it takes longer, it is not running and may need this
             * processor. */
            if (++spins < 256)
                pause_cpu();
            else
                sched_yield();
        } while (atomic_load_explicit(&lock->taken, memory_order_relaxed));
    }
}

/* ---- classes ---- */

static size_t params_hash(const struct bloom_params *params)
{
    uint64_t rate;
    uint64_t x;

    memcpy(&rate, &params->error_rate, sizeof(rate));
    x = params->capacity * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ rate) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 32 ^ params->expansion ^ (uint64_t)params->redisbloom << 32) * UINT64_C(0x94d049bb133111eb);
    x ^= (params->window ^ (uint64_t)params->window_parts << 48) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(x >> 32);
}

static bool params_equal(const struct bloom_params *a, const struct bloom_params *b)
{
    return a->capacity == b->capacity && a->error_rate == b->error_rate && a->expansion == b->expansion &&
           a->redisbloom == b->redisbloom && a->window == b->window && a->window_parts == b->window_parts &&
           a->window_flags == b->window_flags;
}

/* The class with these parameters and this first layer; any planned one when `shape` is NULL. Needs the mutex. */
static struct bloom_class *find(const struct bloom_pool *pool, const struct bloom_params *params,
                                const struct bloom_shape *shape)
{
    struct bloom_class *class = pool->buckets[params_hash(params) & (pool->nbuckets - 1)];

    for (; class; class = class->next) {
        struct bloom_shape own;

        if (!params_equal(&class->params, params))
            continue;
        bloom_geometry_shape(&class->geometry, &own);
        if (shape ? bloom_shape_equal(&own, shape) : class->planned)
            return class;
    }
    return NULL;
}

/* Doubles the buckets when there are more classes than buckets. Without memory the chains just get longer. */
static void rehash_if_full(struct bloom_pool *pool)
{
    size_t nbuckets = pool->nbuckets * 2;
    struct bloom_class **buckets;

    if (pool->nclasses <= pool->nbuckets)
        return;
    buckets = calloc(nbuckets, sizeof(*buckets));
    if (!buckets)
        return;
    for (size_t i = 0; i < pool->nbuckets; i++) {
        for (struct bloom_class *class = pool->buckets[i], *next; class; class = next) {
            struct bloom_class **bucket = &buckets[params_hash(&class->params) & (nbuckets - 1)];

            next = class->next;
            class->next = *bucket;
            *bucket = class;
        }
    }
    free(pool->buckets);
    pool->buckets = buckets;
    pool->nbuckets = nbuckets;
}

/* The capacity and the rate of the first layer. */
static uint64_t first_layer(const struct bloom_params *params, double *rate_out)
{
    uint64_t capacity = params->capacity;

    if (bloom_params_is_window(params))
        CHECK(bloom_window_level(params, 0, &capacity, rate_out, NULL) == BLOOM_OK);
    else
        *rate_out = params->expansion == 0 ? params->error_rate : bloom_size_share(params->error_rate, 0);
    return capacity;
}

/* Sizes the first layer of a new filter. BLOOM_OK or BLOOM_REFUSED. */
static int plan_first_layer(const struct bloom_params *params, struct bloom_shape *shape_out, struct errbuf *err)
{
    struct bloom_size size;
    double rate;
    uint64_t capacity = first_layer(params, &rate);
    int rc;

    if (params->redisbloom) { /* the first share is a half there, too */
        rc = redisbloom_size(params->redisbloom, capacity, rate, shape_out, err);
    } else {
        rc = bloom_size_plan(capacity, rate, &size, err) == BLOOM_SIZE_OK ? BLOOM_OK : BLOOM_REFUSED;
        if (rc == BLOOM_OK)
            *shape_out = (struct bloom_shape){.nwords = size.nwords, .k = (uint8_t)size.k, .variant = BLOOM_NA};
    }
    if (rc != BLOOM_OK && bloom_params_is_window(params))
        errbuf_prefix(err, "each part of the window is for %llu items at an error rate of %g",
                      (unsigned long long)capacity, rate);
    else if (rc != BLOOM_OK && params->expansion != 0)
        errbuf_prefix(err, "the first layer of a scaling filter gets half the error rate, %g", rate);
    return rc;
}

/* Finds or creates the class with this first layer. 0 or -ENOMEM. */
static int get_with_shape(struct bloom_pool *pool, const struct bloom_params *params, const struct bloom_shape *shape,
                          bool planned, struct bloom_class **class_out)
{
    struct bloom_class *class;

    pthread_mutex_lock(&pool->classes_mutex);
    class = find(pool, params, shape);
    if (class) {
        atomic_fetch_add_explicit(&class->refs, 1, memory_order_relaxed);
        class->planned = class->planned || planned;
    } else {
        class = aligned_alloc(alignof(struct bloom_class), sizeof(*class));
        if (class) {
            struct bloom_class **bucket = &pool->buckets[params_hash(params) & (pool->nbuckets - 1)];

            class->params = *params;
            class->pool = pool;
            class->planned = planned;
            atomic_init(&class->refs, 1);
            double rate;
            uint64_t capacity = first_layer(params, &rate);
            bloom_geometry_init(&class->geometry, shape, 0, capacity, rate);
            class->geometry.window = bloom_params_is_window(params);
            class->next = *bucket;
            *bucket = class;
            pool->nclasses++;
            rehash_if_full(pool);
        }
    }
    pthread_mutex_unlock(&pool->classes_mutex);
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
        if (!bloom_shape_valid(shape, err) || !redisbloom_fits(params, shape, err))
            return BLOOM_REFUSED;
        if (shape->level != 0) { /* a window's ring begins with a part: it is the model for all parts */
            errbuf_set(err, "the first layer is of level %u of a part, not the part's first", shape->level);
            return BLOOM_REFUSED;
        }
        return get_with_shape(pool, params, shape, false, class_out);
    }

    pthread_mutex_lock(&pool->classes_mutex);
    struct bloom_class *known = find(pool, params, NULL);
    if (known)
        atomic_fetch_add_explicit(&known->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&pool->classes_mutex);
    if (known) {
        *class_out = known;
        return 0;
    }

    if (plan_first_layer(params, &plan, err) != BLOOM_OK)
        return BLOOM_REFUSED;
    return get_with_shape(pool, params, &plan, true, class_out);
}

struct bloom_class *bloom_class_retain(struct bloom_class *class)
{
    atomic_fetch_add_explicit(&class->refs, 1, memory_order_relaxed);
    return class;
}

void bloom_class_release(struct bloom_class *class)
{
    struct bloom_pool *pool;
    struct bloom_class **link;
    uint64_t refs;

    if (!class)
        return;
    refs = atomic_load_explicit(&class->refs, memory_order_relaxed);
    while (refs > 1) {
        if (atomic_compare_exchange_weak_explicit(&class->refs, &refs, refs - 1, memory_order_release,
                                                  memory_order_relaxed))
            return;
    }

    pool = class->pool;
    pthread_mutex_lock(&pool->classes_mutex);
    refs = atomic_fetch_sub_explicit(&class->refs, 1, memory_order_acq_rel);
    CHECK(refs >= 1);
    if (refs == 1) {
        link = &pool->buckets[params_hash(&class->params) & (pool->nbuckets - 1)];
        while (*link != class)
            link = &(*link)->next;
        *link = class->next;
        pool->nclasses--;
        free(class);
    }
    pthread_mutex_unlock(&pool->classes_mutex);
}
