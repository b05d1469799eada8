/* Cuckoo filters in our layout: they hold their capacity at 95 % load, and keep their rate. */
#include "cuckoo.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "filters.h"
#include "rng.h"

static struct bloom_pool *pool;

static void setup(void)
{
    cr_assert_eq(bloom_pool_create(&pool), 0);
}

static void teardown(void)
{
    cr_assert_eq(bloom_pool_bytes(pool), 0);
    bloom_pool_destroy(pool);
}

TestSuite(cuckoo_rate, .init = setup, .fini = teardown);

static struct bloom_filter *make(const struct cuckoo_numbers *numbers)
{
    struct bloom_params params;
    struct bloom_shape shape;
    struct errbuf err = {""};

    cr_assert_eq(cuckoo_plan(numbers, &params, &shape, &err), BLOOM_OK, "%s", err.text);
    return filter_make(pool, &params, &shape);
}

/* Filters of all sizes hold their capacity in one layer; the memory is 5 % more than the fingerprints, and some
 * bytes. */
Test(cuckoo_rate, a_filter_with_a_rate_holds_its_capacity)
{
    static const double rates[] = {0.2, 0.01, 0.001};
    struct rng rng;

    rng_init(&rng, 5);
    for (unsigned i = 0; i < 104; i++) {
        double most = i < 100 ? 5000 : 1000000;
        struct cuckoo_numbers numbers = {1 + rng_below(&rng, (uint64_t)most), CUCKOO_RATE_BUCKET,
                                         CUCKOO_RATE_ITERATIONS, 2, rates[i % 3]};
        struct bloom_filter *filter = make(&numbers);
        struct cuckoo_state state;
        for (uint64_t n = 0; n < numbers.capacity; n++)
            cr_assert_eq(cuckoo_add(filter, rng_next(&rng), false, NULL, NULL), BLOOM_ADDED);
        cuckoo_recount(filter);
        cuckoo_state(filter, &state);
        cr_assert(state.nlayers == 1 && state.items == numbers.capacity, "%" PRIu64 " items: %u layers",
                  numbers.capacity, state.nlayers);
        cr_assert_leq((double)state.bytes,
                      (double)state.items / 0.95 * state.slot_bits / 8 + 20.0 * state.slot_bits / 8);
        filter_free(filter);
    }
}

/* Fills a filter until it refuses items, in all layers that its rate allows, and queries other items. */
static void expect_rate(double rate, unsigned bits, unsigned expansion)
{
    struct cuckoo_numbers numbers = {3000, CUCKOO_RATE_BUCKET, CUCKOO_RATE_ITERATIONS, expansion, rate};
    struct bloom_filter *filter = make(&numbers);
    struct cuckoo_state state;
    uint64_t wrong = 0, n = 1000000;
    enum bloom_add answer;
    struct rng rng;

    rng_init(&rng, bits);
    do
        answer = cuckoo_add(filter, rng_next(&rng), false, NULL, NULL);
    while (answer == BLOOM_ADDED);
    cr_assert_eq(answer, BLOOM_FULL);
    cuckoo_state(filter, &state);
    cr_assert_eq(state.slot_bits, bits, "%g: %u bits", rate, state.slot_bits);
    cr_assert(expansion == 0 || state.nlayers >= 4 || bits == 16, "%g: %u layers", rate, state.nlayers);
    cr_assert_leq(state.rate, rate);
    for (uint64_t i = 0; i < n; i++)
        wrong += cuckoo_query(filter, rng_next(&rng));
    double expected = state.rate * (double)n, measured = (double)wrong;
    cr_assert(measured < expected + 6 * sqrt(expected) && measured > expected - 6 * sqrt(expected),
              "%g: %g of %" PRIu64 ", expected %g", rate, measured, n, expected);
    filter_free(filter);
}

Test(cuckoo_rate, a_filter_keeps_its_rate_over_all_layers)
{
    expect_rate(0.15, 8, 2);
    expect_rate(0.05, 12, 1);
    expect_rate(0.01, 12, 2);
    expect_rate(0.001, 16, 2);
    expect_rate(0.0002, 16, 2);
    expect_rate(0.03, 8, 0);
    expect_rate(0.002, 12, 0);
    expect_rate(0.01, 12, 1);
}

Test(cuckoo_rate, a_rate_that_no_fingerprint_has_is_refused)
{
    struct bloom_params params;
    struct bloom_shape shape;
    struct errbuf err = {""};

    cr_assert_eq(cuckoo_plan(&(struct cuckoo_numbers){1000, 4, 500, 2, 0.0001}, &params, &shape, &err), BLOOM_REFUSED);
    cr_assert_not_null(strstr(err.text, "0.000116"), "%s", err.text);
}
