/* Changes of a registry, made and reported under its mutex. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "registry_internal.h"

void registry_note_added(struct registry *r, struct entry *owner)
{
    atomic_fetch_add_explicit(&r->count, 1, memory_order_relaxed);
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

static void note_removed(struct registry *r, const struct entry *owner)
{
    atomic_fetch_sub_explicit(&r->count, 1, memory_order_relaxed);
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
        note_removed(r, entry_owner(slot_entry(slot)));
        reclaimer_defer(r->env.reclaimer, entry_reclaim, slot_entry(slot));
    }
    table_retire(&r->env, table);
}

/* ---- names and their holders ---- */

shard_t *registry_shard(struct registry *r, uint64_t hash)
{
    return &r->shards[hash_shard(hash)];
}

static _Atomic uint64_t *find_slot(struct registry *r, uint64_t hash, struct slice name, struct entry **holder_out)
{
    uint64_t value = SLOT_EMPTY;
    struct table *table = atomic_load_explicit(registry_shard(r, hash), memory_order_relaxed);
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

bool registry_reserve(struct registry *r, uint64_t hash)
{
    return name_index_reserve(&r->names) && shard_reserve(registry_shard(r, hash), &r->env);
}

void registry_place_reserved(struct registry *r, uint64_t hash, struct entry *holder)
{
    shard_insert(registry_shard(r, hash), &r->env, hash, holder);
    name_index_put(&r->names, holder);
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
    name_index_put(&r->names, holder);
}

void registry_take_out(struct registry *r, uint64_t hash, struct slice name, _Atomic uint64_t *slot)
{
    name_index_remove(&r->names, name);
    shard_remove(registry_shard(r, hash), &r->env, slot);
}

void registry_drop(struct registry *r, struct entry *holder)
{
    struct entry *owner = entry_owner(holder);
    if (holder != owner) {
        expiry_heap_remove(&r->expiring, holder);
        registry_note_due(r);
    }
    note_removed(r, owner);
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
            registry_note_added(r, entry);
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

static bool name_fits(struct slice name, struct errbuf *err)
{
    if (name.len <= REGISTRY_MAX_NAME)
        return true;
    errbuf_set(err, "the name has %zu bytes; at most %d are allowed", name.len, REGISTRY_MAX_NAME);
    return false;
}

int registry_create_filter(struct registry *r, struct slice name, uint64_t id, struct bloom_class *class,
                           struct entry **entry_out, struct errbuf *err)
{
    if (!name_fits(name, err))
        return REGISTRY_REFUSED;
    struct entry *entry = entry_alloc(r->slab, ENTRY_FILTER, name, bloom_filter_bytes(class));
    if (!entry)
        return -ENOMEM;
    int status = bloom_filter_init(entry_body(entry), class, err);
    if (status) {
        entry_discard(entry);
        return status < 0 ? status : REGISTRY_LIMIT;
    }
    entry_mark_dirty(entry);
    status = registry_insert(r, entry, id, entry_out);
    if (status != REGISTRY_OK) {
        bloom_filter_deinit(entry_body(entry));
        entry_discard(entry);
    }
    return status;
}

int registry_create_quarantined(struct registry *r, struct slice name, uint64_t id, const char *reason)
{
    struct entry *entry = entry_alloc(r->slab, ENTRY_QUARANTINED, name, sizeof(struct quarantine) + strlen(reason) + 1);
    if (!entry)
        return -ENOMEM;
    strcpy(entry_quarantine(entry)->reason, reason);
    struct entry *existing;
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
    atomic_store_explicit(&entry_alias(alias)->expires_ms, entry_expires_ms(holder), memory_order_relaxed);
    expiry_heap_replace(&r->expiring, holder, alias);
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

    take_over(r, holder, alias);
    struct entry *owner = entry_owner(alias);
    if (to_slot)
        registry_exchange(r, to_hash, to_slot, alias);
    else
        registry_place_reserved(r, to_hash, alias);
    from_slot = find_slot(r, from_hash, from, &holder); /* the table may have been replaced */
    registry_take_out(r, from_hash, from, from_slot);
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
    if (!name_fits(to, err))
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

int registry_clear(struct registry *r, size_t *removed_out)
{
    struct table **tables = calloc(SHARD_COUNT, sizeof(struct table *));
    if (!tables)
        return -ENOMEM;
    size_t removed = 0;

    pthread_mutex_lock(&r->lock);
    for (unsigned s = 0; s < SHARD_COUNT; s++) {
        tables[s] = atomic_exchange(&r->shards[s], NULL);
        if (!tables[s])
            continue;
        removed += tables[s]->used;
        walk_note_cleared(r, tables[s]);
    }
    name_index_clear(&r->names);
    struct expiry_heap expiring = r->expiring; /* the aliases in it are in the tables */
    r->expiring = (struct expiry_heap){0};
    atomic_store_explicit(&r->expiring_bytes, 0, memory_order_relaxed);
    registry_note_due(r);
    while (r->first_quarantined)
        registry_give_up(r, r->first_quarantined);
    registry_tell(r, &(struct registry_effect){.kind = REGISTRY_CLEARED, .count = removed});
    pthread_mutex_unlock(&r->lock);

    for (unsigned s = 0; s < SHARD_COUNT; s++)
        if (tables[s])
            registry_reclaim_table(r, tables[s]); /* without the mutex: it may take long */
    expiry_heap_deinit(&expiring);
    free(tables);
    *removed_out = removed;
    return 0;
}
