/* id_map: from filter ids to anything: an open-addressing table, for the store and for the recovery from the log.
 *
 * Lifetime: zeroed storage to id_map_deinit(); the values are the caller's. Thread: one at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct id_slot {
    uint64_t id; /* 0: empty, which no filter has */
    void *value;
};

struct id_map {
    struct id_slot *slots;
    size_t nslots; /* 0 or a power of two */
    size_t count;
};

/* Adds or replaces. 0 or -ENOMEM. */
int id_map_set(struct id_map *map, uint64_t id, void *value);
bool id_map_has(const struct id_map *map, uint64_t id);
void *id_map_get(const struct id_map *map, uint64_t id); /* NULL also when there is none */
void *id_map_remove(struct id_map *map, uint64_t id);    /* its value, NULL when there was none */
void id_map_deinit(struct id_map *map);
