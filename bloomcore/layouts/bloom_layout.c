#include "bloom_layout.h"

#include <string.h>

#include "blocked.h"
#include "bloom_size.h"
#include "check.h"
#include "cuckoo_shape.h"
#include "redisbloom_size.h"
#include "valkey.h"

/* Vector code needs 4096 bits, or 8192 where sums are not halved by taking their absolute values (bloom_vector.c). */
#define CASSANDRA                                                                                        \
    .hash = BLOOM_HASH_MURMUR3, .walk = BLOOM_WALK_SIGNED, .options_mask = 0xff, .max_k = BLOOM_MAX_K,   \
    .windows = true, .vector_bits = 4096, .valid = bloom_shape_has_no_numbers, .size = bloom_size_shape, \
    .next_rate = bloom_size_next_rate, .rate = bloom_size_rate, .excess = bloom_size_excess

#define REDISBLOOM                                                                                                  \
    .walk = BLOOM_WALK_UNSIGNED, .h1_first = true, .own_numbers = true, .max_k = BLOOM_MAX_HASHES,                  \
    .options_mask = REDISBLOOM_FORCE64 | BLOOM_OPTION_FAMILY, .vector_bits = 8192, .valid = redisbloom_shape_valid, \
    .size = redisbloom_size, .next_rate = redisbloom_next_rate, .rate = bloom_size_rate_unsigned,                   \
    .excess = bloom_size_excess_unsigned

#define CUCKOO                                                                              \
    .walk = BLOOM_WALK_NONE, .own_numbers = true, .slots = true, .max_k = BLOOM_MAX_HASHES, \
    .options_mask = BLOOM_OPTION_FAMILY | BLOOM_OPTION_RATE, .next_rate = cuckoo_next_rate

const struct bloom_layout bloom_layouts[BLOOM_VARIANTS + 1] = {
    [BLOOM_NA] = {CASSANDRA, .name = "na"},
    [BLOOM_ME] = {CASSANDRA, .name = "me", .big_endian = true},
    [BLOOM_KA] = {CASSANDRA, .name = "ka", .big_endian = true, .h1_first = true},
    [BLOOM_REDISBLOOM] = {REDISBLOOM, .name = "redisbloom", .hash = BLOOM_HASH_MURMUR2, .options = REDISBLOOM_FORCE64},
    [BLOOM_REDISBLOOM32] = {REDISBLOOM, .name = "redisbloom32", .hash = BLOOM_HASH_MURMUR2_32},
    [BLOOM_CUCKOO] = {CUCKOO, .name = "cuckoo", .options = BLOOM_OPTION_CUCKOO, .valid = cuckoo_shape_valid},
    [BLOOM_CUCKOO_RATE] = {CUCKOO, .name = "cuckoo-rate", .any_buckets = true,
                           .options = BLOOM_OPTION_CUCKOO | BLOOM_OPTION_RATE, .valid = cuckoo_rate_shape_valid},
    [BLOOM_VALKEY] = {.name = "valkey",
                      .hash = BLOOM_HASH_SEEDED,
                      .walk = BLOOM_WALK_PRIME,
                      .h1_first = true,
                      .own_numbers = true,
                      .max_k = BLOOM_MAX_HASHES,
                      .options_mask = BLOOM_OPTION_FAMILY,
                      .options = BLOOM_OPTION_VALKEY,
                      .vector_bits = 8192,
                      .valid = valkey_shape_valid,
                      .size = valkey_size,
                      .next_rate = valkey_next_rate,
                      .rate = bloom_size_rate,
                      .excess = bloom_size_excess},
    [BLOOM_BLOCKED] = {.name = "blocked",
                       .hash = BLOOM_HASH_MURMUR3,
                       .walk = BLOOM_WALK_BLOCK,
                       .h1_first = true,
                       .own_numbers = true,
                       .windows = true,
                       .max_k = BLOCKED_MAX_K,
                       .options_mask = BLOOM_OPTION_FAMILY,
                       .options = BLOOM_OPTION_BLOCKED,
                       .valid = blocked_shape_valid,
                       .size = blocked_size,
                       .next_rate = bloom_size_next_rate,
                       .rate = blocked_rate,
                       .excess = blocked_excess},
    [BLOOM_VARIANTS] = {.walk = BLOOM_WALK_NONE, .own_numbers = true},
};

enum bloom_variant bloom_params_variant(const struct bloom_params *params)
{
    unsigned i = 0;

    while ((params->redisbloom & bloom_layouts[i].options_mask) != bloom_layouts[i].options)
        i++;
    CHECK(i < BLOOM_VARIANTS);
    return (enum bloom_variant)i;
}

bool bloom_shape_fits(const struct bloom_params *params, const struct bloom_shape *shape, struct errbuf *err)
{
    const struct bloom_layout *layout = bloom_layout_of(shape->variant);

    if ((params->redisbloom & layout->options_mask) == layout->options)
        return true;
    return errbuf_fail(err, false, "the layout %s of a layer contradicts the options %u", layout->name,
                       params->redisbloom);
}

bool bloom_shape_valid(const struct bloom_shape *shape, struct errbuf *err)
{
    const struct bloom_layout *layout = bloom_layout_of(shape->variant);

    if (shape->nwords < 1 || shape->nwords > BLOOM_MAX_WORDS)
        return errbuf_fail(err, false, "%llu words: must be in the range [1, %llu]", (unsigned long long)shape->nwords,
                           (unsigned long long)BLOOM_MAX_WORDS);
    if (shape->variant >= BLOOM_VARIANTS)
        return errbuf_fail(err, false, "unknown layout variant %u", shape->variant);
    if (shape->k < 1 || shape->k > layout->max_k)
        return errbuf_fail(err, false, "hash count %u: must be in the range [1, %u]", shape->k, layout->max_k);
    if (shape->level >= BLOOM_MAX_LAYERS || (shape->level && !layout->windows))
        return errbuf_fail(err, false, "invalid level %u of a part", shape->level);
    return layout->valid(shape, err);
}

bool bloom_layouts_agree(unsigned a, unsigned b)
{
    const struct bloom_layout *x = bloom_layout_of(a), *y = bloom_layout_of(b);

    return x->hash == y->hash && x->walk == y->walk && x->h1_first == y->h1_first && x->own_numbers == y->own_numbers;
}

const char *bloom_variant_name(unsigned variant)
{
    CHECK(variant < BLOOM_VARIANTS);
    return bloom_layouts[variant].name;
}

bool bloom_variant_parse(const char *text, size_t len, enum bloom_variant *variant_out)
{
    for (unsigned i = 0; i < BLOOM_VARIANTS; i++) {
        if (strlen(bloom_layouts[i].name) == len && memcmp(text, bloom_layouts[i].name, len) == 0) {
            *variant_out = (enum bloom_variant)i;
            return true;
        }
    }
    return false;
}

struct bloom_hash bloom_hash_of_kind(unsigned kind, const void *data, size_t len)
{
    static struct bloom_hash (*const hashes[BLOOM_HASHES])(const void *data, size_t len) = {
        [BLOOM_HASH_MURMUR3] = murmur3_hash,
        [BLOOM_HASH_MURMUR2] = murmur2_hash,
        [BLOOM_HASH_MURMUR2_32] = murmur2_hash_narrow,
    };

    return hashes[kind](data, len);
}
