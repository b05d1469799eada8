/* filters: makes filters for tests; any failure fails the test. */
#pragma once

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_filter.h"
#include "rng.h"

/* With these parameters; `shape` NULL: as planned. Freed by filter_free(). */
static inline struct bloom_filter *filter_make(struct bloom_pool *pool, const struct bloom_params *params,
                                               const struct bloom_shape *shape)
{
    struct bloom_class *class;
    struct errbuf err = {""};

    cr_assert_eq(bloom_class_get(pool, params, shape, &class, &err), 0, "%s", err.text);
    struct bloom_filter *filter = malloc(bloom_filter_bytes(class));
    cr_assert_not_null(filter);
    memset((void *)filter, 0xee, bloom_filter_bytes(class)); /* the storage need not be zeroed */
    cr_assert_eq(bloom_filter_init(filter, class, &err), 0, "%s", err.text);
    bloom_class_release(class);
    return filter;
}

static inline void filter_free(struct bloom_filter *filter)
{
    bloom_filter_deinit(filter);
    free(filter);
}

static inline struct bloom_hash hash_of_rng(struct rng *rng)
{
    uint64_t h1 = rng_next(rng);
    return (struct bloom_hash){h1, rng_next(rng)};
}
