/* murmur3: the 128-bit item hash of Cassandra's Bloom filters.
 *
 * MurmurHash3 x64 128 with seed 0, as Cassandra computes it. It differs from the textbook function in one place: it
 * widens the bytes of the tail (length mod 16) as signed bytes. So a tail byte >= 0x80 also inverts the bytes above it
 * in its half. Items without such bytes, and items whose length is a multiple of 16, hash as usual. Source: Austin
 * Appleby's MurmurHash3 (public domain); Cassandra's variant as described in docs/FORMAT.md, section 3.
 *
 * Pure function. Thread: any. */
#ifndef BLOOMERY_MURMUR3_H
#define BLOOMERY_MURMUR3_H

#include <stddef.h>
#include <stdint.h>

struct bloom_hash {
    uint64_t h1; /* the first half; as a signed 64-bit number it is Cassandra's raw token */
    uint64_t h2; /* the second half */
};

/* Hashes `len` bytes. The empty item hashes to {0, 0}. `data` may be NULL when `len` is 0. */
struct bloom_hash murmur3_hash(const void *data, size_t len);

#endif
