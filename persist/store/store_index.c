/* Two open-addressing tables of entry numbers over one array. Nothing is ever taken out of a table: dropped entries are
 * skipped. */
#include "store_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "check.h"

#define MIN_SLOTS 64

uint64_t index_dir_hash(const struct store_index *index, const char *dir)
{
    return XXH3_64bits_withSeed(dir, strlen(dir), index->seed);
}

uint64_t index_facts(const struct store_index *index, const char *name, size_t len, int64_t expires_ms)
{
    return XXH3_64bits_withSeed(name, len, index->seed ^ ((uint64_t)expires_ms * UINT64_C(0x9e3779b97f4a7c15)));
}

static size_t id_slot(const struct store_index *index, uint64_t id)
{
    return (size_t)(((id ^ index->seed) * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (index->nslots - 1);
}

static size_t dir_slot(const struct store_index *index, uint64_t dir_hash)
{
    return (size_t)dir_hash & (index->nslots - 1);
}

static void put(const struct store_index *index, uint32_t *table, size_t slot, uint32_t number)
{
    while (table[slot] != 0)
        slot = (slot + 1) & (index->nslots - 1);
    table[slot] = number + 1;
}

static int map_slots(struct store_index *index, size_t nslots)
{
    uint32_t *by_id = calloc(nslots, sizeof(*by_id));
    uint32_t *by_dir = calloc(nslots, sizeof(*by_dir));

    if (!by_id || !by_dir) {
        free(by_id);
        free(by_dir);
        return -ENOMEM;
    }
    index_unmap(index);
    index->by_id = by_id;
    index->by_dir = by_dir;
    index->nslots = nslots;
    for (size_t i = 0; i < index->count; i++) {
        put(index, by_id, id_slot(index, index->entries[i].id), (uint32_t)i);
        if (!(index->entries[i].flags & INDEX_PACKED))
            put(index, by_dir, dir_slot(index, index->entries[i].dir_hash), (uint32_t)i);
    }
    return 0;
}

int index_map(struct store_index *index)
{
    size_t nslots = MIN_SLOTS;

    if (index->by_id)
        return 0;
    while (nslots / 4 * 3 <= index->count)
        nslots *= 2;
    return map_slots(index, nslots);
}

void index_unmap(struct store_index *index)
{
    free(index->by_id);
    free(index->by_dir);
    index->by_id = NULL;
    index->by_dir = NULL;
    index->nslots = 0;
}

void index_deinit(struct store_index *index)
{
    index_unmap(index);
    free(index->entries);
    *index = (struct store_index){.seed = index->seed};
}

int index_reserve(struct store_index *index, size_t count)
{
    if (count <= index->size)
        return 0;
    struct index_entry *entries = realloc(index->entries, count * sizeof(*entries));
    if (!entries)
        return -ENOMEM;
    index->entries = entries;
    index->size = count;
    return 0;
}

int index_add(struct store_index *index, const struct index_entry *entry)
{
    if (index->count >= INDEX_NONE - 1)
        return -EFBIG;
    if (index->count == index->size && index_reserve(index, index->size ? index->size + index->size / 2 : 16) != 0)
        return -ENOMEM;
    if (index->by_id && index->count + 1 > index->nslots / 4 * 3 && map_slots(index, index->nslots * 2) != 0)
        return -ENOMEM;
    if (index->by_id) {
        uint32_t before = index_find_id(index, entry->id);
        if (before != INDEX_NONE)
            index->entries[before].flags |= INDEX_DROPPED;
        put(index, index->by_id, id_slot(index, entry->id), (uint32_t)index->count);
        if (!(entry->flags & INDEX_PACKED))
            put(index, index->by_dir, dir_slot(index, entry->dir_hash), (uint32_t)index->count);
    }
    index->entries[index->count++] = *entry;
    return 0;
}

uint32_t index_find_id(const struct store_index *index, uint64_t id)
{
    CHECK(index->by_id);
    for (size_t slot = id_slot(index, id); index->by_id[slot] != 0; slot = (slot + 1) & (index->nslots - 1)) {
        uint32_t number = index->by_id[slot] - 1;
        if (index->entries[number].id == id && !(index->entries[number].flags & INDEX_DROPPED))
            return number;
    }
    return INDEX_NONE;
}

uint32_t index_find_dir(const struct store_index *index, uint64_t dir_hash, uint32_t after)
{
    bool found = after == INDEX_NONE;

    CHECK(index->by_dir);
    for (size_t slot = dir_slot(index, dir_hash); index->by_dir[slot] != 0; slot = (slot + 1) & (index->nslots - 1)) {
        uint32_t number = index->by_dir[slot] - 1;
        if (found && index->entries[number].dir_hash == dir_hash && !(index->entries[number].flags & INDEX_DROPPED))
            return number;
        found = found || number == after;
    }
    return INDEX_NONE;
}
