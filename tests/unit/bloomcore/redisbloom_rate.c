/* The measured false-positive rate of filters in RedisBloom's layout, at capacity: 0.4 to 1.4 times the rates of
 * BF.PLAN and BF.INFO. It is up to a million times the requested rate, in small filters at low rates: the printed
 * table has the rows of docs/SIZING.md, and more.
 *
 * Items are hashed as in RedisBloom. Small filters differ from one another, so there are many of each. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bloom_plan.h"
#include "bloom_state.h"
#include "pool_rig.h"
#include "redisbloom.h"
#include "rng.h"

#define ENOUGH 150 /* positives, so that chance is less than a quarter */

#ifdef __SANITIZE_ADDRESS__
#define QUERIES 2e4
#else
#define QUERIES 2e5
#endif

static struct rng rng;

static void begin(void)
{
    setup();
    rng_init(&rng, 71);
}

TestSuite(redisbloom_rate, .init = begin, .fini = teardown, .timeout = 3000);

struct rates {
    double planned;   /* BF.PLAN's */
    double predicted; /* BF.INFO's, from the number of items */
    double current;   /* and from the bits */
    double measured;
    double positives;
};

static struct bloom_hash random_hash(const struct bloom_filter *filter)
{
    uint64_t item = rng_next(&rng);

    return bloom_filter_hash(filter, &item, sizeof(item));
}

static double info_rate(const struct bloom_filter *filter)
{
    double absent = 1;

    for (unsigned i = 0; i < bloom_filter_nlayers(filter); i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        absent *= 1 - bloom_shape_rate(&view.shape, view.items);
    }
    return 1 - absent;
}

static void measure_one(const struct bloom_params *params, uint64_t items, uint64_t queries, struct rates *sum)
{
    struct bloom_filter *filter = filter_make(pool, params, NULL);
    struct bloom_state state;

    while (bloom_filter_items(filter) < items)
        cr_assert_leq(bloom_filter_add(filter, random_hash(filter), NULL), BLOOM_ADDED);
    for (uint64_t i = 0; i < queries; i++)
        sum->positives += bloom_filter_query(filter, random_hash(filter));
    bloom_filter_state(filter, &state);
    sum->current += state.rate;
    sum->predicted += info_rate(filter);
    filter_free(filter);
}

static struct rates measure(uint64_t capacity, double rate, unsigned layers, unsigned options, double wanted)
{
    const struct bloom_params params = {
        .capacity = capacity,
        .error_rate = rate,
        .expansion = layers ? 2 : 0,
        .redisbloom = (uint8_t)(options | (layers ? 0 : REDISBLOOM_NO_SCALING)),
    };
    uint64_t items = layers ? capacity * ((1u << layers) - 1) : capacity;
    struct errbuf err = {""};
    struct bloom_plan plan;
    struct rates rates = {0};

    cr_assert_eq(bloom_plan(&params, items, &plan, &err), BLOOM_OK, "%s", err.text);
    if (!(options & REDISBLOOM_NOROUND))
        items = plan.capacity; /* more fit than were asked for */
    uint64_t queries = 4 * items + 64;
    double filters = ceil(wanted / (double)queries);
    if (filters < 3) { /* large ones are alike */
        filters = 3;
        queries = (uint64_t)(wanted / 3);
    }
    for (double i = 0; i < filters; i++)
        measure_one(&params, items, queries, &rates);
    rates.planned = plan.predicted_rate;
    rates.predicted /= filters;
    rates.current /= filters;
    rates.measured = rates.positives / (filters * (double)queries);
    return rates;
}

static void expect_near(const char *what, uint64_t capacity, double rate, unsigned layers, double says,
                        const struct rates *rates)
{
    double share = rates->measured / says;

    if (rates->positives >= ENOUGH)
        cr_expect(share > 0.4 && share < 1.4, "%s: capacity %llu at %g, %u layers: says %.3g, measured %.3g", what,
                  (unsigned long long)capacity, rate, layers, says, rates->measured);
    else
        cr_expect_lt(says * QUERIES, 4 * ENOUGH, "%s: capacity %llu at %g, %u layers: says %.3g, measured %.3g", what,
                     (unsigned long long)capacity, rate, layers, says, rates->measured);
}

static void expect_grid(unsigned layers, unsigned options, uint64_t from)
{
    static const uint64_t capacities[] = {1, 2, 3, 5, 8, 10, 15, 20, 30, 50, 100, 300, 1000};
    static const double asked[] = {0.2, 0.05, 0.01, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9};

    for (size_t i = 0; i < sizeof(capacities) / sizeof(*capacities); i++) {
        for (size_t j = 0; j < sizeof(asked) / sizeof(*asked) && capacities[i] >= from; j++) {
            struct rates rates = measure(capacities[i], asked[j], layers, options, QUERIES);
            expect_near("planned", capacities[i], asked[j], layers, rates.planned, &rates);
            expect_near("predicted", capacities[i], asked[j], layers, rates.predicted, &rates);
            expect_near("current", capacities[i], asked[j], layers, rates.current, &rates);
        }
    }
}

Test(redisbloom_rate, of_fixed_filters_is_as_planned)
{
    expect_grid(0, REDISBLOOM_DEFAULT, 1);
}

Test(redisbloom_rate, of_chains_is_as_planned)
{
    expect_grid(1, REDISBLOOM_DEFAULT, 1);
    expect_grid(3, REDISBLOOM_DEFAULT, 1);
}

/* As in RedisBloom's older filters. From 64 bits on, like the minimum of the others. */
Test(redisbloom_rate, of_powers_of_two_is_as_planned)
{
    expect_grid(0, REDISBLOOM_FORCE64, 10);
}

/* The table of docs/SIZING.md, measured with BLOOMERY_RATE_QUERIES=1e8. */
Test(redisbloom_rate, table)
{
    const char *many = getenv("BLOOMERY_RATE_QUERIES");
    double queries = many ? strtod(many, NULL) : 5 * QUERIES;
    static const uint64_t capacities[] = {10, 100, 1000, 10000, 100000};
    static const double asked[] = {0.01, 1e-3, 1e-4, 1e-6, 1e-8};

    printf("| asked | capacity | fixed: planned, measured | three layers: planned, measured |\n");
    for (size_t j = 0; j < sizeof(asked) / sizeof(*asked); j++) {
        for (size_t i = 0; i < sizeof(capacities) / sizeof(*capacities); i++) {
            struct rates fixed = measure(capacities[i], asked[j], 0, REDISBLOOM_DEFAULT, queries);
            struct rates chain = measure(capacities[i], asked[j], 3, REDISBLOOM_DEFAULT, queries);
            printf("| %g | %llu | %.2g, %.2g | %.2g, %.2g |\n", asked[j], (unsigned long long)capacities[i],
                   fixed.planned, fixed.measured, chain.planned, chain.measured);
            expect_near("table", capacities[i], asked[j], 0, fixed.planned, &fixed);
            expect_near("table", capacities[i], asked[j], 3, chain.planned, &chain);
        }
    }
}
