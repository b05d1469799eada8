/* Changes of names, made and reported under the mutex: shared steps; deleting, renaming, clearing. */
#include <errno.h>
#include <stdlib.h>

#include "bloom_pool.h"
#include "check.h"
#include "errbuf.h"
#include "rcu.h"
#include "registry.h"
#include "registry_internal.h"
#include "registry_key.h"
#include "lock.h"

void registry_note_added(struct registry *r, uint64_t hash, struct entry *owner)
{
    atomic_fetch_add_explicit(&r->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&registry_space(r, hash_database(hash))->count, 1, memory_order_relaxed);
    if (entry_kind(owner) == ENTRY_QUARANTINED)
        atomic_fetch_add_explicit(&r->quarantined, 1, memory_order_relaxed);
}

/* `holder`: of the name that it had. */
static void note_removed(struct registry *r, struct entry *holder)
{
    const struct entry *owner = entry_owner(holder);
    struct keyspace *space = registry_space(r, key_database(entry_name(holder)));
    atomic_fetch_sub_explicit(&r->count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&space->count, 1, memory_order_relaxed);
    if (entry_kind(owner) == ENTRY_QUARANTINED)
        atomic_fetch_sub_explicit(&r->quarantined, 1, memory_order_relaxed);
}

void registry_reclaim_table(struct registry *r, struct table *table)
{
    uint64_t at = 0;
    for (struct entry *holder; (holder = table_sweep(table, &at));) {
        note_removed(r, holder);
        reclaimer_defer(r->env.reclaimer, entry_reclaim, holder, entry_charged(entry_owner(holder)));
    }
    table_retire(&r->env, table);
}

/* ---- names and their holders ---- */

/* NULL: its database has never had a filter. */
static shard_t *registry_shard(struct registry *r, uint64_t hash)
{
    struct keyspace *space = registry_space(r, hash_database(hash));
    return space ? &space->shards[hash_shard(hash)] : NULL;
}

static _Atomic uint64_t *find_slot(struct registry *r, uint64_t hash, struct slice name, struct entry **holder_out)
{
    uint64_t value = SLOT_EMPTY;
    shard_t *shard = registry_shard(r, hash);
    struct table *table = shard ? atomic_load_explicit(shard, memory_order_relaxed) : NULL;
    _Atomic uint64_t *slot = table_find(table, hash, name, &value);
    *holder_out = slot ? slot_entry(value) : NULL;
    return slot;
}

_Atomic uint64_t *registry_slot(struct registry *r, uint64_t hash, struct slice name, struct entry **holder_out)
{
    _Atomic uint64_t *slot = find_slot(r, hash, name, holder_out);
    if (!slot || !registry_is_over(r, *holder_out))
        return slot;
    registry_remove(r, hash, slot, REGISTRY_EXPIRED);
    *holder_out = NULL;
    return NULL;
}

/* Makes sure that registry_place_reserved() succeeds. False without memory. */
static bool registry_reserve(struct registry *r, uint64_t hash)
{
    struct keyspace *space = registry_make_space(r, hash_database(hash));
    return space && (r->keyspaces.unordered || name_index_reserve(&space->names)) &&
           shard_reserve(&space->shards[hash_shard(hash)], &r->env);
}

static void registry_place_reserved(struct registry *r, uint64_t hash, struct entry *holder)
{
    struct entry *other;
    VERIFY(!find_slot(r, hash, entry_name(holder), &other)); /* a name has one holder */
    registry_begin_unrecorded(r);
    CHECK(shard_insert(registry_shard(r, hash), &r->env, hash, holder)); /* reserved */
    if (!r->keyspaces.unordered)
        name_index_add(&registry_space(r, hash_database(hash))->names, holder);
}

bool registry_place(struct registry *r, uint64_t hash, struct entry *holder)
{
    if (!registry_reserve(r, hash))
        return false;
    registry_place_reserved(r, hash, holder);
    return true;
}

void registry_exchange(struct registry *r, uint64_t hash, _Atomic uint64_t *slot, struct entry *holder)
{
    registry_begin_unrecorded(r);
    slot_replace(registry_shard(r, hash), slot, hash, holder);
    if (!r->keyspaces.unordered)
        name_index_replace(&registry_space(r, hash_database(hash))->names, holder);
}

/* Takes the name, that of the slot, out of the table and the index. */
static void registry_take_out(struct registry *r, uint64_t hash, struct slice name, _Atomic uint64_t *slot)
{
    if (!r->keyspaces.unordered)
        name_index_remove(&registry_space(r, hash_database(hash))->names, name);
    shard_remove(registry_shard(r, hash), &r->env, slot);
}

void registry_drop(struct registry *r, struct entry *holder)
{
    struct entry *owner = entry_owner(holder);
    if (holder != owner) {
        expiry_heap_remove(registry_times(r, holder), holder);
        registry_note_due(r);
    }
    note_removed(r, holder);
    walk_deleted(&r->walk, owner);
    reclaimer_defer(r->env.reclaimer, entry_reclaim, holder, entry_charged(owner));
}

void registry_remove(struct registry *r, uint64_t hash, _Atomic uint64_t *slot, enum registry_effect_kind kind)
{
    struct entry *holder = slot_entry(atomic_load_explicit(slot, memory_order_relaxed));
    struct entry *owner = entry_owner(holder);
    registry_take_out(r, hash, entry_name(holder), slot);
    registry_tell(r,
                  &(struct registry_effect){.kind = kind, .id = owner->id, .name = entry_name(holder), .entry = owner});
    registry_drop(r, holder);
}

/* ---- deleting and renaming ---- */

int registry_delete(struct registry *r, struct slice name)
{
    uint64_t hash = registry_hash(r, name);
    struct entry *holder;

    lock_take(&r->lock);
    _Atomic uint64_t *slot = registry_slot(r, hash, name, &holder);
    if (slot)
        registry_remove(r, hash, slot, REGISTRY_DELETED);
    lock_give(&r->lock);
    return slot ? REGISTRY_OK : REGISTRY_NOT_FOUND;
}

/* Replaces the holder of the old name by `alias`, in the heap, too. */
static void take_over(struct registry *r, struct entry *holder, struct entry *alias)
{
    struct entry *owner = entry_owner(holder);
    entry_alias(alias)->owner = owner;
    if (holder == owner)
        return;
    int64_t expires_ms = entry_expires_ms(holder);
    struct expiry_heap *from = registry_times(r, holder), *to = registry_times(r, alias);
    atomic_store_explicit(&entry_alias(alias)->expires_ms, expires_ms, memory_order_relaxed);
    if (from == to) {
        expiry_heap_replace(from, holder, alias);
        return;
    }
    expiry_heap_remove(from, holder);
    if (expires_ms)
        expiry_heap_put(to, alias, expires_ms); /* reserved by the caller */
}

bool registry_name_fits(struct slice name, struct errbuf *err)
{
    size_t prefix = database_prefix_of_key(name.ptr, name.len);
    if (name.len <= REGISTRY_MAX_NAME)
        return true;
    return errbuf_fail(err, false, "the name has %zu bytes; at most %zu are allowed%s", name.len - prefix,
                       REGISTRY_MAX_NAME - prefix, prefix ? " in a database other than 0" : "");
}

/* Under the mutex: publishes the prepared `alias` and removes the old name. */
static int rename_locked(struct registry *r, struct slice from, struct slice to, bool only_new, struct entry *alias)
{
    uint64_t from_hash = registry_hash(r, from), to_hash = registry_hash(r, to);
    struct entry *holder, *replaced;
    _Atomic uint64_t *to_slot = registry_slot(r, to_hash, to, &replaced);
    _Atomic uint64_t *from_slot =
        registry_slot(r, from_hash, from, &holder); /* after it: to_slot is valid if this is */
    if (!from_slot)
        return REGISTRY_NOT_FOUND;
    if (to_slot && (only_new || to_slot == from_slot))
        return only_new ? REGISTRY_EXISTS : REGISTRY_OK;
    if (!to_slot && !registry_reserve(r, to_hash))
        return -ENOMEM;
    bool moves = hash_database(from_hash) != hash_database(to_hash);
    if (moves && entry_expires_ms(holder) && !registry_reserve_expiry(r, alias))
        return -ENOMEM;

    take_over(r, holder, alias);
    struct entry *owner = entry_owner(alias);
    if (to_slot)
        registry_exchange(r, to_hash, to_slot, alias);
    else
        registry_place_reserved(r, to_hash, alias);
    from_slot = find_slot(r, from_hash, from, &holder); /* the table may have been replaced */
    registry_take_out(r, from_hash, from, from_slot);
    if (moves) {
        atomic_fetch_sub_explicit(&registry_space(r, hash_database(from_hash))->count, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&registry_space(r, hash_database(to_hash))->count, 1, memory_order_relaxed);
    }
    entry_mark_dirty(owner);
    walk_changed(&r->walk, alias);
    registry_tell(r, &(struct registry_effect){.kind = REGISTRY_RENAMED,
                                               .id = owner->id,
                                               .name = from,
                                               .to = to,
                                               .replaced_id = to_slot ? entry_owner(replaced)->id : 0,
                                               .expires_ms = entry_expires_ms(alias),
                                               .entry = owner});
    if (to_slot)
        registry_drop(r, replaced);
    if (holder != owner)
        reclaimer_defer(r->env.reclaimer, entry_reclaim_alias, holder, 0);
    return REGISTRY_OK;
}

int registry_rename(struct registry *r, struct slice from, struct slice to, bool only_new, struct errbuf *err)
{
    if (!registry_name_fits(to, err))
        return REGISTRY_REFUSED;
    if (to.len > from.len && bloom_pool_room(r->pool, to.len, err) != BLOOM_OK)
        return REGISTRY_LIMIT;
    struct entry *alias = registry_alias(r, to, NULL);
    if (!alias)
        return -ENOMEM;

    lock_take(&r->lock);
    int status = rename_locked(r, from, to, only_new, alias);
    lock_give(&r->lock);

    if (!entry_alias(alias)->owner)
        entry_discard(alias); /* unused: an error, or the same name */
    return status;
}

/* ---- clearing: all filters, or those of one database, at one moment ---- */

/* The contents of a database before it was cleared. */
struct cleared {
    struct table *tables[SHARD_COUNT];
    struct expiry_heap expiring; /* the aliases in it are in the tables */
};

/* Under the mutex: takes everything out. Returns how many filters there were. */
static size_t take_all(struct registry *r, struct keyspace *space, struct cleared *cleared)
{
    size_t removed = 0;
    for (unsigned s = 0; s < SHARD_COUNT; s++) {
        struct table *table = atomic_exchange(&space->shards[s], NULL);
        cleared->tables[s] = table;
        if (!table)
            continue;
        removed += table->used;
        uint64_t at = 0;
        for (struct entry *holder; r->walk.active && (holder = table_sweep(table, &at));)
            walk_deleted(&r->walk, entry_owner(holder));
    }
    name_index_clear(&space->names);
    cleared->expiring = space->expiring;
    space->expiring = (struct expiry_heap){0};
    return removed;
}

/* Without the mutex: it may take long. */
static void reclaim(struct registry *r, struct cleared *cleared)
{
    for (unsigned s = 0; s < SHARD_COUNT; s++)
        if (cleared->tables[s])
            registry_reclaim_table(r, cleared->tables[s]);
    expiry_heap_deinit(&cleared->expiring);
}

int registry_clear(struct registry *r, size_t *removed_out)
{
    lock_take(&r->lock);
    unsigned n = r->keyspaces.nin_use;
    struct cleared *cleared = calloc(n, sizeof(*cleared));
    size_t removed = 0;
    if (cleared) {
        for (unsigned i = 0; i < n; i++)
            removed += take_all(r, r->keyspaces.in_use[i], &cleared[i]);
        registry_count_times(r);
        registry_note_due(r);
        registry_tell(r, &(struct registry_effect){.kind = REGISTRY_CLEARED, .count = removed});
    }
    lock_give(&r->lock);
    if (!cleared)
        return -ENOMEM;
    for (unsigned i = 0; i < n; i++)
        reclaim(r, &cleared[i]);
    free(cleared);
    *removed_out = removed;
    return 0;
}

int registry_database_clear(struct registry *r, unsigned database, size_t *removed_out)
{
    struct cleared *cleared = calloc(1, sizeof(*cleared));
    struct keyspace *space = registry_space(r, database);
    *removed_out = 0;
    if (cleared && space) {
        lock_take(&r->lock);
        *removed_out = take_all(r, space, cleared);
        registry_count_times(r);
        registry_note_due(r);
        registry_tell(r, &(struct registry_effect){
                             .kind = REGISTRY_DATABASE_CLEARED, .database = database, .count = *removed_out});
        lock_give(&r->lock);
        reclaim(r, cleared);
    }
    free(cleared);
    return cleared ? 0 : -ENOMEM;
}
