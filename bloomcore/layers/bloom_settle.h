/* bloom_settle: filters move from small to huge pages of memory, in the background. Thread: as noted below. */
#ifndef BLOOMERY_BLOOM_SETTLE_H
#define BLOOMERY_BLOOM_SETTLE_H

#include <stdbool.h>

#include "bloom_pool.h"

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

#endif
