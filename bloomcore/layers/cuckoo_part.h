/* cuckoo_part: the storage of a cuckoo filter (cuckoo.h) after its first layer. Internal to bloomcore, for code that
 * treats layers of all filters. Thread: any; "locked": under the filter's lock. */
#pragma once

#include <string.h>

#include "bloom_layer.h"

/* Ordinals have at most this many bits: CUCKOO_ORDINAL_BITS, and those of a layer's index. */
#define CUCKOO_ORDINAL_MAX ((UINT64_C(1) << 50) - 1)

/* The maximum of the count of deletions: it is saved in place of a turn (bloom_turn_valid()). Only a forged dump comes
 * near to it. */
#define CUCKOO_DELETES_MAX ((UINT64_C(1) << 60) - 1)

/* A compaction under way: its current layer, and the next slot there. */
struct cuckoo_compaction {
    bool all; /* it continues after a layer that cannot be emptied */
    unsigned layer;
    uint64_t at;
};

/* Behind the words, or the pointer to them, of the first layer. */
struct cuckoo {
    _Atomic uint64_t version;          /* odd while fingerprints move: the result of a query does not count then */
    _Atomic uint64_t ordinal;          /* of the last operation */
    _Atomic uint64_t deletes;          /* since the last compaction */
    struct bloom_layer *_Atomic spare; /* the highest layer that was ever taken off, now in use or not; NULL: none */
    struct cuckoo_still *stills;       /* locked: states of earlier moments that are being read */
    struct cuckoo_still *still;        /* the filter is such a state; NULL: it is not */
    atomic_bool compacting;
    struct cuckoo_compaction compaction; /* locked */
};

static inline bool bloom_filter_is_cuckoo(const struct bloom_filter *filter)
{
    return bloom_geometry_has_slots(filter->first.geometry);
}

static inline struct cuckoo *cuckoo_of(const struct bloom_filter *filter)
{
    return (void *)((char *)(&filter->first + 1) + bloom_layer_tail_bytes(filter->first.geometry));
}

/* Of a filter whose storage exists. */
static inline void cuckoo_init(struct bloom_filter *filter)
{
    memset(cuckoo_of(filter), 0, sizeof(struct cuckoo));
}

/* The highest layer above `newest`, the newest one a moment ago, that has been taken off; NULL: none. A thread that has
 * seen a layer before it was taken off finds it from here. */
static inline struct bloom_layer *cuckoo_spare(const struct bloom_filter *filter, const struct bloom_layer *newest)
{
    struct bloom_layer *spare = atomic_load_explicit(&cuckoo_of(filter)->spare, memory_order_acquire);

    return spare && spare->geometry->index > newest->geometry->index ? spare : NULL;
}

/* Takes the layers above `newest` off. Locked. */
static inline void cuckoo_take_off(struct bloom_filter *filter, struct bloom_layer *newest)
{
    struct bloom_layer *before = bloom_filter_newest(filter);

    if (!cuckoo_spare(filter, before))
        atomic_store_explicit(&cuckoo_of(filter)->spare, before, memory_order_release);
    atomic_store_explicit(&filter->newest, newest, memory_order_release);
}

/* For a filter that is not used any more: layers that were taken off become its newest again, to be freed with it. */
static inline void cuckoo_unspare(struct bloom_filter *filter)
{
    struct bloom_layer *spare = cuckoo_spare(filter, bloom_filter_newest(filter));

    if (spare)
        atomic_store_explicit(&filter->newest, spare, memory_order_relaxed);
}
