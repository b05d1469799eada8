#include "cuckoo_shape.h"

#include <math.h>

#include "bloom_size.h"

#define FINGERPRINTS 255   /* values of a taken slot */
#define FULL_LOAD    0.95  /* the load that the nominal rate of a layer is stated for */
#define MAX_RATE     0.999 /* a rate is below 1 */

double cuckoo_rate(unsigned bucket_size, double load)
{
    double taken = 2.0 * bucket_size * load;

    return 0 - expm1(taken * log1p(-1.0 / FINGERPRINTS)); /* a difference: an empty layer has 0, not -0 */
}

int cuckoo_layer_shape(uint64_t buckets, unsigned bucket_size, struct bloom_shape *shape_out, struct errbuf *err)
{
    uint64_t bytes;

    if (__builtin_mul_overflow(buckets, (uint64_t)bucket_size, &bytes) || bytes > BLOOM_MAX_WORDS * 8) {
        errbuf_set(err, "%llu buckets of %u slots are more than a layer can have", (unsigned long long)buckets,
                   bucket_size);
        return BLOOM_REFUSED;
    }
    uint64_t nwords = (bytes + 7) / 8;
    *shape_out = (struct bloom_shape){
        .nwords = nwords,
        .k = (uint8_t)bucket_size,
        .variant = BLOOM_CUCKOO,
        .n2 = (uint8_t)__builtin_ctzll(buckets),
        .spare_bytes = (uint8_t)(nwords * 8 - bytes),
        .capacity = bytes,
        .error_rate = fmin(cuckoo_rate(bucket_size, FULL_LOAD), MAX_RATE),
        .bpe = CUCKOO_SLOT_BITS,
    };
    return BLOOM_OK;
}

static uint64_t power_of_two(uint64_t n)
{
    return n <= 1 ? 1 : UINT64_C(1) << (64 - __builtin_clzll(n - 1));
}

int cuckoo_plan(const struct cuckoo_numbers *numbers, struct bloom_params *params_out, struct bloom_shape *shape_out,
                struct errbuf *err)
{
    uint64_t buckets = power_of_two(numbers->capacity / numbers->bucket_size);
    int rc = cuckoo_layer_shape(buckets, numbers->bucket_size, shape_out, err);

    *params_out = (struct bloom_params){
        .capacity = numbers->capacity,
        .error_rate = rc == BLOOM_OK ? shape_out->error_rate : MAX_RATE,
        .expansion = numbers->expansion ? (uint32_t)power_of_two(numbers->expansion) : 0,
        .redisbloom = BLOOM_OPTION_CUCKOO | (numbers->expansion ? 0 : REDISBLOOM_NO_SCALING),
        .iterations = (uint16_t)numbers->iterations,
    };
    return rc;
}
