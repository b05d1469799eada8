#include "hash_table.h"

#include <errno.h>
#include <stdlib.h>

#define MIN_BUCKETS 8

static struct hash_link **bucket_of(const struct hash_table *table, uint64_t hash)
{
    return &table->buckets[hash & (table->nbuckets - 1)];
}

static void push(struct hash_link **bucket, struct hash_link *link)
{
    link->next = *bucket;
    *bucket = link;
}

static int resize(struct hash_table *table, size_t nbuckets)
{
    struct hash_table resized = {
        .buckets = calloc(nbuckets, sizeof(*resized.buckets)), .nbuckets = nbuckets, .count = table->count};

    if (!resized.buckets)
        return -ENOMEM;
    for (size_t i = 0; i < table->nbuckets; i++) {
        for (struct hash_link *link = table->buckets[i], *next; link; link = next) {
            next = link->next;
            push(bucket_of(&resized, link->hash), link);
        }
    }
    free(table->buckets);
    *table = resized;
    return 0;
}

int hash_table_insert(struct hash_table *table, struct hash_link *link)
{
    int status =
        table->count < table->nbuckets ? 0 : resize(table, table->nbuckets ? table->nbuckets * 2 : MIN_BUCKETS);

    if (status != 0 && table->nbuckets == 0)
        return status;
    push(bucket_of(table, link->hash), link);
    table->count++;
    return 0;
}

void hash_table_remove(struct hash_table *table, struct hash_link *link)
{
    struct hash_link **at = bucket_of(table, link->hash);

    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    if (--table->count == 0)
        hash_table_deinit(table);
    else if (table->nbuckets > MIN_BUCKETS && table->count < table->nbuckets / 8)
        (void)resize(table, table->nbuckets / 2);
}

void hash_table_deinit(struct hash_table *table)
{
    free(table->buckets);
    *table = (struct hash_table){0};
}
