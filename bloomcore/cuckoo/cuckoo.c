/* Queries. A query reads the version before and after: while an add moves fingerprints one of them is in no slot, and
 * one may go from a bucket that is still to be read to one that has been read. A deletion counts as a move: an item
 * with the same two buckets the other way round may have been added to the one that has been read, and its deletion
 * takes the fingerprint in the other. A plain add writes one slot, so a query before or after it is right. A compaction
 * copies a fingerprint into an older sub-filter before it clears the newer slot, and queries read the newer one first:
 * they need no version for that. */
#include "cuckoo.h"

#include <sched.h>

#include "bloom_pool.h"
#include "cuckoo_slots.h"
#include "murmur2.h"

#define SPINS 256

uint64_t cuckoo_hash(const void *data, size_t len)
{
    return murmur2_64a(data, len, 0);
}

/* ---- queries ---- */

static bool layer_has(const struct bloom_layer *layer, uint64_t hash, unsigned char fingerprint)
{
    uint64_t mask = cuckoo_mask(layer);

    return cuckoo_find(layer, hash & mask, fingerprint) != UINT64_MAX ||
           cuckoo_find(layer, cuckoo_other(hash, fingerprint) & mask, fingerprint) != UINT64_MAX;
}

static bool look(const struct bloom_filter *filter, uint64_t hash)
{
    unsigned char fingerprint = cuckoo_fingerprint(hash);
    const struct bloom_layer *layer = bloom_filter_newest(filter);

    while (layer && !layer_has(layer, hash, fingerprint)) {
        atomic_thread_fence(memory_order_acquire); /* what a compaction has cleared here is in an older layer */
        layer = bloom_layer_older(layer);
    }
    return layer;
}

/* The version in which no fingerprint moves. */
static uint64_t still(const struct cuckoo *cuckoo)
{
    uint64_t version;

    for (unsigned spins = 0; (version = atomic_load_explicit(&cuckoo->version, memory_order_acquire)) & 1; spins++)
        if (spins >= SPINS)
            sched_yield(); /* the thread that moves them may need this processor */
    return version;
}

bool cuckoo_query(const struct bloom_filter *filter, uint64_t hash)
{
    const struct cuckoo *cuckoo = cuckoo_of(filter);
    uint64_t version;
    bool present;

    do {
        version = still(cuckoo);
        present = look(filter, hash);
        atomic_thread_fence(memory_order_acquire);
    } while (atomic_load_explicit(&cuckoo->version, memory_order_relaxed) != version);
    return present;
}

void cuckoo_prefetch(const struct bloom_filter *filter, uint64_t hash)
{
    const struct bloom_layer *layer = bloom_filter_newest(filter);
    uint64_t mask = cuckoo_mask(layer), n = layer->geometry->k;

    __builtin_prefetch(cuckoo_bytes(layer) + (hash & mask) * n);
    __builtin_prefetch(cuckoo_bytes(layer) + (cuckoo_other(hash, cuckoo_fingerprint(hash)) & mask) * n);
}

static uint64_t count_in(const struct bloom_layer *layer, uint64_t bucket, unsigned char fingerprint)
{
    unsigned n = layer->geometry->k;
    uint64_t count = 0;

    for (unsigned i = 0; i < n; i++)
        count += cuckoo_get(layer, bucket * n + i) == fingerprint;
    return count;
}

uint64_t cuckoo_count(const struct bloom_filter *filter, uint64_t hash)
{
    struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(filter)->pool, filter);
    unsigned char fingerprint = cuckoo_fingerprint(hash);
    uint64_t count = 0;

    bloom_lock_take(lock);
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        uint64_t mask = cuckoo_mask(layer);
        count += count_in(layer, hash & mask, fingerprint);
        count += count_in(layer, cuckoo_other(hash, fingerprint) & mask, fingerprint);
    }
    bloom_lock_give(lock);
    return count;
}

void cuckoo_state(const struct bloom_filter *filter, struct cuckoo_state *state_out)
{
    const struct cuckoo *cuckoo = cuckoo_of(filter);
    struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(filter)->pool, filter);
    double absent = 1;

    *state_out = (struct cuckoo_state){
        .buckets = UINT64_C(1) << filter->first.geometry->n2,
        .bucket_size = filter->first.geometry->k,
    };
    bloom_lock_take(lock);
    state_out->deletes = atomic_load_explicit(&cuckoo->deletes, memory_order_relaxed);
    state_out->ordinal = atomic_load_explicit(&cuckoo->ordinal, memory_order_relaxed);
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        uint64_t items = atomic_load_explicit(&layer->items, memory_order_relaxed);
        uint64_t slots = layer->geometry->capacity;
        state_out->items += items;
        state_out->slots += slots;
        state_out->nlayers++;
        absent *= 1 - cuckoo_rate(layer->geometry->k, (double)items / (double)slots);
    }
    bloom_lock_give(lock);
    state_out->rate = 1 - absent;
}
