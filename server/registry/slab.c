/* An object's page follows from the page's alignment. Free places of a page form a list through themselves; those that
 * were never used are behind `fresh` and are untouched. Pages with free places are in a list per size. Pages come from
 * regions of 2 MiB, which are kept until the end. */
#include "slab.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>

#include "check.h"
#include "lock.h"

#define PAGE     ((size_t)64 << 10)
#define REGION   ((size_t)2 << 20)
#define KEPT     ((size_t)4 << 10) /* resident bytes of a page without objects: its header */
#define NCLASSES (SLAB_MAX_SIZE / 8 + 1)

struct page {
    struct slab *slab;
    TAILQ_ENTRY(page) link; /* of the open ones of its size, or of the empty ones */
    void *free;             /* list of places that were used before */
    uint32_t fresh;         /* offset of the first place that was never used */
    uint32_t used;          /* objects */
    uint32_t size;          /* bytes of each */
};

struct slab {
    struct lock lock;
    TAILQ_HEAD(pages, page) open[NCLASSES], empty; /* pages with room, by size; without objects */
    struct page *kept; /* the page that was emptied last: it stays open, whether it has objects again or not */
    char *region;      /* the latest */
    size_t region_used;
    char **regions;
    size_t nregions;
    _Atomic uint64_t npages; /* with objects; changed under the lock */
    _Atomic uint64_t large;  /* bytes of large objects */
};

struct slab *slab_create(void)
{
    struct slab *slab = calloc(1, sizeof(*slab));
    if (!slab)
        return NULL;
    lock_init(&slab->lock, RANK_SLAB);
    TAILQ_INIT(&slab->empty);
    for (size_t i = 0; i < NCLASSES; i++)
        TAILQ_INIT(&slab->open[i]);
    return slab;
}

void slab_destroy(struct slab *slab)
{
    if (!slab)
        return;
    for (size_t i = 0; i < slab->nregions; i++)
        munmap(slab->regions[i], REGION);
    free(slab->regions);
    lock_deinit(&slab->lock);
    free(slab);
}

/* ---- pages, under the lock ---- */

static char *map_region(void)
{
    char *raw = mmap(NULL, 2 * REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    size_t lead = (size_t)(-(uintptr_t)raw & (REGION - 1));
    if (lead)
        munmap(raw, lead);
    munmap(raw + lead + REGION, REGION - lead);
    return raw + lead;
}

static struct page *take_page(struct slab *slab, size_t size)
{
    struct page *page = TAILQ_FIRST(&slab->empty);
    if (page) {
        TAILQ_REMOVE(&slab->empty, page, link);
    } else {
        if (!slab->region || slab->region_used == REGION) {
            char **regions = realloc(slab->regions, (slab->nregions + 1) * sizeof(*regions)), *region;
            if (!regions)
                return NULL;
            slab->regions = regions;
            if (!(region = map_region()))
                return NULL;
            slab->regions[slab->nregions++] = slab->region = region;
            slab->region_used = 0;
        }
        page = (struct page *)(void *)(slab->region + slab->region_used);
        slab->region_used += PAGE;
    }
    *page = (struct page){.slab = slab, .fresh = sizeof(*page), .size = (uint32_t)size};
    slab->npages++;
    return page;
}

static struct pages *open_pages(struct slab *slab, size_t size)
{
    return &slab->open[size / 8];
}

static bool page_is_full(const struct page *page)
{
    return !page->free && page->fresh + page->size > PAGE;
}

/* ---- objects ---- */

void *slab_alloc(struct slab *slab, size_t size)
{
    void *place = NULL;
    CHECK(size > 0 && size <= SLAB_MAX_SIZE);
    size = (size + 7) & ~(size_t)7;

    lock_take(&slab->lock);
    struct page *page = TAILQ_FIRST(open_pages(slab, size));
    if (!page && (page = take_page(slab, size)))
        TAILQ_INSERT_TAIL(open_pages(slab, size), page, link);
    if (page) {
        place = page->free;
        if (place) {
            memcpy(&page->free, place, sizeof(page->free));
        } else {
            place = (char *)page + page->fresh;
            page->fresh += page->size;
        }
        page->used++;
        if (page_is_full(page))
            TAILQ_REMOVE(open_pages(slab, size), page, link);
    }
    lock_give(&slab->lock);

    return place ? memset(place, 0, size) : NULL;
}

/* A page without objects. */
static void give_back(struct slab *slab, struct page *page)
{
    TAILQ_REMOVE(open_pages(slab, page->size), page, link);
    madvise((char *)page + KEPT, PAGE - KEPT, MADV_DONTNEED);
    TAILQ_INSERT_HEAD(&slab->empty, page, link);
    slab->npages--;
}

/* The page that was emptied last stays: a filter that comes and goes must not cost a system call each time. */
void slab_free(void *object)
{
    struct page *page = (struct page *)((uintptr_t)object & ~(uintptr_t)(PAGE - 1));
    struct slab *slab = page->slab;

    lock_take(&slab->lock);
    bool was_full = page_is_full(page);
    CHECK(page->used > 0); /* an object that is freed twice would be two filters' */
    memcpy(object, &page->free, sizeof(page->free));
    page->free = object;
    if (was_full)
        TAILQ_INSERT_TAIL(open_pages(slab, page->size), page, link);
    if (--page->used == 0) {
        struct page *before = slab->kept;
        slab->kept = page;
        if (before && before != page && before->used == 0)
            give_back(slab, before);
    }
    lock_give(&slab->lock);
}

/* ---- large objects ---- */

struct large {
    struct slab *slab;
    size_t size; /* with this header and about that of malloc() */
};

void *slab_alloc_large(struct slab *slab, size_t size)
{
    struct large *large = calloc(1, sizeof(*large) + size);
    if (!large)
        return NULL;
    *large = (struct large){slab, sizeof(*large) + size + sizeof(size_t)};
    atomic_fetch_add_explicit(&slab->large, large->size, memory_order_relaxed);
    return large + 1;
}

void slab_free_large(void *object)
{
    struct large *large = (struct large *)object - 1;
    atomic_fetch_sub_explicit(&large->slab->large, large->size, memory_order_relaxed);
    free(large);
}

uint64_t slab_bytes(const struct slab *slab)
{
    return atomic_load_explicit(&slab->npages, memory_order_relaxed) * PAGE +
           atomic_load_explicit(&slab->large, memory_order_relaxed);
}
