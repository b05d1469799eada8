/* Linear probing; a removal moves the next entries back into the gap and leaves no marks. */
#include "id_map.h"

#include <errno.h>
#include <stdlib.h>

#define MIN_SLOTS 16

static size_t home(const struct id_map *map, uint64_t id)
{
    return (size_t)((id * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (map->nslots - 1);
}

/* The slot of the id, or the empty one where it would be. */
static size_t find(const struct id_map *map, uint64_t id)
{
    size_t at = home(map, id);

    while (map->slots[at].id != 0 && map->slots[at].id != id)
        at = (at + 1) & (map->nslots - 1);
    return at;
}

static int grow(struct id_map *map)
{
    struct id_map larger = {.nslots = map->nslots ? 2 * map->nslots : MIN_SLOTS, .count = map->count};

    larger.slots = calloc(larger.nslots, sizeof(*larger.slots));
    if (!larger.slots)
        return -ENOMEM;
    for (size_t i = 0; i < map->nslots; i++)
        if (map->slots[i].id != 0)
            larger.slots[find(&larger, map->slots[i].id)] = map->slots[i];
    free(map->slots);
    *map = larger;
    return 0;
}

int id_map_set(struct id_map *map, uint64_t id, void *value)
{
    if (4 * (map->count + 1) > 3 * map->nslots && grow(map) != 0)
        return -ENOMEM;
    size_t at = find(map, id);
    map->count += map->slots[at].id == 0;
    map->slots[at] = (struct id_slot){id, value};
    return 0;
}

bool id_map_has(const struct id_map *map, uint64_t id)
{
    return map->count > 0 && map->slots[find(map, id)].id == id;
}

void *id_map_get(const struct id_map *map, uint64_t id)
{
    return map->count > 0 ? map->slots[find(map, id)].value : NULL;
}

void *id_map_remove(struct id_map *map, uint64_t id)
{
    if (!id_map_has(map, id))
        return NULL;
    size_t mask = map->nslots - 1;
    size_t gap = find(map, id);
    void *value = map->slots[gap].value;

    for (size_t at = (gap + 1) & mask; map->slots[at].id != 0; at = (at + 1) & mask) {
        /* An entry whose home lies between the gap and its place must stay after the gap. */
        if (((at - home(map, map->slots[at].id)) & mask) < ((at - gap) & mask))
            continue;
        map->slots[gap] = map->slots[at];
        gap = at;
    }
    map->slots[gap] = (struct id_slot){0, NULL};
    map->count--;
    return value;
}

void id_map_deinit(struct id_map *map)
{
    free(map->slots);
    *map = (struct id_map){0};
}
