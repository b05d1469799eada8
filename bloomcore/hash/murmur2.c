/* The mixing of a word before it enters the hash does not depend on the seed. Both hashes of an item could share its
 * result; for the short items of filters, computing it again costs less than storing it. */
#include "murmur2.h"

#include "murmur_load.h"

#define M64 UINT64_C(0xc6a4a7935bd1e995)
#define M32 UINT32_C(0x5bd1e995)

uint64_t murmur2_64a(const void *data, size_t len, uint64_t seed)
{
    const unsigned char *p = data;
    uint64_t h = seed ^ len * M64;

    for (size_t words = len / 8; words > 0; words--, p += 8) {
        uint64_t k = load64(p) * M64;
        k = (k ^ k >> 47) * M64;
        h = (h ^ k) * M64;
    }
    if (len % 8 != 0)
        h = (h ^ load_last(p + len % 8, len % 8, len)) * M64;
    h = (h ^ h >> 47) * M64;
    return h ^ h >> 47;
}

static uint32_t murmur2_32(const void *data, size_t len, uint32_t seed)
{
    const unsigned char *p = data;
    uint32_t h = seed ^ (uint32_t)len;

    for (size_t words = len / 4; words > 0; words--, p += 4) {
        uint32_t k = load32(p) * M32;
        k = (k ^ k >> 24) * M32;
        h = h * M32 ^ k;
    }
    if (len % 4 != 0)
        h = (h ^ (uint32_t)load_last(p + len % 4, len % 4, len)) * M32;
    h = (h ^ h >> 13) * M32;
    return h ^ h >> 15;
}

struct bloom_hash murmur2_hash(const void *data, size_t len)
{
    uint64_t h1 = murmur2_64a(data, len, MURMUR2_SEED_64);

    return (struct bloom_hash){h1, murmur2_64a(data, len, h1)};
}

struct bloom_hash murmur2_hash_narrow(const void *data, size_t len)
{
    uint32_t h1 = murmur2_32(data, len, MURMUR2_SEED_32);

    return (struct bloom_hash){h1, murmur2_32(data, len, h1)};
}
