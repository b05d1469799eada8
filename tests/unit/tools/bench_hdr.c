/* The histogram against the sorted values themselves. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "hdr.h"
#include "rng.h"

#define N 20000

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

Test(bench_hdr, percentiles_are_those_of_the_sorted_values_to_a_thousandth)
{
    static const double wanted[] = {0, 1, 50, 90, 99, 99.9, 99.99, 100};
    static uint64_t values[N];
    static struct hdr hdr;
    struct rng rng;
    rng_init(&rng, 7);

    for (unsigned max_bits = 1; max_bits <= 38; max_bits++) {
        memset(&hdr, 0, sizeof(hdr));
        for (unsigned i = 0; i < N; i++) {
            values[i] = rng_next(&rng) >> (64 - max_bits) >> (rng_next(&rng) % max_bits);
            hdr_record(&hdr, values[i], 1);
        }
        qsort(values, N, sizeof(values[0]), by_value);
        for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
            size_t rank = (size_t)(wanted[i] / 100 * N + 0.9999999);
            uint64_t exact = values[rank ? rank - 1 : 0], got = hdr_percentile(&hdr, wanted[i]);
            cr_assert(got >= exact && got - exact <= exact / 1000, "%g of %u bits: %llu, exactly %llu", wanted[i],
                      max_bits, (unsigned long long)got, (unsigned long long)exact);
        }
    }
}

Test(bench_hdr, merging_and_recording_at_once_are_the_same)
{
    static struct hdr one, parts[3], sum;
    struct rng rng;
    rng_init(&rng, 3);

    for (unsigned i = 0; i < N; i++) {
        uint64_t value = rng_next(&rng) >> 30, times = 1 + rng_next(&rng) % 3;
        hdr_record(&parts[i % 3], value, times);
        for (uint64_t t = 0; t < times; t++)
            hdr_record(&one, value, 1);
    }
    for (unsigned i = 0; i < 3; i++)
        hdr_merge(&sum, &parts[i]);
    cr_assert_eq(memcmp(&one, &sum, sizeof(one)), 0);
}

Test(bench_hdr, an_empty_one_and_a_huge_value)
{
    static struct hdr hdr;
    cr_expect_eq(hdr_percentile(&hdr, 99), 0);
    cr_expect_eq(hdr_mean(&hdr), 0);
    hdr_record(&hdr, UINT64_MAX, 1);
    cr_expect_gt(hdr_percentile(&hdr, 50), UINT64_C(1) << 37);
    cr_expect_eq(hdr.max, UINT64_MAX);
}

/* The text form: values and shares do not go down, the last line before the summary is the maximum. */
Test(bench_hdr, the_text_is_a_distribution)
{
    static struct hdr hdr;
    struct rng rng;
    rng_init(&rng, 5);
    char *text = NULL, line[256];
    size_t size;
    double last_value = -1, last_share = -1;
    unsigned lines = 0;

    for (unsigned i = 0; i < N; i++)
        hdr_record(&hdr, rng_next(&rng) >> 40, 1);
    FILE *out = open_memstream(&text, &size);
    hdr_print(&hdr, out);
    fclose(out);
    FILE *in = fmemopen(text, size, "r");
    while (fgets(line, sizeof(line), in)) {
        double value, share;
        if (line[0] == '#' || sscanf(line, "%lf %lf", &value, &share) != 2)
            continue;
        cr_assert(value >= last_value && share > last_share, "%s", line);
        last_value = value;
        last_share = share;
        lines++;
    }
    fclose(in);
    free(text);
    cr_assert_gt(lines, 20);
    cr_assert_eq(last_share, 1);
    cr_assert_float_eq(last_value, (double)hdr.max / 1000, 0.001);
}
