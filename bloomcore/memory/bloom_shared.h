/* bloom_shared: the structs of the data that filters share, and the locks of adds. Internal to bloomcore; bloom_pool.h
 * is its public part. Thread: any. */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>

#include "bloom_geometry.h"
#include "bloom_types.h"
#include "bloom_words.h"
#include "hash_table.h"
#include "lock.h"

#define BLOOM_MAX_TWINS 16 /* pairs at a time */

/* The counts of filters by the bytes of their words that can be dropped: 64 steps for each power of two from 4 KiB on,
 * so a filter counts as at most a sixty-fourth larger than it is. */
#define BLOOM_SIZE_STEPS_LOG2 6
#define BLOOM_SIZE_FIRST_LOG2 12
#define BLOOM_SIZES           ((44 - BLOOM_SIZE_FIRST_LOG2) << BLOOM_SIZE_STEPS_LOG2)

#define BLOOM_LOCKS_LOG2 10
#define BLOOM_LOCKS      (1u << BLOOM_LOCKS_LOG2)

/* A lock of adds: a thread that adds to a filter holds it, for one item or for a batch, some ten nanoseconds per item.
 * Several filters share a lock, because there are fewer locks than filters. */
struct bloom_lock {
    alignas(BLOOM_CACHE_LINE) atomic_bool taken;
};

struct bloom_pool {
    struct bloom_lock locks[BLOOM_LOCKS];

    alignas(BLOOM_CACHE_LINE) _Atomic uint64_t bytes; /* words of all filters */
    _Atomic uint64_t growths;                         /* layers added by growth */
    _Atomic uint64_t max_filter_bytes;
    _Atomic uint64_t max_total_bytes;
    _Atomic uint64_t inline_bytes; /* the part of `bytes` in the callers' memory */
    _Atomic uint64_t header_bytes; /* of layers added by growth */
    _Atomic uint64_t still_bytes;  /* old words of stills (cuckoo.h) */
    struct {
        atomic_bool on;                      /* bloom_pool_set_evicts() */
        _Atomic uint64_t bytes;              /* of words in memory that can be dropped (bloom_resident.h) */
        _Atomic uint64_t held;               /* the part of these that stays for long: bloom_filter_hold() */
        _Atomic uint64_t dropped;            /* filters without their words */
        _Atomic uint64_t dropped_bytes;      /* of these words */
        _Atomic uint32_t sizes[BLOOM_SIZES]; /* filters with such words, in memory or not */
    } evictable;
    struct {
        uint64_t (*bytes)(void *ctx);
        void *ctx;
    } overhead;              /* bloom_pool_set_overhead() */
    int64_t (*now_us)(void); /* bloom_pool_set_clock() */

    /* Pairs of filters: one will replace the other (bloom_merge.h). Nearly always there are none: adds then read the
     * number only. `older` NULL: free. */
    alignas(BLOOM_CACHE_LINE) _Atomic unsigned ntwins;
    struct bloom_twin_slot {
        struct bloom_filter *_Atomic older;
        struct bloom_filter *_Atomic younger;
        void (*_Atomic added)(void *ctx);
        void *_Atomic ctx;
        _Atomic uint64_t younger_id;
    } twins[BLOOM_MAX_TWINS];

    /* One layer is added at a time in the whole pool: growth is rare and takes microseconds. Also guards changes of
     * twins, the keys, the classes, and the step of their reference counts from 1 to 0. */
    alignas(BLOOM_CACHE_LINE) struct lock lock;

    /* One part of a window begins or grows at a time. Not `lock`: a twin grows under locks of adds (bloom_twins.c), and
     * a window's part is published by taking its lock of adds. */
    struct lock turns;

    struct bloom_maps maps; /* large layers' words */

    struct bloom_keyring {
        _Atomic uint64_t first; /* id of the key of new filters; 0: none */
        struct bloom_key *keys; /* by `next`, as the unused ones */
        struct bloom_key *unused;
        struct bloom_key_page *pages; /* that have them */
    } keyring;

    struct hash_table classes; /* by their parameters */
};

struct bloom_class {
    struct bloom_geometry geometry; /* of the first layer; one cache line, read by every query */

    /* Written when filters come and go; not in the cache line that queries read. */
    alignas(BLOOM_CACHE_LINE) struct bloom_pool *pool;
    struct bloom_params params;
    struct hash_link link;
    _Atomic uint64_t refs;
    bool planned; /* the first layer is sized by bloom_size_plan() */
};

_Static_assert(sizeof(struct bloom_geometry) <= BLOOM_CACHE_LINE, "one line for queries");
_Static_assert(sizeof(struct bloom_class) == 3 * BLOOM_CACHE_LINE, "and two for the rest");

/* Words that a filter gets. */
struct bloom_charge {
    uint64_t bytes;
    uint64_t filter_bytes; /* of the words that it has */
    bool droppable;        /* the new ones can be dropped; then */
    uint64_t dropped_with; /* bytes of the others that are dropped, and come back, together with them */
};

/* Charges them. 0, or BLOOM_LIMIT with the limit in `err`. */
int bloom_pool_charge(struct bloom_pool *pool, const struct bloom_charge *charge, struct errbuf *err);

/* The same for words that had been dropped: only the memory in use now is compared with the limit. */
int bloom_pool_charge_again(struct bloom_pool *pool, uint64_t bytes, struct errbuf *err);
void bloom_pool_charge_anyway(struct bloom_pool *pool, uint64_t bytes); /* without limits */
void bloom_pool_discharge(struct bloom_pool *pool, uint64_t bytes);

/* A filter had `before` bytes of words that can be dropped, in memory or not, and has `after` now; 0: no filter. */
void bloom_pool_resize(struct bloom_pool *pool, uint64_t before, uint64_t after);

struct bloom_lock *bloom_pool_lock_of(struct bloom_pool *pool, const struct bloom_filter *filter);
void bloom_lock_take(struct bloom_lock *lock);

/* The pair of the filter; NULL, the usual answer, if it has none. */
const struct bloom_twin_slot *bloom_pool_find_twin(const struct bloom_pool *pool, const struct bloom_filter *filter);

static inline const struct bloom_twin_slot *bloom_pool_twin(const struct bloom_pool *pool,
                                                            const struct bloom_filter *filter)
{
    if (__builtin_expect(atomic_load_explicit(&pool->ntwins, memory_order_acquire) == 0, 1))
        return NULL;
    return bloom_pool_find_twin(pool, filter);
}

/* Sequentially consistent. A flag that the caller reads afterwards (is the filter marked as changed?) is read after all
 * threads can see the writes under the lock. It is also read after all earlier writes of threads of which the caller
 * has seen some. */
static inline void bloom_lock_give(struct bloom_lock *lock)
{
    lock_check_give(RANK_ADDS, lock);
    atomic_thread_fence(memory_order_seq_cst);
    atomic_store_explicit(&lock->taken, false, memory_order_release);
}
