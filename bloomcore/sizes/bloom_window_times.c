#include "bloom_window_times.h"

#include "bloom_size.h"

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

    if (level > 0 && params->expansion == 0) {
        errbuf_set(err, "a part of a window of fixed size has one layer");
        return BLOOM_REFUSED;
    }
    if (level >= BLOOM_MAX_LAYERS) {
        errbuf_set(err, "a part has fewer than %d layers", BLOOM_MAX_LAYERS);
        return BLOOM_REFUSED;
    }
    for (unsigned i = 0; i < level; i++) {
        if (__builtin_mul_overflow(capacity, (uint64_t)params->expansion, &capacity)) {
            errbuf_set(err, "layer %u of a part would have a capacity of more than 64 bits", level);
            return BLOOM_REFUSED;
        }
        if (params->expansion == 1)
            break;
    }
    *capacity_out = capacity;
    *rate_out = params->expansion == 0 ? rate : bloom_size_share(rate, level);
    return BLOOM_OK;
}
