/* registry_internal: the registry's structure, and its functions under the mutex. Internal to the registry. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc.h"
#include "database.h"
#include "entry_internal.h"
#include "lock.h"
#include "name_index.h"
#include "registry_effect.h"
#include "registry_table.h"
#include "walk.h"

/* ---- expiry heap ---- */

/* Finds the name that expires next. Internal to the registry, whose mutex guards it.
 *
 * A 4-ary heap in pages that never move, so that no new name makes the holder of the mutex copy megabytes. Each alias
 * knows its place, so that it can be removed from the middle.
 *
 * Lifetime: zeroed storage, to expiry_heap_deinit(). */

struct entry;

struct expiry_node {
    int64_t expires_ms;
    struct entry *alias;
};

struct expiry_heap {
    struct expiry_node **pages;
    size_t npages;
    size_t pages_size; /* of the array */
    size_t count;
    unsigned __int128 sum_ms; /* sum of all times, for their average */
};

void expiry_heap_deinit(struct expiry_heap *heap);

/* Inserts an alias, or moves one that is in the heap. `expires_ms` > 0. */
void expiry_heap_put(struct expiry_heap *heap, struct entry *alias, int64_t expires_ms);

/* Removes an alias; does nothing if it is not in the heap. */
void expiry_heap_remove(struct expiry_heap *heap, struct entry *alias);

/* Puts `to`, which is not in the heap, into the place of `from`, if that has one. */
void expiry_heap_replace(struct expiry_heap *heap, struct entry *from, struct entry *to);

/* ---- the registry ---- */

struct bloom_pool;
struct errbuf;

/* The filters of one database. */
struct keyspace {
    alignas(CACHE_LINE) shard_t shards[SHARD_COUNT]; /* of all commands */
    struct name_index names;                         /* from here on: of changes */
    struct expiry_heap expiring;                     /* the aliases with an expiry */
    _Atomic size_t count;
    unsigned database; /* its internal number */
};

struct keyspaces {
    struct keyspace first;                         /* that of database 0 */
    _Atomic(struct keyspace *) all[DATABASES_MAX]; /* by internal number; NULL: it has never had a filter */
    struct keyspace *in_use[DATABASES_MAX];        /* in the order in which they came */
    unsigned nin_use;
    bool unordered; /* between registry_leave_order() and registry_put_in_order(): the indexes are empty */
    _Atomic uint16_t internal[DATABASES_MAX]; /* the internal number of a client's */
    _Atomic uint16_t number[DATABASES_MAX];   /* the reverse */
};

/* The clock of expiries: readers and changes use the same one. */
struct registry_clock {
    int64_t (*now_ms)(void); /* NULL: the system's clock */
    _Atomic int64_t held_ms; /* the time at which the clock is held; 0: it runs */
};

/* The expiries of all databases together. */
struct due {
    _Atomic uint64_t bytes;  /* memory of the heaps */
    _Atomic int64_t next_ms; /* the first expiry; 0: none */
    pthread_cond_t changed;  /* next_ms is earlier, or `stop` */
    bool stop;               /* the thread that waits ends */
};

struct registry {
    /* Members that each look-up reads, in no cache line that each creation writes: test unit_cache_lines. */
    struct bloom_pool *pool;
    struct slab *slab; /* of small entries */
    struct table_env env;
    void (*on_effect)(void *ctx, const struct registry_effect *effect);
    void *on_effect_ctx;
    struct registry_clock clock;

    alignas(CACHE_LINE) struct lock lock; /* of all changes, the heap and the walk */
    _Atomic size_t count;
    _Atomic size_t quarantined;
    _Atomic uint64_t next_id;
    atomic_bool unrecorded; /* registry_await_records() */
    struct walk walk;       /* its places: place_of_shard() */
    struct due due;
    struct keyspaces keyspaces;
};

/* A hash has the internal number of its database in its lowest bits, which nothing else reads. */
#define HASH_DATABASE_BITS 16

static inline unsigned hash_database(uint64_t hash)
{
    return (unsigned)(hash & ((1u << HASH_DATABASE_BITS) - 1));
}

/* NULL: none. */
static inline struct keyspace *registry_space(const struct registry *r, unsigned database)
{
    return database == 0 ? (struct keyspace *)(uintptr_t)&r->keyspaces.first
                         : atomic_load_explicit(&r->keyspaces.all[database], memory_order_acquire);
}

/* Under the mutex: the same, made if it is missing. NULL: no memory. */
struct keyspace *registry_make_space(struct registry *r, unsigned database);

/* The shards of all databases in one order. */
#define PLACES ((unsigned)DATABASES_MAX * SHARD_COUNT)

static inline unsigned place_of_shard(uint64_t hash)
{
    return hash_database(hash) * SHARD_COUNT + hash_shard(hash);
}

/* ---- the clock: registry_expiry.c ---- */

/* Far from a filter's time readers ask the kernel's coarse clock, which costs a few nanoseconds. */
int64_t registry_now_ms(const struct registry *r);
bool registry_time_is_over(const struct registry *r, struct alias *alias);

/* For readers: whether the holder of a name has expired. */
static inline bool registry_is_over(const struct registry *r, const struct entry *holder)
{
    return entry_kind(holder) == ENTRY_ALIAS && registry_time_is_over(r, entry_alias(holder));
}

/* ---- changes, under the mutex: registry_change.c ---- */

/* The slot of the name, and its entry in holder_out; NULL and NULL if there is none. An expired entry is removed first:
 * when this returns NULL, slots of the same shard found earlier are no longer valid. */
_Atomic uint64_t *registry_slot(struct registry *r, uint64_t hash, struct slice name, struct entry **holder_out);

/* Puts the holder of a name that has none into the table and the index. False without memory, with nothing changed. */
bool registry_place(struct registry *r, uint64_t hash, struct entry *holder);

/* Puts another holder of the same name into its slot and the index. */
void registry_exchange(struct registry *r, uint64_t hash, _Atomic uint64_t *slot, struct entry *holder);

void registry_note_added(struct registry *r, uint64_t hash, struct entry *owner); /* `hash`: of its key */

/* Defers the freeing of a removed table and its entries. Also without the mutex. */
void registry_reclaim_table(struct registry *r, struct table *table);

/* Called when a name's holder has left the table: updates counts, walk and heap, and defers its freeing. */
void registry_drop(struct registry *r, struct entry *holder);

/* Empties the slot and reports that the filter was deleted, or has expired. */
void registry_remove(struct registry *r, uint64_t hash, _Atomic uint64_t *slot, enum registry_effect_kind kind);

/* Set before a change that look-ups see, under the mutex. */
static inline void registry_begin_unrecorded(struct registry *r)
{
    atomic_store_explicit(&r->unrecorded, true, memory_order_relaxed);
}

static inline void registry_tell(struct registry *r, const struct registry_effect *effect)
{
    if (r->on_effect)
        r->on_effect(r->on_effect_ctx, effect);
    atomic_store_explicit(&r->unrecorded, false, memory_order_release);
}

/* Whether a key is short enough; if not, `err` has the reason. Also without the mutex. */
bool registry_name_fits(struct slice name, struct errbuf *err);

/* ---- the heaps, under the mutex: registry_expiry.c ---- */

/* The heap of the database of a holder's key. */
struct expiry_heap *registry_times(const struct registry *r, const struct entry *holder);

/* Room for this holder, whose database has a keyspace. False: no memory. */
bool registry_reserve_expiry(struct registry *r, const struct entry *holder);
void registry_put_expiry(struct registry *r, struct entry *alias, int64_t expires_ms); /* reserved before; 0: removes */
void registry_note_due(struct registry *r);                                            /* a heap has changed */
void registry_count_times(struct registry *r); /* the memory of a heap has changed */

/* Creates an alias of the owner under the name. NULL without memory. Also without the mutex. */
struct entry *registry_alias(struct registry *r, struct slice name, struct entry *owner);
