#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_size.h"
#include "golden.h"
#include "rng.h"

static const char *status_name(enum bloom_size_status status)
{
    static const char *const names[] = {"OK",          "ALWAYS_PRESENT",          "ERR_UNSATISFIABLE",
                                        "ERR_TOO_BIG", "ERR_INVALID_PROBABILITY", "ERR_INVALID_CAPACITY"};
    return names[status];
}

/* ---- Cassandra's own sizing ---- */

Test(bloom_size, cassandra_meets_every_golden_vector)
{
    struct golden_lines lines;
    unsigned rows = 0;

    golden_lines_open(&lines, "%s/vectors/sizing.tsv", BLOOMERY_GOLDEN_DIR);
    for (; golden_lines_next(&lines); rows++) {
        uint64_t n = golden_u64(lines.fields[0]);
        double p = strtod(lines.fields[1], NULL);
        struct bloom_size size = {0};
        enum bloom_size_status status = bloom_size_cassandra(n, p, &size);

        cr_assert_str_eq(status_name(status), lines.fields[2], "n = %s, p = %s", lines.fields[0], lines.fields[1]);
        if (status == BLOOM_SIZE_OK) {
            cr_assert_eq(size.buckets, golden_u64(lines.fields[3]), "n = %s, p = %s", lines.fields[0], lines.fields[1]);
            cr_assert_eq(size.k, golden_u64(lines.fields[4]));
            cr_assert_eq(size.nwords, golden_u64(lines.fields[5]));
        } else {
            cr_assert(size.k == 0 && size.nwords == 0);
        }
    }
    golden_lines_close(&lines);
    cr_assert_eq(rows, 899);
}

Test(bloom_size, cassandra_refuses_what_is_no_probability_and_what_does_not_fit)
{
    struct bloom_size size;

    cr_assert_eq(bloom_size_cassandra(1, NAN, &size), BLOOM_SIZE_INVALID_PROBABILITY);
    cr_assert_eq(bloom_size_cassandra(1, INFINITY, &size), BLOOM_SIZE_INVALID_PROBABILITY);
    cr_assert_eq(bloom_size_cassandra(1, -0.1, &size), BLOOM_SIZE_UNSATISFIABLE);
    cr_assert_eq(bloom_size_cassandra(UINT64_MAX, 0.5, &size), BLOOM_SIZE_TOO_BIG);
}

/* ---- the plan ---- */

static const double rates[] = {0.999999, 0.9,  0.5,     0.3931, 0.393, 0.3929, 0.3,  0.1,  0.05,  0.01,
                               0.001,    1e-4, 6.71e-5, 6.7e-5, 1e-5,  1e-6,   1e-7, 1e-9, 1e-12, 1e-18};

static double usual_formula(uint64_t n, unsigned k, uint64_t nwords)
{
    return pow(1 - exp(-(double)k * (double)n / (double)(nwords * 64)), k);
}

/* Filters built by Cassandra, in the range where its sizing is honest: reserved here with the same parameters, they
 * must give the same files. */
Test(bloom_size, plan_is_cassandras_for_the_filters_cassandra_built)
{
    static const struct {
        uint64_t n;
        double p;
        unsigned k;
        uint64_t nwords;
    } rows[] = {
        {1, 0.1, 3, 1},       {12, 0.01, 5, 3},         {100000, 0.01, 5, 15626}, {10000, 0.01, 5, 1563},
        {1000, 0.05, 3, 110}, {1000, 6.71e-5, 14, 313}, {100, 0.01, 5, 16},       {10, 0.02, 4, 2},
        {1, 0.01, 5, 1},      {45, 0.01, 5, 8},         {5000, 0.001, 7, 1173},   {5, 0.1, 3, 1},
        {1000, 0.01, 5, 157},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct bloom_size size;

        cr_assert_eq(bloom_size_plan(rows[i].n, rows[i].p, &size, NULL), BLOOM_SIZE_OK);
        cr_assert(size.k == rows[i].k && size.nwords == rows[i].nwords, "n = %llu, p = %g: k %u, %llu words",
                  (unsigned long long)rows[i].n, rows[i].p, size.k, (unsigned long long)size.nwords);
    }
}

/* The mean rate after n counted items, by simulation: each offered item sets k(1-F) bits and is counted with
 * probability 1 - F^k. It advances by steps of the fill, as an integral. */
static double counted_rate(uint64_t n, unsigned k, uint64_t nwords)
{
    enum { STEPS = 4000 };
    double bits = (double)nwords * 64, counted = 0, fill = 0;

    for (int i = 0; i < STEPS; i++) {
        double middle = (i + 0.5) / STEPS, more = bits / k * (1 - pow(middle, k)) / (1 - middle) / STEPS;

        if (counted + more >= (double)n) {
            fill = (i + ((double)n - counted) / more) / STEPS;
            return pow(fill, k);
        }
        counted += more;
    }
    return 1;
}

Test(bloom_size, rate_is_that_of_counted_items)
{
    static const uint64_t counts[] = {1, 10, 100, 4567, 1000000};

    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        for (unsigned k = 1; k <= BLOOM_MAX_K; k++)
            for (double fill = 0.1; fill < 1; fill += 0.2) {
                uint64_t words = (uint64_t)((double)k * (double)counts[i] / fill / 64) + 1;
                double excess = bloom_size_excess((double)counts[i], k, words * 64);
                double rate = bloom_size_rate(counts[i], k, words * 64), expected = counted_rate(counts[i], k, words);

                if (rate < 1 && expected > 1e-12)
                    cr_assert_lt(fabs(rate - excess - expected), 1e-3 * expected + 1e-15 + 1e-12 * excess,
                                 "n = %llu, k = %u, %llu words: %g, expected %g", (unsigned long long)counts[i], k,
                                 (unsigned long long)words, rate - excess, expected);
            }
}

/* In the table's range: always Cassandra's k; Cassandra's words exactly when they are honest by the rule in
 * bloom_size.c, more otherwise. Outside: at most p by the model. Over a grid and random numbers. */
static void expect_plan(uint64_t n, double p)
{
    struct bloom_size size, cassandra;
    enum bloom_size_status status = bloom_size_plan(n, p, &size, NULL);

    if (status != BLOOM_SIZE_OK)
        return;
    cr_assert(size.k >= 1 && size.k <= BLOOM_MAX_K && size.nwords >= 1 && size.nwords <= BLOOM_MAX_WORDS);
    cr_assert_leq(usual_formula(n, size.k, size.nwords), p * (1 + 1e-9), "n = %llu, p = %g", (unsigned long long)n, p);
    double rate = bloom_size_rate(n, size.k, size.nwords * 64);
    if (p >= 0.393) { /* n/p bits, rounded up to words: every counted item sets one bit */
        cr_assert(size.k == 1 && size.buckets == 0);
        cr_assert_leq((double)n, p * 64 * (double)size.nwords * (1 + 1e-12));
        cr_assert_gt((double)n, p * 64 * (double)(size.nwords - 1) * (1 - 1e-12));
        return;
    }
    if (p < 6.71e-5) {
        cr_assert_leq(rate, p, "n = %llu, p = %g", (unsigned long long)n, p);
        cr_assert_eq(size.buckets, 0);
        return;
    }
    cr_assert_eq(bloom_size_cassandra(n, p, &cassandra), BLOOM_SIZE_OK);
    cr_assert_eq(size.k, cassandra.k);
    double excess = bloom_size_excess((double)n, cassandra.k, cassandra.nwords * 64);
    double counted = bloom_size_rate(n, cassandra.k, cassandra.nwords * 64) - excess;
    if (counted <= p * (1 - 1e-9) && excess <= p / 3) {
        cr_assert_eq(size.nwords, cassandra.nwords, "n = %llu, p = %g", (unsigned long long)n, p);
        cr_assert_leq(rate, p * 4 / 3);
    } else if (counted > p * (1 + 1e-9) || excess > p / 3) {
        cr_assert_geq(size.nwords, cassandra.nwords);
        cr_assert_leq(rate, p, "n = %llu, p = %g", (unsigned long long)n, p);
    }
}

Test(bloom_size, plan_keeps_its_rule_over_a_grid)
{
    struct rng rng;

    for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
        for (uint64_t n = 1; n <= 3000; n++)
            expect_plan(n, rates[i]);
        for (uint64_t n = 3000; n < UINT64_C(1) << 40; n += n / 7)
            expect_plan(n, rates[i]);
    }
    rng_init(&rng, 21);
    for (int i = 0; i < 50000; i++)
        expect_plan(1 + (rng_next(&rng) >> (24 + rng_below(&rng, 40))),
                    pow(10, -12.0 * (double)(rng_next(&rng) >> 11) * 0x1p-53));
}

/* No shape with one word less is enough, with any k. */
Test(bloom_size, below_the_table_no_smaller_filter_would_do)
{
    static const uint64_t counts[] = {1, 2, 7, 50, 333, 1000, 4567, 100000, 12345678};

    for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
        if (rates[i] >= 6.71e-5)
            continue;
        for (size_t j = 0; j < sizeof(counts) / sizeof(*counts); j++) {
            struct bloom_size size;

            if (bloom_size_plan(counts[j], rates[i], &size, NULL) != BLOOM_SIZE_OK || size.nwords == 1)
                continue;
            for (unsigned k = 1; k <= BLOOM_MAX_K; k++)
                cr_assert_gt(bloom_size_rate(counts[j], k, (size.nwords - 1) * 64), rates[i],
                             "n = %llu, p = %g, k = %u", (unsigned long long)counts[j], rates[i], k);
        }
    }
}

/* At each stated limit: the limit is accepted, one more is refused, and the error names the accepted value. */
Test(bloom_size, the_limit_of_a_refusal_is_the_limit)
{
    for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
        uint64_t max = bloom_size_max_items(rates[i]);
        struct bloom_size size = {.k = 99};
        struct errbuf err = {""};
        char expected[128];

        cr_assert_geq(max, 1, "p = %g", rates[i]);
        cr_assert_eq(bloom_size_plan(max + 1, rates[i], &size, &err), BLOOM_SIZE_TOO_BIG);
        snprintf(expected, sizeof(expected), "capacity must be in the range [1, %llu] for error rate %g",
                 (unsigned long long)max, rates[i]);
        cr_assert_str_eq(err.text, expected);
        cr_assert_eq(size.k, 99);
        cr_assert_eq(bloom_size_plan(UINT64_MAX, rates[i], &size, &err), BLOOM_SIZE_TOO_BIG);
        cr_assert_eq(bloom_size_plan(max, rates[i], &size, &err), BLOOM_SIZE_OK, "p = %g", rates[i]);
        cr_assert_eq(bloom_size_plan(1, rates[i], &size, &err), BLOOM_SIZE_OK);
    }
}

Test(bloom_size, a_rate_no_file_can_reach_is_refused_with_one_that_can)
{
    static const uint64_t counts[] = {1, 2, 10, 1000, 123456789, 3000000000};

    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        struct bloom_size size;
        struct errbuf err = {""};
        double p;
        unsigned long long n;

        cr_assert_eq(bloom_size_plan(counts[i], 1e-30, &size, &err), BLOOM_SIZE_UNSATISFIABLE);
        cr_assert_eq(sscanf(err.text, "error rate must be at least %lf for capacity %llu", &p, &n), 2, "%s", err.text);
        cr_assert_eq(n, counts[i]);
        cr_assert_eq(bloom_size_plan(counts[i], p, &size, &err), BLOOM_SIZE_OK, "n = %llu, p = %g", n, p);
        cr_assert_neq(bloom_size_plan(counts[i], p * 0.98, &size, &err), BLOOM_SIZE_OK, "n = %llu, p = %g", n, p);
    }
}

Test(bloom_size, a_capacity_that_no_rate_allows_is_refused_without_one)
{
    struct bloom_size size;
    struct errbuf err = {""};
    cr_assert_eq(bloom_size_plan(99999999999999, 1e-30, &size, &err), BLOOM_SIZE_UNSATISFIABLE);
    cr_assert_str_eq(err.text, "capacity 99999999999999 is too large for any error rate");
}

Test(bloom_size, what_is_no_rate_or_no_capacity_is_refused)
{
    static const double wrong[] = {0, -0.0, 1, 1.5, -0.5, NAN, INFINITY, -INFINITY};
    struct bloom_size size = {.k = 99};
    struct errbuf err = {""};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        cr_assert_eq(bloom_size_plan(1, wrong[i], &size, &err), BLOOM_SIZE_INVALID_PROBABILITY);
        cr_assert_str_eq(err.text, "error rate must be in the range (0, 1)");
        cr_assert_eq(bloom_size_max_items(wrong[i]), 0);
    }
    cr_assert_eq(bloom_size_plan(0, 0.5, &size, &err), BLOOM_SIZE_INVALID_CAPACITY);
    cr_assert_str_eq(err.text, "capacity must be at least 1");
    cr_assert_eq(size.k, 99);
    /* The smallest and the largest double that are rates. */
    cr_assert_eq(bloom_size_plan(1, 0x1p-1074, &size, &err), BLOOM_SIZE_UNSATISFIABLE);
    cr_assert_eq(bloom_size_plan(1, 1 - 0x1p-53, &size, NULL), BLOOM_SIZE_OK);
}

/* Outside the table's range, more items never get fewer words. Inside it, where Cassandra's words are kept or widened,
 * they decrease at most by the share that the rule tolerates. */
Test(bloom_size, more_items_need_more_words)
{
    for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
        bool in_table = rates[i] >= 6.71e-5 && rates[i] < 0.393;
        uint64_t before = 0;

        for (uint64_t n = 1; n < 5000; n++) {
            struct bloom_size size;

            if (bloom_size_plan(n, rates[i], &size, NULL) != BLOOM_SIZE_OK)
                break;
            cr_assert_geq(size.nwords * (in_table ? 108u : 100u), before * 100, "n = %llu, p = %g",
                          (unsigned long long)n, rates[i]);
            before = size.nwords;
        }
    }
}

Test(bloom_size, rate_is_a_probability_and_rises_with_items)
{
    for (unsigned k = 1; k <= BLOOM_MAX_K; k++) {
        for (uint64_t words = 1; words <= 4096; words = words * 2 + words % 2) {
            double before = 0;

            for (uint64_t n = 0; n < 1000000; n = n * 2 + 1) {
                double rate = bloom_size_rate(n, k, words * 64);

                cr_assert(rate >= before - 1e-12 && rate <= 1, "n = %llu, k = %u, %llu words: %g after %g",
                          (unsigned long long)n, k, (unsigned long long)words, rate, before);
                before = rate;
            }
            cr_assert_eq(bloom_size_rate(UINT64_MAX, k, words * 64), 1);
        }
    }
    cr_assert_eq(bloom_size_rate(0, 5, 64), 0);
    cr_assert_eq(bloom_size_rate(1, 5, 0), 1);
}
