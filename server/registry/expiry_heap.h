/* expiry_heap: finds the name that expires next. Internal to the registry, whose mutex guards it.
 *
 * A 4-ary heap in pages that never move, so that no new name makes the holder of the mutex copy megabytes. Each alias
 * knows its place, so that it can be removed from the middle.
 *
 * Lifetime: zeroed storage, to expiry_heap_deinit(). */
#ifndef BLOOMERY_EXPIRY_HEAP_H
#define BLOOMERY_EXPIRY_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct entry;

struct expiry_node {
    int64_t expires_ms;
    struct entry *alias;
};

struct expiry_heap {
    struct expiry_node **pages;
    size_t npages;
    size_t pages_size; /* of the array */
    size_t count;
    unsigned __int128 sum_ms; /* sum of all times, for their average */
};

void expiry_heap_deinit(struct expiry_heap *heap);

/* Makes sure that the next expiry_heap_put() of a new alias succeeds. False without memory. */
bool expiry_heap_reserve(struct expiry_heap *heap);

size_t expiry_heap_bytes(const struct expiry_heap *heap);

/* Inserts an alias, or moves one that is in the heap. `expires_ms` > 0. */
void expiry_heap_put(struct expiry_heap *heap, struct entry *alias, int64_t expires_ms);

/* Removes an alias; does nothing if it is not in the heap. */
void expiry_heap_remove(struct expiry_heap *heap, struct entry *alias);

/* Puts `to`, which is not in the heap, into the place of `from`, if that has one. */
void expiry_heap_replace(struct expiry_heap *heap, struct entry *from, struct entry *to);

/* The alias that expires first, and its time; NULL if the heap is empty. */
struct entry *expiry_heap_first(const struct expiry_heap *heap, int64_t *expires_ms_out);

#endif
