/* bloom_twins: what an add does for a filter that is being merged into, and for the filter that is to take its place. For
 * what twins are and why, see bloom_twins.c. Internal to bloomcore.
 * Thread: any. */
#ifndef BLOOMERY_BLOOM_TWINS_H
#define BLOOMERY_BLOOM_TWINS_H

#include "bloom_layer.h"

/* The lock, or the two, that adds to the filter take. */
struct bloom_locks {
    struct bloom_lock *first, *second; /* second: NULL, or above first */
};

void bloom_twins_lock(struct bloom_locks *locks, struct bloom_pool *pool, const struct bloom_filter *filter,
                      const struct bloom_twin_slot *twin);

static inline void bloom_locks_take(struct bloom_locks *locks, struct bloom_pool *pool,
                                    const struct bloom_filter *filter, const struct bloom_twin_slot *twin)
{
    if (__builtin_expect(twin != NULL, 0)) {
        bloom_twins_lock(locks, pool, filter, twin);
        return;
    }
    *locks = (struct bloom_locks){.first = bloom_pool_lock_of(pool, filter)};
    bloom_lock_take(locks->first);
}

static inline void bloom_locks_give(const struct bloom_locks *locks)
{
    if (locks->second)
        bloom_lock_give(locks->second);
    bloom_lock_give(locks->first);
}

/* Takes to the other filter of the pair an item that has just got its place in this one, before its bits are set here: who
 * finds them here may look there next. Under the locks of the add, whose journal (may be NULL) is told of the younger one's
 * part too. */
void bloom_twins_pass_on(const struct bloom_twin_slot *twin, const struct bloom_filter *filter, struct bloom_hash hash,
                         const struct bloom_journal *journal);

#endif
