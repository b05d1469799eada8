/* bloom_geometry: the arithmetic of one layer, fixed when the layer is made: from an item's hash to its bit indexes.
 * Internal to bloomcore.
 *
 * FORMAT.md section 4: starting at `base` and adding `increment` modulo 2^64, index = | x rem bits | with the signed,
 * truncating remainder. In unsigned numbers: u = |x| (2^63 for INT64_MIN) and index = u mod bits.
 *
 * The remainder is taken without a division. With l = ceil(log2(bits)) and magic = ceil(2^(63+l) / bits), a 64-bit
 * number, floor(u / bits) = floor(u * magic / 2^(63+l)) for every u <= 2^63: magic * bits exceeds 2^(63+l) by e < bits
 * <= 2^l, so the product exceeds the true quotient by u * e / (bits * 2^(63+l)) < 2^63 * 2^l / (bits * 2^(63+l)) =
 * 1 / bits, too little to reach the next integer.
 *
 * Everything is inline: this is the inner loop of every query. Thread: any. */
#ifndef BLOOMERY_BLOOM_GEOMETRY_H
#define BLOOMERY_BLOOM_GEOMETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "bloom_filter.h"

struct bloom_geometry {
    uint64_t bits;         /* 64 * words */
    uint64_t magic;        /* reciprocal of bits, see above */
    uint8_t shift;         /* l - 1: what is left of 2^(63+l) after the high half of the product has been taken */
    uint8_t k;             /* bits per item */
    uint8_t variant;       /* enum bloom_variant */
    uint8_t index;         /* of the layer in its chain, 0 is the oldest */
    bool words_inline;     /* the words lie behind the layer's header, not elsewhere */
    uint64_t capacity;     /* items */
    double error_rate;     /* this layer's share */
};

#define BLOOM_PROBE_BITS 24 /* room for an item's bits: BLOOM_MAX_K rounded up, as they are derived by eights */

/* Layers up to this size keep their words behind their header: one allocation, and one cache miss less. */
#define BLOOM_INLINE_WORDS 512

bool bloom_shape_valid(const struct bloom_shape *shape, struct errbuf *err);
void bloom_geometry_init(struct bloom_geometry *geometry, const struct bloom_shape *shape, unsigned index,
                         uint64_t capacity, double error_rate);

static inline uint64_t bloom_geometry_nwords(const struct bloom_geometry *geometry)
{
    return geometry->bits / 64;
}

/* The progression of an item: where it is, what is added per step; and copies of what a step needs, which the compiler
 * keeps in registers, while it would load the geometry's again after each atomic load of a word. */
struct bloom_walk {
    uint64_t at;
    uint64_t step;
    uint64_t bits;
    uint64_t magic;
    unsigned shift;
};

static inline struct bloom_walk bloom_walk_start(const struct bloom_geometry *geometry, struct bloom_hash hash)
{
    bool h1_first = geometry->variant == BLOOM_KA;

    return (struct bloom_walk){
        .at = h1_first ? hash.h1 : hash.h2,
        .step = h1_first ? hash.h2 : hash.h1,
        .bits = geometry->bits,
        .magic = geometry->magic,
        .shift = geometry->shift,
    };
}

/* As n times bloom_walk_next(). */
static inline void bloom_walk_skip(struct bloom_walk *walk, unsigned n)
{
    walk->at += walk->step * n;
}

static inline uint64_t bloom_walk_next(struct bloom_walk *walk)
{
    uint64_t sign = (uint64_t)((int64_t)walk->at >> 63);

    /* Without this barrier gcc turns |x| into a branch on the sign, which is random: 12 ns per item at k = 7. */
    __asm__("" : "+r"(sign));
    uint64_t u = (walk->at ^ sign) - sign;
    uint64_t q = (uint64_t)(((unsigned __int128)u * walk->magic) >> 64) >> walk->shift;

    walk->at += walk->step;
    return u - q * walk->bits;
}

#endif
