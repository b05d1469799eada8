/* A mapping is aligned to huge pages, and begins with room for a file's header, so that a file can be read into it past
 * the page cache. A page in front of it holds `struct bloom_map`. The excess mapped for the alignment is unmapped. The
 * mapping reserves no swap: a filter of 10 GB may be created on any machine and takes only the memory it uses.
 *
 * How 2 MiB of words move to a huge page. A second mapping of the same size, the staging area, has huge pages. The
 * words are copied there without a lock; the first write allocates the huge page, which can take 5 ms. Then, under the
 * filter's lock, the words that have changed since are copied again, and mremap() replaces the small pages by the huge
 * one. The kernel does that in one step: a reader finds the old pages or the new one, which hold the same bits, and
 * writers hold the lock. Adds wait for 0.3 ms; queries do not.
 *
 * Filters that are being merged into or from (bloom_twins.c) are written without that lock, so their pages are not
 * moved. A caller whose merges wait for a grace period between bloom_twins_begin() and the first such write ends a read
 * section in each call of `go_on`.
 *
 * MADV_COLLAPSE does the same in the kernel, but holds the lock of the address space while it copies into a page that
 * the host of a virtual machine may still have to find: each first touch of any page waits for that.
 *
 * Pages are moved in the order of their addresses, from equal distances: so the kernel merges the moved ones into one
 * mapping, and the limit of mappings (vm.max_map_count) is not touched. */
#include "bloom_words.h"

#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bloom_layer.h"
#include "bloom_twins.h"
#include "check.h"

#define HUGE_PAGE   ((size_t)2 << 20)
#define SMALL_PAGE  ((size_t)4 << 10)
#define LEAD        ((size_t)64 << 10) /* in front of the mapping; like all lengths a multiple of every page size */
#define UNMAP       HUGE_PAGE          /* bytes at once: 0.2 ms */
#define UNMAP_EMPTY (32 * HUGE_PAGE)   /* the same for untouched memory */
#define LOOKS       1024               /* mappings that one call checks */
#define AT_REST     100                /* fewer new items than this since the last look: the filling rests */

/* In the last bytes of the page in front of the mapping. */
struct bloom_map {
    struct bloom_map *prev, *next; /* in the ring of those on small pages; next NULL: not in it */
    const struct bloom_filter *filter;
    const struct bloom_layer *layer;
    size_t len;
    size_t moved;         /* bytes from the start on that have been moved */
    char *staging;        /* the staging area, from offset `moved` on; NULL: there is none yet */
    uint64_t items;       /* of the layer, at the last look */
    bool busy;            /* settle() uses it without the maps' lock */
    atomic_bool unwanted; /* settle() is to stop: a thread waits for the mapping */
};

static struct bloom_map *map_of(_Atomic uint64_t *words)
{
    return (struct bloom_map *)((char *)words - BLOOM_ROOM_HEAD - sizeof(struct bloom_map));
}

static char *map_start(struct bloom_map *map)
{
    return (char *)(map + 1);
}

/* The rest behind them is less than a huge page and stays on small pages. */
static size_t whole_pages(const struct bloom_map *map)
{
    return map->len / HUGE_PAGE * HUGE_PAGE;
}

void bloom_maps_init(struct bloom_maps *maps, const struct bloom_memory *memory)
{
    maps->memory = memory;
    bloom_pages_init(&maps->pages);
    pthread_mutex_init(&maps->lock, NULL);
    pthread_cond_init(&maps->idle, NULL);
    maps->first = NULL;
    maps->n = 0;
}

void bloom_maps_deinit(struct bloom_maps *maps)
{
    pthread_cond_destroy(&maps->idle);
    pthread_mutex_destroy(&maps->lock);
    bloom_pages_deinit(&maps->pages);
}

/* ---- the ring ---- */

static void ring_add(struct bloom_maps *maps, struct bloom_map *map)
{
    pthread_mutex_lock(&maps->lock);
    struct bloom_map *first = maps->first ? maps->first : map;
    map->next = first;
    map->prev = first == map ? map : first->prev;
    map->prev->next = map;
    first->prev = map;
    maps->first = first;
    maps->n++;
    pthread_mutex_unlock(&maps->lock);
}

/* Under the lock. */
static void ring_remove(struct bloom_maps *maps, struct bloom_map *map)
{
    if (!map->next)
        return;
    if (maps->first == map)
        maps->first = map->next == map ? NULL : map->next;
    map->prev->next = map->next;
    map->next->prev = map->prev;
    map->prev = map->next = NULL;
    maps->n--;
    if (map->staging && map->moved < whole_pages(map))
        munmap(map->staging + map->moved, whole_pages(map) - map->moved);
    map->staging = NULL;
}

/* Takes a mapping out of the ring for good; settle() does not use it afterwards. Waits while a page is being moved. */
static void leave_ring(struct bloom_maps *maps, struct bloom_map *map)
{
    pthread_mutex_lock(&maps->lock);
    atomic_store_explicit(&map->unwanted, true, memory_order_relaxed);
    while (map->busy)
        pthread_cond_wait(&maps->idle, &maps->lock);
    ring_remove(maps, map);
    pthread_mutex_unlock(&maps->lock);
}

/* ---- words ---- */

/* Whether words of this number have a mapping of their own. */
static bool is_mapped(const struct bloom_maps *maps, uint64_t nwords)
{
    return !maps->memory && nwords * 8 >= BLOOM_MAPPED_BYTES;
}

/* Whether they are a run of bloom_pages. */
static bool is_run(const struct bloom_maps *maps, uint64_t nwords)
{
    return !maps->memory && nwords * 8 >= BLOOM_PAGES_MIN && nwords * 8 < BLOOM_MAPPED_BYTES;
}

static size_t mapped_length(uint64_t nwords)
{
    return (size_t)((BLOOM_ROOM_HEAD + nwords * 8 + LEAD - 1) / LEAD * LEAD);
}

/* Maps `len` bytes that begin at a huge page, and `lead` bytes in front of them. NULL without memory. */
static char *reserve(size_t lead, size_t len)
{
    char *raw =
        mmap(NULL, lead + len + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;

    size_t before = (size_t)(-(uintptr_t)(raw + lead) & (HUGE_PAGE - 1));
    char *start = raw + before + lead;
    if (before > 0)
        munmap(raw, before);
    if (before < HUGE_PAGE)
        munmap(start + len, HUGE_PAGE - before);
    return start;
}

_Atomic uint64_t *bloom_words_alloc(struct bloom_maps *maps, const struct bloom_filter *filter,
                                    const struct bloom_layer *layer, uint64_t nwords)
{
    if (maps->memory)
        return maps->memory->zeroed((size_t)nwords * 8);
    if (is_run(maps, nwords))
        return bloom_pages_alloc(&maps->pages, (size_t)nwords * 8, BLOOM_PAGES_LOOSE);
    if (!is_mapped(maps, nwords))
        return calloc((size_t)nwords, sizeof(_Atomic uint64_t));

    size_t len = mapped_length(nwords);
    char *start = reserve(LEAD, len);
    if (!start)
        return NULL;
    /* Fails on a kernel without huge pages, where it is not needed. */
    (void)madvise(start, len, MADV_NOHUGEPAGE);
    _Atomic uint64_t *words = (_Atomic uint64_t *)(void *)(start + BLOOM_ROOM_HEAD);
    struct bloom_map *map = map_of(words);
    map->filter = filter;
    map->layer = layer;
    map->len = len;
    ring_add(maps, map);
    return words;
}

/* Whether the memory was never touched. */
static bool untouched(char *start, size_t len)
{
    unsigned char resident[UNMAP_EMPTY / 4096];
    size_t pages = len / 4096;

    if (len > UNMAP_EMPTY || mincore(start, len, resident) != 0)
        return false;
    return pages == 0 || (!(resident[0] & 1) && memcmp(resident, resident + 1, pages - 1) == 0);
}

/* Unmaps in pieces: a thread that maps memory, or touches some for the first time, may have to wait for the end of a
 * system call that unmaps, which takes half a second for 4 GB. The pieces go from the end on, so that the rest remains
 * one mapping, and end between huge pages, so that none has to be split. Untouched memory goes in larger pieces: small
 * ones would spend a second on system calls for a terabyte that was reserved for nothing. */
static void unmap_slowly(char *start, size_t len)
{
    while (len > 0) {
        size_t piece = ((uintptr_t)start + len) % UNMAP;
        if (piece == 0)
            piece = len >= UNMAP_EMPTY && untouched(start + len - UNMAP_EMPTY, UNMAP_EMPTY) ? UNMAP_EMPTY : UNMAP;
        if (piece > len)
            piece = len;
        len -= piece;
        munmap(start + len, piece);
    }
}

void bloom_words_free(struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords)
{
    if (!words)
        return;
    if (maps->memory) {
        maps->memory->release((void *)words);
        return;
    }
    if (is_run(maps, nwords)) {
        bloom_pages_free(&maps->pages, (void *)words, (size_t)nwords * 8);
        return;
    }
    if (!is_mapped(maps, nwords)) {
        free((void *)words);
        return;
    }
    struct bloom_map *map = map_of(words);
    leave_ring(maps, map);
    unmap_slowly(map_start(map) - LEAD, LEAD + mapped_length(nwords));
}

unsigned char *bloom_words_room(const struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords)
{
    return is_mapped(maps, nwords) ? (unsigned char *)words - BLOOM_ROOM_HEAD : NULL;
}

void bloom_room_empty(unsigned char *from, size_t len)
{
    (void)madvise(from, len, MADV_DONTNEED);
}

static bool are_zero(const _Atomic uint64_t *words, uint64_t nwords)
{
    for (uint64_t i = 0; i < nwords; i++) {
        if (atomic_load_explicit(&words[i], memory_order_relaxed))
            return false;
    }
    return true;
}

/* A run on huge pages in the place of a loose one; without memory the same one. */
static _Atomic uint64_t *dense_run(struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords)
{
    if (bloom_pages_kind_of((void *)words) == BLOOM_PAGES_DENSE)
        return words;
    VERIFY(are_zero(words, nwords));
    _Atomic uint64_t *dense = bloom_pages_alloc(&maps->pages, (size_t)nwords * 8, BLOOM_PAGES_DENSE);
    if (!dense)
        return words;
    bloom_pages_free(&maps->pages, (void *)words, (size_t)nwords * 8);
    return dense;
}

_Atomic uint64_t *bloom_words_fill(struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords)
{
    if (is_run(maps, nwords))
        return dense_run(maps, words, nwords);
    if (!is_mapped(maps, nwords))
        return words;
    struct bloom_map *map = map_of(words);
    leave_ring(maps, map);
    (void)madvise(map_start(map), map->len, MADV_HUGEPAGE);
    return words;
}

/* ---- settling ---- */

/* Due after one item per small page: with some seven bits per item nearly all pages have been touched. */
static bool is_due(struct bloom_map *map)
{
    uint64_t items = atomic_load_explicit(&map->layer->items, memory_order_relaxed), before = map->items;

    map->items = items;
    if (items < map->len / HUGE_PAGE || whole_pages(map) == 0)
        return false;
    return items >= map->len / SMALL_PAGE || items < before + AT_REST;
}

static bool have_staging(struct bloom_map *map)
{
    if (map->staging)
        return true;
    map->staging = reserve(0, whole_pages(map));
    if (!map->staging)
        return false;
    (void)madvise(map->staging, whole_pages(map), MADV_HUGEPAGE);
    return true;
}

static void copy_changed(uint64_t *to, const _Atomic uint64_t *from)
{
    for (size_t i = 0; i < HUGE_PAGE / 8; i++) {
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
    char *page = map_start(map) + map->moved, *copy = map->staging + map->moved;
    enum moved result = POSTPONED;

    *(volatile char *)copy = 0; /* the kernel allocates the huge page now, not under the lock */
    copy_changed((uint64_t *)(void *)copy, (_Atomic uint64_t *)(void *)page);
    sched_yield(); /* a fresh time slice: the thread should not be preempted while others wait for the lock */
    bloom_lock_take(lock);
    if (!bloom_pool_twin(pool, map->filter)) {
        copy_changed((uint64_t *)(void *)copy, (_Atomic uint64_t *)(void *)page);
        result = mremap(copy, HUGE_PAGE, HUGE_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page) == MAP_FAILED ? FAILED : MOVED;
    }
    bloom_lock_give(lock);
    map->moved += result == MOVED ? HUGE_PAGE : 0;
    return result;
}

/* Moves the pages of a busy mapping. True if all are done. */
static bool move_pages(struct bloom_pool *pool, struct bloom_map *map, bool (*go_on)(void *ctx), void *ctx)
{
    enum moved result = have_staging(map) ? MOVED : FAILED;

    while (result == MOVED && map->moved < whole_pages(map)) {
        if (atomic_load_explicit(&map->unwanted, memory_order_relaxed) || (go_on && !go_on(ctx)))
            return false;
        result = move_page(pool, map);
    }
    return result != POSTPONED;
}

static struct bloom_map *take_next(struct bloom_maps *maps)
{
    struct bloom_map *map;

    pthread_mutex_lock(&maps->lock);
    map = maps->first;
    if (map) {
        maps->first = map->next;
        map->busy = true;
    }
    pthread_mutex_unlock(&maps->lock);
    return map;
}

static void give_back(struct bloom_maps *maps, struct bloom_map *map, bool finished)
{
    pthread_mutex_lock(&maps->lock);
    map->busy = false;
    if (finished)
        ring_remove(maps, map);
    pthread_cond_broadcast(&maps->idle);
    pthread_mutex_unlock(&maps->lock);
}

void bloom_words_settle(struct bloom_pool *pool, bool (*go_on)(void *ctx), void *ctx)
{
    struct bloom_maps *maps = &pool->maps;

    pthread_mutex_lock(&maps->lock);
    size_t looks = maps->n < LOOKS ? maps->n : LOOKS;
    pthread_mutex_unlock(&maps->lock);
    while (looks-- > 0 && (!go_on || go_on(ctx))) {
        struct bloom_map *map = take_next(maps);
        if (!map)
            return;
        give_back(maps, map, is_due(map) && move_pages(pool, map, go_on, ctx));
    }
}
