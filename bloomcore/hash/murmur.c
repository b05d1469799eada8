/* MurmurHash3: the blocks and the finalizer are Appleby's. The tail is loaded as whole words, not byte by byte: 5 to 7
 * cycles less for keys of 8 to 15 bytes. The effect of widening the tail bytes as signed ones is then applied to the
 * whole word. */
#include "murmur.h"

#include "murmur_load.h"

#define C1 UINT64_C(0x87c37b91114253d5)
#define C2 UINT64_C(0x4cf5ad432745937f)

static inline uint64_t rotl(uint64_t x, unsigned n)
{
    return x << n | x >> (64 - n);
}

static inline uint64_t mix_k1(uint64_t k)
{
    return rotl(k * C1, 31) * C2;
}

static inline uint64_t mix_k2(uint64_t k)
{
    return rotl(k * C2, 33) * C1;
}

static inline uint64_t fmix(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    x ^= x >> 33;
    return x;
}

/* Turns a word of bytes that were widened as unsigned into the XOR of the same bytes widened as signed ones. A negative
 * byte inverts all bytes above it. So a byte is inverted when the number of negative bytes below it is odd. */
static inline uint64_t widen_signed(uint64_t word)
{
    uint64_t odd = (word >> 7) & UINT64_C(0x0101010101010101);

    if (odd == 0)
        return word;
    odd <<= 8;
    odd ^= odd << 8;
    odd ^= odd << 16;
    odd ^= odd << 32;
    return word ^ odd * 0xff;
}

struct bloom_hash murmur3_hash(const void *data, size_t len)
{
    const unsigned char *p = data;
    uint64_t h1 = 0;
    uint64_t h2 = 0;
    size_t tail = len & 15;

    for (size_t blocks = len / 16; blocks > 0; blocks--, p += 16) {
        h1 ^= mix_k1(load64(p));
        h1 = (rotl(h1, 27) + h2) * 5 + 0x52dce729;
        h2 ^= mix_k2(load64(p + 8));
        h2 = (rotl(h2, 31) + h1) * 5 + 0x38495ab5;
    }

    if (tail > 8) {
        h2 ^= mix_k2(widen_signed(load_last(p + tail, tail - 8, len)));
        h1 ^= mix_k1(widen_signed(load64(p)));
    } else if (tail > 0) {
        h1 ^= mix_k1(widen_signed(load_last(p + tail, tail, len)));
    }

    h1 ^= len;
    h2 ^= len;
    h1 += h2;
    h2 += h1;
    h1 = fmix(h1);
    h2 = fmix(h2);
    h1 += h2;
    h2 += h1;
    return (struct bloom_hash){h1, h2};
}

/* ---- RedisBloom's ---- */

/* The mixing of a word before it enters the hash does not depend on the seed. Both hashes of an item could share its
 * result; for the short items of filters, computing it again costs less than storing it. */

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
