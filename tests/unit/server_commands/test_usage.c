/* Counts of single filters: exact up to a number of filters; beyond it, those of the most used ones. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <time.h>

#include "usage.h"

static struct usage_counts read_of(const struct usage *usage, uint64_t id)
{
    struct usage_counts counts = {0};
    usage_read(usage, id, &counts);
    return counts;
}

/* Filters in turn, a thousand of them: nothing is lost. */
Test(usage, counts_are_exact)
{
    struct usage *usage = usage_create();

    for (unsigned round = 0; round < 10; round++)
        for (uint64_t id = 1; id <= 1000; id++)
            usage_count(usage, id, id, 2 * id, round == 0);
    for (uint64_t id = 1; id <= 1000; id++) {
        struct usage_counts counts = read_of(usage, id);
        cr_assert_eq(counts.hits, 10 * id, "filter %llu", (unsigned long long)id);
        cr_assert_eq(counts.misses, 20 * id);
        cr_assert_eq(counts.wrong, 1);
        cr_assert(counts.since_s > 0 && counts.since_s <= time(NULL));
    }
    cr_assert_eq(read_of(usage, 1001).since_s, 0);
    free(usage);
}

/* A hundred busy filters among a hundred thousand queried once: the busy ones are counted to the end. */
Test(usage, busy_filters_stay)
{
    struct usage *usage = usage_create();

    for (uint64_t n = 0; n < 100000; n++) {
        usage_count(usage, n % 100 + 1, 1, 0, 0);
        usage_count(usage, 1000 + n, 0, 1, 0);
    }
    for (uint64_t id = 1; id <= 100; id++)
        cr_assert_eq(read_of(usage, id).hits, 1000, "filter %llu", (unsigned long long)id);
    free(usage);
}

/* The sum of several workers; a reset is visible at once, and done by the next count. */
Test(usage, sums_and_resets)
{
    struct usage *a = usage_create(), *b = usage_create();
    struct usage_counts counts = {0};

    usage_count(a, 7, 1, 2, 3);
    usage_count(b, 7, 10, 20, 30);
    usage_read(a, 7, &counts);
    usage_read(b, 7, &counts);
    cr_assert(counts.hits == 11 && counts.misses == 22 && counts.wrong == 33);
    usage_reset(a);
    cr_assert_eq(read_of(a, 7).hits, 0);
    usage_count(a, 8, 1, 0, 0);
    cr_assert_eq(read_of(a, 7).hits, 0);
    cr_assert_eq(read_of(a, 8).hits, 1);
    cr_assert_eq(read_of(b, 7).hits, 10);
    usage_count(NULL, 7, 1, 1, 1);
    free(a);
    free(b);
}

/* One filter's counts restart at 0, and its place goes to the next new filter, however busy it was. */
Test(usage, a_filter_is_forgotten)
{
    struct usage *usage = usage_create();

    for (unsigned n = 0; n < 2000; n++)
        usage_count(usage, 7, 1, 2, 3);
    usage_count(usage, 8, 1, 0, 0);
    usage_forget(usage, 7);
    cr_assert_eq(read_of(usage, 7).since_s, 0);
    cr_assert_eq(read_of(usage, 8).hits, 1);
    usage_count(usage, 7, 0, 1, 0);
    struct usage_counts counts = read_of(usage, 7);
    cr_assert(counts.hits == 0 && counts.misses == 1 && counts.wrong == 0);
    usage_forget(usage, 9);
    cr_assert_eq(read_of(usage, 7).misses, 1);
    free(usage);
}
