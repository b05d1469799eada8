/* bloom_params: the numbers that describe a filter: the parameters that a user chooses, and the shape of each layer.
 * Plain values without ownership. Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "errbuf.h"

enum bloom_status {
    BLOOM_OK = 0,
    BLOOM_REFUSED = 1, /* impossible parameters; the errbuf names possible ones */
    BLOOM_LIMIT = 2,   /* a limit of the pool; the errbuf names it and the needed size */
};

#define BLOOM_MAX_EXPANSION 32768

/* Layers of one filter. A query may read all of them, for some five nanoseconds each. A filter that needs more has a
 * wrong first capacity or expansion. */
#define BLOOM_MAX_LAYERS 1024

/* The layouts (bloom_layout.h). The first three are the live variants of Cassandra's file format (FORMAT.md section 2).
 * The word order concerns files only; the hash, and the order of its halves, decide which bits an item has. In memory
 * the words always are little-endian bytes in NEW order, which RedisBloom's are, too. */
enum bloom_variant {
    BLOOM_NA = 0,           /* Cassandra 4.0 and later: little-endian words, base = h2, increment = h1 */
    BLOOM_ME = 1,           /* Cassandra 3.x, ScyllaDB mc..mt: big-endian words, base = h2, increment = h1 */
    BLOOM_KA = 2,           /* before 3.0, ScyllaDB ka la: big-endian words, base = h1, increment = h2 */
    BLOOM_REDISBLOOM = 3,   /* RedisBloom: MurmurHash64A twice, base = h1, increment = h2, unsigned sums */
    BLOOM_REDISBLOOM32 = 4, /* the same of very old versions: MurmurHash2 twice */
    BLOOM_CUCKOO = 5,       /* RedisBloom's cuckoo filters (cuckoo.h): slots of a byte instead of bits */
    BLOOM_CUCKOO_RATE = 6,  /* ours, which keep an error rate: slots of 8, 12 or 16 bits, any number of buckets */
    BLOOM_VALKEY = 7,       /* valkey-bloom (valkey.h): SipHash-1-3 under both halves of a filter's seed */
    BLOOM_BLOCKED = 8,      /* ours (blocked.h): Cassandra's hash, the bits of an item in one block of 64 bytes */
};
#define BLOOM_VARIANTS 9

/* The secret of a filter whose layout hashes under one: two keys of SipHash, little-endian. */
#define BLOOM_SEED_BYTES 32
struct bloom_seed {
    unsigned char bytes[BLOOM_SEED_BYTES];
};

static inline bool bloom_seed_equal(const struct bloom_seed *a, const struct bloom_seed *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* The parameters that a user chooses. */
struct bloom_params {
    uint64_t capacity;  /* items of the first layer, >= 1 */
    double error_rate;  /* 0 < error_rate < 1, of the whole chain */
    uint32_t expansion; /* capacity of a layer relative to the one before, 1..BLOOM_MAX_EXPANSION; 0: fixed size */
    uint8_t redisbloom; /* the options of a filter in another layout than Cassandra's (below); in that 0 */

    /* Of a window, in Cassandra's layout or blocks; otherwise 0. The capacity is that of one window. */
    uint8_t window_flags;  /* BLOOM_WINDOW_* */
    uint16_t window_parts; /* 1..BLOOM_WINDOW_MAX_PARTS */
    uint64_t window;       /* the time that items are kept, in microseconds, or the number of later items */

    uint64_t key; /* of a KEYED filter the id of its key (bloom_key.h); otherwise 0 */

    uint16_t iterations; /* of a cuckoo filter the evictions that an add may make, at least 1; otherwise 0 */

    /* In valkey-bloom's layout, otherwise 0. */
    double tightening;      /* rate of a layer relative to the one before, 0 < tightening < 1 */
    struct bloom_seed seed; /* never in a log or a reply: who knows it can choose false positives */
};

/* `redisbloom`: the options of a filter in RedisBloom's layout. */
#define REDISBLOOM_NOROUND      1u  /* layers have as many bits as they need; otherwise a power of two */
#define REDISBLOOM_ENTS_IS_BITS 2u  /* the requested capacity is log2 of the number of bits */
#define REDISBLOOM_FORCE64      4u  /* hashes of 64 bits; otherwise of 32 */
#define REDISBLOOM_NO_SCALING   8u  /* a fixed size */
#define REDISBLOOM_OPTIONS      15u /* all that are known */
#define BLOOM_OPTION_CUCKOO     16u /* ours: a cuckoo filter; of the others it may have REDISBLOOM_NO_SCALING, and */
#define BLOOM_OPTION_RATE       REDISBLOOM_NOROUND /* it keeps an error rate: BLOOM_CUCKOO_RATE */

#define BLOOM_OPTION_VALKEY  32u /* valkey-bloom's layout, without any other option */
#define BLOOM_OPTION_BLOCKED 48u /* LAYOUT blocked, without any other option */

#define BLOOM_OPTION_FAMILY 48u                                        /* the bits in which these three differ */
#define BLOOM_OPTIONS       (REDISBLOOM_OPTIONS | BLOOM_OPTION_FAMILY) /* that a filter may have */

/* Items that a layer in that layout may be made for: numbers of adds in the log have 40 bits. */
#define REDISBLOOM_MAX_ENTRIES ((UINT64_C(1) << 40) - 1)

#define BLOOM_WINDOW_ITEMS     1 /* `window` counts items */
#define BLOOM_WINDOW_REFRESH   2 /* an add of a present item restarts its time */
#define BLOOM_WINDOW_MAX_PARTS 64
#define BLOOM_WINDOW_MIN_US    INT64_C(1000000)
#define BLOOM_WINDOW_MAX_US    (INT64_C(1) << 55) /* a thousand years */
#define BLOOM_WINDOW_MAX_ITEMS (UINT64_C(1) << 38)

static inline bool bloom_params_is_window(const struct bloom_params *params)
{
    return params->window != 0;
}

static inline bool bloom_params_is_cuckoo(const struct bloom_params *params)
{
    return (params->redisbloom & BLOOM_OPTION_FAMILY) == BLOOM_OPTION_CUCKOO;
}

/* Whether its layout has a tightening ratio, and hashes under a seed of the filter. */
static inline bool bloom_params_have_seed(const struct bloom_params *params)
{
    return (params->redisbloom & BLOOM_OPTION_FAMILY) == BLOOM_OPTION_VALKEY;
}

/* Whether it is a cuckoo filter in our layout, which keeps its error rate over all sub-filters. */
static inline bool bloom_params_keep_rate(const struct bloom_params *params)
{
    return bloom_params_is_cuckoo(params) && params->redisbloom & BLOOM_OPTION_RATE;
}

/* Whether saved layers have a turn (struct bloom_turn). */
static inline bool bloom_params_have_turns(const struct bloom_params *params)
{
    return bloom_params_is_window(params) || bloom_params_is_cuckoo(params);
}

/* The shape of a layer, as in a file. */
struct bloom_shape {
    uint64_t nwords; /* 1..BLOOM_MAX_WORDS */
    uint8_t k;       /* 1..BLOOM_MAX_K; in RedisBloom's layout 1..BLOOM_MAX_HASHES */
    uint8_t variant; /* enum bloom_variant */
    uint16_t level;  /* of a window: the layer's place in its part; otherwise 0 */

    /* Not of Cassandra's layouts, there 0. In the others each layer states its own parameters. A layer of a cuckoo
     * filter has buckets of k slots: 2^n2 buckets in RedisBloom's layout, any number in ours, with an n2 of 0. Its
     * capacity is its number of slots, and bpe the bits of a slot. */
    uint8_t n2;          /* items have bits in the first 2^n2 only; 0: in all */
    uint8_t spare_bytes; /* 0..7 bytes of the last word that the layer does not have */
    uint64_t capacity;   /* 1..REDISBLOOM_MAX_ENTRIES */
    double error_rate;   /* in (0, 1) */
    double bpe;          /* bits per entry that the hash count was computed from, > 0 */
};

#define BLOOM_MAX_HASHES 255
#define BLOOM_PROBE_BITS 256 /* room for an item's bits: BLOOM_MAX_HASHES rounded up, as they are derived by eights */

/* The number of bits in which an item's bits lie. */
static inline uint64_t bloom_shape_bits(const struct bloom_shape *shape)
{
    return shape->n2 ? UINT64_C(1) << shape->n2 : shape->nwords * 64 - shape->spare_bytes * 8u;
}

/* The bytes of a layer as files and dumps have it. */
static inline uint64_t bloom_shape_bytes(const struct bloom_shape *shape)
{
    return shape->nwords * 8 - shape->spare_bytes;
}

/* Whether these are numbers of a layer (bloom_layout.c); false: `err` has the reason. */
bool bloom_shape_valid(const struct bloom_shape *shape, struct errbuf *err);
bool bloom_shape_equal(const struct bloom_shape *a, const struct bloom_shape *b);

/* Whether a filter with these parameters can have such a layer; false: `err` has the reason. */
bool bloom_shape_fits(const struct bloom_params *params, const struct bloom_shape *shape, struct errbuf *err);

/* Whether a filter can have these parameters; false: `err` has the reason. */
bool bloom_params_valid(const struct bloom_params *params, struct errbuf *err);
