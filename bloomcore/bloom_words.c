/* A mapping is aligned to huge pages, and begins with room for a file's header, so that a file can be read into it past the
 * page cache. In front of it there is a page for what is to be known of it; the ends of what had to be mapped for the
 * alignment are given back. The mapping reserves no swap: a filter of 10 GB may be created on any machine and takes what it
 * uses.
 *
 * A page is made huge by MADV_COLLAPSE (Linux 6.1) in the calling thread. Whoever touches the page, or makes another one of
 * the mapping, waits meanwhile. Most of the time would go into the first use of the huge page: where the host of a virtual
 * machine has to find memory for it, 7 ms; where it has some, 0.1 ms. So the thread uses one of its own for the first time,
 * when nobody waits, and gives it back right before: the kernel hands out first what has come last. What remains, in CPU time:
 * 0.2 ms while few of the small pages have been touched, 0.9 ms when all have; and each of those has cost 1.5 us to touch. So
 * it is done as soon as a mapping is in use. An untouched page is populated, 0.1 ms, and nobody waits. Where the calls do not
 * exist nothing is lost but speed. */
#include "bloom_words.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define LEAD      ((size_t)64 << 10) /* in front of the mapping; a multiple of every page size in use, as all lengths are */
#define PASSES    4                  /* over a mapping, as a page can be busy */
#define AGAIN     (16 * HUGE_PAGE)   /* bytes at once after the first pass: few of the pages are left */
#define UNMAP     HUGE_PAGE          /* bytes at once: 0.2 ms */
#define LOOKS     32                 /* unused mappings that one call looks at */
#define SAMPLE    (4 * HUGE_PAGE)    /* what is looked at to see whether a mapping is in use: */
#define TOUCHED   4                  /* so many small pages of each huge one */
#define WRITTEN   8192               /* words: likewise, if all of it is populated */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* In the last bytes of the page in front of the mapping. */
struct bloom_map {
    struct bloom_map *prev, *next; /* in the ring of those on small pages; next NULL: not in it */
    size_t len;
    size_t done; /* bytes that this pass has been over */
    unsigned passes;
    bool again;  /* another pass is needed */
    bool in_use; /* it is worth it: next to all of its huge pages have been touched somewhere */
    atomic_bool told; /* the same, by who uses it */
    bool ahead;  /* it is populated ahead of its use, and counted in `ahead` of all; under the lock */
    bool busy;   /* settle() works on it, without the lock */
};

static struct bloom_map *map_of(_Atomic uint64_t *words)
{
    return (struct bloom_map *)((char *)words - BLOOM_ROOM_HEAD - sizeof(struct bloom_map));
}

static char *map_start(struct bloom_map *map)
{
    return (char *)(map + 1);
}

void bloom_maps_init(struct bloom_maps *maps)
{
    pthread_mutex_init(&maps->lock, NULL);
    pthread_cond_init(&maps->settled, NULL);
    maps->first = NULL;
    maps->ahead = maps->ahead_limit = 0;
    maps->wake = NULL;
    maps->spare = NULL;
    maps->has_spare = false;
}

void bloom_maps_set_ahead(struct bloom_maps *maps, uint64_t bytes, void (*wake)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&maps->lock);
    maps->ahead_limit = bytes;
    maps->wake = wake;
    maps->wake_ctx = ctx;
    pthread_mutex_unlock(&maps->lock);
}

void bloom_maps_deinit(struct bloom_maps *maps)
{
    if (maps->spare)
        munmap(maps->spare, HUGE_PAGE);
    pthread_cond_destroy(&maps->settled);
    pthread_mutex_destroy(&maps->lock);
}

/* ---- the ring, under the lock ------------------------------------------------------------------------------------ */

static void ring_add(struct bloom_maps *maps, struct bloom_map *map)
{
    struct bloom_map *first = maps->first;
    if (!first) {
        map->prev = map->next = map;
        maps->first = map;
        return;
    }
    map->next = first;
    map->prev = first->prev;
    first->prev->next = map;
    first->prev = map;
}

static void ring_remove(struct bloom_maps *maps, struct bloom_map *map)
{
    if (!map->next)
        return;
    if (map->ahead)
        maps->ahead -= map->len;
    map->ahead = false;
    if (maps->first == map)
        maps->first = map->next == map ? NULL : map->next;
    map->prev->next = map->next;
    map->next->prev = map->prev;
    map->prev = map->next = NULL;
}

/* Takes a mapping out of the ring for good; nobody works on it afterwards. */
static void leave_ring(struct bloom_maps *maps, struct bloom_map *map)
{
    pthread_mutex_lock(&maps->lock);
    while (map->busy)
        pthread_cond_wait(&maps->settled, &maps->lock);
    ring_remove(maps, map);
    pthread_mutex_unlock(&maps->lock);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static size_t mapped_length(uint64_t nwords)
{
    return (size_t)((BLOOM_ROOM_HEAD + nwords * 8 + LEAD - 1) / LEAD * LEAD);
}

/* Half of what may be populated ahead is the most for one: whoever uses it at once touches all of its huge pages. */
static void enter_ring(struct bloom_maps *maps, struct bloom_map *map, bool ahead)
{
    pthread_mutex_lock(&maps->lock);
    map->ahead = ahead && map->len <= maps->ahead_limit / 2 && map->len <= maps->ahead_limit - maps->ahead;
    if (map->ahead)
        maps->ahead += map->len;
    /* Fails where there are no huge pages: nothing is to be done then. */
    madvise(map_start(map), map->len, map->ahead ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    ring_add(maps, map);
    if (map->ahead)
        maps->first = map;
    if (map->ahead && maps->wake)
        maps->wake(maps->wake_ctx);
    pthread_mutex_unlock(&maps->lock);
}

/* `len` bytes that begin with a huge page, and `lead` bytes in front of them. */
static char *reserve(size_t lead, size_t len)
{
    char *raw = mmap(NULL, lead + len + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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

static _Atomic uint64_t *map_aligned(struct bloom_maps *maps, size_t len, bool ahead)
{
    char *start = reserve(LEAD, len);
    if (!start)
        return NULL;

    _Atomic uint64_t *words = (_Atomic uint64_t *)(void *)(start + BLOOM_ROOM_HEAD);
    struct bloom_map *map = map_of(words);
    map->len = len;
    enter_ring(maps, map, ahead);
    return words;
}

_Atomic uint64_t *bloom_words_alloc(struct bloom_maps *maps, uint64_t nwords, bool ahead)
{
    if (nwords * 8 >= BLOOM_MAPPED_BYTES)
        return map_aligned(maps, mapped_length(nwords), ahead);
    return calloc((size_t)nwords, sizeof(_Atomic uint64_t));
}

/* Whoever maps memory meanwhile, or touches some for the first time, may have to wait for the end of a system call that unmaps:
 * for 4 GB at once, half a second. From the end on, so that the rest remains one mapping, and between huge pages, none of which
 * has to be split. */
static void unmap_slowly(char *start, size_t len)
{
    while (len > 0) {
        size_t piece = ((uintptr_t)start + len) % UNMAP;
        if (piece == 0)
            piece = UNMAP;
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
    if (nwords * 8 < BLOOM_MAPPED_BYTES) {
        free((void *)words);
        return;
    }
    struct bloom_map *map = map_of(words);
    leave_ring(maps, map);
    unmap_slowly(map_start(map) - LEAD, LEAD + mapped_length(nwords));
}

unsigned char *bloom_words_room(_Atomic uint64_t *words, uint64_t nwords)
{
    return nwords * 8 < BLOOM_MAPPED_BYTES ? NULL : (unsigned char *)words - BLOOM_ROOM_HEAD;
}

void bloom_room_empty(unsigned char *from, size_t len)
{
    (void)madvise(from, len, MADV_DONTNEED);
}

void bloom_words_fill(struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords)
{
    if (nwords * 8 < BLOOM_MAPPED_BYTES)
        return;
    struct bloom_map *map = map_of(words);
    leave_ring(maps, map);
    madvise(map_start(map), map->len, MADV_HUGEPAGE);
}

void bloom_words_in_use(struct bloom_maps *maps, _Atomic uint64_t *words)
{
    struct bloom_map *map = map_of(words);

    if (atomic_load_explicit(&map->told, memory_order_relaxed) ||
        atomic_exchange_explicit(&map->told, true, memory_order_relaxed))
        return;
    pthread_mutex_lock(&maps->lock);
    if (map->next) {
        maps->first = map;
        if (maps->wake)
            maps->wake(maps->wake_ctx);
    }
    pthread_mutex_unlock(&maps->lock);
}

/* ---- settling, without the lock ---------------------------------------------------------------------------------- */

/* How many of the small pages there are. SIZE_MAX if it cannot be told. Where pages are larger than 4 KiB fewer can be. */
static size_t count_touched(char *from, size_t len)
{
    unsigned char resident[SAMPLE / 4096] = {0};
    size_t n = 0;

    if (mincore(from, len, resident) != 0)
        return SIZE_MAX;
    for (size_t i = 0; i < len / 4096; i++)
        n += resident[i] & 1;
    return n;
}

static bool is_in_use(struct bloom_map *map)
{
    size_t len = map->len < SAMPLE ? map->len : SAMPLE;

    return count_touched(map_start(map), len) >= len / HUGE_PAGE * TOUCHED;
}

/* Its memory is in use after that, and comes without a wait. */
static void get_spare(struct bloom_maps *maps)
{
    if (!maps->spare) {
        maps->spare = reserve(0, HUGE_PAGE);
        if (!maps->spare)
            return;
        (void)madvise(maps->spare, HUGE_PAGE, MADV_HUGEPAGE);
    }
    (void)madvise(maps->spare, HUGE_PAGE, MADV_POPULATE_WRITE);
    maps->has_spare = true;
}

static void give_spare(struct bloom_maps *maps)
{
    if (maps->has_spare)
        (void)madvise(maps->spare, HUGE_PAGE, MADV_DONTNEED);
    maps->has_spare = false;
}

/* Nobody has touched it: there is nothing to be copied. It comes to the same where there are no huge pages. */
static enum bloom_settled populate(char *page)
{
    (void)madvise(page, HUGE_PAGE, MADV_HUGEPAGE);
    (void)madvise(page, HUGE_PAGE, MADV_POPULATE_WRITE); /* Linux 5.14; without it, touches do what they did */
    return BLOOM_SETTLED_POPULATED;
}

static enum bloom_settled collapse(struct bloom_maps *maps, struct bloom_map *map, char *from, size_t len)
{
    give_spare(maps);
    if (madvise(from, len, MADV_HUGEPAGE) == 0 && madvise(from, len, MADV_COLLAPSE) != 0) {
        if (errno == EINVAL) /* the kernel cannot: what is touched from now on need not be made then */
            (void)madvise(from, len, MADV_POPULATE_WRITE);
        else
            map->again = true;
    }
    return BLOOM_SETTLED_HUGE;
}

/* Random items leave something anywhere. */
static bool is_written(struct bloom_map *map)
{
    const _Atomic uint64_t *words = (const _Atomic uint64_t *)(void *)map_start(map);
    uint64_t any = 0;

    for (size_t i = 0; i < WRITTEN; i++)
        any |= atomic_load_explicit(&words[i], memory_order_relaxed);
    return any != 0;
}

static enum bloom_settled populate_ahead(struct bloom_map *map)
{
    size_t left = map->len - map->done, piece = left < HUGE_PAGE ? left : HUGE_PAGE;

    if (left == 0)
        return BLOOM_SETTLED_NOTHING;
    (void)madvise(map_start(map) + map->done, piece, MADV_POPULATE_WRITE);
    map->done += piece;
    return BLOOM_SETTLED_AHEAD;
}

/* The next page of the mapping; NOTHING when it was the last one of the last pass. */
static enum bloom_settled settle_page(struct bloom_maps *maps, struct bloom_map *map)
{
    if (map->done + HUGE_PAGE > map->len) { /* what is left is no whole huge page, and stays as it is */
        if (!map->again || ++map->passes == PASSES)
            return BLOOM_SETTLED_NOTHING;
        map->again = false;
        map->done = 0;
    }
    char *page = map_start(map) + map->done;
    size_t left = (map->len - map->done) / HUGE_PAGE * HUGE_PAGE;
    size_t len = map->passes == 0 ? HUGE_PAGE : left < AGAIN ? left : AGAIN;
    bool untouched = map->passes == 0 && count_touched(page, HUGE_PAGE) == 0;

    if (!untouched && !maps->has_spare) {
        get_spare(maps);
        if (maps->has_spare)
            return BLOOM_SETTLED_POPULATED;
    }
    map->done += len;
    return untouched ? populate(page) : collapse(maps, map, page, len);
}

/* The next mapping that is worth a look: taken, so that it is not freed meanwhile. */
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

static void give_back(struct bloom_maps *maps, struct bloom_map *map, bool first_again, bool finished)
{
    pthread_mutex_lock(&maps->lock);
    map->busy = false;
    if (finished)
        ring_remove(maps, map);
    else if (first_again)
        maps->first = map; /* one after the other: each gets to the end sooner */
    pthread_cond_broadcast(&maps->settled);
    pthread_mutex_unlock(&maps->lock);
}

enum bloom_settled bloom_maps_settle(struct bloom_maps *maps)
{
    for (unsigned look = 0; look < LOOKS; look++) {
        struct bloom_map *map = take_next(maps);
        if (!map)
            break;
        enum bloom_settled settled = BLOOM_SETTLED_NOTHING;
        if (map->ahead)
            settled = populate_ahead(map);
        if (settled == BLOOM_SETTLED_NOTHING && !map->in_use)
            map->in_use = atomic_load_explicit(&map->told, memory_order_relaxed) ||
                          (map->ahead ? is_written(map) : is_in_use(map));
        if (map->in_use && !map->ahead)
            settled = settle_page(maps, map);
        give_back(maps, map, settled != BLOOM_SETTLED_NOTHING, map->in_use && settled == BLOOM_SETTLED_NOTHING);
        if (settled != BLOOM_SETTLED_NOTHING)
            return settled;
    }
    give_spare(maps); /* back to others */
    return BLOOM_SETTLED_NOTHING;
}
