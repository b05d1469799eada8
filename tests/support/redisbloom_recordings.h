/* redisbloom_recordings: the filters of RedisBloom in tests/golden/redisbloom, each a folder. */
#pragma once

#include "golden.h"

#define REDISBLOOM_GOLDEN BLOOMERY_GOLDEN_DIR "/redisbloom"

static const char *const REDISBLOOM_FILTERS[] = {
    "default_by_add",
    "empty",
    "expansion1_9_layers",
    "expansion4",
    "full_nonscaling",
    "n1000_p0.001_nonscaling",
    "n1000_p0.01",
    "n20000_p0.0001",
    "one_item",
    "p0.5",
    "p1e-9_k30",
    "scaled_6_layers",
    "v2.8.20/full_nonscaling",
    "v2.8.20/n1000_p0.01",
    "v2.8.20/scaled_6_layers",
};
#define REDISBLOOM_NFILTERS (sizeof(REDISBLOOM_FILTERS) / sizeof(*REDISBLOOM_FILTERS))

/* The bytes of its DUMP; to be freed. */
static inline unsigned char *redisbloom_dump_file(const char *filter, size_t *len_out)
{
    return golden_file(len_out, "%s/%s/dump.bin", REDISBLOOM_GOLDEN, filter);
}
