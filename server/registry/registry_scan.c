/* A sweep in the order of the hashes, one database after another. The cursor is the next position in that order, as the
 * upper 48 bits of a hash. It means the same in a table of any size. An entry has one position for its whole life, so a
 * sweep meets an entry that is present throughout exactly once. */
#include "registry.h"

#include <errno.h>
#include <stdlib.h>

#include "registry_internal.h"
#include "registry_key.h"

#define POSITION_BITS 48
#define RANGE_MIN     64 /* homes visited between two checks of the count */

static uint64_t hash_position(uint64_t hash)
{
    return hash >> (64 - POSITION_BITS);
}

static uint64_t shard_position(unsigned shard)
{
    return (uint64_t)shard << (POSITION_BITS - SHARD_BITS);
}

struct sweep {
    const struct registry *registry;
    const struct table *table;
    uint64_t from; /* positions before this one have been visited */
    size_t met;
    void (*visit)(void *ctx, struct slice name, struct entry *entry);
    void *ctx;
};

/* Visits the entries whose homes are in [home, end). They are between `home` and the first empty slot at or after
 * `end`, mixed with entries of earlier and later homes. */
static void sweep_homes(struct sweep *s, uint64_t home, uint64_t end)
{
    uint64_t size = s->table->size;
    for (uint64_t i = home; i - home < size; i++) {
        uint64_t slot = atomic_load_explicit(&s->table->slots[i < size ? i : i - size], memory_order_acquire);
        if (slot == SLOT_EMPTY && i >= end)
            return;
        if (!slot_holds_entry(slot))
            continue;
        struct slice name = entry_name(slot_entry(slot));
        uint64_t hash = registry_hash(s->registry, name);
        uint64_t entry_home = table_home(s->table, hash);
        if (entry_home < home || entry_home >= end || hash_position(hash) < s->from)
            continue;
        if (!registry_is_over(s->registry, slot_entry(slot)))
            s->visit(s->ctx, name, entry_owner(slot_entry(slot)));
        s->met++; /* expired ones count: a million of them must not make one call long */
    }
}

/* Continues from s->from on until `count` are met in all. Returns the next position; 0: the end, or no space. */
static uint64_t sweep_space(struct sweep *s, const struct keyspace *space, size_t count)
{
    unsigned shard = (unsigned)(s->from >> (POSITION_BITS - SHARD_BITS));
    while (space && shard < SHARD_COUNT) {
        s->table = atomic_load_explicit(&space->shards[shard], memory_order_acquire);
        if (!s->table) {
            s->from = shard_position(++shard);
            continue;
        }
        uint64_t size = s->table->size, home = table_home(s->table, s->from << (64 - POSITION_BITS));
        uint64_t end = home + (count > RANGE_MIN ? count : RANGE_MIN);
        if (end > size)
            end = size;
        sweep_homes(s, home, end);
        s->from =
            shard_position(shard) + (((end << TAG_BITS) + size - 1) / size << (POSITION_BITS - SHARD_BITS - TAG_BITS));
        if (end == size)
            shard++;
        if (s->met >= count)
            return shard < SHARD_COUNT ? s->from : 0;
    }
    return 0;
}

uint64_t registry_database_scan(const struct registry *r, unsigned database, uint64_t cursor, size_t count,
                                void (*visit)(void *ctx, struct slice key, struct entry *entry), void *ctx)
{
    struct sweep s = {.registry = r, .from = cursor, .visit = visit, .ctx = ctx};
    return sweep_space(&s, registry_space(r, database), count);
}

/* Above a position, a cursor has the internal number of the database. */
uint64_t registry_scan(const struct registry *r, uint64_t cursor, size_t count,
                       void (*visit)(void *ctx, struct slice name, struct entry *entry), void *ctx)
{
    struct sweep s = {.registry = r, .from = cursor & ((UINT64_C(1) << POSITION_BITS) - 1), .visit = visit, .ctx = ctx};
    unsigned database = (unsigned)(cursor >> POSITION_BITS);

    while (database < DATABASES_MAX) {
        uint64_t position = sweep_space(&s, registry_space(r, database), count);
        if (position)
            return (uint64_t)database << POSITION_BITS | position;
        do /* the next that has ever had a filter */
            database++;
        while (database < DATABASES_MAX && !registry_space(r, database));
        s.from = 0;
        if (s.met >= count)
            break;
    }
    return database < DATABASES_MAX ? (uint64_t)database << POSITION_BITS : 0;
}

/* ---- by the beginning of the name ---- */

struct prefix_walk {
    const struct registry *registry;
    void (*visit)(void *ctx, struct slice name, struct entry *entry);
    void *ctx;
};

static void visit_holder(void *ctx, struct entry *holder)
{
    const struct prefix_walk *walk = ctx;
    bool over = registry_is_over(walk->registry, holder);
    walk->visit(walk->ctx, entry_name(holder), over ? NULL : entry_owner(holder));
}

/* The first walk sorts the names that were added lately: callers see no change, so `const`. */
static void settle(const struct registry *r, struct keyspace *space)
{
    struct lock *lock = (struct lock *)(uintptr_t)&r->lock;
    if (name_index_is_settled(&space->names))
        return;
    lock_take(lock);
    name_index_settle(&space->names);
    lock_give(lock);
}

size_t registry_scan_prefix(const struct registry *r, struct slice prefix, const struct slice *after, size_t max,
                            void (*visit)(void *ctx, struct slice name, struct entry *entry), void *ctx)
{
    struct prefix_walk walk = {r, visit, ctx};
    struct keyspace *space = registry_space(r, key_database(prefix));
    if (!space)
        return 0;
    settle(r, space);
    return name_index_walk(&space->names, prefix, after, max, visit_holder, &walk);
}

/* ---- all names in their order at once ---- */

void registry_leave_order(struct registry *r)
{
    lock_take(&r->lock);
    for (unsigned i = 0; i < r->keyspaces.nin_use; i++)
        name_index_clear(&r->keyspaces.in_use[i]->names);
    r->keyspaces.unordered = true;
    lock_give(&r->lock);
}

static bool build_index(struct keyspace *space)
{
    size_t n = 0, count = 1; /* malloc(0) may be NULL */
    const struct table *table;
    for (unsigned s = 0; s < SHARD_COUNT; s++)
        count += (table = atomic_load_explicit(&space->shards[s], memory_order_relaxed)) ? table->used : 0;
    struct name_item *items = malloc(count * sizeof(*items));
    if (!items)
        return false;
    for (unsigned s = 0; s < SHARD_COUNT; s++) {
        uint64_t at = 0;
        table = atomic_load_explicit(&space->shards[s], memory_order_relaxed);
        for (struct entry *holder; (holder = table_sweep(table, &at));)
            items[n++].holder = holder;
    }
    bool built = name_index_build(&space->names, items, n);
    free(items);
    return built;
}

int registry_put_in_order(struct registry *r)
{
    bool built = true;
    lock_take(&r->lock);
    for (unsigned i = 0; i < r->keyspaces.nin_use && built; i++)
        built = build_index(r->keyspaces.in_use[i]);
    for (unsigned i = 0; i < r->keyspaces.nin_use && !built; i++)
        name_index_clear(&r->keyspaces.in_use[i]->names);
    r->keyspaces.unordered = !built;
    lock_give(&r->lock);
    return built ? 0 : -ENOMEM;
}

/* ---- ageing ---- */

#define AGE_MAX UINT16_C(0x8000)

struct ageing {
    uint16_t now;
};

static void age(void *ctx, struct slice name, struct entry *entry)
{
    const struct ageing *ageing = ctx;
    uint16_t used = atomic_load_explicit(&entry->used, memory_order_relaxed);
    (void)name;
    if ((uint16_t)(ageing->now - used) > AGE_MAX) /* unless a use changes it at this moment */
        atomic_compare_exchange_strong(&entry->used, &used, (uint16_t)(ageing->now - AGE_MAX));
}

void registry_age(const struct registry *r, int64_t now_ms)
{
    struct ageing ageing = {.now = entry_stamp(now_ms)};
    registry_scan(r, 0, SIZE_MAX, age, &ageing);
}
