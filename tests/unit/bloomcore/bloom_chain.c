/* The cost of a chain of layers: the bound on its bits per item (bloom_size.h), for all parameters by planning, and
 * for filters that are made and filled. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "bloom_filter.h"
#include "bloom_plan.h"
#include "filters.h"
#include "rng.h"

Test(bloom_chain, the_shares_of_a_rate_sum_up_to_no_more_than_the_rate)
{
    static const double rates[] = {0.999, 0.5, 0.01, 1e-9};

    for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
        double sum = 0, before = rates[i];

        cr_assert_eq(bloom_size_share(rates[i], 0), rates[i] * 0.5);
        for (unsigned layer = 0; layer < 100000; layer++) {
            double share = bloom_size_share(rates[i], layer);

            cr_assert(share > 0 && share < before);
            before = share;
            sum += share;
            cr_assert_leq(sum, rates[i], "%u layers", layer + 1);
        }
        cr_assert_gt(sum, 0.9999 * rates[i]);
    }
}

/* The promise of bloom_size_share(). */
static double size_bound(double n, double q)
{
    return 0.25 + 2 * log2(1 / q) + 2 / sqrt(n * q) + 64 / n;
}

/* Every layer, and the chain that ends with it, as far as a file can hold the layer. Returns the number of layers. */
static unsigned expect_bounded(double p, uint64_t first, uint32_t expansion)
{
    double bits = 0, items = 0;
    uint64_t n = first;
    unsigned layer;

    for (layer = 0; layer < BLOOM_MAX_LAYERS; layer++) {
        double q = bloom_size_share(p, layer), layer_bits;
        struct bloom_size size;

        if (bloom_size_plan(n, q, &size, NULL) != BLOOM_SIZE_OK)
            break;
        layer_bits = (double)size.nwords * 64;
        bits += layer_bits;
        items += (double)n;
        cr_assert_leq(layer_bits / (double)n, size_bound((double)n, q), "p = %g, first %llu, expansion %u, layer %u", p,
                      (unsigned long long)first, expansion, layer);
        cr_assert_leq(bits / items, size_bound((double)first, q), "p = %g, first %llu, expansion %u, %u layers", p,
                      (unsigned long long)first, expansion, layer + 1);
        if (__builtin_mul_overflow(n, (uint64_t)expansion, &n))
            break;
    }
    return layer;
}

Test(bloom_chain, bits_per_item_stay_below_the_bound)
{
    static const double rates[] = {0.5,  0.442,  0.4,  0.392, 0.3,  0.1,  0.01, 1e-3,
                                   1e-4, 6.7e-5, 1e-5, 1e-6,  1e-7, 1e-8, 1e-9};
    static const uint32_t expansions[] = {1, 2, 3, 4, 10, 100, 1000, BLOOM_MAX_EXPANSION};
    struct rng rng;
    unsigned full = 0;

    for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++)
        for (uint64_t first = 1; first <= 1000000000; first *= 10)
            for (size_t j = 0; j < sizeof(expansions) / sizeof(*expansions); j++)
                full += expect_bounded(rates[i], first, expansions[j]) == BLOOM_MAX_LAYERS;
    cr_assert_geq(full, 15 * 9); /* with expansion 1 only the number of layers ends a chain, up to 1e8 items */
    rng_init(&rng, 71);
    for (int i = 0; i < 2000; i++) {
        double p = 0.5 * pow(10, -8.7 * (double)rng_below(&rng, 1000001) * 1e-6);
        uint64_t first = (uint64_t)pow(10, 9 * (double)rng_below(&rng, 1000001) * 1e-6);

        expect_bounded(p, first, 1 + (uint32_t)(rng_next(&rng) >> (49 + rng_below(&rng, 15))));
    }
}

/* Makes a filter with these parameters and adds this many items: its memory is at most `bytes` and within the bound,
 * its false positives are within the rate. */
static void expect_size(const struct bloom_params *params, uint64_t items, uint64_t bytes)
{
    enum { QUERIES = 100000 };
    struct bloom_pool *pool;
    struct bloom_filter *filter;
    struct rng rng;
    unsigned positives = 0;

    cr_assert_eq(bloom_pool_create(&pool), 0);
    bloom_pool_set_limits(pool, bytes, 0); /* an unbounded chain stops at this limit, before it takes all memory */
    filter = filter_make(pool, params, NULL);
    rng_init(&rng, 72);
    while (bloom_filter_items(filter) < items) {
        struct errbuf err = {""};

        cr_assert_leq(bloom_filter_add(filter, hash_of_rng(&rng), &err), BLOOM_ADDED, "%llu items: %s",
                      (unsigned long long)bloom_filter_items(filter), err.text);
    }
    double rate = bloom_size_share(params->error_rate, bloom_filter_nlayers(filter) - 1);
    cr_assert_leq((double)bloom_pool_bytes(pool) * 8 / (double)bloom_filter_capacity(filter),
                  size_bound((double)params->capacity, rate));
    for (unsigned i = 0; i < QUERIES; i++)
        positives += bloom_filter_query(filter, hash_of_rng(&rng));
    double most = params->error_rate * QUERIES;
    cr_assert_leq(positives, most + 5 * sqrt(most) + 1);
    filter_free(filter);
    bloom_pool_destroy(pool);
}

/* 27 KB and 36 KB, formerly 1.87 GB and 42 GB, when the rate halved with every layer. */
Test(bloom_chain, five_thousand_items_in_layers_of_a_hundred_take_27_kb)
{
    expect_size(&(struct bloom_params){100, 0.01, 1}, 5000, 27000);
    expect_size(&(struct bloom_params){100, 0.01, 1}, 5900, 36000);
}

/* Formerly 75 MB. */
Test(bloom_chain, a_hundred_thousand_items_at_1e_9_after_a_first_layer_of_100_take_33_mb)
{
    expect_size(&(struct bloom_params){100, 1e-9, 2}, 102000, 33000000);
}

/* Formerly 76 MB. */
Test(bloom_chain, two_hundred_thousand_items_at_1e_7_after_a_first_layer_of_10_take_10_mb)
{
    expect_size(&(struct bloom_params){10, 1e-7, 2}, 200000, 10000000);
}

/* Plans; formerly 5.9 GB and 492 MB. */
Test(bloom_chain, planned_chains_of_40_and_20_layers_take_107_and_288_mb)
{
    struct bloom_plan *plan = malloc(sizeof(*plan));
    struct errbuf err = {""};

    cr_assert_not_null(plan);
    cr_assert_eq(bloom_plan(&(struct bloom_params){1000000, 0.01, 1}, 40000000, plan, &err), BLOOM_OK, "%s", err.text);
    cr_assert_eq(plan->nlayers, 40);
    cr_assert_leq(plan->memory, 107000000);
    cr_assert_eq(bloom_plan(&(struct bloom_params){100, 0.01, 2}, 100 * ((1 << 20) - 1), plan, &err), BLOOM_OK);
    cr_assert_eq(plan->nlayers, 20);
    cr_assert_leq(plan->memory, 288000000);
    free(plan);
}
