/* bloom_scaling: the capacity, the rate and the shape of each layer of a filter, from its parameters: P. Almeida et
 * al., "Scalable Bloom Filters" (2007), with the series of rates of bloom_size_share(); in RedisBloom's layout its own;
 * in a window those of its parts. Internal to bloomcore. Pure functions. Thread: any. */
#pragma once

#include <stdint.h>

#include "bloom_geometry.h"
#include "bloom_params.h"

/* The shape of a layer for this many items at this rate, in the layout `variant`; `options` are those of RedisBloom's
 * layouts. BLOOM_OK or BLOOM_REFUSED. */
int bloom_layer_shape(enum bloom_variant variant, unsigned options, uint64_t capacity, double rate,
                      struct bloom_shape *shape_out, struct errbuf *err);

/* The capacity and the rate of the first layer. */
uint64_t bloom_first_capacity(const struct bloom_params *params, double *rate_out);

/* The shape of the first layer of a new filter. BLOOM_OK or BLOOM_REFUSED. */
int bloom_first_shape(const struct bloom_params *params, struct bloom_shape *shape_out, struct errbuf *err);

/* The largest capacity of a new filter with these parameters; 0: the rate is impossible. */
uint64_t bloom_first_most(const struct bloom_params *params);

/* The capacity and the rate of the layer above `newest`, in a window of that level. BLOOM_OK or BLOOM_REFUSED. */
int bloom_next_capacity(const struct bloom_params *params, const struct bloom_geometry *newest, unsigned level,
                        uint64_t *capacity_out, double *rate_out, struct errbuf *err);

/* ---- windows: their clock, and the properties of their parts that follow from the parameters ---- */

/* Parts beside those of the window that have their own share of the rate. */
#define BLOOM_WINDOW_SPARES 2

static inline bool bloom_window_by_items(const struct bloom_params *params)
{
    return params->window_flags & BLOOM_WINDOW_ITEMS;
}

/* Items that a part of a window by items takes. n such parts hold the window's. */
static inline uint64_t bloom_window_part_items(const struct bloom_params *params)
{
    return (params->window + params->window_parts - 1) / params->window_parts;
}

/* Times of a part that began at `started_us`: when it takes no more items, and when it expires; INT64_MAX by items. */
int64_t bloom_window_ends(const struct bloom_params *params, int64_t started_us);
int64_t bloom_window_expires(const struct bloom_params *params, int64_t started_us);

/* The capacity and the rate of layer `level` of a part. BLOOM_OK or BLOOM_REFUSED. */
int bloom_window_level(const struct bloom_params *params, unsigned level, uint64_t *capacity_out, double *rate_out,
                       struct errbuf *err);
