#include "bloom_pool.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_keyring.h"
#include "bloom_shared.h"
#include "check.h"
#include "clock.h"
#include "lock.h"

/* ---- pool ---- */

int bloom_pool_create(struct bloom_pool **pool_out)
{
    return bloom_pool_create_in(NULL, pool_out);
}

int bloom_pool_create_in(const struct bloom_memory *memory, struct bloom_pool **pool_out)
{
    struct bloom_pool *pool = aligned_alloc(alignof(struct bloom_pool), sizeof(*pool));
    if (!pool)
        return -ENOMEM;
    memset(pool, 0, sizeof(*pool));
    lock_init(&pool->lock, RANK_POOL);
    lock_init(&pool->turns, RANK_TURNS);
    bloom_maps_init(&pool->maps, memory);
    *pool_out = pool;
    return 0;
}

void bloom_pool_destroy(struct bloom_pool *pool)
{
    if (!pool)
        return;
    CHECK(pool->classes.count == 0);
    CHECK(atomic_load(&pool->bytes) == 0);
    CHECK(atomic_load(&pool->ntwins) == 0);
    bloom_maps_deinit(&pool->maps);
    bloom_keyring_deinit(pool);
    lock_deinit(&pool->turns);
    lock_deinit(&pool->lock);
    free(pool);
}

uint64_t bloom_pool_bytes(const struct bloom_pool *pool)
{
    return atomic_load_explicit(&pool->bytes, memory_order_relaxed);
}

uint64_t bloom_pool_growths(const struct bloom_pool *pool)
{
    return atomic_load_explicit(&pool->growths, memory_order_relaxed);
}

void bloom_pool_set_limits(struct bloom_pool *pool, uint64_t max_filter_bytes, uint64_t max_total_bytes)
{
    atomic_store_explicit(&pool->max_filter_bytes, max_filter_bytes, memory_order_relaxed);
    atomic_store_explicit(&pool->max_total_bytes, max_total_bytes, memory_order_relaxed);
}

void bloom_pool_set_overhead(struct bloom_pool *pool, uint64_t (*overhead)(void *ctx), void *ctx)
{
    pool->overhead.bytes = overhead;
    pool->overhead.ctx = ctx;
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
    uint64_t used = max_total != 0 && pool->overhead.bytes ? held + pool->overhead.bytes(pool->overhead.ctx) : held;

    if (max_total == 0 || used + bytes <= max_total)
        return true;
    /* An eighth more: other threads may have passed the limit since the caller was let in. */
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

void bloom_pool_set_overshoot(struct bloom_pool *pool, bool on)
{
    atomic_store_explicit(&pool->overshoot, on, memory_order_relaxed);
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

    lock_check_take(RANK_ADDS, lock);
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

/* ---- the clock ---- */

void bloom_pool_set_clock(struct bloom_pool *pool, int64_t (*now_us)(void))
{
    pool->now_us = now_us;
}

int64_t bloom_pool_now_us(const struct bloom_pool *pool)
{
    return pool->now_us ? pool->now_us() : clock_boot_us();
}
