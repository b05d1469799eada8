/* murmur_load: the loads of the hash functions. Positions need no alignment. Internal to the files that hash. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are loaded as little-endian");

static inline uint64_t load64(const unsigned char *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof(x));
    return x;
}

static inline uint32_t load32(const unsigned char *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof(x));
    return x;
}

/* The `n` bytes (1..8) before `end`, the first one lowest. `total` bytes before `end` may be read. */
static inline uint64_t load_last(const unsigned char *end, size_t n, size_t total)
{
    const unsigned char *p = end - n;

    if (total >= 8)
        return load64(end - 8) >> (64 - 8 * n);
    if (n >= 4)
        return load32(p) | (uint64_t)load32(end - 4) << (8 * (n - 4));
    return p[0] | (uint64_t)p[n / 2] << (8 * (n / 2)) | (uint64_t)p[n - 1] << (8 * (n - 1));
}
