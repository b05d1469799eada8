/* registry_table: the shards of the registry: open addressing with linear probing, 8-byte slots of a 48-bit pointer and
 * a 16-bit tag. Internal to the registry.
 *
 * Readers go without a lock: slots and table pointers are single atomic words, an entry is never moved within a table,
 * and a replaced table stays readable until its grace period is over. Writers hold the registry's mutex.
 *
 * Of the 64 bits of a name's hash the top 12 choose the shard, the bits below them the home slot, the lowest 16 are the
 * tag. Homes are therefore in the order of the hashes in a table of any size: that is what SCAN's cursor is made of. */
#ifndef BLOOMERY_REGISTRY_TABLE_H
#define BLOOMERY_REGISTRY_TABLE_H

#include "entry.h"

#define SHARD_BITS     12
#define SHARD_COUNT    (1u << SHARD_BITS)
#define TABLE_MIN_BITS 3  /* a cache line of slots */
#define HOME_BITS_MAX  36 /* 64 - SHARD_BITS - 16 */
#define SLOT_EMPTY     UINT64_C(0)
#define SLOT_DELETED   UINT64_C(1)
#define SLOT_POINTER   ((UINT64_C(1) << 48) - 1)

struct table {
    uint32_t bits; /* log2 of the number of slots */
    uint32_t used; /* slots with an entry; written by writers only, as `deleted` */
    uint32_t deleted;
    _Atomic uint64_t slots[];
};

typedef _Atomic(struct table *) shard_t;

static inline unsigned hash_shard(uint64_t hash)
{
    return (unsigned)(hash >> (64 - SHARD_BITS));
}

static inline uint64_t table_mask(const struct table *table)
{
    return (UINT64_C(1) << table->bits) - 1;
}

static inline uint64_t table_home(const struct table *table, uint64_t hash)
{
    return (hash >> (64 - SHARD_BITS - table->bits)) & table_mask(table);
}

static inline struct entry *slot_entry(uint64_t slot)
{
    return (struct entry *)(uintptr_t)(slot & SLOT_POINTER);
}

static inline bool slot_holds_entry(uint64_t slot)
{
    return slot > SLOT_DELETED;
}

static inline bool slot_has_tag(uint64_t slot, uint64_t hash)
{
    return slot >> 48 == (hash & 0xffff);
}

/* The slot that holds the name, or NULL; value_out is what was seen in it (readers must not look at the slot again: it
 * may have been given to another name). `table` may be NULL. Readers and writers. */
_Atomic uint64_t *table_find(struct table *table, uint64_t hash, struct slice name, uint64_t *value_out);

/* What the functions that may replace a table need. */
struct table_env {
    struct reclaimer *reclaimer;
    uint64_t seed; /* of the hash of names: random, so that nobody can choose names that collide */
};

uint64_t name_hash(uint64_t seed, struct slice name);

/* Writers. Puts an entry, whose name is not in the shard, into it: the table is replaced by a larger one when it is
 * getting full. false without memory (nothing has changed). */
bool shard_insert(shard_t *shard, const struct table_env *env, uint64_t hash, struct entry *entry);

/* Makes sure that the next shard_insert() succeeds. false without memory. */
bool shard_reserve(shard_t *shard, const struct table_env *env);

/* Puts another entry of the same name into the slot / empties the slot. A table that has become nearly empty is
 * replaced by a smaller one. */
void slot_replace(_Atomic uint64_t *slot, uint64_t hash, struct entry *entry);
void shard_remove(shard_t *shard, const struct table_env *env, _Atomic uint64_t *slot);

int table_reclaim(void *table); /* for reclaimer_defer() */

#endif
