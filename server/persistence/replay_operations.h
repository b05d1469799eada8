/* replay_operations: the operations of one cuckoo filter in the log. Adds and deletions do not commute, so all that the
 * saved filter lacks are collected, and then done again in the order of their ordinals. Memory: 24 bytes for each.
 *
 * Lifetime: zeroed storage to replay_operations_deinit(). Thread: as noted. */
#ifndef BLOOMERY_REPLAY_OPERATIONS_H
#define BLOOMERY_REPLAY_OPERATIONS_H

#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"

struct replay_operations {
    struct bloom_replay_item *items; /* with whole ordinals */
    size_t n, room;
};

/* Collects those with ordinals above `counted`. `layer` as in the record. 0 or -ENOMEM. One thread at a time. */
int replay_operations_take(struct replay_operations *operations, unsigned layer, const struct bloom_replay_item *items,
                           size_t n, uint64_t counted);

/* Does the operations; a record that the log has twice counts once. Returns how many were done. An operation may be
 * missing: the log was off without a later save, or a frame was lost. After such a gap adds continue, but deletions and
 * moves are skipped and counted in *left_out: a deletion without its add would remove another item. No other thread
 * uses the filter. */
uint64_t replay_operations_do(struct replay_operations *operations, struct bloom_filter *filter, uint64_t *left_out);

void replay_operations_deinit(struct replay_operations *operations);

#endif
