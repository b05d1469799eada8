/* bloom_words: zeroed memory for the bits of layers that are not small. Internal to bloomcore.
 *
 * In a filter larger than the cache each random bit costs a TLB miss with pages of 4 KiB. On huge pages of 2 MiB
 * batched queries are twice as fast. But the first touch of a huge page zeroes 2 MiB: 0.1 ms, and 5 ms where the host
 * of a virtual machine must find the memory. The first thousand adds to a new filter of 4 GB would touch all of its
 * 2000 pages. So words start on small pages, whose first touch costs a microsecond, or ten.
 *
 * A background thread moves a layer to huge pages when its first filling is over or has paused (bloom_settle.c). It
 * does not begin earlier. It would compete for the host's memory with adds that touch small pages for the first time,
 * and the filling would take twice as long.
 *
 * A layer with less than one item for each 2 MiB stays on small pages, and takes one of these for each of its bits.
 * Reading takes no memory: the kernel maps its page of zeros.
 *
 * Thread: any. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_pages.h"
#include "bloom_types.h"
#include "lock.h"

struct bloom_layer;

/* From this size on, words have a mapping of their own and begin BLOOM_ROOM_HEAD bytes after the beginning of a huge
 * page. From BLOOM_PAGES_MIN on, they are runs of pages that share mappings (bloom_pages.h). Smaller ones: the heap. */
#define BLOOM_MAPPED_BYTES BLOOM_ROOM_MIN_BYTES

#define BLOOM_CACHE_LINE 64

/* The sources of words, and the mappings on small pages. */
struct bloom_maps {
    const struct bloom_memory *memory; /* the source of all words; NULL: the heap and mappings */
    struct bloom_pages pages;          /* layers of medium size; its lock is of the ring, too */
    pthread_cond_t idle;               /* signalled when a mapping is no longer busy */
    struct bloom_map *first;           /* ring; NULL: none */
    size_t n;                          /* in the ring */
};

void bloom_maps_init(struct bloom_maps *maps, const struct bloom_memory *memory);
void bloom_maps_deinit(struct bloom_maps *maps);

/* Allocates `nwords` zero words (1..BLOOM_MAX_WORDS) for a layer of the filter, aligned to at least 8 bytes; NULL
 * without memory. A large layer in blocks has each block on one cache line, also in memory of a host. Words of at least
 * BLOOM_MAPPED_BYTES cost little but address space until they are written. The caller frees them before `layer` and
 * `filter`. */
_Atomic uint64_t *bloom_words_alloc(struct bloom_maps *maps, const struct bloom_filter *filter,
                                    const struct bloom_layer *layer, uint64_t nwords);

/* `nwords` as given to bloom_words_alloc(). NULL is fine. Takes about 0.1 ms per megabyte in use. */
void bloom_words_free(struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords);

/* As `room` of bloom_layer_view; NULL for words that are not mapped on their own. */
unsigned char *bloom_words_room(const struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords);

/* For words of which few will be written: they stay on small pages. */
void bloom_words_stay(struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords);

/* For words that will all be written soon, by a thread that can wait: huge pages from the start. Returns the new place
 * of the words. Words of less than BLOOM_MAPPED_BYTES may have moved: they must all be zero still, unless this has been
 * called for them before, and no other thread may use them. */
_Atomic uint64_t *bloom_words_fill(struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords);

/* ---- mappings: bloom_words.c makes them, bloom_settle.c moves their pages. Thread: one for each ---- */

#define BLOOM_HUGE_PAGE ((size_t)2 << 20)

/* A mapping of the words of one layer; in the last bytes of the page before it. */
struct bloom_map {
    struct bloom_map *prev, *next; /* in the ring of those on small pages; next NULL: not in it */
    const struct bloom_filter *filter;
    const struct bloom_layer *layer;
    size_t len;
    size_t moved;         /* bytes from the start on that have been moved */
    char *staging;        /* the staging area, from offset `moved` on; NULL: none yet */
    uint64_t items;       /* of the layer, at the last look */
    bool busy;            /* settle() uses it without the maps' lock */
    atomic_bool unwanted; /* settle() is to stop: a thread waits for the mapping */
};

static inline char *bloom_map_start(struct bloom_map *map)
{
    return (char *)(map + 1);
}

/* The rest after them is less than a huge page and stays on small pages. */
static inline size_t bloom_map_whole(const struct bloom_map *map)
{
    return map->len / BLOOM_HUGE_PAGE * BLOOM_HUGE_PAGE;
}

/* Takes the mapping out of the ring. Under the maps' lock. */
void bloom_map_leave(struct bloom_maps *maps, struct bloom_map *map);

/* Maps `len` bytes that begin at a huge page, and `lead` bytes before them. NULL without memory. */
char *bloom_map_reserve(size_t lead, size_t len);
