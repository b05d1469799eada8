/* bloom_map: a mapping of the words of one layer, and the ring of mappings on small pages. bloom_words.c makes
 * mappings, bloom_settle.c moves their pages. Internal to bloomcore. Thread: one for each mapping, except as noted. */
#ifndef BLOOMERY_BLOOM_MAP_H
#define BLOOMERY_BLOOM_MAP_H

#include "bloom_types.h"

struct bloom_layer;
struct bloom_maps;

#define BLOOM_HUGE_PAGE ((size_t)2 << 20)

/* In the last bytes of the page before the mapping. */
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

#endif
