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

uint64_t bloom_pool_still_bytes(const struct bloom_pool *pool)
{
    return atomic_load_explicit(&pool->still_bytes, memory_order_relaxed);
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

/* ---- limits ---- */

static unsigned size_step(uint64_t bytes)
{
    unsigned log2 = 63 - (unsigned)__builtin_clzll(bytes | UINT64_C(1) << BLOOM_SIZE_FIRST_LOG2);
    uint64_t part = bytes >> (log2 - BLOOM_SIZE_STEPS_LOG2) & ((1u << BLOOM_SIZE_STEPS_LOG2) - 1);
    uint64_t step = (uint64_t)(log2 - BLOOM_SIZE_FIRST_LOG2) << BLOOM_SIZE_STEPS_LOG2 | part;

    return step < BLOOM_SIZES ? (unsigned)step : BLOOM_SIZES - 1;
}

void bloom_pool_resize(struct bloom_pool *pool, uint64_t before, uint64_t after)
{
    if (before)
        atomic_fetch_sub_explicit(&pool->evictable.sizes[size_step(before)], 1, memory_order_relaxed);
    if (after)
        atomic_fetch_add_explicit(&pool->evictable.sizes[size_step(after)], 1, memory_order_relaxed);
}

/* Of the filters whose words can be dropped: the words of the largest one, rounded up to its step. */
static uint64_t largest(const struct bloom_pool *pool)
{
    for (unsigned step = BLOOM_SIZES; step-- > 0;) {
        uint64_t part = (UINT64_C(1) << BLOOM_SIZE_STEPS_LOG2) + step % (1u << BLOOM_SIZE_STEPS_LOG2) + 1;
        unsigned log2 = (step >> BLOOM_SIZE_STEPS_LOG2) + BLOOM_SIZE_FIRST_LOG2;
        if (atomic_load_explicit(&pool->evictable.sizes[step], memory_order_relaxed))
            return part << (log2 - BLOOM_SIZE_STEPS_LOG2);
    }
    return 0;
}

static uint64_t used_with(const struct bloom_pool *pool, uint64_t bytes)
{
    return bytes + (pool->overhead.bytes ? pool->overhead.bytes(pool->overhead.ctx) : 0);
}

/* What would be left of `used` if all words were dropped that can be. */
static uint64_t staying(const struct bloom_pool *pool, uint64_t used)
{
    uint64_t droppable = atomic_load_explicit(&pool->evictable.bytes, memory_order_relaxed);
    uint64_t held = atomic_load_explicit(&pool->evictable.held, memory_order_relaxed);
    uint64_t goes = droppable > held ? droppable - held : 0;

    return used > goes ? used - goes : 0;
}

/* Whether the limit of the whole pool allows the words, if those before take `held`. Every filter must have room for
 * its words again, whatever has been dropped meanwhile. Where words are not dropped, that is room for all of them.
 * Where they are, it is room for those of one filter beside what stays. A sixteenth of the limit remains for names and
 * other overhead that comes later. */
static bool total_allows(const struct bloom_pool *pool, uint64_t held, const struct bloom_charge *charge,
                         struct errbuf *err)
{
    uint64_t max = atomic_load_explicit(&pool->max_total_bytes, memory_order_relaxed);
    uint64_t bytes = charge->bytes;

    if (max == 0)
        return true;
    uint64_t used = used_with(pool, held);
    if (!atomic_load_explicit(&pool->evictable.on, memory_order_relaxed)) {
        uint64_t away = atomic_load_explicit(&pool->evictable.dropped_bytes, memory_order_relaxed);
        if (used + away + bytes <= max)
            return true;
        return errbuf_fail(err, false,
                           "%llu bytes more are needed, %llu are in use%s, the limit for all filters is %llu",
                           (unsigned long long)bytes, (unsigned long long)(used + away),
                           away ? ", with bits that are on the disk only" : "", (unsigned long long)max);
    }
    uint64_t stay = staying(pool, used) + (charge->droppable ? 0 : bytes), one = largest(pool);
    if (charge->droppable && one < charge->dropped_with + bytes)
        one = charge->dropped_with + bytes;
    /* Others may have passed the limit, since the caller was let in, by an eighth. */
    if (stay + one <= max - max / 16 && (used + bytes <= max || used < max + max / 8))
        return true;
    return errbuf_fail(
        err, false,
        "%llu bytes more are needed, %llu are in use, of which %llu could be evicted; the largest filter that "
        "can be evicted would have %llu, and the limit for all filters is %llu",
        (unsigned long long)bytes, (unsigned long long)used, (unsigned long long)(used - staying(pool, used)),
        (unsigned long long)one, (unsigned long long)max);
}

int bloom_pool_room(struct bloom_pool *pool, uint64_t bytes, struct errbuf *err)
{
    return total_allows(pool, bloom_pool_bytes(pool), &(struct bloom_charge){.bytes = bytes}, err) ? BLOOM_OK
                                                                                                   : BLOOM_LIMIT;
}

int bloom_pool_charge(struct bloom_pool *pool, const struct bloom_charge *charge, struct errbuf *err)
{
    uint64_t max_filter = atomic_load_explicit(&pool->max_filter_bytes, memory_order_relaxed);
    uint64_t held = bloom_pool_bytes(pool);

    /* No sum here can overflow: a layer has less than 2^34 bytes, a chain less than 2^40. */
    if (max_filter != 0 && charge->filter_bytes + charge->bytes > max_filter)
        return errbuf_fail(err, BLOOM_LIMIT, "the filter would need %llu bytes, the limit for one filter is %llu",
                           (unsigned long long)(charge->filter_bytes + charge->bytes), (unsigned long long)max_filter);
    do {
        if (!total_allows(pool, held, charge, err))
            return BLOOM_LIMIT;
    } while (!atomic_compare_exchange_weak_explicit(&pool->bytes, &held, held + charge->bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    return BLOOM_OK;
}

int bloom_pool_charge_again(struct bloom_pool *pool, uint64_t bytes, struct errbuf *err)
{
    uint64_t max = atomic_load_explicit(&pool->max_total_bytes, memory_order_relaxed), held = bloom_pool_bytes(pool);
    bool evicts = atomic_load_explicit(&pool->evictable.on, memory_order_relaxed);

    do {
        uint64_t used = max ? used_with(pool, held) : 0;
        if (max == 0 || used + bytes <= max || (evicts && used < max + max / 8 && bytes <= max))
            continue;
        return errbuf_fail(err, BLOOM_LIMIT,
                           "%llu bytes more are needed, %llu are in use, the limit for all filters is %llu",
                           (unsigned long long)bytes, (unsigned long long)used, (unsigned long long)max);
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

void bloom_pool_set_evicts(struct bloom_pool *pool, bool on)
{
    atomic_store_explicit(&pool->evictable.on, on, memory_order_relaxed);
}

uint64_t bloom_pool_staying(const struct bloom_pool *pool)
{
    return staying(pool, used_with(pool, bloom_pool_bytes(pool)));
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
            /* The holder needs some thousand cycles; longer: it is not running, and may need this processor. */
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
