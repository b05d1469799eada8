/* A region is aligned to its size, so that a run leads to it. A page before it holds `struct bloom_region`: a bit for
 * each of its pages. A run takes the first free pages in a row, in the first region that has enough: runs gather in low
 * addresses. The newest region comes first, since the others are full for most of the time.
 *
 * Free pages are zero at any time. A run is zeroed before it is freed, without the lock. Loose pages are given back to
 * the kernel; dense ones are overwritten. To give back a part of a huge page would split it, and its other runs would
 * be on small pages from then on.
 *
 * Under the address sanitizer free pages are poisoned, and also the rest of a run's last page after its end. */
#include "bloom_pages.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, bytes)   ((void)(start), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(start, bytes) ((void)(start), (void)(bytes))
#endif

#define REGION     ((size_t)16 << 20)
#define HUGE_PAGE  ((size_t)2 << 20)
#define SMALL_PAGE ((size_t)4 << 10)  /* the smallest that any kernel has */
#define LEAD       ((size_t)64 << 10) /* before a region; a multiple of every size of small pages */
#define BITS       (REGION / SMALL_PAGE)

/* In the last bytes before the region. */
struct bloom_region {
    struct bloom_region *prev, *next;
    enum bloom_pages_kind kind;
    size_t page;              /* bytes */
    size_t npages;            /* of the region */
    size_t nused;             /* pages */
    size_t longest;           /* upper bound of the free pages in a row */
    uint64_t used[BITS / 64]; /* a bit for each page */
};

static char *start_of(struct bloom_region *region)
{
    return (char *)(region + 1);
}

static struct bloom_region *region_of(const void *run)
{
    return (struct bloom_region *)((uintptr_t)run & ~(uintptr_t)(REGION - 1)) - 1;
}

void bloom_pages_init(struct bloom_pages *pages)
{
    lock_init(&pages->lock, RANK_PAGES);
    pages->first[BLOOM_PAGES_LOOSE] = pages->first[BLOOM_PAGES_DENSE] = NULL;
    pages->page = (size_t)sysconf(_SC_PAGESIZE);
}

void bloom_pages_deinit(struct bloom_pages *pages)
{
    CHECK(!pages->first[BLOOM_PAGES_LOOSE] && !pages->first[BLOOM_PAGES_DENSE]);
    lock_deinit(&pages->lock);
}

/* ---- the bits of a region ---- */

/* The first page from `at` on, below `end`, that is used, or free; `end`: there is none. */
static size_t next_page(const struct bloom_region *region, size_t at, size_t end, bool used)
{
    while (at < end) {
        uint64_t bits = (used ? region->used[at / 64] : ~region->used[at / 64]) >> (at % 64);

        if (bits) {
            at += (size_t)__builtin_ctzll(bits);
            break;
        }
        at = (at / 64 + 1) * 64;
    }
    return at < end ? at : end;
}

/* The first of n free pages in a row; the number of pages: there is no such row. */
static size_t find_free(const struct bloom_region *region, size_t n)
{
    size_t at = next_page(region, 0, region->npages, false);

    while (at < region->npages) {
        size_t end = next_page(region, at, region->npages, true);
        if (end - at >= n)
            return at;
        at = next_page(region, end, region->npages, false);
    }
    return at;
}

static size_t count_used(const struct bloom_region *region, size_t from, size_t to)
{
    size_t n = 0;

    while ((from = next_page(region, from, to, true)) < to) {
        size_t end = next_page(region, from, to, false);
        n += end - from;
        from = end;
    }
    return n;
}

static void mark(struct bloom_region *region, size_t at, size_t n, bool used)
{
    for (size_t i = at; i < at + n; i++) {
        uint64_t bit = UINT64_C(1) << (i % 64);
        CHECK(!(region->used[i / 64] & bit) == used);
        region->used[i / 64] ^= bit;
    }
    region->nused = used ? region->nused + n : region->nused - n;
}

/* ---- regions ---- */

/* NULL without memory. It reserves no swap, as those of large layers. */
static struct bloom_region *map_region(size_t page, enum bloom_pages_kind kind)
{
    size_t len = LEAD + 2 * REGION;
    char *raw = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (raw == MAP_FAILED)
        return NULL;
    size_t before = (size_t)(-(uintptr_t)(raw + LEAD) & (REGION - 1)), behind = REGION - before;
    char *start = raw + before + LEAD;
    if (before > 0)
        munmap(raw, before);
    munmap(start + REGION, behind);
    /* Fails on a kernel without huge pages, where neither is needed. With all of it the region is one mapping. */
    (void)madvise(start - LEAD, LEAD + REGION, kind == BLOOM_PAGES_DENSE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    ASAN_POISON_MEMORY_REGION(start, REGION);

    struct bloom_region *region = region_of(start);
    region->kind = kind;
    region->page = page;
    region->npages = region->longest = REGION / page;
    return region;
}

/* This and the functions below are called under the lock. */
static void link_region(struct bloom_pages *pages, struct bloom_region *region)
{
    struct bloom_region **first = &pages->first[region->kind];

    region->next = *first;
    if (*first)
        (*first)->prev = region;
    *first = region;
}

static void unlink_region(struct bloom_pages *pages, struct bloom_region *region)
{
    if (region->prev)
        region->prev->next = region->next;
    else
        pages->first[region->kind] = region->next;
    if (region->next)
        region->next->prev = region->prev;
}

/* ---- runs ---- */

static size_t pages_for(const struct bloom_pages *pages, size_t bytes)
{
    return (bytes + pages->page - 1) / pages->page;
}

/* NULL: no region has n free pages in a row. */
static char *take(struct bloom_pages *pages, size_t n, enum bloom_pages_kind kind)
{
    for (struct bloom_region *region = pages->first[kind]; region; region = region->next) {
        if (region->longest < n)
            continue;
        size_t at = find_free(region, n);
        if (at < region->npages) {
            mark(region, at, n, true);
            return start_of(region) + at * region->page;
        }
        region->longest = n - 1;
    }
    return NULL;
}

void *bloom_pages_alloc(struct bloom_pages *pages, size_t bytes, enum bloom_pages_kind kind)
{
    size_t n = pages_for(pages, bytes);

    CHECK(bytes >= BLOOM_PAGES_MIN && bytes < BLOOM_PAGES_MAX);
    lock_take(&pages->lock);
    char *run = take(pages, n, kind);
    lock_give(&pages->lock);
    if (!run) {
        struct bloom_region *region = map_region(pages->page, kind);
        if (!region)
            return NULL;
        lock_take(&pages->lock);
        link_region(pages, region);
        run = take(pages, n, kind);
        lock_give(&pages->lock);
    }
    ASAN_UNPOISON_MEMORY_REGION(run, bytes);
    return run;
}

/* Gives back the free pages of 2 MiB of which less than half is used. The kernel, which may make a huge page of the
 * rest at any time, is told not to until all of them are free. */
static void thin_out(struct bloom_region *region, size_t block)
{
    size_t per_block = HUGE_PAGE / region->page, at = block * per_block, end = at + per_block;
    size_t used = count_used(region, at, end);

    if (used >= per_block / 2)
        return;
    (void)madvise(start_of(region) + block * HUGE_PAGE, HUGE_PAGE, used > 0 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    while ((at = next_page(region, at, end, false)) < end) {
        size_t to = next_page(region, at, end, true);
        (void)madvise(start_of(region) + at * region->page, (to - at) * region->page, MADV_DONTNEED);
        at = to;
    }
}

/* The pages of the run are zero. NULL, or a region to unmap. */
static struct bloom_region *put(struct bloom_pages *pages, struct bloom_region *region, size_t at, size_t n)
{
    mark(region, at, n, false);
    region->longest = region->npages;
    if (region->nused == 0) {
        unlink_region(pages, region);
        return region;
    }
    if (region->kind == BLOOM_PAGES_DENSE && region->page < HUGE_PAGE) {
        size_t per_block = HUGE_PAGE / region->page;
        for (size_t block = at / per_block; block <= (at + n - 1) / per_block; block++)
            thin_out(region, block);
    }
    return NULL;
}

void bloom_pages_free(struct bloom_pages *pages, void *run, size_t bytes)
{
    struct bloom_region *region = region_of(run);
    size_t n = pages_for(pages, bytes), len = n * pages->page;

    ASAN_UNPOISON_MEMORY_REGION(run, len);
    /* The kernel returns zeros for pages that it has taken back; it refuses locked ones. */
    if (region->kind == BLOOM_PAGES_DENSE || madvise(run, len, MADV_DONTNEED) != 0)
        memset(run, 0, len);
    ASAN_POISON_MEMORY_REGION(run, len);
    lock_take(&pages->lock);
    struct bloom_region *empty = put(pages, region, (size_t)((char *)run - start_of(region)) / pages->page, n);
    lock_give(&pages->lock);
    if (empty) {
        ASAN_UNPOISON_MEMORY_REGION(start_of(empty), REGION);
        munmap(start_of(empty) - LEAD, LEAD + REGION);
    }
}

enum bloom_pages_kind bloom_pages_kind_of(const void *run)
{
    return region_of(run)->kind;
}
