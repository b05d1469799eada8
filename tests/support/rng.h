/* rng: seeded random numbers for tests and benchmarks. The same seed gives the same numbers on every machine.
 * xoshiro256** (D. Blackman and S. Vigna, public domain), seeded by splitmix64. Thread: any, on distinct objects. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state[4];
};

void rng_init(struct rng *rng, uint64_t seed);

/* Uniform over all 64-bit numbers. */
static inline uint64_t rng_next(struct rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t five = s[1] * 5;
    uint64_t result = (five << 7 | five >> 57) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = s[3] << 45 | s[3] >> 19;
    return result;
}

/* Uniform over 0..n-1, n >= 1 (except for a bias below n / 2^64). */
static inline uint64_t rng_below(struct rng *rng, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)rng_next(rng) * n) >> 64);
}

void rng_fill(struct rng *rng, void *buf, size_t len);
