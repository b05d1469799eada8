/* An open-addressing table of entry numbers over an array. Nothing is ever taken out of the table: dropped entries are
 * skipped. */
#include "store_index.h"

#include <errno.h>
#include <stdlib.h>
#include <xxhash.h>

#include "check.h"

#define MIN_SLOTS 64

uint64_t index_facts(const struct store_index *index, const char *name, size_t len, int64_t expires_ms)
{
    return XXH3_64bits_withSeed(name, len, index->seed ^ ((uint64_t)expires_ms * UINT64_C(0x9e3779b97f4a7c15)));
}

static size_t first_slot(const struct store_index *index, uint64_t id)
{
    return (size_t)(((id ^ index->seed) * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (index->nslots - 1);
}

static void put(const struct store_index *index, uint32_t number)
{
    size_t slot = first_slot(index, index->entries[number].id);

    while (index->by_id[slot] != 0)
        slot = (slot + 1) & (index->nslots - 1);
    index->by_id[slot] = number + 1;
}

static int map_slots(struct store_index *index, size_t nslots)
{
    uint32_t *by_id = calloc(nslots, sizeof(*by_id));

    if (!by_id)
        return -ENOMEM;
    index_unmap(index);
    index->by_id = by_id;
    index->nslots = nslots;
    for (size_t i = 0; i < index->count; i++)
        put(index, (uint32_t)i);
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
    index->by_id = NULL;
    index->nslots = 0;
}

void index_deinit(struct store_index *index)
{
    index_unmap(index);
    free(index->entries);
    *index = (struct store_index){.seed = index->seed};
}

int index_add(struct store_index *index, const struct index_entry *entry)
{
    if (index->count >= UINT32_MAX - 1)
        return -EFBIG;
    if (index->count == index->size) {
        size_t size = index->size ? index->size + index->size / 2 : 16;
        struct index_entry *entries = realloc(index->entries, size * sizeof(*entries));
        if (!entries)
            return -ENOMEM;
        index->entries = entries;
        index->size = size;
    }
    if (index->by_id && index->count + 1 > index->nslots / 4 * 3 && map_slots(index, index->nslots * 2) != 0)
        return -ENOMEM;
    struct index_entry *before = index->by_id ? index_get(index, entry->id) : NULL;
    if (before)
        before->flags |= INDEX_DROPPED;
    index->entries[index->count++] = *entry;
    if (index->by_id)
        put(index, (uint32_t)(index->count - 1));
    return 0;
}

struct index_entry *index_get(const struct store_index *index, uint64_t id)
{
    CHECK(index->by_id);
    for (size_t slot = first_slot(index, id); index->by_id[slot] != 0; slot = (slot + 1) & (index->nslots - 1)) {
        struct index_entry *entry = &index->entries[index->by_id[slot] - 1];
        if (entry->id == id && !(entry->flags & INDEX_DROPPED))
            return entry;
    }
    return NULL;
}
