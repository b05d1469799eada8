/* bloom_pool: the data that the filters of a process share: the locks of adds, the limits and the count of memory, and
 * the memory of words. A pool lives as long as any class or filter made from it. Thread: any. */
#pragma once

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

/* The part of these bytes in the callers' memory, after the filters; and the bytes of headers of grown layers. */
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

/* Whether the pool's limit leaves room for this many bytes. BLOOM_OK, or BLOOM_LIMIT with the numbers in `err`. */
int bloom_pool_room(struct bloom_pool *pool, uint64_t bytes, struct errbuf *err);

/* Whether the host drops words when memory is short (bloom_resident.h), and brings them back; off at first. If on, new
 * words may pass the limit of the whole pool for a moment, but what could not be dropped, and the filter that has most
 * words, must have room together: so each filter can be brought back. If off, dropped words count. Thread: any. */
void bloom_pool_set_evicts(struct bloom_pool *pool, bool on);

/* The bytes, with the overhead, that would be in use if all words were dropped that can be. */
uint64_t bloom_pool_staying(const struct bloom_pool *pool);

/* Sets the clock of the pool's windows; NULL: CLOCK_BOOTTIME. Before other threads use the pool. */
void bloom_pool_set_clock(struct bloom_pool *pool, int64_t (*now_us)(void));
int64_t bloom_pool_now_us(const struct bloom_pool *pool);

/* ---- classes: the data that filters of equal parameters and equal first layer share, so that a small filter costs
 * little more than its bits; counted references ---- */

/* The class for these parameters. `shape` is the shape of the first layer (loading, import). NULL: bloom_size_plan()
 * sizes it (variant BLOOM_NA) or, with RedisBloom's options, redisbloom_size(). 0, BLOOM_REFUSED, or -ENOMEM. The
 * caller owns a reference. */
int bloom_class_get(struct bloom_pool *pool, const struct bloom_params *params, const struct bloom_shape *shape,
                    struct bloom_class **class_out, struct errbuf *err);
struct bloom_class *bloom_class_retain(struct bloom_class *class);
void bloom_class_release(struct bloom_class *class); /* NULL is fine */

uint64_t bloom_class_bytes(const struct bloom_class *class); /* of the words of the first layer */

/* ---- filters move from small to huge pages of memory, in the background (bloom_settle.c) ---- */

/* Large filters start on small pages, so no add waits for a huge page to be zeroed. Batched queries of a filter larger
 * than the cache are twice as fast on huge pages. This checks up to 1024 filters on small pages in a call, and moves
 * those to huge pages whose first filling is over or rests. Such a filter has an item for each 4 KiB, or one for each 2
 * MiB and hardly a new one since the last look. To be called from a thread in the background every 100 ms or so;
 * returns after milliseconds or after seconds. Adds to a filter wait for 0.3 ms while a page of it is moved, its
 * bloom_filter_deinit() for some milliseconds. One thread at a time.
 *
 * `go_on` (NULL: always true) is asked between two pages and ends the call with false. Where filters are merged under
 * RCU, it ends the thread's read section and begins another one. */
void bloom_pool_settle(struct bloom_pool *pool, bool (*go_on)(void *ctx), void *ctx);

/* Whether no filter is left for bloom_pool_settle() to check. */
bool bloom_pool_is_settled(struct bloom_pool *pool);
