/* The items that a run queries. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "items.h"

static struct items_options options(void)
{
    return (struct items_options){.count = 1000, .min_size = 16, .max_size = 16, .hits = 1, .seed = 1};
}

Test(bench_items, sequential_threads_share_the_numbers_out)
{
    struct items_options o = options();
    bool seen[300] = {false};
    o.order = ITEMS_SEQUENTIAL;
    o.start = 77;
    for (unsigned thread = 0; thread < 3; thread++) {
        struct items items;
        items_init(&items, &o, thread, 3);
        for (unsigned i = 0; i < 100; i++) {
            uint64_t number = items_next(&items) - 77;
            cr_assert(number < 300 && !seen[number]);
            seen[number] = true;
        }
    }
}

Test(bench_items, uniform_reaches_all_evenly_and_nothing_else)
{
    struct items_options o = options();
    struct items items;
    unsigned counts[1000] = {0};
    items_init(&items, &o, 0, 1);
    for (unsigned i = 0; i < 1000000; i++) {
        uint64_t number = items_next(&items);
        cr_assert_lt(number, 1000);
        counts[number]++;
    }
    for (unsigned i = 0; i < 1000; i++) /* 1000 expected, standard deviation 32 */
        cr_assert(counts[i] > 800 && counts[i] < 1200, "%u: %u", i, counts[i]);
}

static int downwards(const void *a, const void *b)
{
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return x > y ? -1 : x < y;
}

/* The most frequent item of n at skew s has a share of 1 / (1 + 2^-s + ... + n^-s), the second 2^-s of that. */
Test(bench_items, zipf_has_the_shares_of_its_formula)
{
    static const double skews[] = {0.5, 0.99, 1.000001, 1.5};
    for (size_t s = 0; s < 4; s++) {
        struct items_options o = options();
        struct items items;
        unsigned counts[1000] = {0};
        double sum = 0, expected;
        o.order = ITEMS_ZIPF;
        o.skew = skews[s];
        items_init(&items, &o, 0, 1);
        for (unsigned i = 0; i < 1000000; i++) {
            uint64_t number = items_next(&items);
            cr_assert_lt(number, 1000);
            counts[number]++;
        }
        qsort(counts, 1000, sizeof(counts[0]), downwards);
        for (unsigned i = 1; i <= 1000; i++)
            sum += __builtin_pow(i, -skews[s]);
        expected = 1e6 / sum;
        /* Two ranks may share an item (the scattering is no permutation): the margin is for that. */
        cr_assert(counts[0] > 0.97 * expected && counts[0] < 1.15 * expected, "skew %g: %u, %g expected", skews[s],
                  counts[0], expected);
        cr_assert_gt(counts[0], counts[10]);
    }
}

Test(bench_items, the_share_of_hits_is_kept_and_misses_are_never_loaded_items)
{
    struct items_options o = options();
    struct items items;
    unsigned hits = 0;
    o.hits = 0.25;
    items_init(&items, &o, 0, 1);
    for (unsigned i = 0; i < 100000; i++)
        hits += items_next(&items) < 1000;
    cr_assert(hits > 24000 && hits < 26000, "%u", hits);
    o.hits = 0;
    items_init(&items, &o, 0, 1);
    for (unsigned i = 0; i < 100000; i++)
        cr_assert_gt(items_next(&items), UINT64_C(1) << 61);
}

Test(bench_items, bytes_follow_from_the_number_alone)
{
    struct items_options o = options();
    struct items a, b;
    char x[ITEM_MAX_SIZE], y[ITEM_MAX_SIZE];
    o.min_size = 5;
    o.max_size = 200;
    items_init(&a, &o, 0, 1);
    o.seed = 99;
    items_init(&b, &o, 3, 7);
    for (uint64_t number = 0; number < 5000; number++) {
        size_t n = items_bytes(&a, number, x);
        cr_assert(n >= 5 && n <= 200);
        cr_assert(items_bytes(&b, number, y) == n && memcmp(x, y, n) == 0);
    }
    cr_assert(items_bytes(&a, 0xfedcba9876543210, x) >= 5);
    cr_assert_eq(memcmp(x, "01234", 5), 0);
    o.min_size = o.max_size = 20;
    items_init(&a, &o, 0, 1);
    cr_assert(items_bytes(&a, 0xfedcba9876543210, x) == 20 && memcmp(x, "0123456789abcdef....", 20) == 0);
}
