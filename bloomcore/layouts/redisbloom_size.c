/* The constants and the order of operations are RedisBloom's, because hash counts and sizes are rounded from their
 * results. So a layer that grows here has the numbers that it would have there. */
#include "redisbloom_size.h"

#include <math.h>

#include "bloom_size.h"

#define LN2         0.693147180559945
#define LN2_SQUARED 0.480453013918201

#define MAX_BITS (BLOOM_MAX_WORDS * 64)

/* RedisBloom's number of hashes for this many bits per entry (positive and finite). May be above any limit. */
static double hashes_for(double bpe)
{
    return ceil(LN2 * bpe);
}

bool redisbloom_shape_valid(const struct bloom_shape *shape, struct errbuf *err)
{
    uint64_t bits = shape->nwords * 64 - shape->spare_bytes * 8u;

    if (shape->spare_bytes > 7)
        errbuf_set(err, "%u unused bytes in a word", shape->spare_bytes);
    else if (shape->n2 > 63 || (shape->n2 && UINT64_C(1) << shape->n2 > bits))
        errbuf_set(err, "n2 is %u, but there are %llu bits", shape->n2, (unsigned long long)bits);
    else if (shape->capacity < 1 || shape->capacity > REDISBLOOM_MAX_ENTRIES)
        errbuf_set(err, "capacity %llu: must be in the range [1, %llu]", (unsigned long long)shape->capacity,
                   (unsigned long long)REDISBLOOM_MAX_ENTRIES);
    else if (!(shape->error_rate > 0 && shape->error_rate < 1))
        errbuf_set(err, "error rate %g: must be in the range (0, 1)", shape->error_rate);
    else if (!(shape->bpe > 0 && isfinite(shape->bpe)) || hashes_for(shape->bpe) != shape->k)
        errbuf_set(err, "%u hashes do not belong to %g bits per entry", shape->k, shape->bpe);
    else
        return true;
    return false;
}

static int too_large(uint64_t entries, double error, struct errbuf *err)
{
    return errbuf_fail(err, BLOOM_REFUSED,
                       "capacity %llu at error rate %g takes more than the %llu bits that a layer may have",
                       (unsigned long long)entries, error, (unsigned long long)MAX_BITS);
}

/* Completes a shape whose bpe and k are set. */
static int size_bits(unsigned options, uint64_t entries, struct bloom_shape *shape, struct errbuf *err)
{
    double wanted = (double)entries * shape->bpe;
    uint64_t bits;

    if (options & REDISBLOOM_ENTS_IS_BITS) {
        if (entries < 1 || entries > 63 || UINT64_C(1) << entries > MAX_BITS)
            return too_large(entries, shape->error_rate, err);
        shape->n2 = (uint8_t)entries;
        bits = UINT64_C(1) << entries;
        entries = (uint64_t)((double)bits / shape->bpe);
    } else if (!(wanted < (double)MAX_BITS)) {
        return too_large(entries, shape->error_rate, err);
    } else if (options & REDISBLOOM_NOROUND) {
        bits = (uint64_t)wanted;
        bits += bits == 0;
    } else {
        double exponent = logb(wanted) + 1;
        shape->n2 = exponent < 1 ? 0 : (uint8_t)exponent;
        bits = UINT64_C(1) << shape->n2;
        if (bits > MAX_BITS)
            return too_large(entries, shape->error_rate, err);
        entries += (uint64_t)((double)(uint64_t)((double)bits - wanted) / shape->bpe);
    }
    shape->nwords = (bits - 1) / 64 + 1;
    shape->capacity = entries;
    return BLOOM_OK;
}

int redisbloom_size(unsigned options, uint64_t entries, double error, struct bloom_shape *shape_out, struct errbuf *err)
{
    struct bloom_shape shape = {
        .variant = options & REDISBLOOM_FORCE64 ? BLOOM_REDISBLOOM : BLOOM_REDISBLOOM32,
        .error_rate = error,
    };

    if (!(error > 0 && error < 1) || entries < 1)
        return errbuf_fail(err, BLOOM_REFUSED,
                           entries < 1 ? "capacity must be at least 1" : "error rate must be in the range (0, 1)");
    shape.bpe = -(log(error) / LN2_SQUARED);
    if (hashes_for(shape.bpe) > BLOOM_MAX_HASHES)
        return errbuf_fail(err, BLOOM_REFUSED, "error rate %g takes more than %d hashes", error, BLOOM_MAX_HASHES);
    shape.k = (uint8_t)hashes_for(shape.bpe);
    int rc = size_bits(options, entries, &shape, err);
    if (rc == BLOOM_OK && !bloom_shape_valid(&shape, err))
        rc = BLOOM_REFUSED;
    if (rc == BLOOM_OK)
        *shape_out = shape;
    return rc;
}

double redisbloom_next_rate(const struct bloom_params *params, double newest, unsigned index)
{
    (void)params, (void)index;
    return newest * 0.5;
}
