#include "cuckoo_shape.h"

#include <math.h>
#include <stdbool.h>

#define FULL_LOAD 0.95  /* the load for which the nominal rate of a layer is stated */
#define MAX_RATE  0.999 /* a rate is below 1 */

#define ROOM        4  /* sub-filters that the rate of a growing filter should allow, if 16 bits suffice */
#define SMALL_SLOTS 16 /* more than the load requires: small filters are full earlier, by chance */

double cuckoo_rate(unsigned bits, unsigned bucket_size, double load)
{
    double fingerprints = (double)((1u << bits) - 1), taken = 2.0 * bucket_size * load;

    return 0 - expm1(taken * log1p(-1.0 / fingerprints)); /* a difference: an empty layer has 0, not -0 */
}

/* ---- layers ---- */

int cuckoo_layer_shape(uint64_t buckets, unsigned bucket_size, struct bloom_shape *shape_out, struct errbuf *err)
{
    uint64_t bytes;

    if (__builtin_mul_overflow(buckets, (uint64_t)bucket_size, &bytes) || bytes > BLOOM_MAX_WORDS * 8)
        return errbuf_fail(err, BLOOM_REFUSED, "%llu buckets of %u slots are more than a layer can have",
                           (unsigned long long)buckets, bucket_size);
    uint64_t nwords = (bytes + 7) / 8;
    *shape_out = (struct bloom_shape){
        .nwords = nwords,
        .k = (uint8_t)bucket_size,
        .variant = BLOOM_CUCKOO,
        .n2 = (uint8_t)__builtin_ctzll(buckets),
        .spare_bytes = (uint8_t)(nwords * 8 - bytes),
        .capacity = bytes,
        .error_rate = fmin(cuckoo_rate(CUCKOO_SLOT_BITS, bucket_size, FULL_LOAD), MAX_RATE),
        .bpe = CUCKOO_SLOT_BITS,
    };
    return BLOOM_OK;
}

int cuckoo_rate_shape(uint64_t buckets, unsigned bits, struct bloom_shape *shape_out, struct errbuf *err)
{
    uint64_t bytes;

    if (__builtin_mul_overflow(buckets, (uint64_t)bits * CUCKOO_RATE_BUCKET / 8, &bytes) || bytes > BLOOM_MAX_WORDS * 8)
        return errbuf_fail(err, BLOOM_REFUSED, "%llu buckets of %u slots of %u bits are more than a layer can have",
                           (unsigned long long)buckets, CUCKOO_RATE_BUCKET, bits);
    uint64_t nwords = (bytes + 7) / 8;
    *shape_out = (struct bloom_shape){
        .nwords = nwords,
        .k = CUCKOO_RATE_BUCKET,
        .variant = BLOOM_CUCKOO_RATE,
        .spare_bytes = (uint8_t)(nwords * 8 - bytes),
        .capacity = buckets * CUCKOO_RATE_BUCKET,
        .error_rate = cuckoo_rate(bits, CUCKOO_RATE_BUCKET, FULL_LOAD),
        .bpe = bits,
    };
    return BLOOM_OK;
}

bool cuckoo_shape_valid(const struct bloom_shape *shape, struct errbuf *err)
{
    uint64_t bytes = bloom_shape_bytes(shape);

    if (shape->spare_bytes > 7 || shape->n2 > 40 || (uint64_t)shape->k << shape->n2 != bytes ||
        shape->capacity != bytes)
        errbuf_set(err, "2^%u buckets of %u slots do not have %llu bytes", shape->n2, shape->k,
                   (unsigned long long)bytes);
    else if (shape->bpe != CUCKOO_SLOT_BITS || !(shape->error_rate > 0 && shape->error_rate < 1))
        errbuf_set(err, "slots of %g bits with an error rate of %g", shape->bpe, shape->error_rate);
    else
        return true;
    return false;
}

bool cuckoo_rate_shape_valid(const struct bloom_shape *shape, struct errbuf *err)
{
    uint64_t bytes = bloom_shape_bytes(shape);

    if (!cuckoo_bits_possible(shape->bpe) || shape->k != CUCKOO_RATE_BUCKET)
        errbuf_set(err, "buckets of %u slots of %g bits", shape->k, shape->bpe);
    else if (shape->n2 || shape->spare_bytes > 7 || shape->capacity > CUCKOO_MAX_SLOTS ||
             shape->capacity < CUCKOO_RATE_MIN_SLOTS || shape->capacity % CUCKOO_RATE_BUCKET != 0 ||
             shape->capacity * (uint64_t)shape->bpe != bytes * 8)
        errbuf_set(err, "%llu slots of %g bits do not have %llu bytes", (unsigned long long)shape->capacity, shape->bpe,
                   (unsigned long long)bytes);
    else if (!(shape->error_rate > 0 && shape->error_rate < 1))
        errbuf_set(err, "slots of %g bits with an error rate of %g", shape->bpe, shape->error_rate);
    else
        return true;
    return false;
}

double cuckoo_next_rate(const struct bloom_params *params, double newest, unsigned index)
{
    (void)params, (void)index;
    return newest;
}

int cuckoo_next_shape(const struct bloom_shape *shape, unsigned expansion, struct bloom_shape *next_out,
                      struct errbuf *err)
{
    uint64_t buckets;

    if (__builtin_mul_overflow(cuckoo_shape_buckets(shape), (uint64_t)expansion, &buckets))
        buckets = UINT64_MAX; /* too many for either */
    return shape->variant == BLOOM_CUCKOO_RATE ? cuckoo_rate_shape(buckets, (unsigned)shape->bpe, next_out, err)
                                               : cuckoo_layer_shape(buckets, shape->k, next_out, err);
}

double cuckoo_lowest_rate(void)
{
    return cuckoo_rate(16, CUCKOO_RATE_BUCKET, FULL_LOAD);
}

unsigned cuckoo_most_layers(const struct bloom_params *params, const struct bloom_shape *shape)
{
    if (params->expansion == 0)
        return 1;
    if (!bloom_params_keep_rate(params))
        return BLOOM_MAX_LAYERS;
    double layers = floor(params->error_rate / shape->error_rate);
    return layers < BLOOM_MAX_LAYERS ? (unsigned)fmax(layers, 1) : BLOOM_MAX_LAYERS;
}

/* ---- filters ---- */

static uint64_t power_of_two(uint64_t n)
{
    return n <= 1 ? 1 : UINT64_C(1) << (64 - __builtin_clzll(n - 1));
}

/* The bits of a slot for this rate; 0: none has enough. */
static unsigned bits_for(double error_rate, bool grows)
{
    static const unsigned possible[] = {8, 12, 16};
    unsigned bits = 0;

    for (unsigned i = 0; i < sizeof(possible) / sizeof(possible[0]); i++) {
        double layers = floor(error_rate / cuckoo_rate(possible[i], CUCKOO_RATE_BUCKET, FULL_LOAD));
        if (layers >= 1)
            bits = possible[i];
        if (layers >= (grows ? ROOM : 1))
            break;
    }
    return bits;
}

static int plan_first(const struct cuckoo_numbers *numbers, struct bloom_shape *shape_out, struct errbuf *err)
{
    if (numbers->error_rate == 0)
        return cuckoo_layer_shape(power_of_two(numbers->capacity / numbers->bucket_size), numbers->bucket_size,
                                  shape_out, err);
    unsigned bits = bits_for(numbers->error_rate, numbers->expansion > 0);
    if (bits == 0)
        return errbuf_fail(
            err, BLOOM_REFUSED,
            "ERROR %g: the lowest rate of fingerprints is %.3g, with 16 bits; Bloom filters have lower rates",
            numbers->error_rate, cuckoo_lowest_rate());
    uint64_t slots = numbers->capacity + (numbers->capacity + 18) / 19 + SMALL_SLOTS;
    return cuckoo_rate_shape((slots + CUCKOO_RATE_BUCKET - 1) / CUCKOO_RATE_BUCKET, bits, shape_out, err);
}

int cuckoo_plan(const struct cuckoo_numbers *numbers, struct bloom_params *params_out, struct bloom_shape *shape_out,
                struct errbuf *err)
{
    int rc = plan_first(numbers, shape_out, err);
    double rate = numbers->error_rate > 0 ? numbers->error_rate : rc == BLOOM_OK ? shape_out->error_rate : MAX_RATE;

    *params_out = (struct bloom_params){
        .capacity = numbers->capacity,
        .error_rate = rate,
        .expansion = numbers->expansion ? (uint32_t)power_of_two(numbers->expansion) : 0,
        .redisbloom = (uint8_t)(BLOOM_OPTION_CUCKOO | (numbers->expansion ? 0 : REDISBLOOM_NO_SCALING) |
                                (numbers->error_rate > 0 ? BLOOM_OPTION_RATE : 0)),
        .key = numbers->error_rate > 0 ? numbers->key : 0,
        .iterations = (uint16_t)numbers->iterations,
    };
    return rc;
}
