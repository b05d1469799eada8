/* expiry_heap: which name of the registry expires next. Internal to the registry: its mutex guards it.
 *
 * A 4-ary heap in pages that never move: neither the millionth nor any other name makes the holder of the mutex copy
 * megabytes. Each alias knows its place, so that it can be taken out of the middle.
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
    unsigned __int128 sum_ms; /* of all times: for their average */
};

void expiry_heap_deinit(struct expiry_heap *heap);

/* Makes sure that the next expiry_heap_put() of an alias that is not in the heap succeeds. false: no memory. */
bool expiry_heap_reserve(struct expiry_heap *heap);

/* Puts an alias in, or moves it if it is in already. `expires_ms` > 0. */
void expiry_heap_put(struct expiry_heap *heap, struct entry *alias, int64_t expires_ms);

/* Takes an alias out; nothing happens if it is not in. */
void expiry_heap_remove(struct expiry_heap *heap, struct entry *alias);

/* Puts `to`, which is not in the heap, into the place of `from`, if that has one. */
void expiry_heap_replace(struct expiry_heap *heap, struct entry *from, struct entry *to);

/* The alias that expires first, or NULL, and when. */
struct entry *expiry_heap_first(const struct expiry_heap *heap, int64_t *expires_ms_out);

#endif
