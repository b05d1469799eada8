/* The measured false-positive rate at capacity is at most the requested one.
 *
 * Confidence: if the true rate were exactly the requested p, the number of positives among q queries would be binomial
 * with mean m = qp, and by Chernoff's bound it would reach c > m with a probability of at most exp(-(c ln(c/m) - c +
 * m)). A case fails when that is below 1e-6. So a filter at its requested rate fails once in a million runs (and never
 * with the fixed seeds used here). A filter above it by 5 standard deviations of m, for instance by 16 % at m = 1000,
 * fails. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "bloom_filter.h"
#include "filters.h"
#include "rng.h"

static struct bloom_pool *pool;
static uint8_t options; /* of the layout */

/* Positives among `queries` for random items in one filter with as many items as the capacity of `layers` layers. */
static uint64_t positives_at_capacity(const struct bloom_params *params, unsigned layers, uint64_t queries,
                                      struct rng *rng)
{
    struct bloom_filter *filter = filter_make(pool, params, NULL);
    uint64_t sum = 0, capacity = params->capacity, positives = 0;

    for (unsigned i = 0; i < layers; i++, capacity *= params->expansion)
        sum += capacity;
    while (bloom_filter_items(filter) < sum)
        cr_assert_leq(bloom_filter_add(filter, hash_of_rng(rng), NULL), BLOOM_ADDED);
    cr_assert_eq(bloom_filter_nlayers(filter), layers);
    for (uint64_t i = 0; i < queries; i++)
        positives += bloom_filter_query(filter, hash_of_rng(rng));
    filter_free(filter);
    return positives;
}

/* The queries are spread over several filters, over many where filters are small and differ much. */
static void expect_rate(uint64_t capacity, double p, uint32_t expansion, unsigned layers, double queries)
{
    struct bloom_params params = {capacity, p, expansion, .redisbloom = options};
    double items = (double)capacity * (expansion <= 1 ? layers : pow(expansion, layers));
    double filters = fmax(3, fmin(queries / 100, 1e6 / items));
    uint64_t per_filter = (uint64_t)(queries / filters) + 1;
    double positives = 0, mean, log_chance;
    struct rng rng;

    rng_init(&rng, 61);
    for (double i = 0; i < filters; i++)
        positives += (double)positives_at_capacity(&params, layers, per_filter, &rng);
    mean = p * (double)per_filter * ceil(filters);
    log_chance = positives <= mean ? 0 : -(positives * log(positives / mean) - positives + mean);
    cr_expect_geq(log_chance, log(1e-6),
                  "capacity %llu, p = %g, expansion %u, %u layers: %g positives, at most %g expected",
                  (unsigned long long)capacity, p, expansion, layers, positives, mean);
}

static const double rates[] = {0.1, 0.01, 1e-4, 1e-6};
static const double queries[] = {1e5, 1e6, 2e6, 6e6};

/* AddressSanitizer only needs to see the paths: the numbers are the same with it. */
#ifdef __SANITIZE_ADDRESS__
#define SHARE 20
#else
#define SHARE 1
#endif

static void expect_rates(uint64_t capacity, uint32_t expansion, unsigned layers)
{
    cr_assert_eq(bloom_pool_create(&pool), 0);
    for (int i = 0; i < 4; i++)
        expect_rate(capacity, rates[i], expansion, layers, queries[i] / SHARE);
    bloom_pool_destroy(pool);
}

Test(bloom_rate, fixed_filters)
{
    expect_rates(10000, 0, 1);
    expect_rates(1000, 0, 1);
}

Test(bloom_rate, chains_of_1_and_2_layers)
{
    expect_rates(2000, 2, 1);
    expect_rates(2000, 2, 2);
}

Test(bloom_rate, chains_of_4_layers)
{
    expect_rates(2000, 2, 4);
}

Test(bloom_rate, chains_of_8_layers)
{
    expect_rates(1000, 2, 8);
}

/* Crowded blocks, and small layers of few blocks. */
Test(bloom_rate, blocks)
{
    options = BLOOM_OPTION_BLOCKED;
    for (uint64_t capacity = 1; capacity <= 100000; capacity *= 10)
        expect_rates(capacity, 0, 1);
    expect_rates(2000, 2, 4);
    expect_rates(10, 10, 4);
    expect_rates(1, 1, 2);
    cr_assert_eq(bloom_pool_create(&pool), 0);
    expect_rate(200000, 0.5, 0, 1, 1e5);
    expect_rate(200000, 0.001, 0, 1, 3e6);
    bloom_pool_destroy(pool);
}

/* The sum of many small rates. */
Test(bloom_rate, chains_of_64_layers)
{
    cr_assert_eq(bloom_pool_create(&pool), 0);
    expect_rate(100, 0.1, 1, 64, 1e5);
    expect_rate(100, 0.01, 1, 64, 3e5);
    expect_rate(1000, 1e-4, 1, 64, 1e6);
    bloom_pool_destroy(pool);
}

Test(bloom_rate, chains_that_grow_fast)
{
    expect_rates(10, 10, 4);
    expect_rates(100, 4, 5);
}

/* The usual formula is wrong by orders of magnitude here. */
Test(bloom_rate, tiny_fixed_filters)
{
    expect_rates(1, 0, 1);
    expect_rates(10, 0, 1);
    expect_rates(100, 0, 1);
}

Test(bloom_rate, tiny_chains)
{
    expect_rates(1, 1, 2);
    expect_rates(1, 2, 4);
    expect_rates(10, 2, 4);
    expect_rates(100, 2, 2);
}

Test(bloom_rate, high_rates)
{
    cr_assert_eq(bloom_pool_create(&pool), 0);
    for (uint64_t capacity = 1; capacity <= 10000; capacity *= 10) {
        /* The lowest rates for which Cassandra takes its 3, 4, 5, 6 and 7 bits per item with this k. */
        static const double least[] = {0.283, 0.237, 0.221, 0.155, 0.147, 0.109, 0.092, 0.0804, 0.0609, 0.0423};
        for (size_t i = 0; i < sizeof(least) / sizeof(least[0]); i++)
            expect_rate(capacity, least[i], 0, 1, 1e5);
        expect_rate(capacity, 0.3, 2, 3, 1e5);
        expect_rate(capacity, 0.393, 0, 1, 1e5);
        expect_rate(capacity, 0.5, 2, 3, 1e5);
        expect_rate(capacity, 0.9, 0, 1, 1e5);
    }
    bloom_pool_destroy(pool);
}
