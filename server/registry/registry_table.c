#include "registry_table.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "check.h"
#include "entry.h"
#include "rcu.h"

uint64_t name_hash(uint64_t seed, struct slice name)
{
    return XXH3_64bits_withSeed(name.ptr, name.len, seed);
}

static uint64_t slot_make(uint64_t hash, struct entry *entry)
{
    return (uint64_t)(uintptr_t)entry >> 3 | hash_tag(hash) << POINTER_BITS;
}

_Atomic uint64_t *table_find(struct table *table, uint64_t hash, struct slice name, uint64_t *value_out)
{
    if (!table)
        return NULL;
    for (uint64_t i = table_home(table, hash);; i = table_next(table, i)) {
        uint64_t slot = atomic_load_explicit(&table->slots[i], memory_order_acquire);
        if (slot == SLOT_EMPTY)
            return NULL;
        if (!slot_holds_entry(slot) || !slot_has_tag(slot, hash))
            continue;
        struct slice found = entry_name(slot_entry(slot));
        if (found.len == name.len && (name.len == 0 || memcmp(found.ptr, name.ptr, name.len) == 0)) {
            *value_out = slot;
            return &table->slots[i];
        }
    }
}

static uint64_t table_bytes(const struct table *table)
{
    return sizeof(*table) + table->size * sizeof(table->slots[0]);
}

static int table_reclaim(void *table)
{
    free(table);
    return 0;
}

void table_retire(struct table_env *env, struct table *table)
{
    atomic_fetch_sub_explicit(&env->bytes, table_bytes(table), memory_order_relaxed);
    reclaimer_defer(env->reclaimer, table_reclaim, table, 0);
}

/* Puts a slot's value at the first free place from its home on; there is one. */
static void table_place(struct table *table, uint64_t value)
{
    uint64_t i = tag_home(table, slot_tag(value));
    for (;; i = table_next(table, i)) {
        uint64_t slot = atomic_load_explicit(&table->slots[i], memory_order_relaxed);
        if (slot_holds_entry(slot))
            continue;
        if (slot == SLOT_DELETED)
            table->deleted--;
        break;
    }
    table->used++;
    atomic_store_explicit(&table->slots[i], value, memory_order_release);
}

/* Replaces the table by one of `size` slots, rounded up; readers use the old one until they see the new one. */
static bool shard_resize(shard_t *shard, struct table_env *env, uint64_t size)
{
    struct table *old = atomic_load_explicit(shard, memory_order_relaxed);
    size = (size + TABLE_MIN - 1) / TABLE_MIN * TABLE_MIN;
    struct table *table = size <= UINT32_MAX ? calloc(1, sizeof(*table) + sizeof(uint64_t) * size) : NULL;
    if (!table)
        return false;
    table->size = (uint32_t)size;
    for (uint64_t i = 0; old && i < old->size; i++) {
        uint64_t slot = atomic_load_explicit(&old->slots[i], memory_order_relaxed);
        if (slot_holds_entry(slot))
            table_place(table, slot);
    }
    atomic_store_explicit(shard, table, memory_order_release);
    atomic_fetch_add_explicit(&env->bytes, table_bytes(table), memory_order_relaxed);
    if (old)
        table_retire(env, old);
    return true;
}

bool shard_reserve(shard_t *shard, struct table_env *env)
{
    struct table *table = atomic_load_explicit(shard, memory_order_relaxed);
    if (!table)
        return shard_resize(shard, env, TABLE_MIN);
    uint64_t size = table->size;
    if ((uint64_t)table->used + table->deleted + 1 <= size - size / 5)
        return true;
    /* The same size if the table is full of deleted slots, otherwise a quarter more. */
    return shard_resize(shard, env, (uint64_t)table->used + 1 <= size / 8 * 5 ? size : size + size / 4);
}

bool shard_insert(shard_t *shard, struct table_env *env, uint64_t hash, struct entry *entry)
{
    if (!shard_reserve(shard, env))
        return false;
    table_place(atomic_load_explicit(shard, memory_order_relaxed), slot_make(hash, entry));
    return true;
}

/* A table that has been replaced stays readable for a while: a change in it would be lost. */
static void check_slot(const struct table *table, const _Atomic uint64_t *slot)
{
    CHECK(table && slot >= table->slots && slot < table->slots + table->size && slot_holds_entry(*slot));
}

void slot_replace(const shard_t *shard, _Atomic uint64_t *slot, uint64_t hash, struct entry *entry)
{
    check_slot(atomic_load_explicit(shard, memory_order_relaxed), slot);
    atomic_store_explicit(slot, slot_make(hash, entry), memory_order_release);
}

void shard_remove(shard_t *shard, struct table_env *env, _Atomic uint64_t *slot)
{
    struct table *table = atomic_load_explicit(shard, memory_order_relaxed);
    check_slot(table, slot);
    atomic_store_explicit(slot, SLOT_DELETED, memory_order_release);
    table->used--;
    table->deleted++;
    if (table->used == 0) {
        atomic_store_explicit(shard, NULL, memory_order_release);
        table_retire(env, table);
    } else if (table->size > TABLE_MIN && table->used < table->size / 8) {
        (void)shard_resize(shard, env, table->size / 4); /* without memory the large one stays */
    }
}
