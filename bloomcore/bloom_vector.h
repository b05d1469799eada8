/* bloom_vector: the inner loops of bloom_layer.h for processors with wide vectors, chosen at run time. The scalar code
 * is the definition; this gives the same numbers (tests/unit/bloomcore/bloom_vector.c), some ns earlier. Internal to
 * bloomcore.
 *
 * Thread: any; bloom_vector_enable() before or while nobody else is in the library. */
#ifndef BLOOMERY_BLOOM_VECTOR_H
#define BLOOMERY_BLOOM_VECTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "bloom_geometry.h"

/* Below this size the quotient does not fit the method. */
#define BLOOM_VECTOR_MIN_BITS 4096

/* Whether this processor has the instructions and nobody has turned them off. */
extern bool bloom_vector_enabled;

/* Turns the vector code on if the processor has it (the state at the start), or off: for tests and benchmarks. Returns
 * whether it is on now. */
bool bloom_vector_enable(bool on);

static inline bool bloom_vector_fits(const struct bloom_geometry *geometry)
{
    return bloom_vector_enabled && geometry->bits >= BLOOM_VECTOR_MIN_BITS;
}

/* The item's k bits, as by bloom_walk_next(). Needs bloom_vector_fits(). */
void bloom_vector_bits(const struct bloom_geometry *geometry, struct bloom_hash hash, uint64_t bit[BLOOM_PROBE_BITS]);

#endif
