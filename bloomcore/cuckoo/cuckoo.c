/* Queries. A query reads the version before and after. While an add moves fingerprints, one of them is in no slot, and
 * another may move from an unread bucket to a bucket already read. A deletion counts as a move. An item with the same
 * two buckets in reverse order may have been added to the bucket already read, and its deletion removes the fingerprint
 * in the other bucket. A plain add writes one slot, so a query before or after it is right. A compaction copies a
 * fingerprint into an older sub-filter before it clears the newer slot, and queries read the newer one first: they need
 * no version for that. */
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

uint64_t cuckoo_hash_for(const struct bloom_filter *filter, const void *data, size_t len)
{
    const struct bloom_key *key = filter->first.geometry->key;
    unsigned char keyed[SIPHASH_BYTES];

    if (__builtin_expect(key == NULL, 1))
        return cuckoo_hash(data, len);
    siphash(&key->secret.items, data, len, keyed);
    return cuckoo_hash(keyed, sizeof(keyed));
}

/* ---- queries ---- */

static bool layer_has(const struct bloom_layer *layer, uint64_t hash, unsigned fingerprint)
{
    uint64_t bucket = cuckoo_first(layer->geometry, hash);

    return cuckoo_find(layer, bucket, fingerprint) != UINT64_MAX ||
           cuckoo_find(layer, cuckoo_other(layer->geometry, bucket, fingerprint), fingerprint) != UINT64_MAX;
}

static bool look(const struct bloom_filter *filter, uint64_t hash)
{
    unsigned fingerprint = cuckoo_fingerprint(filter->first.geometry, hash);
    const struct bloom_layer *layer = bloom_filter_newest(filter);

    while (layer && !layer_has(layer, hash, fingerprint)) {
        atomic_thread_fence(memory_order_acquire); /* cleared fingerprints are in an older layer */
        layer = bloom_layer_older(layer);
    }
    return layer;
}

/* Returns a version in which no fingerprint moves. */
static uint64_t still(const struct cuckoo *cuckoo)
{
    uint64_t version;

    for (unsigned spins = 0; (version = atomic_load_explicit(&cuckoo->version, memory_order_acquire)) & 1; spins++)
        if (spins >= SPINS)
            sched_yield(); /* the moving thread may need this processor */
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
    const struct bloom_geometry *geometry = layer->geometry;
    uint64_t bucket = cuckoo_first(geometry, hash), bits = (uint64_t)geometry->k * cuckoo_slot_bits(geometry);

    __builtin_prefetch(cuckoo_bytes(layer) + bucket * bits / 8);
    bucket = cuckoo_other(geometry, bucket, cuckoo_fingerprint(geometry, hash));
    __builtin_prefetch(cuckoo_bytes(layer) + bucket * bits / 8);
}

uint64_t cuckoo_count(const struct bloom_filter *filter, uint64_t hash)
{
    struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(filter)->pool, filter);
    unsigned fingerprint = cuckoo_fingerprint(filter->first.geometry, hash);
    uint64_t count = 0;

    bloom_lock_take(lock);
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        uint64_t bucket = cuckoo_first(layer->geometry, hash);
        count += cuckoo_count_in(layer, bucket, fingerprint);
        count += cuckoo_count_in(layer, cuckoo_other(layer->geometry, bucket, fingerprint), fingerprint);
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
        .buckets = filter->first.geometry->capacity / filter->first.geometry->k,
        .bucket_size = filter->first.geometry->k,
        .slot_bits = cuckoo_slot_bits(filter->first.geometry),
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
        state_out->bytes += cuckoo_layer_bytes(layer);
        absent *= 1 - cuckoo_rate(state_out->slot_bits, layer->geometry->k, (double)items / (double)slots);
    }
    bloom_lock_give(lock);
    state_out->rate = 1 - absent;
}
