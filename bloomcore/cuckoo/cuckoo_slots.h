/* cuckoo_slots: the slots of a cuckoo filter, for the files that read and change them. Internal to bloomcore.
 * Thread: any; "locked": under the filter's lock. */
#pragma once

#include "cuckoo_part.h"
#include "cuckoo_shape.h"

#define CUCKOO_MIX 0x5bd1e995u

/* ---- an item's place ---- */

static inline bool cuckoo_keeps_rate(const struct bloom_geometry *geometry)
{
    return __builtin_expect(geometry->variant == BLOOM_CUCKOO_RATE, 0);
}

static inline unsigned cuckoo_slot_bits(const struct bloom_geometry *geometry)
{
    return cuckoo_keeps_rate(geometry) ? (unsigned)geometry->bpe : CUCKOO_SLOT_BITS;
}

/* In our layout a hash has 48 bits for the buckets, and 16 others for the fingerprint. */
#define CUCKOO_BUCKET_BITS 48

static inline unsigned cuckoo_fingerprint(const struct bloom_geometry *geometry, uint64_t hash)
{
    if (!cuckoo_keeps_rate(geometry))
        return (unsigned)(hash % 255 + 1);
    uint64_t values = (UINT64_C(1) << cuckoo_slot_bits(geometry)) - 1;
    return (unsigned)((hash >> CUCKOO_BUCKET_BITS) * values >> 16) + 1;
}

/* The remainder of a number, in our layout below 2^63, by the number of buckets (bloom_geometry.h). So the bucket in a
 * layer is also the one in each older layer, whose number of buckets divides that of the layer. */
static inline uint64_t cuckoo_bucket(const struct bloom_geometry *geometry, uint64_t number)
{
    if (!cuckoo_keeps_rate(geometry))
        return number & ((UINT64_C(1) << geometry->n2) - 1);
    uint64_t q = (uint64_t)(((unsigned __int128)number * geometry->magic) >> 64) >> geometry->shift;
    return number - q * geometry->bits;
}

static inline uint64_t cuckoo_first(const struct bloom_geometry *geometry, uint64_t hash)
{
    return cuckoo_bucket(geometry,
                         cuckoo_keeps_rate(geometry) ? hash & ((UINT64_C(1) << CUCKOO_BUCKET_BITS) - 1) : hash);
}

/* The sum of a fingerprint's two buckets in our layout, before the remainder. */
static inline uint64_t cuckoo_sum(unsigned fingerprint)
{
    uint64_t x = fingerprint * UINT64_C(0x9e3779b97f4a7c15);

    return (x ^ x >> 32) * UINT64_C(0xbf58476d1ce4e5b9) >> 16;
}

/* The other bucket of a fingerprint. */
static inline uint64_t cuckoo_other(const struct bloom_geometry *geometry, uint64_t bucket, unsigned fingerprint)
{
    if (!cuckoo_keeps_rate(geometry))
        return cuckoo_bucket(geometry, bucket ^ (uint64_t)fingerprint * CUCKOO_MIX);
    uint64_t sum = cuckoo_bucket(geometry, cuckoo_sum(fingerprint));
    return sum >= bucket ? sum - bucket : sum + geometry->bits - bucket;
}

/* ---- slots ---- */

static inline unsigned char *cuckoo_bytes(const struct bloom_layer *layer)
{
    return (unsigned char *)bloom_layer_words(layer);
}

static inline unsigned cuckoo_get_byte(const struct bloom_layer *layer, uint64_t at)
{
    return __atomic_load_n(cuckoo_bytes(layer) + at, __ATOMIC_RELAXED);
}

/* `n` bits, 1..64, from `bit` on, in the lowest bits of the result; the bits above belong to others, or are zero. */
static inline uint64_t cuckoo_get_bits(const struct bloom_layer *layer, uint64_t bit, unsigned n)
{
    const _Atomic uint64_t *word = bloom_layer_words(layer) + bit / 64;
    unsigned shift = (unsigned)(bit % 64);
    uint64_t bits = atomic_load_explicit(word, memory_order_relaxed) >> shift;

    if (shift + n > 64)
        bits |= atomic_load_explicit(word + 1, memory_order_relaxed) << (64 - shift);
    return bits;
}

static inline unsigned cuckoo_get(const struct bloom_layer *layer, uint64_t at)
{
    unsigned bits = cuckoo_slot_bits(layer->geometry);

    if (bits == 8)
        return cuckoo_get_byte(layer, at);
    return (unsigned)(cuckoo_get_bits(layer, at * bits, bits) & ((UINT64_C(1) << bits) - 1));
}

/* The slots of a bucket with this value, one bit for each. In our layout a bucket is read as a whole. */
static inline unsigned cuckoo_match_wide(const struct bloom_layer *layer, uint64_t bucket, unsigned value)
{
    unsigned bits = cuckoo_slot_bits(layer->geometry), found = 0;
    uint64_t mask = (UINT64_C(1) << bits) - 1;
    uint64_t slots = cuckoo_get_bits(layer, bucket * CUCKOO_RATE_BUCKET * bits, CUCKOO_RATE_BUCKET * bits);

    for (unsigned i = 0; i < CUCKOO_RATE_BUCKET; i++)
        found |= (unsigned)((slots >> i * bits & mask) == value) << i;
    return found;
}

/* The first slot of a bucket with this value; UINT64_MAX: none. */
static inline uint64_t cuckoo_find(const struct bloom_layer *layer, uint64_t bucket, unsigned value)
{
    unsigned n = layer->geometry->k;
    uint64_t at = bucket * n;

    if (cuckoo_keeps_rate(layer->geometry)) {
        unsigned found = cuckoo_match_wide(layer, bucket, value);
        return found ? at + (unsigned)__builtin_ctz(found) : UINT64_MAX;
    }
    for (unsigned i = 0; i < n; i++)
        if (cuckoo_get_byte(layer, at + i) == value)
            return at + i;
    return UINT64_MAX;
}

/* cuckoo_find() in this bucket, then in the other one of the fingerprint. */
static inline uint64_t cuckoo_find_either(const struct bloom_layer *layer, uint64_t bucket, unsigned fingerprint,
                                          unsigned value)
{
    uint64_t at = cuckoo_find(layer, bucket, value);

    return at != UINT64_MAX ? at : cuckoo_find(layer, cuckoo_other(layer->geometry, bucket, fingerprint), value);
}

/* The number of slots of a bucket with this value. */
static inline unsigned cuckoo_count_in(const struct bloom_layer *layer, uint64_t bucket, unsigned value)
{
    unsigned n = layer->geometry->k, count = 0;

    if (cuckoo_keeps_rate(layer->geometry))
        return (unsigned)__builtin_popcount(cuckoo_match_wide(layer, bucket, value));
    for (unsigned i = 0; i < n; i++)
        count += cuckoo_get_byte(layer, bucket * n + i) == value;
    return count;
}

/* Whether the layer has reached its number of items, whatever its slots hold: in our layout. */
static inline bool cuckoo_is_full(const struct bloom_layer *layer)
{
    return cuckoo_keeps_rate(layer->geometry) && atomic_load_explicit(&layer->items, memory_order_relaxed) >=
                                                     cuckoo_most_items(BLOOM_CUCKOO_RATE, layer->geometry->capacity);
}

static inline uint64_t cuckoo_layer_bytes(const struct bloom_layer *layer)
{
    return bloom_geometry_nwords(layer->geometry) * 8 - layer->geometry->spare_bytes;
}

uint64_t cuckoo_count_taken(const struct bloom_layer *layer); /* from the slots: some milliseconds for each 10 MB */

/* Writes a slot that has been another. Locked. */
void cuckoo_put(struct bloom_filter *filter, struct bloom_layer *layer, uint64_t at, unsigned value);

/* Before a word of slots changes: its page is kept for the stills that have not read it. Locked. */
void cuckoo_keep_old(const struct bloom_filter *filter, const struct bloom_layer *layer, uint64_t word);

/* Writes a word of slots. Locked. */
void cuckoo_put_word(struct bloom_filter *filter, struct bloom_layer *layer, uint64_t word, uint64_t slots);

/* Between the two calls fingerprints move or go: queries wait. Locked. */
static inline void cuckoo_moves(struct cuckoo *cuckoo)
{
    uint64_t version = atomic_load_explicit(&cuckoo->version, memory_order_relaxed);

    VERIFY(version % 2 == 0); /* no two moves at a time: queries would not wait */
    atomic_store_explicit(&cuckoo->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static inline void cuckoo_moved(struct cuckoo *cuckoo)
{
    uint64_t version = atomic_load_explicit(&cuckoo->version, memory_order_relaxed);

    VERIFY(version % 2 == 1);
    atomic_store_explicit(&cuckoo->version, version + 1, memory_order_release);
}

/* ---- operations ---- */

enum cuckoo_kind {
    CUCKOO_ADD = 1,
    CUCKOO_DELETE = 2,
    CUCKOO_STEP_DONE = 3, /* of a compaction: slots of a layer */
    CUCKOO_DELETES = 4,   /* the count of deletions is set: at the end of a compaction to 0 */
    CUCKOO_GROW = 5,      /* a layer is added, for a filter that is loaded in chunks */
    CUCKOO_SLOTS = 6,     /* a word of slots is set, likewise */
};

/* h2 of CUCKOO_STEP_DONE: the layer, and above it the number of slots, of which h1 is the first. Of CUCKOO_SLOTS: the
 * layer, and above it the number of the word h1. Of the others h1 has all: a hash, or the count of deletions. */
#define CUCKOO_LAYER_BITS 16

/* Gives the operation the next ordinal, and records it: before its effect can be seen. Locked. */
void cuckoo_record(struct bloom_filter *filter, enum cuckoo_kind kind, uint64_t h1, uint64_t h2,
                   const struct bloom_journal *journal);

/* One occurrence is deleted. False: none. Locked; records itself. */
bool cuckoo_delete_locked(struct bloom_filter *filter, uint64_t hash, const struct bloom_journal *journal);

enum bloom_add cuckoo_add_locked(struct bloom_filter *filter, uint64_t hash, const struct bloom_journal *journal,
                                 struct errbuf *err);

/* Adds a layer, after asking a journal that has grow(). BLOOM_OK, or a status of bloomcore. Locked; records nothing. */
int cuckoo_grow_locked(struct bloom_filter *filter, const struct bloom_journal *journal, struct errbuf *err);

/* Sets a word of slots, and counts its taken slots. Locked; does not record itself. */
void cuckoo_set_word(struct bloom_filter *filter, struct bloom_layer *layer, uint64_t word, uint64_t slots);
