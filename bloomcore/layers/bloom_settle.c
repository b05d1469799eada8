/* How 2 MiB of words move to a huge page. A second mapping of the same size, the staging area, has huge pages. The
 * words are copied there without a lock; the first write allocates the huge page, which can take 5 ms. Then, under the
 * filter's lock, the words that have changed since are copied again, and mremap() replaces the small pages by the huge
 * one. The kernel does that in one step: a reader finds the old pages or the new one, which hold the same bits, and
 * writers hold the lock. Adds wait for 0.3 ms; queries do not.
 *
 * Filters that are being merged into or from (bloom_twins.c) are written without that lock, so their pages are not
 * moved. A caller whose merges wait for a grace period between bloom_twins_begin() and the first such write ends a read
 * section in each call of `go_on`.
 *
 * MADV_COLLAPSE does the same in the kernel. But it holds the lock of the address space while it copies into a page
 * that the host of a virtual machine may still have to find. Each first touch of any page waits for that.
 *
 * Pages are moved in the order of their addresses, from equal distances. So the kernel merges the moved ones into one
 * mapping, and the limit of mappings (vm.max_map_count) is not reached. */
#include "bloom_pool.h"

#include <sched.h>
#include <sys/mman.h>

#include "bloom_layer.h"
#include "bloom_words.h"
#include "lock.h"

#define SMALL_PAGE ((size_t)4 << 10)
#define LOOKS      1024 /* mappings that one call checks */
#define AT_REST    100  /* fewer new items than this since the last look: the filling rests */

/* Due after one item per small page: with some seven bits per item nearly all pages have been touched. */
static bool is_due(struct bloom_map *map)
{
    uint64_t items = atomic_load_explicit(&map->layer->items, memory_order_relaxed), before = map->items;

    map->items = items;
    if (items < map->len / BLOOM_HUGE_PAGE || bloom_map_whole(map) == 0)
        return false;
    return items >= map->len / SMALL_PAGE || items < before + AT_REST;
}

static bool have_staging(struct bloom_map *map)
{
    if (map->staging)
        return true;
    map->staging = bloom_map_reserve(0, bloom_map_whole(map));
    if (!map->staging)
        return false;
    (void)madvise(map->staging, bloom_map_whole(map), MADV_HUGEPAGE);
    return true;
}

static void copy_changed(uint64_t *to, const _Atomic uint64_t *from)
{
    for (size_t i = 0; i < BLOOM_HUGE_PAGE / 8; i++) {
        uint64_t word = atomic_load_explicit(&from[i], memory_order_relaxed);

        if (to[i] != word)
            to[i] = word;
    }
}

enum moved {
    MOVED,
    POSTPONED, /* a merge writes to the filter without its lock */
    FAILED,    /* no memory for the kernel's own tables */
};

static enum moved move_page(struct bloom_pool *pool, struct bloom_map *map)
{
    struct bloom_lock *lock = bloom_pool_lock_of(pool, map->filter);
    char *page = bloom_map_start(map) + map->moved, *copy = map->staging + map->moved;
    enum moved result = POSTPONED;

    *(volatile char *)copy = 0; /* the kernel allocates the huge page now, not under the lock */
    copy_changed((uint64_t *)(void *)copy, (_Atomic uint64_t *)(void *)page);
    sched_yield(); /* a fresh time slice: the thread should not be preempted while others wait for the lock */
    bloom_lock_take(lock);
    if (!bloom_pool_twin(pool, map->filter)) {
        copy_changed((uint64_t *)(void *)copy, (_Atomic uint64_t *)(void *)page);
        result = mremap(copy, BLOOM_HUGE_PAGE, BLOOM_HUGE_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page) == MAP_FAILED
                     ? FAILED
                     : MOVED;
    }
    bloom_lock_give(lock);
    map->moved += result == MOVED ? BLOOM_HUGE_PAGE : 0;
    return result;
}

/* Moves the pages of a busy mapping. True if all are done. */
static bool move_pages(struct bloom_pool *pool, struct bloom_map *map, bool (*go_on)(void *ctx), void *ctx)
{
    enum moved result = have_staging(map) ? MOVED : FAILED;

    while (result == MOVED && map->moved < bloom_map_whole(map)) {
        if (atomic_load_explicit(&map->unwanted, memory_order_relaxed) || (go_on && !go_on(ctx)))
            return false;
        result = move_page(pool, map);
    }
    return result != POSTPONED;
}

static struct bloom_map *take_next(struct bloom_maps *maps)
{
    struct bloom_map *map;

    lock_take(&maps->pages.lock);
    map = maps->first;
    if (map) {
        maps->first = map->next;
        map->busy = true;
    }
    lock_give(&maps->pages.lock);
    return map;
}

static void give_back(struct bloom_maps *maps, struct bloom_map *map, bool finished)
{
    lock_take(&maps->pages.lock);
    map->busy = false;
    if (finished)
        bloom_map_leave(maps, map);
    pthread_cond_broadcast(&maps->idle);
    lock_give(&maps->pages.lock);
}

void bloom_pool_settle(struct bloom_pool *pool, bool (*go_on)(void *ctx), void *ctx)
{
    struct bloom_maps *maps = &pool->maps;

    lock_take(&maps->pages.lock);
    size_t looks = maps->n < LOOKS ? maps->n : LOOKS;
    lock_give(&maps->pages.lock);
    while (looks-- > 0 && (!go_on || go_on(ctx))) {
        struct bloom_map *map = take_next(maps);
        if (!map)
            return;
        give_back(maps, map, is_due(map) && move_pages(pool, map, go_on, ctx));
    }
}

bool bloom_pool_is_settled(struct bloom_pool *pool)
{
    lock_take(&pool->maps.pages.lock);
    bool settled = pool->maps.n == 0;
    lock_give(&pool->maps.pages.lock);
    return settled;
}
