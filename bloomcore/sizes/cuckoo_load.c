#include "cuckoo_load.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 65536
#define MIX   0x5bd1e995u /* as in cuckoo_slots.h */

struct table {
    unsigned char *slots;
    unsigned size; /* of a bucket */
    uint64_t mask;
};

/* Puts a value into a bucket. False: it has no empty slot. */
static bool put(struct table *table, uint64_t bucket, unsigned char value)
{
    unsigned char *slots = table->slots + bucket * table->size, *empty = memchr(slots, 0, table->size);

    if (empty)
        *empty = value;
    return empty;
}

static bool add(struct table *table, uint64_t hash, unsigned iterations)
{
    unsigned char hand = (unsigned char)(hash % 255 + 1);
    uint64_t bucket = hash & table->mask;
    unsigned slot = 0;

    if (put(table, bucket, hand) || put(table, (hash ^ (uint64_t)hand * MIX) & table->mask, hand))
        return true;
    for (; iterations > 0; iterations--) {
        unsigned char *at = table->slots + bucket * table->size + slot, evicted = *at;
        *at = hand;
        hand = evicted;
        bucket = (bucket ^ (uint64_t)hand * MIX) & table->mask;
        if (put(table, bucket, hand))
            return true;
        slot = (slot + 1) % table->size;
    }
    return false;
}

double cuckoo_load(unsigned bucket_size, unsigned iterations)
{
    uint64_t buckets = 1, items = 0, x = 0;

    while (buckets * bucket_size < SLOTS)
        buckets *= 2;
    struct table table = {calloc(buckets, bucket_size), bucket_size, buckets - 1};
    if (!table.slots)
        return 0;
    for (;; items++) { /* splitmix64 */
        uint64_t hash = (x += UINT64_C(0x9e3779b97f4a7c15));
        hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
        if (!add(&table, hash ^ hash >> 31, iterations))
            break;
    }
    free(table.slots);
    return (double)items / (double)(buckets * bucket_size);
}
