/* The order of operations of sizes and rates is that of valkey-bloom and its crate bloomfilter, because results are
 * rounded. So a layer that grows here has the numbers that it would have there. */
#include "valkey.h"

#include <float.h>
#include <math.h>

#include "bloom_size.h"
#include "siphash.h"

/* ---- sizes ---- */

#define LN2       0.693147180559945309417232121458
#define MAX_BYTES (BLOOM_MAX_WORDS * 8)

const struct bloom_seed valkey_fixed_seed = {{0x59, 0x0f, 0xf5, 0x22, 0xea, 0x78, 0x11, 0xda, 0xa7, 0x14, 0xd8,
                                              0x09, 0x3b, 0x3e, 0x7b, 0xd9, 0x1d, 0x89, 0x8a, 0x73, 0x3e, 0x98,
                                              0x88, 0x87, 0x30, 0x7f, 0x97, 0xcd, 0x28, 0x07, 0x33, 0x83}};

static double bits_per_item(uint64_t bits, uint64_t capacity)
{
    return (double)bits / (double)capacity;
}

bool valkey_shape_valid(const struct bloom_shape *shape, struct errbuf *err)
{
    if (shape->spare_bytes > 7 || shape->n2)
        errbuf_set(err, "%u unused bytes in a word, n2 %u", shape->spare_bytes, shape->n2);
    else if (shape->capacity < 1 || shape->capacity > REDISBLOOM_MAX_ENTRIES)
        errbuf_set(err, "capacity %llu: must be in the range [1, %llu]", (unsigned long long)shape->capacity,
                   (unsigned long long)REDISBLOOM_MAX_ENTRIES);
    else if (!(shape->error_rate > 0 && shape->error_rate < 1))
        errbuf_set(err, "error rate %g: must be in the range (0, 1)", shape->error_rate);
    else if (shape->bpe != bits_per_item(bloom_shape_bits(shape), shape->capacity))
        errbuf_set(err, "%g bits per entry are not those of the layer", shape->bpe);
    else
        return true;
    return false;
}

int valkey_shape(uint64_t capacity, double rate, uint64_t bytes, uint64_t hashes, struct bloom_shape *shape_out,
                 struct errbuf *err)
{
    if (bytes < 1 || bytes > MAX_BYTES || hashes < 1 || hashes > BLOOM_MAX_HASHES || capacity < 1)
        return errbuf_fail(err, BLOOM_REFUSED,
                           "capacity %llu, %llu bytes, %llu hashes: a layer has from 1 to %llu bytes and %d hashes",
                           (unsigned long long)capacity, (unsigned long long)bytes, (unsigned long long)hashes,
                           (unsigned long long)MAX_BYTES, BLOOM_MAX_HASHES);
    uint64_t nwords = (bytes - 1) / 8 + 1;
    *shape_out = (struct bloom_shape){
        .nwords = nwords,
        .k = (uint8_t)hashes,
        .variant = BLOOM_VALKEY,
        .spare_bytes = (uint8_t)(nwords * 8 - bytes),
        .capacity = capacity,
        .error_rate = rate,
        .bpe = bits_per_item(bytes * 8, capacity),
    };
    return bloom_shape_valid(shape_out, err) ? BLOOM_OK : BLOOM_REFUSED;
}

int valkey_size(unsigned options, uint64_t capacity, double rate, struct bloom_shape *shape_out, struct errbuf *err)
{
    const double log2_squared = LN2 * LN2;
    double bytes = ceil((double)capacity * log(rate) / (-8.0 * log2_squared));

    (void)options;
    if (!(rate > DBL_MIN))
        return errbuf_fail(err, BLOOM_REFUSED, "false positive degrades to 0 on scale out");
    if (!(bytes >= 1 && bytes <= (double)MAX_BYTES))
        return errbuf_fail(err, BLOOM_REFUSED,
                           "capacity %llu at error rate %g takes more than the %llu bytes that a layer may have",
                           (unsigned long long)capacity, rate, (unsigned long long)MAX_BYTES);
    double hashes = fmax(1, round(bits_per_item((uint64_t)bytes * 8, capacity) * LN2));
    return valkey_shape(capacity, rate, (uint64_t)bytes, (uint64_t)hashes, shape_out, err);
}

double valkey_layer_rate(double rate, double tightening, unsigned index)
{
    double power = 1; /* by repeated squaring, as the compiler of valkey-bloom does it */

    for (; index; index /= 2) {
        power = index & 1 ? power * tightening : power;
        tightening *= tightening;
    }
    return rate * power;
}

double valkey_next_rate(const struct bloom_params *params, double newest, unsigned index)
{
    (void)newest;
    return valkey_layer_rate(params->error_rate, params->tightening, index);
}

/* ---- hashes ---- */

/* The halves of the seed. */
static void keys_of(const struct bloom_seed *seed, struct siphash_key keys[2])
{
    _Static_assert(sizeof(*seed) == 2 * sizeof(keys[0]), "two keys");
    memcpy(keys, seed, sizeof(*seed));
}

struct bloom_hash valkey_hash(const struct bloom_seed *seed, const void *data, size_t len)
{
    struct siphash_key keys[2];

    keys_of(seed, keys);
    return (struct bloom_hash){siphash_short(&keys[0], data, len), siphash_short(&keys[1], data, len)};
}

void valkey_hashes(const struct bloom_seed *seed, const struct bloom_item *items, size_t n, uint64_t *h1, uint64_t *h2)
{
    struct siphash_key keys[2];

    keys_of(seed, keys);
    siphash_short_many(&keys[0], items, n, h1);
    siphash_short_many(&keys[1], items, n, h2);
}
