/* cuckoo_slots: the slots of a cuckoo filter, for the files that read and change them. Internal to bloomcore.
 * Thread: any; "locked": under the filter's lock. */
#ifndef BLOOMERY_CUCKOO_SLOTS_H
#define BLOOMERY_CUCKOO_SLOTS_H

#include "cuckoo_part.h"

#define CUCKOO_MIX 0x5bd1e995u

/* ---- an item's place ---- */

static inline unsigned char cuckoo_fingerprint(uint64_t hash)
{
    return (unsigned char)(hash % 255 + 1);
}

/* The other bucket of a fingerprint, before the remainder by the number of buckets. */
static inline uint64_t cuckoo_other(uint64_t bucket, unsigned char fingerprint)
{
    return bucket ^ (uint64_t)fingerprint * CUCKOO_MIX;
}

static inline uint64_t cuckoo_mask(const struct bloom_layer *layer)
{
    return (UINT64_C(1) << layer->geometry->n2) - 1;
}

static inline unsigned char *cuckoo_bytes(const struct bloom_layer *layer)
{
    return (unsigned char *)bloom_layer_words(layer);
}

static inline unsigned char cuckoo_get(const struct bloom_layer *layer, uint64_t at)
{
    return __atomic_load_n(cuckoo_bytes(layer) + at, __ATOMIC_RELAXED);
}

/* The first slot of a bucket with this value; UINT64_MAX: there is none. */
static inline uint64_t cuckoo_find(const struct bloom_layer *layer, uint64_t bucket, unsigned char value)
{
    unsigned n = layer->geometry->k;
    uint64_t at = bucket * n;

    for (unsigned i = 0; i < n; i++)
        if (cuckoo_get(layer, at + i) == value)
            return at + i;
    return UINT64_MAX;
}

/* Writes a slot that has been another, and its copies. Locked. */
void cuckoo_put(struct bloom_filter *filter, struct bloom_layer *layer, uint64_t at, unsigned char value);

/* Between the two calls fingerprints move or go: queries wait. Locked. */
static inline void cuckoo_moves(struct cuckoo *cuckoo)
{
    uint64_t version = atomic_load_explicit(&cuckoo->version, memory_order_relaxed);

    atomic_store_explicit(&cuckoo->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static inline void cuckoo_moved(struct cuckoo *cuckoo)
{
    uint64_t version = atomic_load_explicit(&cuckoo->version, memory_order_relaxed);

    atomic_store_explicit(&cuckoo->version, version + 1, memory_order_release);
}

/* ---- operations ---- */

enum cuckoo_kind {
    CUCKOO_ADD = 1,
    CUCKOO_DELETE = 2,
    CUCKOO_STEP_DONE = 3, /* of a compaction: slots of a layer */
    CUCKOO_DELETES = 4,   /* the count of deletions is set: at the end of a compaction to 0 */
    CUCKOO_GROW = 5,      /* a layer is added, for a filter that is loaded in chunks */
    CUCKOO_SLOTS = 6,     /* eight slots are set, likewise */
};

/* h2 of CUCKOO_STEP_DONE: the layer, and above it the number of slots, of which h1 is the first. Of CUCKOO_SLOTS: the
 * layer, and above it the number of the word that h1 is. Of the others h1 says all: a hash, or the count of deletions.
 */
#define CUCKOO_LAYER_BITS 16

/* Gives the operation the next ordinal, and records it: before its effect can be seen. Locked. */
void cuckoo_record(struct bloom_filter *filter, enum cuckoo_kind kind, uint64_t h1, uint64_t h2,
                   const struct bloom_journal *journal);

/* A step of a compaction: moves the fingerprints of the slots `from` to before `to` of a layer, and takes the layer off
 * if it is the newest and empty, and `to` its end. Locked. */
void cuckoo_step(struct bloom_filter *filter, unsigned layer, uint64_t from, uint64_t to);

/* One occurrence is deleted. False: there is none. Locked; records itself. */
bool cuckoo_delete_locked(struct bloom_filter *filter, uint64_t hash, const struct bloom_journal *journal);

enum bloom_add cuckoo_add_locked(struct bloom_filter *filter, uint64_t hash, const struct bloom_journal *journal,
                                 struct errbuf *err);

/* Adds a layer, of which a journal that has grow() is asked. BLOOM_OK, or a status of bloomcore with the reason.
 * Locked; does not record itself. */
int cuckoo_grow_locked(struct bloom_filter *filter, const struct bloom_journal *journal, struct errbuf *err);

/* Sets eight slots, `word` of all layers, and counts what they have. Locked; does not record itself. */
void cuckoo_set_word(struct bloom_filter *filter, struct bloom_layer *layer, uint64_t word, uint64_t slots);

#endif
