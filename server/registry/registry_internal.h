/* The registry's inside, shared by its sources. */
#ifndef BLOOMERY_REGISTRY_INTERNAL_H
#define BLOOMERY_REGISTRY_INTERNAL_H

#include <pthread.h>

#include "expiry_heap.h"
#include "name_index.h"
#include "registry_databases.h"
#include "registry_effect.h"
#include "registry_key.h"
#include "registry_table.h"
#include "registry_walk.h"

/* Pinned entries of the last shard that are not yielded yet, in order. */
struct walk_queue {
    struct registry_item *items; /* items without an id were deleted meanwhile */
    size_t next;
    size_t count;
    size_t size;
};

struct walk {
    bool active;             /* begun and not yet frozen: changes are noted */
    bool failed;             /* a change could not be noted: the walk is incomplete */
    unsigned shard;          /* the next shard to be taken: its place among those of all databases (place_of_shard()) */
    struct walk_queue taken; /* entries of the last shard */
    void *late;              /* walk_notes.h: entries that have changed behind the walk, each once */
    uint64_t *gone;          /* ids that were yielded and then deleted */
    size_t ngone, gone_size;
    void (*on_freeze)(void *ctx);
    void *on_freeze_ctx;
};

/* The filters of one database. */
struct keyspace {
    shard_t shards[SHARD_COUNT];
    struct name_index names;
    struct expiry_heap expiring; /* the aliases with an expiry */
    _Atomic size_t count;
    unsigned database; /* its internal number */
};

struct registry {
    struct bloom_pool *pool;
    struct slab *slab; /* of small entries */
    struct table_env env;
    _Atomic size_t count;
    _Atomic size_t quarantined;
    struct entry *first_quarantined; /* list of those that are not given up */
    _Atomic uint64_t next_id;
    void (*forget)(void *ctx, uint64_t id);
    void *forget_ctx;
    void (*on_effect)(void *ctx, const struct registry_effect *effect);
    void *on_effect_ctx;
    int64_t (*now_ms)(void); /* NULL: the system's clock */
    _Atomic int64_t held_ms; /* the time at which the clock is held; 0: it runs */
    pthread_mutex_t lock;    /* of all changes, the heap and the walk */
    struct walk walk;
    _Atomic uint64_t expiring_bytes;
    _Atomic int64_t next_due_ms; /* the first expiry; 0: there is none */
    pthread_cond_t due_changed;  /* next_due_ms is earlier, or expire_stop */
    bool expire_stop;
    struct keyspace first;                            /* that of database 0 */
    _Atomic(struct keyspace *) spaces[DATABASES_MAX]; /* by internal number; NULL: it has never had a filter */
    struct keyspace *in_use[DATABASES_MAX];           /* those that are there, in the order in which they came */
    unsigned nin_use;
    _Atomic uint16_t database[DATABASES_MAX]; /* the internal number of a client's */
    _Atomic uint16_t number[DATABASES_MAX];   /* the reverse */
};

/* A hash has the internal number of its database in its lowest bits, which nothing else looks at. */
#define HASH_DATABASE_BITS 16

static inline unsigned hash_database(uint64_t hash)
{
    return (unsigned)(hash & ((1u << HASH_DATABASE_BITS) - 1));
}

/* NULL: there is none. */
static inline struct keyspace *registry_space(const struct registry *r, unsigned database)
{
    return database == 0 ? (struct keyspace *)(uintptr_t)&r->first
                         : atomic_load_explicit(&r->spaces[database], memory_order_acquire);
}

/* Under the mutex: the same, made if it is not there. NULL: no memory. */
struct keyspace *registry_make_space(struct registry *r, unsigned database);

/* The shards of all databases in one order. */
#define PLACES ((unsigned)DATABASES_MAX * SHARD_COUNT)

static inline unsigned place_of_shard(uint64_t hash)
{
    return hash_database(hash) * SHARD_COUNT + hash_shard(hash);
}

/* ---- the clock: registry_expiry.c ---- */

/* Expiry uses two clocks. Readers use the coarse one, which costs a few nanoseconds and may be some milliseconds
 * behind; changes use the exact one. So a filter that a change finds expired may have existed for a reader a moment
 * before, but never the other way round. */
int64_t registry_now_ms(const struct registry *r);
bool registry_time_is_over(const struct registry *r, const struct alias *alias); /* by the coarse clock */

/* For readers: whether the holder of a name has expired. */
static inline bool registry_is_over(const struct registry *r, const struct entry *holder)
{
    return entry_kind(holder) == ENTRY_ALIAS && registry_time_is_over(r, entry_alias(holder));
}

/* ---- entries that nobody sees yet ---- */

/* A filter without items, dirty. REGISTRY_OK; REGISTRY_REFUSED, REGISTRY_LIMIT (with the reason) or -ENOMEM. */
typedef int filter_init_fn(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err);
int registry_make_filter(struct registry *r, struct slice name, struct bloom_class *class, filter_init_fn *init,
                         struct entry **entry_out, struct errbuf *err);

struct entry *registry_make_quarantined(struct registry *r, struct slice name,
                                        const char *reason); /* NULL: no memory */

/* ---- changes, under the mutex ---- */

/* The slot of the name, and its entry in holder_out; NULL and NULL if there is none. An expired entry is removed first:
 * when this returns NULL, slots of the same shard found earlier are no longer valid. */
_Atomic uint64_t *registry_slot(struct registry *r, uint64_t hash, struct slice name, struct entry **holder_out);

/* Puts the holder of a name that has none into the table and the index. False without memory, with nothing changed. */
bool registry_place(struct registry *r, uint64_t hash, struct entry *holder);

/* Puts another holder of the same name into its slot and the index. */
void registry_exchange(struct registry *r, uint64_t hash, _Atomic uint64_t *slot, struct entry *holder);

/* `hash`: of its key. */
void registry_note_added(struct registry *r, uint64_t hash, struct entry *owner);
void registry_reclaim_table(struct registry *r,
                            struct table *table); /* a removed table and its entries; also without the mutex */

/* The holder of a name is about to be removed: gives up the files of a quarantined filter. Called before the effect is
 * reported: after a crash in between, a reader of the reports must not take these files for those of an ordinary
 * filter. */
void registry_give_up(struct registry *r, struct entry *holder);

/* Called when the holder of a name has left the table: updates counts, walk and heap, and defers the freeing of the
 * holder and its filter. */
void registry_drop(struct registry *r, struct entry *holder);

/* Empties the slot and reports that the filter was deleted, or has expired. */
void registry_remove(struct registry *r, uint64_t hash, _Atomic uint64_t *slot, enum registry_effect_kind kind);

static inline void registry_tell(struct registry *r, const struct registry_effect *effect)
{
    if (r->on_effect)
        r->on_effect(r->on_effect_ctx, effect);
}

/* Whether a key is short enough; if not, `err` says so. */
bool registry_name_fits(struct slice name, struct errbuf *err);

/* ---- the heaps, under the mutex: registry_expiry.c ---- */

/* That of the database of a holder's key. */
static inline struct expiry_heap *registry_times(const struct registry *r, const struct entry *holder)
{
    return &registry_space(r, key_database(entry_name(holder)))->expiring;
}

/* Room for this holder, whose database has a keyspace. False: no memory. */
bool registry_reserve_expiry(struct registry *r, const struct entry *holder);
void registry_count_times(struct registry *r); /* the memory of a heap has changed */
void registry_put_expiry(struct registry *r, struct entry *alias,
                         int64_t expires_ms); /* reserved before; 0: removes it */
void registry_note_due(struct registry *r);   /* a heap has changed */

/* Creates an alias of the owner under the name. NULL without memory. */
struct entry *registry_alias(struct registry *r, struct slice name, struct entry *owner);

/* ---- the walk ---- */

/* Called for every change, under the mutex, so that a walk that has passed the place notes it. */
void walk_note_added(struct registry *r, uint64_t hash, struct entry *holder);
void walk_note_changed(struct registry *r, struct entry *holder); /* its name or its expiry */
void walk_note_gone(struct registry *r, struct entry *owner);
void walk_note_cleared(struct registry *r, const struct table *table);

#endif
