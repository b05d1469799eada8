#include "registry.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "registry_internal.h"

/* ---- lifetime ---------------------------------------------------------------------------------------------------------- */

static uint64_t random_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof(seed), 0) == (ssize_t)sizeof(seed))
        return seed;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_nsec * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)now.tv_sec;
}

int registry_create(struct registry **registry_out, struct bloom_pool *pool, struct reclaimer *reclaimer)
{
    struct registry *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->pool = pool;
    r->env = (struct table_env){.reclaimer = reclaimer, .seed = random_seed()};
    r->next_id = 1;
    pthread_mutex_init(&r->lock, NULL);
    *registry_out = r;
    return 0;
}

void registry_note_added(struct registry *r, const struct entry *owner)
{
    atomic_fetch_add_explicit(&r->count, 1, memory_order_relaxed);
    if (owner->kind == ENTRY_QUARANTINED)
        atomic_fetch_add_explicit(&r->quarantined, 1, memory_order_relaxed);
}

void registry_note_removed(struct registry *r, const struct entry *owner)
{
    atomic_fetch_sub_explicit(&r->count, 1, memory_order_relaxed);
    if (owner->kind != ENTRY_QUARANTINED)
        return;
    atomic_fetch_sub_explicit(&r->quarantined, 1, memory_order_relaxed);
    if (r->forget)
        r->forget(r->forget_ctx, owner->id);
}

/* Defers the freeing of a table that has been taken out, and of its entries. */
static void reclaim_table(struct registry *r, struct table *table)
{
    for (uint64_t i = 0; i <= table_mask(table); i++) {
        uint64_t slot = atomic_load_explicit(&table->slots[i], memory_order_relaxed);
        if (!slot_holds_entry(slot))
            continue;
        registry_note_removed(r, entry_owner(slot_entry(slot)));
        reclaimer_defer(r->env.reclaimer, entry_reclaim, slot_entry(slot));
    }
    reclaimer_defer(r->env.reclaimer, table_reclaim, table);
}

void registry_destroy(struct registry *r)
{
    if (!r)
        return;
    r->forget = NULL; /* nothing is given up: it only leaves memory */
    for (unsigned s = 0; s < SHARD_COUNT; s++) {
        struct table *table = atomic_load(&r->shards[s]);
        if (table)
            reclaim_table(r, table);
    }
    reclaimer_flush(r->env.reclaimer);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

void registry_on_forget(struct registry *r, void (*forget)(void *ctx, uint64_t id), void *ctx)
{
    pthread_mutex_lock(&r->lock);
    r->forget = forget;
    r->forget_ctx = ctx;
    pthread_mutex_unlock(&r->lock);
}

struct bloom_pool *registry_pool(const struct registry *r)
{
    return r->pool;
}

uint64_t registry_next_id(const struct registry *r)
{
    return atomic_load(&r->next_id);
}

void registry_set_next_id(struct registry *r, uint64_t id)
{
    atomic_store(&r->next_id, id);
}

size_t registry_count(const struct registry *r)
{
    return atomic_load_explicit(&r->count, memory_order_relaxed);
}

size_t registry_quarantined(const struct registry *r)
{
    return atomic_load_explicit(&r->quarantined, memory_order_relaxed);
}

uint64_t registry_index_bytes(const struct registry *r)
{
    uint64_t bytes = sizeof(*r);
    for (unsigned i = 0; i < SHARD_COUNT; i++) {
        const struct table *table = atomic_load_explicit(&r->shards[i], memory_order_acquire);
        if (table)
            bytes += sizeof(*table) + (table_mask(table) + 1) * sizeof(table->slots[0]);
    }
    return bytes;
}

/* ---- look-up ----------------------------------------------------------------------------------------------------------- */

uint64_t registry_hash(const struct registry *r, struct slice name)
{
    return name_hash(r->env.seed, name);
}

static struct table *registry_table(const struct registry *r, uint64_t hash)
{
    return atomic_load_explicit(&r->shards[hash_shard(hash)], memory_order_acquire);
}

void registry_prefetch(const struct registry *r, uint64_t hash)
{
    struct table *table = registry_table(r, hash);
    if (table)
        __builtin_prefetch(&table->slots[table_home(table, hash)]);
}

void registry_prefetch_entry(const struct registry *r, uint64_t hash)
{
    struct table *table = registry_table(r, hash);
    if (!table)
        return;
    uint64_t mask = table_mask(table);
    uint64_t slot;
    for (uint64_t i = table_home(table, hash);; i = (i + 1) & mask) {
        slot = atomic_load_explicit(&table->slots[i], memory_order_relaxed);
        if (slot == SLOT_EMPTY)
            return;
        if (slot_holds_entry(slot) && slot_has_tag(slot, hash))
            break;
    }
    __builtin_prefetch(slot_entry(slot));
}

struct entry *registry_find(const struct registry *r, uint64_t hash, struct slice name)
{
    uint64_t value;
    return table_find(registry_table(r, hash), hash, name, &value) ? entry_owner(slot_entry(value)) : NULL;
}

/* ---- changes ------------------------------------------------------------------------------------------------------------ */

shard_t *registry_shard(struct registry *r, uint64_t hash)
{
    return &r->shards[hash_shard(hash)];
}

_Atomic uint64_t *registry_slot(struct registry *r, uint64_t hash, struct slice name, struct entry **entry_out)
{
    uint64_t value = SLOT_EMPTY;
    struct table *table = atomic_load_explicit(registry_shard(r, hash), memory_order_relaxed);
    _Atomic uint64_t *slot = table_find(table, hash, name, &value);
    *entry_out = slot ? slot_entry(value) : NULL;
    return slot;
}

/* Inserts a new entry under its name. REGISTRY_OK, REGISTRY_EXISTS (the entry is not used) or -ENOMEM. */
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
        if (shard_insert(registry_shard(r, hash), &r->env, hash, entry)) {
            if (entry->id >= atomic_load(&r->next_id))
                atomic_store(&r->next_id, entry->id + 1);
            registry_note_added(r, entry);
            walk_note_added(r, hash, entry);
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
    struct entry *entry = entry_alloc(ENTRY_FILTER, name, bloom_filter_bytes(class));
    if (!entry)
        return -ENOMEM;
    int status = bloom_filter_init(entry_body(entry), class, err);
    if (status) {
        free(entry);
        return status < 0 ? status : REGISTRY_LIMIT;
    }
    atomic_store_explicit(&entry->state, ENTRY_DIRTY, memory_order_relaxed);
    status = registry_insert(r, entry, id, entry_out);
    if (status != REGISTRY_OK) {
        bloom_filter_deinit(entry_body(entry));
        free(entry);
    }
    return status;
}

int registry_create_quarantined(struct registry *r, struct slice name, uint64_t id, const char *reason)
{
    struct entry *entry = entry_alloc(ENTRY_QUARANTINED, name, strlen(reason) + 1);
    if (!entry)
        return -ENOMEM;
    strcpy(entry_body(entry), reason);
    struct entry *existing;
    int status = registry_insert(r, entry, id, &existing);
    if (status != REGISTRY_OK)
        free(entry);
    return status;
}

int registry_delete(struct registry *r, struct slice name)
{
    uint64_t hash = registry_hash(r, name);

    pthread_mutex_lock(&r->lock);
    struct entry *entry;
    _Atomic uint64_t *slot = registry_slot(r, hash, name, &entry);
    if (slot) {
        shard_remove(registry_shard(r, hash), &r->env, slot);
        registry_note_removed(r, entry_owner(entry));
        walk_note_gone(r, entry_owner(entry));
    }
    pthread_mutex_unlock(&r->lock);

    if (!entry)
        return REGISTRY_NOT_FOUND;
    reclaimer_defer(r->env.reclaimer, entry_reclaim, entry);
    return REGISTRY_OK;
}

/* Under the mutex, `alias` prepared: puts the alias in place, takes the old name away. What has become unreachable is
 * returned for reclaiming: the holder of the old name if it was an alias itself, and what stood under the new name. */
static int rename_locked(struct registry *r, struct slice from, struct slice to, bool only_new, struct entry *alias,
                         struct entry **old_alias_out, struct entry **replaced_out)
{
    uint64_t from_hash = registry_hash(r, from), to_hash = registry_hash(r, to);
    struct entry *holder, *replaced;
    _Atomic uint64_t *from_slot = registry_slot(r, from_hash, from, &holder);
    if (!from_slot)
        return REGISTRY_NOT_FOUND;
    struct entry *owner = entry_owner(holder);
    _Atomic uint64_t *to_slot = registry_slot(r, to_hash, to, &replaced);
    if (to_slot && (only_new || to_slot == from_slot))
        return only_new ? REGISTRY_EXISTS : REGISTRY_OK;

    *(struct entry **)entry_body(alias) = owner;
    if (to_slot) {
        slot_replace(to_slot, to_hash, alias);
        registry_note_removed(r, entry_owner(replaced));
        walk_note_gone(r, entry_owner(replaced));
        *replaced_out = replaced;
    } else {
        if (!shard_insert(registry_shard(r, to_hash), &r->env, to_hash, alias))
            return -ENOMEM;
        from_slot = registry_slot(r, from_hash, from, &holder); /* the table may have been replaced */
    }
    if (holder != owner)
        *old_alias_out = holder;
    shard_remove(registry_shard(r, from_hash), &r->env, from_slot);
    entry_mark_dirty(owner);
    walk_note_renamed(r, alias);
    return REGISTRY_OK;
}

int registry_rename(struct registry *r, struct slice from, struct slice to, bool only_new, struct errbuf *err)
{
    if (!name_fits(to, err))
        return REGISTRY_REFUSED;
    struct entry *alias = entry_alloc(ENTRY_ALIAS, to, sizeof(struct entry *));
    if (!alias)
        return -ENOMEM;
    struct entry *old_alias = NULL, *replaced = NULL;

    pthread_mutex_lock(&r->lock);
    int status = rename_locked(r, from, to, only_new, alias, &old_alias, &replaced);
    pthread_mutex_unlock(&r->lock);

    if (*(struct entry **)entry_body(alias) == NULL || status != REGISTRY_OK)
        free(alias); /* not used: an error, or the same name */
    if (old_alias)
        reclaimer_defer(r->env.reclaimer, entry_reclaim_alias, old_alias);
    if (replaced)
        reclaimer_defer(r->env.reclaimer, entry_reclaim, replaced);
    return status;
}

int registry_clear(struct registry *r, size_t *removed_out)
{
    struct table **tables = calloc(SHARD_COUNT, sizeof(struct table *));
    if (!tables)
        return -ENOMEM;
    *removed_out = 0;

    pthread_mutex_lock(&r->lock);
    for (unsigned s = 0; s < SHARD_COUNT; s++) {
        tables[s] = atomic_exchange(&r->shards[s], NULL);
        if (!tables[s])
            continue;
        *removed_out += tables[s]->used;
        walk_note_cleared(r, tables[s]);
    }
    pthread_mutex_unlock(&r->lock);

    for (unsigned s = 0; s < SHARD_COUNT; s++)
        if (tables[s])
            reclaim_table(r, tables[s]); /* outside the mutex: it may take long */
    free(tables);
    return 0;
}
