/* murmur: the item hashes of Cassandra's and of RedisBloom's filters. Cassandra's is
 * MurmurHash3 x64 128 with seed 0, as Cassandra computes it. It differs from the textbook function in one place: it
 * widens the bytes of the tail (length mod 16) as signed bytes. So a tail byte >= 0x80 also inverts the bytes above it
 * in its half. Items without such bytes, and items whose length is a multiple of 16, hash as usual. Source: Austin
 * Appleby's MurmurHash3 (public domain); Cassandra's variant as described in docs/FORMAT.md, section 3.
 *
 * Pure functions. Thread: any. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct bloom_hash {
    uint64_t h1; /* the first half; as a signed 64-bit number it is Cassandra's raw token */
    uint64_t h2; /* the second half */
};

/* Hashes `len` bytes. The empty item hashes to {0, 0}. `data` may be NULL when `len` is 0. */
struct bloom_hash murmur3_hash(const void *data, size_t len);

/* ---- RedisBloom's: Austin Appleby's MurmurHash64A, and MurmurHash2 in filters of very old versions (both public
 * domain). An item is hashed twice, the second time with the first hash as the seed. ---- */

#define MURMUR2_SEED_64 UINT64_C(0xc6a4a7935bd1e995)
#define MURMUR2_SEED_32 UINT32_C(0x9747b28c)

/* `data` may be NULL when `len` is 0. */
uint64_t murmur2_64a(const void *data, size_t len, uint64_t seed);

/* Both hashes of an item: h1 with the seed above, h2 with h1 as its seed. The narrow ones have 32 bits. */
struct bloom_hash murmur2_hash(const void *data, size_t len);
struct bloom_hash murmur2_hash_narrow(const void *data, size_t len);
