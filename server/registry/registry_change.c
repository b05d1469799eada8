/* Changes of a registry, made and reported under its mutex. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "registry_internal.h"

void registry_note_added(struct registry *r, uint64_t hash, struct entry *owner)
{
    atomic_fetch_add_explicit(&r->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&registry_space(r, hash_database(hash))->count, 1, memory_order_relaxed);
    if (entry_kind(owner) != ENTRY_QUARANTINED)
        return;
    atomic_fetch_add_explicit(&r->quarantined, 1, memory_order_relaxed);
    entry_quarantine(owner)->next = r->first_quarantined;
    if (r->first_quarantined)
        entry_quarantine(r->first_quarantined)->previous = owner;
    r->first_quarantined = owner;
}

void registry_give_up(struct registry *r, struct entry *holder)
{
    struct entry *owner = entry_owner(holder);
    if (entry_kind(owner) != ENTRY_QUARANTINED)
        return;
    const struct quarantine *links = entry_quarantine(owner);
    if (links->previous)
        entry_quarantine(links->previous)->next = links->next;
    else
        r->first_quarantined = links->next;
    if (links->next)
        entry_quarantine(links->next)->previous = links->previous;
    if (r->forget)
        r->forget(r->forget_ctx, owner->id);
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

/* Defers the freeing of a removed table and of its entries. */
void registry_reclaim_table(struct registry *r, struct table *table)
{
    for (uint64_t i = 0; i < table->size; i++) {
        uint64_t slot = atomic_load_explicit(&table->slots[i], memory_order_relaxed);
        if (!slot_holds_entry(slot))
            continue;
        note_removed(r, slot_entry(slot));
        reclaimer_defer(r->env.reclaimer, entry_reclaim, slot_entry(slot));
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
    int64_t expires_ms = slot ? entry_expires_ms(*holder_out) : 0;
    if (expires_ms == 0 || expires_ms > registry_now_ms(r))
        return slot;
    registry_remove(r, hash, slot, REGISTRY_EXPIRED);
    *holder_out = NULL;
    return NULL;
}

/* Makes sure that registry_place_reserved() succeeds. False without memory. */
static bool registry_reserve(struct registry *r, uint64_t hash)
{
    struct keyspace *space = registry_make_space(r, hash_database(hash));
    return space && name_index_reserve(&space->names) && shard_reserve(&space->shards[hash_shard(hash)], &r->env);
}

static void registry_place_reserved(struct registry *r, uint64_t hash, struct entry *holder)
{
    shard_insert(registry_shard(r, hash), &r->env, hash, holder);
    name_index_put(&registry_space(r, hash_database(hash))->names, holder);
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
    slot_replace(slot, hash, holder);
    name_index_put(&registry_space(r, hash_database(hash))->names, holder);
}

/* Takes the name, that of the slot, out of the table and the index. */
static void registry_take_out(struct registry *r, uint64_t hash, struct slice name, _Atomic uint64_t *slot)
{
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
    walk_note_gone(r, owner);
    reclaimer_defer(r->env.reclaimer, entry_reclaim, holder);
}

void registry_remove(struct registry *r, uint64_t hash, _Atomic uint64_t *slot, enum registry_effect_kind kind)
{
    struct entry *holder = slot_entry(atomic_load_explicit(slot, memory_order_relaxed));
    struct entry *owner = entry_owner(holder);
    registry_take_out(r, hash, entry_name(holder), slot);
    registry_give_up(r, holder);
    registry_tell(r,
                  &(struct registry_effect){.kind = kind, .id = owner->id, .name = entry_name(holder), .entry = owner});
    registry_drop(r, holder);
}

/* ---- creating ---- */

/* Inserts a new entry under its name. REGISTRY_OK, REGISTRY_EXISTS (the entry is unused) or -ENOMEM. */
static int registry_insert(struct registry *r, struct entry *entry, uint64_t id, struct entry **entry_out)
{
    struct slice name = entry_name(entry);
    uint64_t hash = registry_hash(r, name);
    int status = REGISTRY_OK;

    pthread_mutex_lock(&r->lock);
    struct entry *existing;
    if (registry_slot(r, hash, name, &existing)) {
        *entry_out = entry_owner(existing);
        status = REGISTRY_EXISTS;
    } else {
        entry->id = id ? id : atomic_load(&r->next_id);
        if (registry_place(r, hash, entry)) {
            if (entry->id >= atomic_load(&r->next_id))
                atomic_store(&r->next_id, entry->id + 1);
            registry_note_added(r, hash, entry);
            walk_note_added(r, hash, entry);
            registry_tell(
                r, &(struct registry_effect){.kind = REGISTRY_CREATED, .id = entry->id, .name = name, .entry = entry});
            *entry_out = entry;
        } else {
            status = -ENOMEM;
        }
    }
    pthread_mutex_unlock(&r->lock);
    return status;
}

bool registry_name_fits(struct slice name, struct errbuf *err)
{
    size_t prefix = database_prefix_of_key(name.ptr, name.len);
    if (name.len <= REGISTRY_MAX_NAME)
        return true;
    errbuf_set(err, "the name has %zu bytes; at most %zu are allowed%s", name.len - prefix, REGISTRY_MAX_NAME - prefix,
               prefix ? " in a database other than 0" : "");
    return false;
}

static int create(struct registry *r, struct slice name, uint64_t id, struct bloom_class *class, bool away,
                  struct entry **entry_out, struct errbuf *err)
{
    struct entry *entry;
    int status = registry_make_filter(r, name, class, bloom_filter_init, &entry, err);
    if (status != REGISTRY_OK)
        return status;
    if (away)
        entry_start_away(entry);
    status = registry_insert(r, entry, id, entry_out);
    if (status != REGISTRY_OK) {
        bloom_filter_deinit(entry_body(entry));
        entry_discard(entry);
    }
    return status;
}

int registry_create_filter(struct registry *r, struct slice name, uint64_t id, struct bloom_class *class,
                           struct entry **entry_out, struct errbuf *err)
{
    return create(r, name, id, class, false, entry_out, err);
}

int registry_create_away(struct registry *r, struct slice name, uint64_t id, struct bloom_class *class,
                         struct entry **entry_out, struct errbuf *err)
{
    return create(r, name, id, class, true, entry_out, err);
}

int registry_create_quarantined(struct registry *r, struct slice name, uint64_t id, const char *reason)
{
    struct entry *entry = registry_make_quarantined(r, name, reason), *existing;
    if (!entry)
        return -ENOMEM;
    int status = registry_insert(r, entry, id, &existing);
    if (status != REGISTRY_OK)
        entry_discard(entry);
    return status;
}

/* ---- deleting and renaming ---- */

int registry_delete(struct registry *r, struct slice name)
{
    uint64_t hash = registry_hash(r, name);
    struct entry *holder;

    pthread_mutex_lock(&r->lock);
    _Atomic uint64_t *slot = registry_slot(r, hash, name, &holder);
    if (slot)
        registry_remove(r, hash, slot, REGISTRY_DELETED);
    pthread_mutex_unlock(&r->lock);
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
    walk_note_changed(r, alias);
    if (to_slot)
        registry_give_up(r, replaced);
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
        reclaimer_defer(r->env.reclaimer, entry_reclaim_alias, holder);
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

    pthread_mutex_lock(&r->lock);
    int status = rename_locked(r, from, to, only_new, alias);
    pthread_mutex_unlock(&r->lock);

    if (!entry_alias(alias)->owner)
        entry_discard(alias); /* unused: an error, or the same name */
    return status;
}
