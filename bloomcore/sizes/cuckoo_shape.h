/* cuckoo_shape: the numbers of cuckoo filters: of a filter, and of each of its sub-filters, which are layers of the
 * variant BLOOM_CUCKOO. docs/FORMAT.md has the facts of the layout. Pure functions. Thread: any. */
#ifndef BLOOMERY_CUCKOO_SHAPE_H
#define BLOOMERY_CUCKOO_SHAPE_H

#include <stdint.h>

#include "bloom_params.h"

#define CUCKOO_MAX_CAPACITY    (UINT64_C(1) << 30) /* that a client may ask for */
#define CUCKOO_MAX_BUCKET_SIZE 255
#define CUCKOO_MAX_ITERATIONS  65535
#define CUCKOO_SLOT_BITS       8

/* The parameters that a client chooses, in the ranges of CF.RESERVE. */
struct cuckoo_numbers {
    uint64_t capacity;    /* slots, before they are rounded to a power of two of buckets: 2 * bucket_size at least */
    unsigned bucket_size; /* slots of a bucket, 1..CUCKOO_MAX_BUCKET_SIZE */
    unsigned iterations;  /* evictions that an add may make, 1..CUCKOO_MAX_ITERATIONS */
    unsigned expansion;   /* 0: a fixed size; otherwise rounded up to a power of two */
};

/* The parameters and the first layer of a filter that is made with these numbers. BLOOM_OK or BLOOM_REFUSED. */
int cuckoo_plan(const struct cuckoo_numbers *numbers, struct bloom_params *params_out, struct bloom_shape *shape_out,
                struct errbuf *err);

/* A layer of so many buckets, a power of two. BLOOM_OK, or BLOOM_REFUSED: it would be too large. */
int cuckoo_layer_shape(uint64_t buckets, unsigned bucket_size, struct bloom_shape *shape_out, struct errbuf *err);

static inline uint64_t cuckoo_shape_buckets(const struct bloom_shape *shape)
{
    return UINT64_C(1) << shape->n2;
}

/* The probability that a layer answers "present" to an item that was never added, when this share of its slots, 0..1,
 * is taken: any of the fingerprints in two buckets may be the item's. */
double cuckoo_rate(unsigned bucket_size, double load);

#endif
