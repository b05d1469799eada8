/* redisbloom_size: the layers that RedisBloom makes for a capacity and a rate. docs/FORMAT.md has the facts. Pure
 * functions. Thread: any. */
#pragma once

#include <stdint.h>

#include "bloom_params.h"

/* Of a new filter that scales; one of a fixed size has REDISBLOOM_NO_SCALING, too. */
#define REDISBLOOM_DEFAULT (REDISBLOOM_NOROUND | REDISBLOOM_FORCE64)

#define REDISBLOOM_DEFAULT_GROWTH 2

/* RedisBloom makes no new filter with a higher rate: it takes this one instead. */
#define REDISBLOOM_MAX_RATE 0.25

/* The layer that RedisBloom makes for `entries` items at rate `error`. BLOOM_OK, or BLOOM_REFUSED with the reason. */
int redisbloom_size(unsigned options, uint64_t entries, double error, struct bloom_shape *shape_out,
                    struct errbuf *err);

/* Of the layout's row (bloom_layout.h): half of the rate of the layer before. */
double redisbloom_next_rate(const struct bloom_params *params, double newest, unsigned index);
bool redisbloom_shape_valid(const struct bloom_shape *shape, struct errbuf *err);
