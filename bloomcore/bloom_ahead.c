#include "bloom_ahead.h"

#include "bloom_layer.h"

/* Smaller layers stay in the second-level cache, beside what the engine has there. */
#define AHEAD_BYTES (UINT64_C(1) << 20)

bool bloom_ahead_take(struct bloom_ahead *ahead, const struct bloom_filter *filter)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);

    if (bloom_geometry_nwords(newest->geometry) * 8 < AHEAD_BYTES)
        return false;
    ahead->newest = newest;
    ahead->words = bloom_layer_words(newest);
    ahead->geometry = *newest->geometry;
    return true;
}

bool bloom_ahead_is_new(const struct bloom_ahead *ahead, const struct bloom_filter *filter)
{
    return ahead->newest == bloom_filter_newest(filter);
}

BLOOM_WALKS void fetch(const struct bloom_ahead *ahead, struct bloom_hash hash, bool redisbloom)
{
    const uint64_t *words = ahead->words;
    struct bloom_walk walk = bloom_walk_start(&ahead->geometry, hash);

    for (unsigned i = 0, k = ahead->geometry.k; i < k; i++)
        __builtin_prefetch(&words[bloom_walk_step(&walk, redisbloom) >> 6]);
    __asm__ volatile(""); /* gcc removes calls of functions that only prefetch */
}

struct bloom_hash bloom_ahead_fetch(const struct bloom_ahead *ahead, const void *data, size_t len)
{
    struct bloom_hash hash = bloom_geometry_hash(&ahead->geometry, data, len);

    if (bloom_geometry_is_redisbloom(&ahead->geometry))
        fetch(ahead, hash, true);
    else
        fetch(ahead, hash, false);
    return hash;
}
