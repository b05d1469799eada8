/* bloom_twins: adds to a filter that is being merged into, and to the filter that will replace it. bloom_twins.c
 * explains twins and their reason. Internal to bloomcore. Thread: any. */
#ifndef BLOOMERY_BLOOM_TWINS_H
#define BLOOMERY_BLOOM_TWINS_H

#include "bloom_layer.h"
#include "bloom_merge.h"

/* The one or two locks of an add to the filter. */
struct bloom_locks {
    struct bloom_lock *first, *second; /* second: NULL, or above first */
};

/* Of the filter and of another one (NULL: none), which may share a lock. */
void bloom_locks_take_both(struct bloom_locks *locks, struct bloom_pool *pool, const struct bloom_filter *filter,
                           const struct bloom_filter *other);

void bloom_twins_lock(struct bloom_locks *locks, struct bloom_pool *pool, const struct bloom_filter *filter,
                      const struct bloom_twin_slot *twin);

/* The pair in the slot. False: the filter is none of the two, or the pair ended, or another one came, meanwhile. */
bool bloom_twins_read(const struct bloom_twin_slot *twin, const struct bloom_filter *filter,
                      struct bloom_twins *twins_out);

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

/* Adds an item that has just got its place in this filter to the other filter of the pair. Its bits are set here
 * afterwards: a client that finds them here may query there next. Called under the locks of the add; the add's journal
 * (may be NULL) also records the younger filter's part. */
void bloom_twins_pass_on(const struct bloom_twin_slot *twin, const struct bloom_filter *filter, struct bloom_hash hash,
                         const struct bloom_journal *journal);

#endif
