/* bloom_layout: the layouts of filters, a row each, with its code in a file of its own: how an item is hashed, which
 * bits follow from its hash, how many bits and hashes a rate needs, what a file of a layer has. Other code asks for the
 * properties here, never for a layout by its name. To add one: its file, its row in bloom_layout.c, its number in enum
 * bloom_variant; a new hash or walk also in the enums below. Constants. Thread: any. */
#pragma once

#include "bloom_params.h"
#include "murmur.h"

/* From an item to its hash; bloom_vector_hashes[] has those of many items at once. */
enum bloom_hash_kind {
    BLOOM_HASH_MURMUR3,    /* Cassandra's */
    BLOOM_HASH_MURMUR2,    /* RedisBloom's: MurmurHash64A twice */
    BLOOM_HASH_MURMUR2_32, /* the same of very old versions: MurmurHash2 twice */
    BLOOM_HASH_SEEDED,     /* valkey-bloom's: under the filter's seed (valkey.h) */
};
#define BLOOM_HASHES 4

/* From a hash to the indexes of bits: bloom_walk_step(). */
enum bloom_walk_kind {
    BLOOM_WALK_SIGNED,   /* Cassandra's: the remainders of signed sums */
    BLOOM_WALK_UNSIGNED, /* RedisBloom's: those of unsigned ones */
    BLOOM_WALK_PRIME,    /* valkey-bloom's: both halves of the hash, then sums mod a prime below 2^64 */
    BLOOM_WALK_BLOCK,    /* blocked: the first half chooses a block, the second one the bits in it */
    BLOOM_WALK_NONE,     /* slots: cuckoo_slots.h */
};

struct bloom_layout {
    const char *name;
    uint8_t hash;         /* enum bloom_hash_kind */
    uint8_t walk;         /* enum bloom_walk_kind */
    uint8_t options_mask; /* it is the layout of filters whose options (struct bloom_params) have, of these bits, */
    uint8_t options;      /* exactly those */
    uint8_t max_k;
    bool h1_first;        /* the hash's first half is the base of a walk, the second one the increment */
    bool own_numbers;     /* a layer, and its file, states its capacity, rate and bits per entry (struct bloom_shape) */
    bool windows;         /* its filters may forget (bloom_window.h) */
    bool slots;           /* a cuckoo filter: slots instead of bits */
    bool any_buckets;     /* their buckets may be any number, which is the modulus then; otherwise 2^n2 */
    bool big_endian;      /* the words in files; in memory they are little-endian always */
    uint16_t vector_bits; /* the fewest bits for which the vector code is exact */

    /* Whether a shape, whose words, k and level are in range, is one of this layout; false: `err` has the reason. */
    bool (*valid)(const struct bloom_shape *shape, struct errbuf *err);

    /* The shape of a layer for this many items at this rate. BLOOM_OK or BLOOM_REFUSED. NULL: cuckoo_next_shape(). */
    int (*size)(unsigned options, uint64_t capacity, double rate, struct bloom_shape *shape_out, struct errbuf *err);

    /* The rate of layer `index` of a filter that grows, above one of the rate `newest`; of the first one with the
     * filter's rate as `newest`. */
    double (*next_rate)(const struct bloom_params *params, double newest, unsigned index);

    /* bloom_size_rate() and bloom_size_excess() for its walk; NULL: slots. */
    double (*rate)(uint64_t n, unsigned k, uint64_t bits);
    double (*excess)(double n, unsigned k, uint64_t bits);
};

/* The last row is that of an unknown layout, of a newer version: no shape of it is valid. */
extern const struct bloom_layout bloom_layouts[BLOOM_VARIANTS + 1];

static inline const struct bloom_layout *bloom_layout_of(unsigned variant)
{
    return &bloom_layouts[variant < BLOOM_VARIANTS ? variant : BLOOM_VARIANTS];
}

/* Whether it hashes under a seed, which a file of a layer has, too. */
static inline bool bloom_layout_has_seed(unsigned variant)
{
    return bloom_layout_of(variant)->hash == BLOOM_HASH_SEEDED;
}

/* The layout of new filters with these parameters. */
enum bloom_variant bloom_params_variant(const struct bloom_params *params);

/* Whether the same bits mean the same in both: at most the order of bytes in files differs. */
bool bloom_layouts_agree(unsigned a, unsigned b);

/* "na", "me", "ka", "redisbloom", "redisbloom32", "cuckoo", "cuckoo-rate", "valkey", "blocked"; and back, false if it
 * is none of them. */
const char *bloom_variant_name(unsigned variant);
bool bloom_variant_parse(const char *text, size_t len, enum bloom_variant *variant_out);

/* The hash of an item, by a hash without a seed. `data` may be NULL when `len` is 0. */
struct bloom_hash bloom_hash_of_kind(unsigned kind, const void *data, size_t len);
