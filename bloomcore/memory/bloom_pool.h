/* bloom_pool: the data that the filters of a process share: the locks of adds, the limits and the count of memory, and
 * the memory of words. A pool lives as long as any class or filter made from it. Thread: any. */
#ifndef BLOOMERY_BLOOM_POOL_H
#define BLOOMERY_BLOOM_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "bloom_types.h"

int bloom_pool_create(struct bloom_pool **pool_out); /* 0 or -ENOMEM */

/* A pool for a host with memory of its own, which must outlive the pool. Words outside the caller's memory, and layers
 * added by growth, come from there. Such layers have no room, and stay on the pages that they are given. 0 or
 * -ENOMEM. */
int bloom_pool_create_in(const struct bloom_memory *memory, struct bloom_pool **pool_out);

void bloom_pool_destroy(struct bloom_pool *pool); /* NULL is fine; all classes must have been released */

/* Bytes now held by the words of all filters of the pool. */
uint64_t bloom_pool_bytes(const struct bloom_pool *pool);

/* The part of these bytes that is in the callers' memory, after the filters; and the bytes of the pool's own headers of
 * grown layers. */
uint64_t bloom_pool_inline_bytes(const struct bloom_pool *pool);
uint64_t bloom_pool_header_bytes(const struct bloom_pool *pool);

/* Bytes of changed words of cuckoo filters that a save or a dump has still to read. They count in no limit. */
uint64_t bloom_pool_still_bytes(const struct bloom_pool *pool);

/* The number of layers added by growth since the pool was created. */
uint64_t bloom_pool_growths(const struct bloom_pool *pool);

/* Upper limits, 0 for none: bytes of words per filter (all layers) and of the whole pool. They are checked before
 * anything is allocated, for new filters and for growth; existing filters stay as they are. */
void bloom_pool_set_limits(struct bloom_pool *pool, uint64_t max_filter_bytes, uint64_t max_total_bytes);

/* Sets the function that returns the memory that counts, in addition to the words, against the limit of the whole pool.
 * It is called while locks of filters are held: it must not block. Before other threads use the pool. */
void bloom_pool_set_overhead(struct bloom_pool *pool, uint64_t (*overhead)(void *ctx), void *ctx);

/* Whether the limit of the whole pool leaves room for this many bytes. BLOOM_OK, or BLOOM_LIMIT with the numbers in
 * `err`. */
int bloom_pool_room(struct bloom_pool *pool, uint64_t bytes, struct errbuf *err);

/* Whether the host drops words when memory is short (bloom_resident.h), and brings them back; off at first. If on, new
 * words may pass the limit of the whole pool for a moment, but what could not be dropped, and the filter that has most
 * words, must have room together: so each filter can be brought back. If off, words that have been dropped count as in
 * use. Thread: any. */
void bloom_pool_set_evicts(struct bloom_pool *pool, bool on);

/* The bytes, with the overhead, that would be in use if all words were dropped that can be. */
uint64_t bloom_pool_staying(const struct bloom_pool *pool);

/* Sets the clock of the pool's windows; NULL: CLOCK_BOOTTIME. Before other threads use the pool. */
void bloom_pool_set_clock(struct bloom_pool *pool, int64_t (*now_us)(void));
int64_t bloom_pool_now_us(const struct bloom_pool *pool);

#endif
