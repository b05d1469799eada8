#include "bloom_scaling.h"

#include "bloom_layout.h"
#include "bloom_size.h"
#include "check.h"

int bloom_layer_shape(enum bloom_variant variant, unsigned options, uint64_t capacity, double rate,
                      struct bloom_shape *shape_out, struct errbuf *err)
{
    int rc = bloom_layout_of(variant)->size(options, capacity, rate, shape_out, err);

    if (rc == BLOOM_OK)
        shape_out->variant = (uint8_t)variant;
    return rc;
}

uint64_t bloom_first_capacity(const struct bloom_params *params, double *rate_out)
{
    uint64_t capacity = params->capacity;

    if (bloom_params_is_window(params))
        CHECK(bloom_window_level(params, 0, &capacity, rate_out, NULL) == BLOOM_OK);
    else if (params->expansion == 0)
        *rate_out = params->error_rate;
    else
        *rate_out = bloom_layout_of(bloom_params_variant(params))->next_rate(params, params->error_rate, 0);
    return capacity;
}

int bloom_first_shape(const struct bloom_params *params, struct bloom_shape *shape_out, struct errbuf *err)
{
    double rate;
    uint64_t capacity = bloom_first_capacity(params, &rate);
    int rc = bloom_layer_shape(bloom_params_variant(params), params->redisbloom, capacity, rate, shape_out, err);

    if (rc != BLOOM_OK && bloom_params_is_window(params))
        errbuf_prefix(err, "each part of the window is for %llu items at an error rate of %g",
                      (unsigned long long)capacity, rate);
    else if (rc != BLOOM_OK && rate < params->error_rate)
        errbuf_prefix(err, "the first layer of a scaling filter gets half the error rate, %g", rate);
    return rc;
}

uint64_t bloom_first_most(const struct bloom_params *params)
{
    struct bloom_params some = *params;
    struct bloom_shape shape;
    uint64_t low = 0, high = UINT64_C(1) << 45; /* 64 parts of a window have fewer items */

    while (high - low > 1) {
        some.capacity = low + (high - low) / 2;
        if (bloom_first_shape(&some, &shape, NULL) == BLOOM_OK)
            low = some.capacity;
        else
            high = some.capacity;
    }
    return low;
}

int bloom_next_capacity(const struct bloom_params *params, const struct bloom_geometry *newest, unsigned level,
                        uint64_t *capacity_out, double *rate_out, struct errbuf *err)
{
    if (newest->index + 1 >= BLOOM_MAX_LAYERS)
        return errbuf_fail(err, BLOOM_REFUSED, "a filter has at most %d layers", BLOOM_MAX_LAYERS);
    if (bloom_params_is_window(params))
        return bloom_window_level(params, level, capacity_out, rate_out, err);
    if (params->expansion == 0)
        return errbuf_fail(err, BLOOM_REFUSED, "a filter of fixed size has one layer");
    if (__builtin_mul_overflow(newest->capacity, (uint64_t)params->expansion, capacity_out))
        return errbuf_fail(err, BLOOM_REFUSED, "capacity %llu times expansion %u is more than 64 bits hold",
                           (unsigned long long)newest->capacity, params->expansion);
    *rate_out = bloom_layout_of(newest->variant)->next_rate(params, newest->error_rate, newest->index + 1u);
    return BLOOM_OK;
}

/* ---- windows ---- */

static int64_t part_us(const struct bloom_params *params)
{
    return (int64_t)(params->window / params->window_parts);
}

static int64_t margin_us(const struct bloom_params *params)
{
    return part_us(params) / (2 * params->window_parts + 2);
}

int64_t bloom_window_ends(const struct bloom_params *params, int64_t started_us)
{
    return bloom_window_by_items(params) ? INT64_MAX : started_us + part_us(params) - margin_us(params);
}

int64_t bloom_window_expires(const struct bloom_params *params, int64_t started_us)
{
    return bloom_window_by_items(params)
               ? INT64_MAX
               : started_us + (int64_t)params->window + part_us(params) - margin_us(params) / 2;
}

int bloom_window_level(const struct bloom_params *params, unsigned level, uint64_t *capacity_out, double *rate_out,
                       struct errbuf *err)
{
    double rate = params->error_rate / (params->window_parts + BLOOM_WINDOW_SPARES);
    uint64_t capacity = (params->capacity + params->window_parts - 1) / params->window_parts;

    if (level > 0 && params->expansion == 0)
        return errbuf_fail(err, BLOOM_REFUSED, "a part of a window of fixed size has one layer");
    if (level >= BLOOM_MAX_LAYERS)
        return errbuf_fail(err, BLOOM_REFUSED, "a part has fewer than %d layers", BLOOM_MAX_LAYERS);
    for (unsigned i = 0; i < level; i++) {
        if (__builtin_mul_overflow(capacity, (uint64_t)params->expansion, &capacity))
            return errbuf_fail(err, BLOOM_REFUSED, "layer %u of a part would have a capacity of more than 64 bits",
                               level);
        if (params->expansion == 1)
            break;
    }
    *capacity_out = capacity;
    *rate_out = params->expansion == 0 ? rate : bloom_size_share(rate, level);
    return BLOOM_OK;
}
