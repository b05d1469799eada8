/* bloom_vector: hashes, bits and tests of several items at once, for processors with wide vectors (AVX-512), chosen at run
 * time. The scalar code is the definition (murmur3.h, bloom_walk_next()); this gives the same numbers
 * (tests/unit/bloomcore/bloom_vector.c), earlier. Internal to bloomcore.
 *
 * Thread: any; bloom_vector_enable() before or while nobody else is in the library. */
#ifndef BLOOMERY_BLOOM_VECTOR_H
#define BLOOMERY_BLOOM_VECTOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bloom_batch.h"
#include "bloom_geometry.h"

/* Below this size the quotient does not fit the method. */
#define BLOOM_VECTOR_MIN_BITS 4096

/* Whether this processor has the instructions and nobody has turned them off. */
extern bool bloom_vector_enabled;

/* Turns the vector code on if the processor has it (the state at the start), or off: for tests and benchmarks. Returns
 * whether it is on now. */
bool bloom_vector_enable(bool on);

/* Whether there is vector code for the bits of such a layer. */
static inline bool bloom_vector_fits(const struct bloom_geometry *geometry)
{
    return bloom_vector_enabled && geometry->bits >= BLOOM_VECTOR_MIN_BITS;
}

/* The item's k bits, as by bloom_walk_next(). Needs bloom_vector_fits(). */
void bloom_vector_bits(const struct bloom_geometry *geometry, struct bloom_hash hash, uint64_t bit[BLOOM_PROBE_BITS]);

/* As murmur3_hash() for each of n items, 1..BLOOM_BATCH, of any lengths. Entries from n up to the next multiple of 8 are
 * written, too, with anything. Needs bloom_vector_enabled. */
void bloom_vector_hash(const struct bloom_item *items, size_t n, uint64_t h1[BLOOM_BATCH], uint64_t h2[BLOOM_BATCH]);

/* Those of the `wanted` items that have all their bits in the words. Needs bloom_vector_fits(). */
uint32_t bloom_vector_query(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                            const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], uint32_t wanted);

/* Of each of n items those bits that the words do not have, in the order of bloom_walk_next(), and how many they are; and
 * which of the items have all of them. Needs bloom_vector_fits(). */
uint32_t bloom_vector_locate(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                             const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], size_t n,
                             uint64_t missing[BLOOM_BATCH][BLOOM_PROBE_BITS], uint8_t nmissing[BLOOM_BATCH]);

/* Prefetches the first `count` (at most k) words of n items into the second-level cache. Needs bloom_vector_fits(). */
void bloom_vector_prefetch(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                           const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], size_t n, unsigned count);

#endif
