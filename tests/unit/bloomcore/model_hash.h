/* model_hash: the hash of cuckoo filters, implemented again for their model. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* MurmurHash64A with seed 0, for little-endian machines. */
static inline uint64_t model_hash(const void *data, size_t len)
{
    const uint64_t m = UINT64_C(0xc6a4a7935bd1e995);
    const unsigned char *at = data;
    uint64_t hash = len * m, word = 0;

    for (; len >= 8; at += 8, len -= 8) {
        memcpy(&word, at, 8);
        word *= m;
        word ^= word >> 47;
        hash = (hash ^ word * m) * m;
    }
    for (size_t i = len; i-- > 0;)
        hash ^= (uint64_t)at[i] << 8 * i;
    if (len)
        hash *= m;
    hash ^= hash >> 47;
    hash *= m;
    return hash ^ hash >> 47;
}

/* `bits` of a slot of ours; 0: RedisBloom's. */
static inline uint16_t model_fingerprint(unsigned bits, uint64_t hash)
{
    return (uint16_t)(bits ? (hash >> 48) * ((1u << bits) - 1) / 65536 + 1 : hash % 255 + 1);
}
