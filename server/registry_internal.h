/* The registry's inside, shared by registry.c (look-up and changes), registry_scan.c and registry_walk.c. */
#ifndef BLOOMERY_REGISTRY_INTERNAL_H
#define BLOOMERY_REGISTRY_INTERNAL_H

#include <pthread.h>

#include "registry_table.h"

/* What a walk has still to yield, in order. */
struct walk_queue {
    struct registry_item *items;
    size_t next;
    size_t count;
    size_t size;
};

struct walk {
    bool active;              /* begun and not frozen yet: changes are noted */
    bool failed;              /* an item could not be noted: the walk is not complete */
    unsigned shard;           /* the next shard to be taken; what changes in an earlier one is noted in `late` */
    struct walk_queue taken;  /* of the shard taken last */
    struct walk_queue late;
};

struct registry {
    struct bloom_pool *pool;
    struct table_env env;
    _Atomic size_t count;
    _Atomic size_t quarantined;
    _Atomic uint64_t next_id;
    void (*forget)(void *ctx, uint64_t id);
    void *forget_ctx;
    pthread_mutex_t lock;     /* of all changes, and of the walk */
    struct walk walk;
    shard_t shards[SHARD_COUNT];
};

/* Under the mutex. */
shard_t *registry_shard(struct registry *r, uint64_t hash);
_Atomic uint64_t *registry_slot(struct registry *r, uint64_t hash, struct slice name, struct entry **entry_out); /* of the
                                                            name, and the entry in it; NULL and NULL if there is none */
void registry_note_added(struct registry *r, const struct entry *owner);
void registry_note_removed(struct registry *r, const struct entry *owner);

/* Called for every change, under the mutex, so that a walk that has passed the place learns of it. */
void walk_note_added(struct registry *r, uint64_t hash, struct entry *holder);
void walk_note_renamed(struct registry *r, struct entry *holder);
void walk_note_gone(struct registry *r, struct entry *owner);
void walk_note_cleared(struct registry *r, const struct table *table);

#endif
