#include "bloom_many.h"

#include "bloom_layer.h"
#include "check.h"

bool bloom_many_same_hash(const struct bloom_filter *a, const struct bloom_filter *b)
{
    const struct bloom_geometry *of_a = bloom_filter_newest(a)->geometry, *of_b = bloom_filter_newest(b)->geometry;
    bool murmur3 = !bloom_geometry_is_redisbloom(of_a) && !bloom_geometry_is_redisbloom(of_b);
    return of_a->key == of_b->key && (murmur3 || of_a->variant == of_b->variant);
}

BLOOM_WALKS void fetch_walks(const struct bloom_layer *layer, const uint64_t *h1, const uint64_t *h2, size_t n,
                             unsigned count, bool redisbloom)
{
    const _Atomic uint64_t *words = bloom_layer_words(layer);
    for (size_t i = 0; i < n; i++) {
        struct bloom_walk walk = bloom_walk_start(layer->geometry, (struct bloom_hash){h1[i], h2[i]});
        for (unsigned j = 0; j < count; j++)
            __builtin_prefetch((const void *)&words[bloom_walk_step(&walk, redisbloom) >> 6], 0, 2);
    }
    __asm__ volatile(""); /* gcc removes calls of functions that only prefetch */
}

void bloom_many_fetch(const struct bloom_filter *filter, const uint64_t *h1, const uint64_t *h2, size_t n)
{
    const struct bloom_layer *layer = bloom_filter_newest(filter);
    unsigned k = layer->geometry->k, count = k < BLOOM_FIRST_BITS ? k : BLOOM_FIRST_BITS;
    if (bloom_geometry_is_redisbloom(layer->geometry))
        fetch_walks(layer, h1, h2, n, count, true);
    else
        fetch_walks(layer, h1, h2, n, count, false);
}

/* One after the other: of chains, windows and RedisBloom's layouts. */
static size_t query_each(const struct bloom_filter *filter, const uint64_t *h1, const uint64_t *h2, size_t n,
                         uint16_t *found)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        found[left] = (uint16_t)i;
        left += bloom_filter_query(filter, (struct bloom_hash){h1[i], h2[i]});
    }
    return left;
}

/* The next bit of each walk: `at` is its position, by the number of the item. Items whose bit is not set are left out
 * without a branch, which would be mispredicted for every second one. */
static size_t test_next(const _Atomic uint64_t *words, struct bloom_walk walk, uint64_t *at, const uint64_t *step,
                        size_t n, uint16_t *items)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t item = items[i];
        walk.at = at[item];
        walk.step = step[item];
        uint64_t bit = bloom_walk_next(&walk);
        at[item] = walk.at;
        items[left] = item;
        left += atomic_load_explicit(&words[bit >> 6], memory_order_relaxed) >> (bit & 63) & 1;
    }
    return left;
}

static size_t query_layer(const struct bloom_layer *layer, const uint64_t *base, const uint64_t *step, size_t n,
                          uint16_t *found)
{
    const struct bloom_geometry *geometry = layer->geometry;
    uint64_t at[BLOOM_MANY];
    for (size_t i = 0; i < n; i++) {
        at[i] = base[i];
        found[i] = (uint16_t)i;
    }
    const struct bloom_walk walk = bloom_walk_start(geometry, (struct bloom_hash){0, 0});
    for (unsigned j = 0; j < geometry->k && n > 0; j++)
        n = test_next(bloom_layer_words(layer), walk, at, step, n, found);
    return n;
}

size_t bloom_many_query(const struct bloom_filter *filter, const uint64_t *h1, const uint64_t *h2, size_t n,
                        uint16_t found_out[BLOOM_MANY])
{
    const struct bloom_layer *layer = bloom_filter_newest(filter);
    const struct bloom_geometry *geometry = layer->geometry;
    CHECK(n <= BLOOM_MANY);
    if (geometry->window || geometry->index != 0 || bloom_geometry_is_redisbloom(geometry))
        return query_each(filter, h1, h2, n, found_out);
    bool h1_first = bloom_geometry_h1_first(geometry);
    const uint64_t *base = h1_first ? h1 : h2, *step = h1_first ? h2 : h1;
    size_t left = bloom_vector_fits(geometry)
                      ? bloom_vector_many(bloom_layer_words(layer), geometry, base, step, n, found_out)
                      : query_layer(layer, base, step, n, found_out);
    bloom_found();
    return left;
}
