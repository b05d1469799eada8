/* murmur2: the item hashes of RedisBloom's filters: Austin Appleby's MurmurHash64A, and MurmurHash2 in filters of very
 * old versions (both public domain). An item is hashed twice, the second time with the first hash as the seed.
 *
 * Pure functions. Thread: any. */
#ifndef BLOOMERY_MURMUR2_H
#define BLOOMERY_MURMUR2_H

#include <stddef.h>
#include <stdint.h>

#include "murmur3.h"

#define MURMUR2_SEED_64 UINT64_C(0xc6a4a7935bd1e995)
#define MURMUR2_SEED_32 UINT32_C(0x9747b28c)

/* `data` may be NULL when `len` is 0. */
uint64_t murmur2_64a(const void *data, size_t len, uint64_t seed);

/* Both hashes of an item: h1 with the seed above, h2 with h1 as its seed. The narrow ones have 32 bits. */
struct bloom_hash murmur2_hash(const void *data, size_t len);
struct bloom_hash murmur2_hash_narrow(const void *data, size_t len);

#endif
