/* bloom_scaling: the capacity, the rate and the shape of each layer of a filter, from its parameters: P. Almeida et
 * al., "Scalable Bloom Filters" (2007), with the series of rates of bloom_size_share(); in RedisBloom's layout its own;
 * in a window those of its parts. Internal to bloomcore. Pure functions. Thread: any. */
#ifndef BLOOMERY_BLOOM_SCALING_H
#define BLOOMERY_BLOOM_SCALING_H

#include <stdint.h>

#include "bloom_geometry.h"

/* The shape of a layer for this many items at this rate, in the layout `variant`; `options` are those of RedisBloom's
 * layouts. BLOOM_OK or BLOOM_REFUSED. */
int bloom_layer_shape(enum bloom_variant variant, unsigned options, uint64_t capacity, double rate,
                      struct bloom_shape *shape_out, struct errbuf *err);

/* The capacity and the rate of the first layer. */
uint64_t bloom_first_capacity(const struct bloom_params *params, double *rate_out);

/* The shape of the first layer of a new filter. BLOOM_OK or BLOOM_REFUSED. */
int bloom_first_shape(const struct bloom_params *params, struct bloom_shape *shape_out, struct errbuf *err);

/* The capacity and the rate of the layer above `newest`, in a window of that level. BLOOM_OK or BLOOM_REFUSED. */
int bloom_next_capacity(const struct bloom_params *params, const struct bloom_geometry *newest, unsigned level,
                        uint64_t *capacity_out, double *rate_out, struct errbuf *err);

#endif
