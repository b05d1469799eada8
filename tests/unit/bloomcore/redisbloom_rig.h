/* Filters in RedisBloom's layout for tests: making, adding, comparing. */
#pragma once

#include <criterion/criterion.h>

#include "pool_rig.h"
#include "redisbloom.h"

static inline struct bloom_filter *filter_from(const struct redisbloom_filter *from)
{
    struct bloom_params params;
    static struct bloom_shape shapes[BLOOM_MAX_LAYERS];
    struct errbuf err = {""};
    uint64_t bytes;

    cr_assert_eq(redisbloom_check(from, &params, shapes, &bytes, &err), BLOOM_OK, "%s", err.text);
    struct bloom_filter *filter = filter_make(pool, &params, &shapes[0]);
    for (unsigned i = 1; i < from->nlayers; i++)
        cr_assert_eq(bloom_filter_append_layer(filter, &shapes[i], &err), 0, "%s", err.text);
    for (unsigned i = 0; i < from->nlayers; i++)
        bloom_filter_set_items(filter, i, from->layers[i].count);
    return filter;
}

static inline struct bloom_filter *filter_new(double rate, uint64_t capacity, uint32_t expansion)
{
    unsigned options = REDISBLOOM_DEFAULT | (expansion ? 0 : REDISBLOOM_NO_SCALING);
    const struct bloom_params params = {capacity, rate, expansion, (uint8_t)options};

    return filter_make(pool, &params, NULL);
}

static inline enum bloom_add add(struct bloom_filter *filter, const void *item, size_t len)
{
    return bloom_filter_add(filter, bloom_filter_hash(filter, item, len), NULL);
}

static inline bool query(const struct bloom_filter *filter, const void *item, size_t len)
{
    return bloom_filter_query(filter, bloom_filter_hash(filter, item, len));
}

static inline void expect_same(const char *dir, const struct bloom_filter *made, const struct bloom_filter *recorded)
{
    unsigned nlayers = bloom_filter_nlayers(recorded);

    cr_assert_eq(bloom_filter_nlayers(made), nlayers, "%s", dir);
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view a, b;

        bloom_filter_layer(made, i, &a);
        bloom_filter_layer(recorded, i, &b);
        cr_assert(bloom_shape_equal(&a.shape, &b.shape), "%s: layer %u", dir, i);
        cr_assert_eq(a.items, b.items, "%s: layer %u", dir, i);
        cr_assert_arr_eq((void *)a.words, (void *)b.words, a.shape.nwords * 8, "%s: layer %u", dir, i);
    }
}
