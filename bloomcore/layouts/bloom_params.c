/* Which numbers can describe a filter. */
#include "bloom_params.h"

#include <math.h>
#include <string.h>

#include "bloom_size.h"
#include "check.h"
#include "cuckoo_shape.h"

#define LN2 0.693147180559945 /* RedisBloom's */

/* ---- layouts ---- */

static const char *const variant_names[BLOOM_VARIANTS] = {
    [BLOOM_NA] = "na",
    [BLOOM_ME] = "me",
    [BLOOM_KA] = "ka",
    [BLOOM_REDISBLOOM] = "redisbloom",
    [BLOOM_REDISBLOOM32] = "redisbloom32",
    [BLOOM_CUCKOO] = "cuckoo",
    [BLOOM_CUCKOO_RATE] = "cuckoo-rate",
};

const char *bloom_variant_name(unsigned variant)
{
    CHECK(variant < BLOOM_VARIANTS);
    return variant_names[variant];
}

bool bloom_variant_parse(const char *text, size_t len, enum bloom_variant *variant_out)
{
    for (unsigned i = 0; i < BLOOM_VARIANTS; i++) {
        if (strlen(variant_names[i]) == len && memcmp(text, variant_names[i], len) == 0) {
            *variant_out = (enum bloom_variant)i;
            return true;
        }
    }
    return false;
}

/* ---- RedisBloom's layout ---- */

double bloom_redisbloom_hashes(double bpe)
{
    return ceil(LN2 * bpe);
}

static bool redisbloom_shape_valid(const struct bloom_shape *shape, struct errbuf *err)
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
    else if (!(shape->bpe > 0 && isfinite(shape->bpe)) || bloom_redisbloom_hashes(shape->bpe) != shape->k)
        errbuf_set(err, "%u hashes do not belong to %g bits per entry", shape->k, shape->bpe);
    else
        return true;
    return false;
}

static bool cuckoo_shape_valid(const struct bloom_shape *shape, struct errbuf *err)
{
    uint64_t bytes = shape->nwords * 8 - shape->spare_bytes;

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

static bool cuckoo_rate_shape_valid(const struct bloom_shape *shape, struct errbuf *err)
{
    uint64_t bytes = shape->nwords * 8 - shape->spare_bytes;

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

static bool cuckoo_params_valid(const struct bloom_params *params, struct errbuf *err)
{
    bool power = (params->expansion & (params->expansion - 1)) == 0;

    if (params->iterations < 1 || params->window ||
        (params->redisbloom & ~(BLOOM_OPTION_CUCKOO | BLOOM_OPTION_RATE | REDISBLOOM_NO_SCALING)))
        errbuf_set(err, "invalid options %u and %u iterations of a cuckoo filter", params->redisbloom,
                   params->iterations);
    else if (!power || !(params->redisbloom & REDISBLOOM_NO_SCALING) != (params->expansion != 0))
        errbuf_set(err, "expansion %u of a cuckoo filter is not a power of two, or contradicts its options %u",
                   params->expansion, params->redisbloom);
    else
        return true;
    return false;
}

static bool redisbloom_options_valid(const struct bloom_params *params, struct errbuf *err)
{
    unsigned options = params->redisbloom;

    if (options & ~REDISBLOOM_OPTIONS)
        errbuf_set(err, "unknown options %u", options);
    else if (options && !(options & REDISBLOOM_NO_SCALING) != (params->expansion != 0))
        errbuf_set(err, "options %u and expansion %u contradict each other", options, params->expansion);
    else
        return true;
    return false;
}

/* ---- shapes ---- */

bool bloom_shape_valid(const struct bloom_shape *shape, struct errbuf *err)
{
    unsigned max_k = bloom_variant_is_redisbloom(shape->variant) ? BLOOM_MAX_HASHES : BLOOM_MAX_K;

    if (shape->nwords < 1 || shape->nwords > BLOOM_MAX_WORDS) {
        errbuf_set(err, "%llu words: must be in the range [1, %llu]", (unsigned long long)shape->nwords,
                   (unsigned long long)BLOOM_MAX_WORDS);
        return false;
    }
    if (shape->variant >= BLOOM_VARIANTS) {
        errbuf_set(err, "unknown layout variant %u", shape->variant);
        return false;
    }
    if (shape->k < 1 || shape->k > max_k) {
        errbuf_set(err, "hash count %u: must be in the range [1, %u]", shape->k, max_k);
        return false;
    }
    if (shape->level >= BLOOM_MAX_LAYERS || (shape->level && bloom_variant_is_redisbloom(shape->variant))) {
        errbuf_set(err, "invalid level %u of a part", shape->level);
        return false;
    }
    if (shape->variant == BLOOM_CUCKOO)
        return cuckoo_shape_valid(shape, err);
    if (shape->variant == BLOOM_CUCKOO_RATE)
        return cuckoo_rate_shape_valid(shape, err);
    if (bloom_variant_is_redisbloom(shape->variant))
        return redisbloom_shape_valid(shape, err);
    if (shape->n2 || shape->spare_bytes || shape->capacity || shape->error_rate != 0 || shape->bpe != 0) {
        errbuf_set(err, "a layer in Cassandra's layout with numbers of RedisBloom's");
        return false;
    }
    return true;
}

bool bloom_shape_equal(const struct bloom_shape *a, const struct bloom_shape *b)
{
    return a->nwords == b->nwords && a->k == b->k && a->variant == b->variant && a->n2 == b->n2 &&
           a->spare_bytes == b->spare_bytes && a->capacity == b->capacity && a->error_rate == b->error_rate &&
           a->bpe == b->bpe && a->level == b->level;
}

static bool window_valid(const struct bloom_params *params, struct errbuf *err)
{
    bool by_items = params->window_flags & BLOOM_WINDOW_ITEMS;

    if (params->window == 0) {
        if (params->window_parts == 0 && params->window_flags == 0)
            return true;
        errbuf_set(err, "parts of a window without a window");
        return false;
    }
    if (params->redisbloom) {
        errbuf_set(err, "a window has Cassandra's layout: it excludes LAYOUT redisbloom");
        return false;
    }
    if (params->window_parts < 1 || params->window_parts > BLOOM_WINDOW_MAX_PARTS ||
        params->window_flags & ~(BLOOM_WINDOW_ITEMS | BLOOM_WINDOW_REFRESH)) {
        errbuf_set(err, "the parts of a window must be in the range [1, %d]", BLOOM_WINDOW_MAX_PARTS);
        return false;
    }
    if (by_items ? params->window < params->window_parts || params->window > BLOOM_WINDOW_MAX_ITEMS
                 : params->window < BLOOM_WINDOW_MIN_US || params->window > BLOOM_WINDOW_MAX_US) {
        if (by_items)
            errbuf_set(err, "the items of a window must be in the range [%u, %llu]: at least one per part",
                       params->window_parts, (unsigned long long)BLOOM_WINDOW_MAX_ITEMS);
        else
            errbuf_set(err, "the seconds of a window must be in the range [1, %lld]",
                       (long long)(BLOOM_WINDOW_MAX_US / 1000000));
        return false;
    }
    return true;
}

bool bloom_params_valid(const struct bloom_params *params, struct errbuf *err)
{
    if (params->capacity < 1) {
        errbuf_set(err, "capacity must be at least 1");
        return false;
    }
    if (!(params->error_rate > 0 && params->error_rate < 1)) {
        errbuf_set(err, "error rate must be in the range (0, 1)");
        return false;
    }
    if (params->expansion > BLOOM_MAX_EXPANSION) {
        errbuf_set(err, "expansion must be in the range [0, %d]", BLOOM_MAX_EXPANSION);
        return false;
    }
    if (bloom_params_is_cuckoo(params))
        return cuckoo_params_valid(params, err);
    if (params->iterations) {
        errbuf_set(err, "iterations of a filter that is not a cuckoo filter");
        return false;
    }
    return window_valid(params, err) && redisbloom_options_valid(params, err);
}

bool bloom_shape_fits(const struct bloom_params *params, const struct bloom_shape *shape, struct errbuf *err)
{
    unsigned options = params->redisbloom;
    bool wide = options & REDISBLOOM_FORCE64, cuckoo = bloom_params_is_cuckoo(params);

    if (cuckoo || bloom_variant_is_cuckoo(shape->variant)) {
        unsigned variant = bloom_params_keep_rate(params) ? BLOOM_CUCKOO_RATE : BLOOM_CUCKOO;
        if (cuckoo && shape->variant == variant)
            return true;
    } else if (bloom_variant_is_redisbloom(shape->variant) ? wide == (shape->variant == BLOOM_REDISBLOOM)
                                                           : options == 0) {
        return true;
    }
    errbuf_set(err, "the layout %s of a layer contradicts the options %u", bloom_variant_name(shape->variant), options);
    return false;
}
