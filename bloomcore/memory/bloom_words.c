/* A mapping is aligned to huge pages, and begins with room for a file's header, so that a file can be read into it past
 * the page cache. A page before it holds `struct bloom_map`. The excess mapped for the alignment is unmapped. The
 * mapping reserves no swap: a filter of 10 GB may be created on any machine and takes only the memory it uses. */
#include "bloom_words.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

#define HUGE_PAGE   BLOOM_HUGE_PAGE
#define LEAD        ((size_t)64 << 10) /* before the mapping; like all lengths a multiple of every page size */
#define UNMAP       HUGE_PAGE          /* bytes at once: 0.2 ms */
#define UNMAP_EMPTY (32 * HUGE_PAGE)   /* the same for untouched memory */

static struct bloom_map *map_of(_Atomic uint64_t *words)
{
    return (struct bloom_map *)(void *)((char *)words - BLOOM_ROOM_HEAD - sizeof(struct bloom_map));
}

void bloom_maps_init(struct bloom_maps *maps, const struct bloom_memory *memory)
{
    maps->memory = memory;
    bloom_pages_init(&maps->pages);
    pthread_cond_init(&maps->idle, NULL);
    maps->first = NULL;
    maps->n = 0;
}

void bloom_maps_deinit(struct bloom_maps *maps)
{
    pthread_cond_destroy(&maps->idle);
    bloom_pages_deinit(&maps->pages);
}

/* ---- the ring ---- */

static void ring_add(struct bloom_maps *maps, struct bloom_map *map)
{
    lock_take(&maps->pages.lock);
    struct bloom_map *first = maps->first ? maps->first : map;
    map->next = first;
    map->prev = first == map ? map : first->prev;
    map->prev->next = map;
    first->prev = map;
    maps->first = first;
    maps->n++;
    lock_give(&maps->pages.lock);
}

void bloom_map_leave(struct bloom_maps *maps, struct bloom_map *map)
{
    if (!map->next)
        return;
    if (maps->first == map)
        maps->first = map->next == map ? NULL : map->next;
    map->prev->next = map->next;
    map->next->prev = map->prev;
    map->prev = map->next = NULL;
    maps->n--;
    if (map->staging && map->moved < bloom_map_whole(map))
        munmap(map->staging + map->moved, bloom_map_whole(map) - map->moved);
    map->staging = NULL;
}

/* Takes a mapping out of the ring for good; settle() does not use it afterwards. Waits while a page is being moved. */
static void leave_ring(struct bloom_maps *maps, struct bloom_map *map)
{
    lock_take(&maps->pages.lock);
    atomic_store_explicit(&map->unwanted, true, memory_order_relaxed);
    while (map->busy)
        lock_wait(&maps->idle, &maps->pages.lock);
    bloom_map_leave(maps, map);
    lock_give(&maps->pages.lock);
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

char *bloom_map_reserve(size_t lead, size_t len)
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

/* Whether words of this number are a large layer in blocks, or look like one: with BLOCKED_LEAD words before blocks. */
static bool has_lead(uint64_t nwords)
{
    return nwords * 8 >= BLOOM_MAPPED_BYTES && nwords % 8 == 7;
}

/* Memory of the host begins anywhere. The words begin 8 bytes behind a cache line, as in a mapping, so that blocks are
 * lines. The 8 bytes have the address of the memory. */
static _Atomic uint64_t *hosted_with_lead(const struct bloom_memory *memory, uint64_t nwords)
{
    char *raw = memory->zeroed((size_t)nwords * 8 + BLOOM_CACHE_LINE);
    if (!raw)
        return NULL;
    char **line = (char **)(void *)(raw + (-(uintptr_t)raw & (BLOOM_CACHE_LINE - 1)));
    *line = raw;
    return (_Atomic uint64_t *)(void *)(line + 1);
}

_Atomic uint64_t *bloom_words_alloc(struct bloom_maps *maps, const struct bloom_filter *filter,
                                    const struct bloom_layer *layer, uint64_t nwords)
{
    if (maps->memory)
        return has_lead(nwords) ? hosted_with_lead(maps->memory, nwords) : maps->memory->zeroed((size_t)nwords * 8);
    if (is_run(maps, nwords))
        return bloom_pages_alloc(&maps->pages, (size_t)nwords * 8, BLOOM_PAGES_LOOSE);
    if (!is_mapped(maps, nwords))
        return calloc((size_t)nwords, sizeof(_Atomic uint64_t));

    size_t len = mapped_length(nwords);
    char *start = bloom_map_reserve(LEAD, len);
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

/* Unmaps in pieces. A thread that maps memory, or touches some for the first time, waits for the end of a system call
 * that unmaps. For 4 GB that is half a second. The pieces go from the end on, so that the rest remains one mapping, and
 * end between huge pages, so none is split. Untouched memory goes in larger pieces: small ones would spend a
 * second on system calls for a terabyte that was reserved for nothing. */
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
        maps->memory->release(has_lead(nwords) ? ((char **)(void *)words)[-1] : (char *)(void *)words);
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
    unmap_slowly(bloom_map_start(map) - LEAD, LEAD + mapped_length(nwords));
}

unsigned char *bloom_words_room(const struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords)
{
    return is_mapped(maps, nwords) ? (unsigned char *)words - BLOOM_ROOM_HEAD : NULL;
}

static __attribute__((unused)) bool are_zero(const _Atomic uint64_t *words, uint64_t nwords)
{
    for (uint64_t i = 0; i < nwords; i++)
        if (atomic_load_explicit(&words[i], memory_order_relaxed))
            return false;
    return true;
}

/* A run on huge pages instead of a loose one; without memory the same one. */
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

void bloom_words_stay(struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords)
{
    if (is_mapped(maps, nwords))
        leave_ring(maps, map_of(words));
}

_Atomic uint64_t *bloom_words_fill(struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords)
{
    if (is_run(maps, nwords))
        return dense_run(maps, words, nwords);
    if (!is_mapped(maps, nwords))
        return words;
    struct bloom_map *map = map_of(words);
    leave_ring(maps, map);
    (void)madvise(bloom_map_start(map), map->len, MADV_HUGEPAGE);
    return words;
}
