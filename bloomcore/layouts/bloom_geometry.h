/* bloom_geometry: the arithmetic of one layer, from an item's hash to its bit indexes, fixed when the layer is created.
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
 * RedisBloom's layout: index = x mod bits with x as an unsigned number, which may exceed 2^63. As bits is even, floor(x
 * / bits) = floor(floor(x / 2) / (bits / 2)). That is a number below 2^63 and half the divisor: the same magic serves,
 * with one bit less to shift. Where bits = 2^n2, x loses its upper bits first.
 *
 * valkey-bloom's layout: the first two indexes are the halves of the hash mod bits. The others are (x mod 2^64 mod
 * BLOOM_WALK_MODULUS) mod bits, with x as above; bits is even there, too.
 *
 * Blocks: the block is floor(h1 * blocks / 2^64). The upper 9 bits of h2 are an index in it, those of h2 times
 * BLOOM_WALK_MIX (mod 2^64) the next one, and so on.
 *
 * Which of them it is (enum bloom_walk_kind) is decided once for each item and layer, not for each bit: functions that
 * walk take it as a constant and are compiled for each. Everything is inline: this is the inner loop of every query.
 * Thread: any. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "blocked.h"
#include "bloom_key.h"
#include "bloom_layout.h"
#include "valkey.h"

struct bloom_geometry {
    uint64_t bits;         /* the modulus: bloom_shape_bits(); the number of buckets or blocks, if it has such */
    uint64_t magic;        /* reciprocal of bits, see above */
    uint8_t shift;         /* l - 1: what remains of 2^(63+l) after the high half; the words before the first block */
    uint8_t k;             /* bits per item */
    uint8_t variant;       /* enum bloom_variant */
    uint8_t hash, walk;    /* as in the layout's row; so is h1_first */
    bool words_inline : 1; /* the words are behind the layer's header, not elsewhere */
    bool wide : 1;         /* large enough for the vector code (bloom_vector.c) */
    bool window : 1;       /* of a filter that forgets: a struct bloom_part is behind the layer */
    bool h1_first : 1;
    uint8_t n2;          /* as in the shape */
    uint8_t spare_bytes; /* likewise */
    uint16_t index;      /* of the layer in its chain, 0 is the oldest */
    uint16_t level;      /* as in the shape */
    uint32_t nwords;
    uint64_t capacity;                 /* items */
    double error_rate;                 /* this layer's share */
    double bpe;                        /* as in the shape */
    union {                            /* the secret of the filter's hash; otherwise NULL */
        const struct bloom_key *key;   /* of a KEYED filter */
        const struct bloom_seed *seed; /* of BLOOM_HASH_SEEDED, in the filter's class */
    };
};

/* 2^64 - 59, the largest prime below 2^64. */
#define BLOOM_WALK_MODULUS UINT64_C(0xffffffffffffffc5)

/* Odd, near 2^64 divided by the golden ratio: a product's upper bits depend on all bits of h2. */
#define BLOOM_WALK_MIX UINT64_C(0x9e3779b97f4a7c15)

/* Bits that are tested, and fetched, before the others: in a half full layer a quarter of the absent items pass. */
#define BLOOM_FIRST_BITS 2

/* Layers up to this size keep their words after their header: one allocation, and one cache miss less. */
#define BLOOM_INLINE_WORDS 512

/* The shape must be valid. A layer with own numbers has its capacity and rate in the shape. */
void bloom_geometry_init(struct bloom_geometry *geometry, const struct bloom_shape *shape, unsigned index,
                         uint64_t capacity, double error_rate);

/* The shape from which the geometry was made. */
void bloom_geometry_shape(const struct bloom_geometry *geometry, struct bloom_shape *shape_out);

static inline uint64_t bloom_geometry_nwords(const struct bloom_geometry *geometry)
{
    return geometry->nwords;
}

/* Whether the words are beyond the last-level cache, so that each is a wait: more than 32 MiB. */
static inline bool bloom_geometry_is_far(const struct bloom_geometry *geometry)
{
    return geometry->nwords > (32u << 20) / 8;
}

static inline bool bloom_geometry_has_slots(const struct bloom_geometry *geometry)
{
    return geometry->walk == BLOOM_WALK_NONE;
}

static inline bool bloom_geometry_is_seeded(const struct bloom_geometry *geometry)
{
    return geometry->hash == BLOOM_HASH_SEEDED;
}

static inline struct bloom_hash bloom_geometry_hash_plain(const struct bloom_geometry *geometry, const void *data,
                                                          size_t len)
{
    return geometry->hash == BLOOM_HASH_MURMUR3 ? murmur3_hash(data, len)
                                                : bloom_hash_of_kind(geometry->hash, data, len);
}

/* Turns an item into a hash; bloom_batch.c does so for many. The key must be here (bloom_keyring.h). */
static inline struct bloom_hash bloom_geometry_hash(const struct bloom_geometry *geometry, const void *data, size_t len)
{
    unsigned char keyed[SIPHASH_BYTES];

    if (__builtin_expect(geometry->key == NULL, 1))
        return bloom_geometry_hash_plain(geometry, data, len);
    if (bloom_geometry_is_seeded(geometry))
        return valkey_hash(geometry->seed, data, len);
    siphash(&geometry->key->secret.items, data, len, keyed);
    return bloom_geometry_hash_plain(geometry, keyed, sizeof(keyed));
}

/* The progression of an item: its position and its increment. The copies of the geometry's fields stay in registers;
 * the compiler would load the geometry's own again after each atomic load of a word. */
struct bloom_walk {
    uint64_t at;
    uint64_t step;
    uint64_t bits;
    uint64_t magic;
    uint64_t mask; /* RedisBloom's layout: the bits of x that count */
    unsigned shift;
    unsigned index; /* valkey-bloom's layout: of the next step */
};

static inline struct bloom_walk bloom_walk_start(const struct bloom_geometry *geometry, struct bloom_hash hash)
{
    bool h1_first = geometry->h1_first;

    return (struct bloom_walk){
        .at = h1_first ? hash.h1 : hash.h2,
        .step = h1_first ? hash.h2 : hash.h1,
        .bits = geometry->bits,
        .magic = geometry->magic,
        .mask = UINT64_MAX >> (-geometry->n2 & 63),
        .shift = geometry->shift,
    };
}

/* Equals n steps of a walk that is not in a block. */
static inline void bloom_walk_skip(struct bloom_walk *walk, unsigned n)
{
    walk->at += walk->step * n;
    walk->index += n;
}

/* |x| */
static inline uint64_t bloom_magnitude(uint64_t x)
{
    uint64_t sign = (uint64_t)((int64_t)x >> 63);

    /* Without this barrier gcc turns |x| into a branch on the sign, which is random: 12 ns per item at k = 7. */
    __asm__("" : "+r"(sign));
    return (x ^ sign) - sign;
}

/* u mod bits, for u up to 2^63; `magic` and `shift` as in the geometry. */
static inline uint64_t bloom_reduce(uint64_t u, uint64_t bits, uint64_t magic, unsigned shift)
{
    uint64_t q = (uint64_t)(((unsigned __int128)u * magic) >> 64) >> shift;

    return u - q * bits;
}

/* Cassandra's layouts. */
static inline uint64_t bloom_walk_next(struct bloom_walk *walk)
{
    uint64_t u = bloom_magnitude(walk->at);

    walk->at += walk->step;
    return bloom_reduce(u, walk->bits, walk->magic, walk->shift);
}

/* u mod bits of an unsigned number and an even modulus. */
static inline uint64_t bloom_reduce_unsigned(uint64_t u, const struct bloom_walk *walk)
{
    uint64_t q = (uint64_t)(((unsigned __int128)(u >> 1) * walk->magic) >> 64) >> (walk->shift - 1);

    return u - q * walk->bits;
}

/* RedisBloom's layout. */
static inline uint64_t bloom_walk_next_unsigned(struct bloom_walk *walk)
{
    uint64_t u = walk->at & walk->mask;

    walk->at += walk->step;
    return bloom_reduce_unsigned(u, walk);
}

/* valkey-bloom's layout. */
static inline uint64_t bloom_walk_next_prime(struct bloom_walk *walk)
{
    uint64_t u = walk->index == 1 ? walk->step : walk->at;

    if (walk->index++ > 1)
        u -= u >= BLOOM_WALK_MODULUS ? BLOOM_WALK_MODULUS : 0;
    walk->at += walk->step;
    return bloom_reduce_unsigned(u, walk);
}

/* The first word of the item's block. */
static inline uint64_t bloom_walk_block(const struct bloom_walk *walk)
{
    return (uint64_t)(((unsigned __int128)walk->at * walk->bits) >> 64) * BLOCK_WORDS + walk->shift;
}

static inline uint64_t bloom_walk_next_in_block(struct bloom_walk *walk)
{
    uint64_t bit = bloom_walk_block(walk) * 64 + (walk->step >> 55);

    walk->step *= BLOOM_WALK_MIX;
    return bit;
}

/* `kind` (enum bloom_walk_kind) must be a constant where this is inlined. */
static inline uint64_t bloom_walk_step(struct bloom_walk *walk, enum bloom_walk_kind kind)
{
    if (kind == BLOOM_WALK_PRIME)
        return bloom_walk_next_prime(walk);
    if (kind == BLOOM_WALK_BLOCK)
        return bloom_walk_next_in_block(walk);
    return kind == BLOOM_WALK_SIGNED ? bloom_walk_next(walk) : bloom_walk_next_unsigned(walk);
}

/* Calls a function, whose last argument is the kind of a walk, with the layer's kind as a constant. */
#define BLOOM_BY_WALK(geometry, function, ...)          \
    do {                                                \
        if ((geometry)->walk == BLOOM_WALK_SIGNED)      \
            function(__VA_ARGS__, BLOOM_WALK_SIGNED);   \
        else if ((geometry)->walk == BLOOM_WALK_PRIME)  \
            function(__VA_ARGS__, BLOOM_WALK_PRIME);    \
        else if ((geometry)->walk == BLOOM_WALK_BLOCK)  \
            function(__VA_ARGS__, BLOOM_WALK_BLOCK);    \
        else                                            \
            function(__VA_ARGS__, BLOOM_WALK_UNSIGNED); \
    } while (0)
