/* Queries. A query reads the version before and after. While an add moves fingerprints, one of them is in no slot, and
 * another may move from an unread bucket to a bucket already read. A deletion counts as a move. An item with the same
 * two buckets in reverse order may have been added to the bucket already read, and its deletion removes the fingerprint
 * in the other bucket. A plain add writes one slot, so a query before or after it is right. A compaction copies a
 * fingerprint into an older sub-filter before it clears the newer slot, and queries read the newer one first: they need
 * no version for that. */
#include "cuckoo.h"

#include <sched.h>
#include <string.h>

#include "bloom_filter.h"
#include "bloom_pool.h"
#include "check.h"
#include "cuckoo_slots.h"
#include "murmur.h"

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

static bool has(const struct bloom_filter *filter, uint64_t hash)
{
    unsigned fingerprint = cuckoo_fingerprint(filter->first.geometry, hash);
    const struct bloom_layer *layer = bloom_filter_newest(filter);

    while (layer &&
           cuckoo_find_either(layer, cuckoo_first(layer->geometry, hash), fingerprint, fingerprint) == UINT64_MAX) {
        atomic_thread_fence(memory_order_acquire); /* cleared fingerprints are in an older layer */
        layer = bloom_layer_older(layer);
    }
    return layer;
}

/* Returns a version in which no fingerprint moves. */
static uint64_t await_still(const struct cuckoo *cuckoo)
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
        version = await_still(cuckoo);
        present = has(filter, hash);
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

/* ---- chunks ---- */

#define WORDS_AT_ONCE 256 /* under the lock */

/* The layer with the byte `at` of the first n layers; `at` becomes the offset in it. NULL: there are fewer bytes. */
static struct bloom_layer *layer_of(const struct bloom_filter *filter, unsigned n, uint64_t *at)
{
    for (unsigned i = 0; i < n; i++) {
        struct bloom_layer *layer = bloom_filter_layer_at(filter, i);
        if (*at < cuckoo_layer_bytes(layer))
            return layer;
        *at -= cuckoo_layer_bytes(layer);
    }
    return NULL;
}

/* Including layers that a compaction has taken off. */
static unsigned all_layers(const struct bloom_filter *filter)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter), *spare = cuckoo_spare(filter, newest);

    return (spare ? spare : newest)->geometry->index + 1u;
}

/* Bytes of a layer of a still, a word at a time. */
static void read_still(const struct bloom_filter *still, const struct bloom_layer *layer, uint64_t at,
                       unsigned char *to, size_t len)
{
    while (len > 0) {
        uint64_t words[WORDS_AT_ONCE], word = at / 8, skip = at % 8, end = (at + len + 7) / 8;
        uint64_t n = end - word < WORDS_AT_ONCE ? end - word : WORDS_AT_ONCE;
        size_t got = n * 8 - skip < len ? (size_t)(n * 8 - skip) : len;
        cuckoo_still_read(still, layer->geometry->index, word, n, words, true);
        memcpy(to, (unsigned char *)words + skip, got);
        at += got;
        to += got;
        len -= got;
    }
}

void cuckoo_read(const struct bloom_filter *filter, uint64_t at, void *to, size_t len)
{
    unsigned char *bytes = to;
    unsigned n = all_layers(filter); /* one may have been taken off since the caller saw it: its slots are empty */

    for (size_t done = 0; done < len;) {
        uint64_t place = at + done;
        const struct bloom_layer *layer = layer_of(filter, n, &place);
        CHECK(layer);
        uint64_t left = cuckoo_layer_bytes(layer) - place;
        size_t some = left < len - done ? (size_t)left : len - done;
        if (cuckoo_of(filter)->still)
            read_still(filter, layer, place, bytes + done, some);
        else
            bloom_filter_get_bytes(filter, layer->geometry->index, place, bytes + done, some);
        done += some;
    }
}

uint64_t cuckoo_bytes_of(const struct bloom_filter *filter)
{
    uint64_t bytes = 0;

    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer))
        bytes += cuckoo_layer_bytes(layer);
    return bytes;
}

/* ---- loading ---- */

int cuckoo_extend(struct bloom_filter *filter, unsigned nlayers, uint64_t deletes, const struct bloom_journal *journal,
                  struct errbuf *err)
{
    struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(filter)->pool, filter);
    int rc = BLOOM_OK;

    bloom_lock_take(lock);
    while (rc == BLOOM_OK && bloom_filter_nlayers(filter) < nlayers) {
        rc = cuckoo_grow_locked(filter, NULL, err);
        if (rc == BLOOM_OK)
            cuckoo_record(filter, CUCKOO_GROW, 0, 0, journal);
    }
    if (rc == BLOOM_OK && deletes) {
        cuckoo_record(filter, CUCKOO_DELETES, deletes, 0, journal);
        atomic_store_explicit(&cuckoo_of(filter)->deletes, deletes, memory_order_relaxed);
    }
    bloom_lock_give(lock);
    return rc;
}

/* The number of taken slots that lie in a word, or begin or end there. */
static uint64_t taken_in(const struct bloom_layer *layer, uint64_t word)
{
    unsigned bits = cuckoo_slot_bits(layer->geometry);
    uint64_t slots = layer->geometry->capacity, end = ((word + 1) * 64 + bits - 1) / bits, taken = 0;

    for (uint64_t at = word * 64 / bits; at < end && at < slots; at++)
        taken += cuckoo_get(layer, at) != 0;
    return taken;
}

void cuckoo_set_word(struct bloom_filter *filter, struct bloom_layer *layer, uint64_t word, uint64_t slots)
{
    uint64_t items = atomic_load_explicit(&layer->items, memory_order_relaxed), before = taken_in(layer, word);
    uint64_t left = cuckoo_layer_bytes(layer) - word * 8;

    if (left < 8)
        slots &= (UINT64_C(1) << left * 8) - 1;
    cuckoo_put_word(filter, layer, word, slots);
    atomic_store_explicit(&layer->items, items + taken_in(layer, word) - before, memory_order_relaxed);
}

/* The word after its part of `bytes` has been written: bytes `from` to before `to` of the layer. */
static uint64_t merged(const struct bloom_layer *layer, uint64_t word, uint64_t from, uint64_t to,
                       const unsigned char *bytes, bool *changes_out)
{
    uint64_t before = atomic_load_explicit(&bloom_layer_words(layer)[word], memory_order_relaxed), after = before;

    for (uint64_t at = word * 8 < from ? from : word * 8; at < word * 8 + 8 && at < to; at++) {
        unsigned shift = (unsigned)(at % 8) * 8;
        after = (after & ~(UINT64_C(0xff) << shift)) | (uint64_t)bytes[at - from] << shift;
    }
    *changes_out = after != before;
    return after;
}

/* Words `word` to before `end` that hold a part of the bytes of `range`. Locked. */
static void set_words(struct bloom_filter *filter, struct bloom_layer *layer, uint64_t word, uint64_t end,
                      const uint64_t range[2], const unsigned char *bytes, const struct bloom_journal *journal)
{
    uint64_t index = layer->geometry->index;

    for (; word < end; word++) {
        bool changes;
        uint64_t slots = merged(layer, word, range[0], range[1], bytes, &changes);
        if (!changes)
            continue;
        cuckoo_record(filter, CUCKOO_SLOTS, slots, word << CUCKOO_LAYER_BITS | index, journal);
        cuckoo_set_word(filter, layer, word, slots);
    }
}

void cuckoo_set_slots(struct bloom_filter *filter, uint64_t at, const void *slots, size_t len,
                      const struct bloom_journal *journal)
{
    struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(filter)->pool, filter);

    bloom_lock_take(lock);
    struct bloom_layer *layer = layer_of(filter, bloom_filter_nlayers(filter), &at);
    if (layer && len <= cuckoo_layer_bytes(layer) - at) { /* a compaction may have taken it off meanwhile */
        uint64_t range[2] = {at, at + len}, word = at / 8, end = (at + len + 7) / 8;
        for (; word < end; word += WORDS_AT_ONCE) {
            uint64_t to = end - word < WORDS_AT_ONCE ? end : word + WORDS_AT_ONCE;
            set_words(filter, layer, word, to, range, slots, journal);
            if (to == end)
                break;
            bloom_lock_give(lock);
            bloom_lock_take(lock);
            if (layer->geometry->index >= bloom_filter_nlayers(filter))
                break; /* taken off in between */
        }
    }
    bloom_lock_give(lock);
}

double cuckoo_load(unsigned bucket_size, unsigned iterations)
{
    const struct cuckoo_numbers numbers = {.capacity = 65536, .bucket_size = bucket_size, .iterations = iterations};
    struct bloom_params params;
    struct bloom_shape shape;
    struct bloom_alone alone;
    uint64_t items = 0, x = 0;
    bool full = false;

    if (cuckoo_plan(&numbers, &params, &shape, NULL) != BLOOM_OK ||
        bloom_alone_init(&alone, &shape, &params, NULL) != 0)
        return 0;
    while (!full) { /* splitmix64 */
        uint64_t hash = (x += UINT64_C(0x9e3779b97f4a7c15));
        hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
        full = cuckoo_add(alone.filter, hash ^ hash >> 31, false, NULL, NULL) != BLOOM_ADDED;
        items += !full;
    }
    bloom_alone_deinit(&alone);
    return (double)items / (double)shape.capacity;
}
