/* hash_table: finds objects by the hash of their key. An object carries its link, so the table allocates nothing but
 * its buckets: it doubles them when each has an object and halves them when few are left. If memory runs out, chains
 * grow longer.
 *
 * Lifetime: zeroed storage to hash_table_deinit(); the objects are the caller's. Thread: one at a time. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hash_link {
    struct hash_link *next; /* internal */
    uint64_t hash;          /* set by the caller before the insertion; constant in the table */
};

struct hash_table {
    struct hash_link **buckets;
    size_t nbuckets; /* 0 or a power of two */
    size_t count;    /* objects */
};

/* The object of a link: its type, and the link's member in it. */
#define HASH_OBJECT(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

/* 0, or -ENOMEM if there are no buckets at all. The object must not be in the table yet. */
int hash_table_insert(struct hash_table *table, struct hash_link *link) __attribute__((warn_unused_result));
void hash_table_remove(struct hash_table *table, struct hash_link *link);

/* Frees the buckets. */
void hash_table_deinit(struct hash_table *table);

/* Memory of the buckets. */
static inline size_t hash_table_bytes(const struct hash_table *table)
{
    return table->nbuckets * sizeof(*table->buckets);
}

static inline struct hash_link *hash_table_same(struct hash_link *link, uint64_t hash) /* internal */
{
    while (link && link->hash != hash)
        link = link->next;
    return link;
}

/* The objects with the hash of a key, one after the other; NULL after the last. The caller compares the keys. */
static inline struct hash_link *hash_table_first(const struct hash_table *table, uint64_t hash)
{
    return table->nbuckets ? hash_table_same(table->buckets[hash & (table->nbuckets - 1)], hash) : NULL;
}

static inline struct hash_link *hash_table_next(const struct hash_link *link)
{
    return hash_table_same(link->next, link->hash);
}
