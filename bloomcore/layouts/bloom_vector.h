/* bloom_vector: hashes, bits and tests of several items at once, for processors with wide vectors (AVX-512), chosen at
 * run time. The scalar code is the definition (murmur.h, bloom_walk_step()); this code gives the same numbers, faster
 * (tests/unit/bloomcore/bloom_vector.c). Internal to bloomcore.
 *
 * Thread: any; bloom_vector_enable() while no other thread uses the library. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_geometry.h"
#include "bloom_types.h"

/* Whether the processor has the instructions and they are not turned off. */
extern bool bloom_vector_enabled;

/* Turns the vector code on if the processor has it, or off: for tests and benchmarks. At the start it is on, unless the
 * environment has BLOOMERY_NO_VECTORS. Returns whether it is on now. */
bool bloom_vector_enable(bool on);

/* Whether there is vector code for the bits of such a layer. */
static inline bool bloom_vector_fits(const struct bloom_geometry *geometry)
{
    return bloom_vector_enabled && geometry->wide;
}

/* Numbers that an array has for each item whose bits are derived: k, rounded up to whole vectors. */
static inline unsigned bloom_vector_stride(const struct bloom_geometry *geometry)
{
    return (geometry->k + 7u) & ~7u;
}

/* The item's k bits, as by bloom_walk_step(). Needs bloom_vector_fits(). */
void bloom_vector_bits(const struct bloom_geometry *geometry, struct bloom_hash hash, uint64_t bit[BLOOM_PROBE_BITS]);

/* Hashes n items, 1..BLOOM_BATCH, of any lengths, each as murmur3_hash() does. Entries from n up to the next multiple
 * of 8 are written, too, with anything. Needs bloom_vector_enabled. */
void bloom_vector_hash(const struct bloom_item *items, size_t n, uint64_t h1[BLOOM_BATCH], uint64_t h2[BLOOM_BATCH]);

/* Hashes items of 16 bytes each, which lie one after the other. Reads as many items as it writes entries. */
void bloom_vector_hash_sixteen(const unsigned char (*items)[16], size_t n, uint64_t h1[BLOOM_BATCH],
                               uint64_t h2[BLOOM_BATCH]);

/* murmur2_hash() for each of n items; otherwise as bloom_vector_hash(). */
void bloom_vector_hash_murmur2(const struct bloom_item *items, size_t n, uint64_t h1[BLOOM_BATCH],
                               uint64_t h2[BLOOM_BATCH]);

/* The two by enum bloom_hash_kind; NULL: there is no vector code. */
typedef void bloom_vector_hash_fn(const struct bloom_item *items, size_t n, uint64_t h1[BLOOM_BATCH],
                                  uint64_t h2[BLOOM_BATCH]);
extern bloom_vector_hash_fn *const bloom_vector_hashes[BLOOM_HASHES];

/* The `wanted` items whose bits are all set in the words. Needs bloom_vector_fits(). */
uint32_t bloom_vector_query(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                            const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], uint32_t wanted);

/* For each of n items, the bits that are not set in the words, in the order of bloom_walk_step(), and their number.
 * Those of item i are at missing[i * bloom_vector_stride()]. Returns the items whose bits are all set. Needs
 * bloom_vector_fits(). */
uint32_t bloom_vector_locate(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                             const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], size_t n,
                             uint64_t missing[BLOOM_BATCH * BLOOM_PROBE_BITS], uint8_t nmissing[BLOOM_BATCH]);

/* Prefetches the first `count` (at most k) words of n items into the second-level cache. Needs bloom_vector_fits(). */
void bloom_vector_prefetch(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                           const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], size_t n, unsigned count);

/* ---- blocked_vector.c: layers in blocks, whose items are tested by one load each ---- */

static inline bool blocked_vector_fits(const struct bloom_geometry *geometry)
{
    return bloom_vector_enabled && geometry->walk == BLOOM_WALK_BLOCK;
}

/* bloom_vector_query() and bloom_vector_locate() of such a layer. Need blocked_vector_fits(). */
uint32_t blocked_vector_query(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                              const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], uint32_t wanted);
uint32_t blocked_vector_locate(const _Atomic uint64_t *words, const struct bloom_geometry *geometry,
                               const uint64_t h1[BLOOM_BATCH], const uint64_t h2[BLOOM_BATCH], size_t n,
                               uint64_t missing[BLOOM_BATCH * BLOOM_PROBE_BITS], uint8_t nmissing[BLOOM_BATCH]);
