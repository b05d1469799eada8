/* bloom_find() against bloom_filter_query(), one filter after the other. */
#include "bloom_find.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "filters.h"
#include "redisbloom.h"
#include "rng.h"

#define FILTERS 300

static struct bloom_pool *pool;
static struct bloom_filter *filters[FILTERS];
static struct rng rng;

/* Filters of all kinds: words after the header and mapped words, any k and variant, fixed and grown. */
static struct bloom_filter *some_filter(unsigned i)
{
    struct bloom_params params = {.capacity = 10, .error_rate = 0.3, .expansion = i % 3 == 0 ? 2 : 0};
    struct bloom_shape shape = {.nwords = i % 7 == 0 ? 1 : 1 + rng_below(&rng, i % 50 == 1 ? 300000 : 600),
                                .k = (uint8_t)(1 + rng_below(&rng, BLOOM_MAX_K)),
                                .variant = (uint8_t)(i % 3)};
    if (i % 5 == 4) { /* with its own hash */
        params =
            (struct bloom_params){.capacity = 50, .error_rate = 0.2, .expansion = 2, .redisbloom = REDISBLOOM_DEFAULT};
        cr_assert_eq(redisbloom_size(REDISBLOOM_DEFAULT, 50, 0.1, &shape, NULL), 0);
    }
    return filter_make(pool, &params, &shape);
}

static void setup(void)
{
    rng_init(&rng, 14);
    cr_assert_eq(bloom_pool_create(&pool), 0);
    for (unsigned i = 0; i < FILTERS; i++) {
        filters[i] = some_filter(i);
        for (unsigned n = 0; n < 60; n++) {
            uint32_t item = (uint32_t)rng_below(&rng, 200);
            bloom_filter_add(filters[i], bloom_filter_hash(filters[i], &item, sizeof(item)), NULL);
        }
    }
}

static void teardown(void)
{
    for (unsigned i = 0; i < FILTERS; i++)
        filter_free(filters[i]);
    bloom_pool_destroy(pool);
}

TestSuite(bloom_find, .init = setup, .fini = teardown);

static void expect_same(const void *item, size_t len, size_t first, size_t n)
{
    uint64_t found[BLOOM_FIND_WORDS(FILTERS) + 1];
    size_t expected = 0;
    memset(found, 0xff, sizeof(found));
    size_t nfound =
        bloom_find(&(struct bloom_item){item, len}, (const struct bloom_filter *const *)&filters[first], n, found);
    for (size_t i = 0; i < n; i++) {
        bool present = bloom_filter_query(filters[first + i], bloom_filter_hash(filters[first + i], item, len));
        expected += present;
        cr_assert_eq(found[i / 64] >> (i % 64) & 1, present, "filter %zu of %zu", first + i, n);
    }
    cr_assert_eq(nfound, expected);
    if (n % 64)
        cr_assert_eq(found[n / 64] >> (n % 64), 0, "bits behind the last filter");
    cr_assert_eq(found[BLOOM_FIND_WORDS(n)], UINT64_MAX, "a word behind the last one was written");
}

/* The answers equal those of single queries, for any number of filters, present, absent and empty items. */
Test(bloom_find, answers_equal_single_queries)
{
    unsigned layers = 0;
    for (unsigned i = 0; i < FILTERS; i++)
        layers += bloom_filter_nlayers(filters[i]);
    cr_assert_gt(layers, FILTERS, "no filter has grown");
    for (uint32_t item = 0; item < 400; item++)
        expect_same(&item, sizeof(item), 0, FILTERS);
    expect_same(NULL, 0, 0, FILTERS);
    for (size_t n = 0; n <= 140; n++) {
        uint32_t item = (uint32_t)n;
        expect_same(&item, sizeof(item), n, n);
    }
}
