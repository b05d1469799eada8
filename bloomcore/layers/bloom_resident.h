/* bloom_resident: the words of a filter are evicted, and come back. The rest of the filter stays: its parameters,
 * layers and counts of items. Words that are in the caller's memory, after the header of a small layer, stay as well.
 *
 * Without its words a filter can still report its parameters, the number and shapes of its layers, items, capacity and
 * memory. No other function may be called, and no thread may hold a view's `words`.
 *
 * Thread: one at a time for a filter, and no other thread uses its words; the caller ensures that (RCU). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bloom_types.h"

/* The bytes of words that bloom_filter_drop() gives back, whether they are there or not. 0: it would give back none, or
 * may not, as for a window and a cuckoo filter. Thread: any. */
uint64_t bloom_filter_droppable(const struct bloom_filter *filter);

/* The words stay for long, or no longer, though they could be dropped: no client sees the filter yet. The limit of the
 * pool allows for that. */
void bloom_filter_hold(const struct bloom_filter *filter, bool on);

/* Whether there are no words, because they have been dropped. Thread: any. */
bool bloom_filter_is_dropped(const struct bloom_filter *filter);

/* Gives the words back. Milliseconds for gigabytes. */
void bloom_filter_drop(struct bloom_filter *filter);

/* Makes words again, all zero; the caller fills them. 0; or BLOOM_LIMIT (of the whole pool, not of one filter) or
 * -ENOMEM, with the reason in `err` and nothing changed. */
int bloom_filter_undrop_begin(struct bloom_filter *filter, struct errbuf *err);

/* Follows each bloom_filter_undrop_begin() that has returned 0. With `filled`, any thread may query the filter from now
 * on; otherwise the filter is not used any more, and the words are dropped again. */
void bloom_filter_undrop_end(struct bloom_filter *filter, bool filled);

/* The number of filters of the pool whose words are dropped, until bloom_filter_undrop_end(); and the bytes that are to
 * come back, without those that bloom_filter_undrop_begin() has made again. */
uint64_t bloom_pool_dropped(const struct bloom_pool *pool);
uint64_t bloom_pool_dropped_bytes(const struct bloom_pool *pool);
