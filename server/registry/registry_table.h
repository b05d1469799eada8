/* registry_table: the shards of the registry: open addressing with linear probing, 8-byte slots of a pointer in 45 bits
 * and a tag of 19. Internal to the registry.
 *
 * Readers take no lock. Slots and table pointers are single atomic words, an entry never moves within a table, and a
 * replaced table stays readable until its grace period is over. Writers hold the registry's mutex.
 *
 * Of the 64 bits of a name's hash the top 12 choose the shard, and the 19 below them are the tag. The home slot is the
 * tag's place in its range, scaled to the size of the table. So homes are in the order of the hashes in a table of any
 * size, and SCAN's cursor relies on that. A resize does not read the names, so tables may grow often and by little, a
 * quarter: they are 64 to 80 % full. Tag and home are the same bits, so the tag is worth less in a larger table. Among
 * 10 million names one slot in 100 on the way matches by chance. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"

struct entry;
struct reclaimer;

#ifndef SHARD_BITS /* a test may have few names, and shards */
#define SHARD_BITS 12
#endif
#define SHARD_COUNT  (1u << SHARD_BITS)
#define TABLE_MIN    8 /* slots: a cache line; sizes are multiples of it */
#define TAG_BITS     19
#define POINTER_BITS 45 /* of an address of 48 bits, a multiple of 8 */
#define SLOT_EMPTY   UINT64_C(0)
#define SLOT_DELETED UINT64_C(1)
#define SLOT_POINTER ((UINT64_C(1) << POINTER_BITS) - 1)

struct table {
    uint32_t size; /* slots */
    uint32_t used; /* slots with an entry; written by writers only, as `deleted` */
    uint32_t deleted;
    _Atomic uint64_t slots[];
};

typedef _Atomic(struct table *) shard_t;

static inline unsigned hash_shard(uint64_t hash)
{
    return (unsigned)(hash >> (64 - SHARD_BITS));
}

static inline uint64_t hash_tag(uint64_t hash)
{
    return hash << SHARD_BITS >> (64 - TAG_BITS);
}

static inline uint64_t tag_home(const struct table *table, uint64_t tag)
{
    return tag * table->size >> TAG_BITS;
}

static inline uint64_t table_home(const struct table *table, uint64_t hash)
{
    return tag_home(table, hash_tag(hash));
}

static inline uint64_t table_next(const struct table *table, uint64_t i)
{
    return i + 1 == table->size ? 0 : i + 1;
}

static inline struct entry *slot_entry(uint64_t slot)
{
    return (struct entry *)(uintptr_t)((slot & SLOT_POINTER) << 3);
}

static inline uint64_t slot_tag(uint64_t slot)
{
    return slot >> POINTER_BITS;
}

static inline bool slot_holds_entry(uint64_t slot)
{
    return slot > SLOT_DELETED;
}

/* Sweeps a table (NULL: an empty one) by the writer: the next entry from slot *at on, which moves past it. NULL: there
 * is no further one. `at` begins at 0. */
static inline struct entry *table_sweep(const struct table *table, uint64_t *at)
{
    while (table && *at < table->size) {
        uint64_t slot = atomic_load_explicit(&table->slots[(*at)++], memory_order_relaxed);
        if (slot_holds_entry(slot))
            return slot_entry(slot);
    }
    return NULL;
}

static inline bool slot_has_tag(uint64_t slot, uint64_t hash)
{
    return slot_tag(slot) == hash_tag(hash);
}

/* The slot that holds the name, or NULL; value_out receives its value (readers must not read the slot again: another
 * name may have taken it). `table` may be NULL. Readers and writers. */
_Atomic uint64_t *table_find(struct table *table, uint64_t hash, struct slice name, uint64_t *value_out);

/* Context of the functions that may replace a table. */
struct table_env {
    struct reclaimer *reclaimer;
    uint64_t seed;          /* of the hash of names: random, so that clients cannot choose colliding names */
    _Atomic uint64_t bytes; /* of all tables in use */
};

uint64_t name_hash(uint64_t seed, struct slice name);

/* Writers. Inserts an entry whose name is not in the shard; replaces a table that is getting full by a larger one.
 * False without memory, with nothing changed. */
bool shard_insert(shard_t *shard, struct table_env *env, uint64_t hash, struct entry *entry);

/* Makes sure that the next shard_insert() succeeds. false without memory. */
bool shard_reserve(shard_t *shard, struct table_env *env);

/* slot_replace() puts another entry of the same name into the slot; shard_remove() empties the slot and replaces a
 * nearly empty table by a smaller one. The slot is one of the shard's present table. */
void slot_replace(const shard_t *shard, _Atomic uint64_t *slot, uint64_t hash, struct entry *entry);
void shard_remove(shard_t *shard, struct table_env *env, _Atomic uint64_t *slot);

/* Retires a table of `env` that has been removed from its shard. */
void table_retire(struct table_env *env, struct table *table);
