/* cuckoo_shape: the numbers of cuckoo filters: of a filter, and of each of its sub-filters, which are layers of the
 * variants BLOOM_CUCKOO, RedisBloom's layout, and BLOOM_CUCKOO_RATE, ours. docs/FORMAT.md has the facts of both.
 *
 * In our layout a filter keeps an error rate over all its sub-filters. The rate of a full sub-filter depends on the
 * bits of its fingerprints alone, not on its size. So the bits are chosen such that several sub-filters have the rate
 * together, and a filter has no more of them (cuckoo_most_layers()).
 *
 * Pure functions. Thread: any. */
#pragma once

#include <stdint.h>

#include "bloom_params.h"
#include "bloom_size.h"

#define CUCKOO_MAX_CAPACITY    (UINT64_C(1) << 30) /* the most that a client may ask for */
#define CUCKOO_MAX_BUCKET_SIZE 255
#define CUCKOO_MAX_ITERATIONS  65535
#define CUCKOO_SLOT_BITS       8

/* Our layout. */
#define CUCKOO_RATE_BUCKET     4 /* slots */
#define CUCKOO_RATE_MIN_SLOTS  8
#define CUCKOO_RATE_ITERATIONS 500 /* with this many a filter of a billion items takes 95 % of its slots */
#define CUCKOO_RATE_EXPANSION  2
#define CUCKOO_MAX_SLOTS       (BLOOM_MAX_WORDS * 8)

/* The parameters that a client chooses, in the ranges of CF.RESERVE. */
struct cuckoo_numbers {
    uint64_t capacity;    /* slots, before they are rounded to a power of two of buckets: 2 * bucket_size at least; in
                             our layout items, at least 1 */
    unsigned bucket_size; /* slots of a bucket, 1..CUCKOO_MAX_BUCKET_SIZE; our layout has CUCKOO_RATE_BUCKET */
    unsigned iterations;  /* evictions that an add may make, 1..CUCKOO_MAX_ITERATIONS */
    unsigned expansion;   /* 0: a fixed size; otherwise rounded up to a power of two */
    double error_rate;    /* 0: RedisBloom's layout; otherwise ours, which keeps this rate, in (0, 1) */
    uint64_t key;         /* our layout: the id of the key of a KEYED filter; otherwise 0 */
    bool keyed;           /* our layout: without a key, one must be made first */
};

/* The parameters and the first layer of a filter that is made with these numbers. BLOOM_OK or BLOOM_REFUSED. */
int cuckoo_plan(const struct cuckoo_numbers *numbers, struct bloom_params *params_out, struct bloom_shape *shape_out,
                struct errbuf *err);

/* A layer in RedisBloom's layout with this many buckets, a power of two. BLOOM_OK, or BLOOM_REFUSED: it would be too
 * large. */
int cuckoo_layer_shape(uint64_t buckets, unsigned bucket_size, struct bloom_shape *shape_out, struct errbuf *err);

/* A layer of our layout, of any number of buckets, with slots of 8, 12 or 16 bits. Returns as cuckoo_layer_shape(). */
int cuckoo_rate_shape(uint64_t buckets, unsigned bits, struct bloom_shape *shape_out, struct errbuf *err);

/* Of the layouts' rows (bloom_layout.h). Each layer has the same rate. */
bool cuckoo_shape_valid(const struct bloom_shape *shape, struct errbuf *err);
bool cuckoo_rate_shape_valid(const struct bloom_shape *shape, struct errbuf *err);
double cuckoo_next_rate(const struct bloom_params *params, double newest, unsigned index);

/* The layer that follows a layer of either layout. */
int cuckoo_next_shape(const struct bloom_shape *shape, unsigned expansion, struct bloom_shape *next_out,
                      struct errbuf *err);

static inline uint64_t cuckoo_shape_buckets(const struct bloom_shape *shape)
{
    return shape->capacity / shape->k;
}

/* Whether slots of our layout may have this many bits. */
static inline bool cuckoo_bits_possible(double bits)
{
    return bits == 8 || bits == 12 || bits == 16;
}

/* Items that a layer of this many slots takes: all; in our layout 95 %, for which its rate is stated. */
static inline uint64_t cuckoo_most_items(unsigned variant, uint64_t slots)
{
    return variant == BLOOM_CUCKOO_RATE ? slots - (slots + 19) / 20 : slots;
}

/* The lowest rate that our layout can keep. */
double cuckoo_lowest_rate(void);

/* The most layers that a filter with such layers may have. */
unsigned cuckoo_most_layers(const struct bloom_params *params, const struct bloom_shape *shape);

/* The false-positive rate of a layer with slots of this many bits, when this share of its slots, 0..1, is used: any
 * fingerprint in two buckets may match the item. */
double cuckoo_rate(unsigned bits, unsigned bucket_size, double load);
