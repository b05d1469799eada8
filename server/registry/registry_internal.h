/* The registry's inside, shared by its sources. */
#ifndef BLOOMERY_REGISTRY_INTERNAL_H
#define BLOOMERY_REGISTRY_INTERNAL_H

#include <pthread.h>

#include "expiry_heap.h"
#include "registry_effect.h"
#include "registry_table.h"
#include "registry_walk.h"

/* What a walk has still to yield, in order. */
struct walk_queue {
    struct registry_item *items;
    size_t next;
    size_t count;
    size_t size;
};

struct walk {
    bool active;             /* begun and not frozen yet: changes are noted */
    bool failed;             /* an item could not be noted: the walk is not complete */
    unsigned shard;          /* the next shard to be taken; what changes in an earlier one is noted in `late` */
    struct walk_queue taken; /* of the shard taken last */
    struct walk_queue late;
    void (*on_freeze)(void *ctx);
    void *on_freeze_ctx;
};

struct registry {
    struct bloom_pool *pool;
    struct slab *slab; /* of small entries */
    struct table_env env;
    _Atomic size_t count;
    _Atomic size_t quarantined;
    struct entry *first_quarantined; /* of those that are not given up */
    _Atomic uint64_t next_id;
    void (*forget)(void *ctx, uint64_t id);
    void *forget_ctx;
    void (*on_effect)(void *ctx, const struct registry_effect *effect);
    void *on_effect_ctx;
    int64_t (*now_ms)(void); /* NULL: the system's clock */
    _Atomic int64_t held_ms; /* the clock stands still at this time; 0: it does not */
    pthread_mutex_t lock;    /* of all changes, the heap and the walk */
    struct walk walk;
    struct expiry_heap expiring; /* the aliases that have a time */
    _Atomic int64_t next_due_ms; /* when the first of them expires; 0: there is none */
    pthread_cond_t due_changed;  /* next_due_ms is earlier, or expire_stop */
    bool expire_stop;
    shard_t shards[SHARD_COUNT];
};

/* ---- the clock: registry_expiry.c -------------------------------------------------------------------------------- */

/* What has expired is decided by two clocks. Readers use the coarse one, which costs a few nanoseconds and may be some
 * milliseconds behind; changes use the exact one. So what a change has found to be expired may have been there for a
 * reader a moment before, but never the other way round. */
int64_t registry_now_ms(const struct registry *r);
bool registry_time_is_over(const struct registry *r, const struct alias *alias); /* by the coarse clock */

/* For readers: whether the holder of a name has expired. */
static inline bool registry_is_over(const struct registry *r, const struct entry *holder)
{
    return entry_kind(holder) == ENTRY_ALIAS && registry_time_is_over(r, entry_alias(holder));
}

/* ---- changes, under the mutex ------------------------------------------------------------------------------------ */

shard_t *registry_shard(struct registry *r, uint64_t hash);

/* The slot of the name, and in holder_out the entry in it; NULL and NULL if there is none. What has expired is removed
 * first, so that other slots of the same shard that were found before are not valid any more when this returns NULL. */
_Atomic uint64_t *registry_slot(struct registry *r, uint64_t hash, struct slice name, struct entry **holder_out);

void registry_note_added(struct registry *r, struct entry *owner);
void registry_reclaim_table(struct registry *r,
                            struct table *table); /* one that was taken out, and its entries; also outside */

/* The holder of a name is about to go: if its filter is quarantined, its files are given up. To be called before that is told:
 * who goes by what is told, after a crash in between, must not take them for those of an ordinary filter. */
void registry_give_up(struct registry *r, struct entry *holder);

/* The holder of a name, no longer in the table, and its filter are gone: counts, walk and heap learn of it, and the
 * memory will be freed. */
void registry_drop(struct registry *r, struct entry *holder);

/* Empties the slot and tells that the filter was deleted, or expired. */
void registry_remove(struct registry *r, uint64_t hash, _Atomic uint64_t *slot, enum registry_effect_kind kind);

static inline void registry_tell(struct registry *r, const struct registry_effect *effect)
{
    if (r->on_effect)
        r->on_effect(r->on_effect_ctx, effect);
}

/* ---- the heap, under the mutex: registry_expiry.c ---------------------------------------------------------------- */

bool registry_reserve_expiry(struct registry *r); /* false: no memory */
void registry_put_expiry(struct registry *r, struct entry *alias,
                         int64_t expires_ms); /* reserved before; 0: takes it out */
void registry_note_due(struct registry *r);   /* the heap has changed */

/* An alias for the owner under the name. NULL: no memory. */
struct entry *registry_alias(struct registry *r, struct slice name, struct entry *owner);

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* Called for every change, under the mutex, so that a walk that has passed the place learns of it. */
void walk_note_added(struct registry *r, uint64_t hash, struct entry *holder);
void walk_note_changed(struct registry *r, struct entry *holder); /* its name or its time */
void walk_note_gone(struct registry *r, struct entry *owner);
void walk_note_cleared(struct registry *r, const struct table *table);

#endif
