#include "registry.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "check.h"
#include "clock.h"
#include "registry_effect.h"
#include "registry_internal.h"
#include "registry_key.h"
#include "slab.h"
#include "lock.h"

_Static_assert(REGISTRY_NAME_BYTES == NAME_INDEX_NODE_BYTES, "as it is reported");

/* ---- lifetime ---- */

static void use_space(struct registry *r, struct keyspace *space, unsigned database)
{
    space->names = (struct name_index){.slab = r->slab, .reclaimer = r->env.reclaimer};
    space->database = database;
    r->keyspaces.in_use[r->keyspaces.nin_use++] = space;
    atomic_store_explicit(&r->keyspaces.all[database], space, memory_order_release);
}

struct keyspace *registry_make_space(struct registry *r, unsigned database)
{
    struct keyspace *space = registry_space(r, database);
    if (!space && (space = cache_lines_alloc(sizeof(*space)))) {
        use_space(r, space, database);
        atomic_fetch_add_explicit(&r->env.bytes, sizeof(*space), memory_order_relaxed);
    }
    return space;
}

int registry_create(struct registry **registry_out, struct bloom_pool *pool, struct reclaimer *reclaimer)
{
    struct registry *r = cache_lines_alloc(sizeof(*r));
    if (!r || !(r->slab = slab_create())) {
        free(r);
        return -ENOMEM;
    }
    r->pool = pool;
    r->env.reclaimer = reclaimer;
    if (getrandom(&r->env.seed, sizeof(r->env.seed), 0) != (ssize_t)sizeof(r->env.seed))
        r->env.seed = clock_ns() * UINT64_C(0x9e3779b97f4a7c15);
    r->next_id = 1;
    use_space(r, &r->keyspaces.first, 0);
    for (unsigned i = 0; i < DATABASES_MAX; i++)
        registry_set_database(r, i, i);
    lock_init_spinning(&r->lock, RANK_REGISTRY); /* a load creates filters from several threads */
    pthread_cond_init(&r->due.changed, NULL);
    *registry_out = r;
    return 0;
}

void registry_destroy(struct registry *r)
{
    if (!r)
        return;
    for (unsigned i = 0; i < r->keyspaces.nin_use; i++) {
        struct keyspace *space = r->keyspaces.in_use[i];
        for (unsigned s = 0; s < SHARD_COUNT; s++) {
            struct table *table = atomic_load(&space->shards[s]);
            if (table)
                registry_reclaim_table(r, table);
        }
        name_index_clear(&space->names);
    }
    reclaimer_flush(r->env.reclaimer);
    for (unsigned i = 0; i < r->keyspaces.nin_use; i++) {
        name_index_deinit(&r->keyspaces.in_use[i]->names);
        expiry_heap_deinit(&r->keyspaces.in_use[i]->expiring);
        if (r->keyspaces.in_use[i] != &r->keyspaces.first)
            free(r->keyspaces.in_use[i]);
    }
    pthread_cond_destroy(&r->due.changed);
    lock_deinit(&r->lock);
    slab_destroy(r->slab);
    free(r);
}

void registry_on_effect(struct registry *r, void (*fn)(void *ctx, const struct registry_effect *effect), void *ctx)
{
    lock_take(&r->lock);
    r->on_effect = fn;
    r->on_effect_ctx = ctx;
    lock_give(&r->lock);
}

void registry_barrier(struct registry *r)
{
    lock_take(&r->lock);
    lock_give(&r->lock);
}

/* A thread that has seen a change sees `unrecorded` as it was set before that change, or later. */
void registry_await_records(struct registry *r)
{
    if (atomic_load_explicit(&r->unrecorded, memory_order_acquire))
        registry_barrier(r);
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
    CHECK(id >= atomic_load(&r->next_id)); /* no id is used twice */
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

uint64_t registry_slab_bytes(const struct registry *r)
{
    return slab_bytes(r->slab);
}

uint64_t registry_index_bytes(const struct registry *r)
{
    return sizeof(*r) + atomic_load_explicit(&r->env.bytes, memory_order_relaxed);
}

uint64_t registry_expiry_bytes(const struct registry *r)
{
    return atomic_load_explicit(&r->due.bytes, memory_order_relaxed);
}

/* ---- databases ---- */

unsigned registry_database(const struct registry *r, unsigned number)
{
    return atomic_load_explicit(&r->keyspaces.internal[number], memory_order_relaxed);
}

unsigned registry_number(const struct registry *r, unsigned database)
{
    return atomic_load_explicit(&r->keyspaces.number[database], memory_order_relaxed);
}

void registry_set_database(struct registry *r, unsigned number, unsigned database)
{
    atomic_store_explicit(&r->keyspaces.internal[number], (uint16_t)database, memory_order_relaxed);
    atomic_store_explicit(&r->keyspaces.number[database], (uint16_t)number, memory_order_relaxed);
}

void registry_swap(struct registry *r, unsigned first, unsigned second)
{
    lock_take(&r->lock);
    unsigned database = registry_database(r, first);
    registry_begin_unrecorded(r);
    registry_set_database(r, first, registry_database(r, second));
    registry_set_database(r, second, database);
    registry_tell(r, &(struct registry_effect){.kind = REGISTRY_SWAPPED, .numbers = {first, second}});
    lock_give(&r->lock);
}

size_t registry_database_count(const struct registry *r, unsigned database)
{
    const struct keyspace *space = registry_space(r, database);
    return space ? atomic_load_explicit(&space->count, memory_order_relaxed) : 0;
}

unsigned registry_highest_number(const struct registry *r)
{
    unsigned number = DATABASES_MAX - 1;
    while (number > 0 && registry_database_count(r, registry_database(r, number)) == 0)
        number--;
    return number;
}

/* ---- look-up ---- */

uint64_t registry_hash(const struct registry *r, struct slice name)
{
    /* No filter has a longer name, so any hash will do: the look-up fails. */
    if (name.len > REGISTRY_MAX_NAME)
        name.len = REGISTRY_MAX_NAME;
    return name_hash(r->env.seed, name) >> HASH_DATABASE_BITS << HASH_DATABASE_BITS | key_database(name);
}

static struct table *registry_table(const struct registry *r, uint64_t hash)
{
    const struct keyspace *space = &r->keyspaces.first;
    if (__builtin_expect(hash_database(hash) != 0, false) && !(space = registry_space(r, hash_database(hash))))
        return NULL;
    return atomic_load_explicit(&space->shards[hash_shard(hash)], memory_order_acquire);
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
    uint64_t slot;
    for (uint64_t i = table_home(table, hash);; i = table_next(table, i)) {
        slot = atomic_load_explicit(&table->slots[i], memory_order_relaxed);
        if (slot == SLOT_EMPTY)
            return;
        if (slot_holds_entry(slot) && slot_has_tag(slot, hash))
            break;
    }
    __builtin_prefetch(slot_entry(slot));
}

/* For readers: the holder of a name, unless it has expired. */
static inline struct entry *find_holder(const struct registry *r, uint64_t hash, struct slice name)
{
    uint64_t value;
    if (!table_find(registry_table(r, hash), hash, name, &value) || registry_is_over(r, slot_entry(value)))
        return NULL;
    return slot_entry(value);
}

struct entry *registry_find(const struct registry *r, uint64_t hash, struct slice name)
{
    struct entry *holder = find_holder(r, hash, name);
    return holder ? entry_owner(holder) : NULL;
}

struct entry *registry_find_expiry(const struct registry *r, struct slice name, int64_t *expires_ms_out)
{
    struct entry *holder = find_holder(r, registry_hash(r, name), name);
    if (!holder)
        return NULL;
    *expires_ms_out = entry_expires_ms(holder);
    return entry_owner(holder);
}

struct entry *registry_pin(struct registry *r, struct slice name)
{
    uint64_t hash = registry_hash(r, name);

    lock_take(&r->lock);
    struct entry *entry = registry_find(r, hash, name); /* certainly in the registry: the mutex excludes a removal */
    if (entry)
        entry_pin(entry);
    lock_give(&r->lock);
    return entry;
}

struct registry_version registry_version(const struct registry *r, struct slice name)
{
    struct registry_version version = {0};
    struct entry *entry = registry_find_expiry(r, name, &version.expires_ms);
    if (!entry)
        return (struct registry_version){0};
    struct bloom_filter *filter = entry_shape(entry);
    version.id = entry->id;
    version.items = filter ? bloom_filter_changes(filter) : 0;
    return version;
}
