#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_geometry.h"
#include "bloom_size.h"
#include "golden.h"
#include "rng.h"

/* FORMAT.md section 4, literally: signed remainder, then the absolute value. */
static uint64_t reference(uint64_t x, uint64_t bits)
{
    int64_t remainder = (int64_t)x % (int64_t)bits;

    return (uint64_t)(remainder < 0 ? -remainder : remainder);
}

static struct bloom_geometry geometry_of(uint64_t nwords, unsigned k, enum bloom_variant variant)
{
    struct bloom_shape shape = {.nwords = nwords, .k = (uint8_t)k, .variant = (uint8_t)variant};
    struct bloom_geometry geometry;

    bloom_geometry_init(&geometry, &shape, 0, 1, 0.5);
    return geometry;
}

static void expect_walk(const struct bloom_geometry *geometry, struct bloom_hash hash)
{
    struct bloom_walk walk = bloom_walk_start(geometry, hash);
    uint64_t base = geometry->variant == BLOOM_KA ? hash.h1 : hash.h2;
    uint64_t step = geometry->variant == BLOOM_KA ? hash.h2 : hash.h1;

    for (unsigned i = 0; i < geometry->k; i++, base += step) {
        uint64_t is = bloom_walk_next(&walk);

        if (is != reference(base, geometry->bits)) /* a plain branch: millions of cr_assert() take minutes */
            cr_assert_fail("%llu rem %llu: %llu", (unsigned long long)base, (unsigned long long)geometry->bits,
                           (unsigned long long)is);
    }
}

Test(bloom_geometry, every_golden_vector_is_met)
{
    struct golden_lines lines;
    unsigned rows = 0, tested = 0;

    golden_lines_open(&lines, "%s/vectors/index.tsv", BLOOMERY_GOLDEN_DIR);
    for (; golden_lines_next(&lines); rows++) {
        struct bloom_hash hash = murmur3_hash(lines.fields[0], golden_unhex(lines.fields[0]));
        bool new_order = strcmp(lines.fields[1], "new") == 0;
        unsigned k = (unsigned)golden_u64(lines.fields[2]);
        uint64_t bits = golden_u64(lines.fields[3]);
        char *list = lines.fields[4];

        cr_assert(new_order || strcmp(lines.fields[1], "old") == 0);
        cr_assert_eq(bits % 64, 0);
        if (bits / 64 > BLOOM_MAX_WORDS) /* the vectors go one word beyond the limit of a file */
            continue;
        struct bloom_geometry geometry = geometry_of(bits / 64, k, new_order ? BLOOM_NA : BLOOM_KA);
        struct bloom_walk walk = bloom_walk_start(&geometry, hash);
        for (unsigned i = 0; i < k; i++)
            cr_assert_eq(bloom_walk_next(&walk), golden_u64(strsep(&list, ",")), "row %u, bit %u", rows, i);
        cr_assert_null(list);
        tested++;
    }
    golden_lines_close(&lines);
    cr_assert_eq(rows, 1560);
    cr_assert_geq(tested, 1460);
}

static const uint64_t edges[] = {0,
                                 1,
                                 2,
                                 63,
                                 64,
                                 65,
                                 INT32_MAX,
                                 UINT32_MAX,
                                 INT64_MAX - 1,
                                 INT64_MAX,
                                 (uint64_t)INT64_MAX + 1,
                                 (uint64_t)INT64_MAX + 2,
                                 UINT64_MAX - 1,
                                 UINT64_MAX};

/* For each size: the ends of the signed range, multiples of the size and their neighbours, random numbers. */
static void expect_size(struct rng *rng, uint64_t nwords, unsigned samples)
{
    struct bloom_geometry geometry = geometry_of(nwords, 3, BLOOM_NA);

    for (size_t i = 0; i < sizeof(edges) / sizeof(*edges); i++)
        expect_walk(&geometry, (struct bloom_hash){.h1 = rng_next(rng), .h2 = edges[i]});
    for (unsigned i = 0; i < samples; i++) {
        uint64_t multiple = rng_below(rng, (UINT64_C(1) << 63) / geometry.bits + 1) * geometry.bits;

        expect_walk(&geometry, (struct bloom_hash){.h1 = UINT64_MAX, .h2 = multiple + 1});
        expect_walk(&geometry, (struct bloom_hash){.h1 = 1, .h2 = 0 - multiple - 1});
        expect_walk(&geometry, (struct bloom_hash){.h1 = rng_next(rng), .h2 = rng_next(rng)});
    }
    /* the largest multiple in range, where an error of the reciprocal would be largest */
    uint64_t last = (UINT64_C(1) << 63) / geometry.bits * geometry.bits;
    expect_walk(&geometry, (struct bloom_hash){.h1 = UINT64_MAX, .h2 = last + 1});
    expect_walk(&geometry, (struct bloom_hash){.h1 = 1, .h2 = 0 - last - 1});
}

Test(bloom_geometry, indexes_equal_the_signed_remainder_for_all_small_sizes)
{
    struct rng rng;

    rng_init(&rng, 11);
    for (uint64_t nwords = 1; nwords <= 20000; nwords++)
        expect_size(&rng, nwords, 20);
}

Test(bloom_geometry, indexes_equal_the_signed_remainder_for_sizes_up_to_the_largest_file)
{
    struct rng rng;

    rng_init(&rng, 12);
    for (unsigned log2 = 1; log2 < 31; log2++)
        for (uint64_t nwords = (UINT64_C(1) << log2) - 1; nwords <= (UINT64_C(1) << log2) + 1; nwords++)
            expect_size(&rng, nwords, 2000);
    expect_size(&rng, BLOOM_MAX_WORDS, 2000);
    for (unsigned i = 0; i < 20000; i++)
        expect_size(&rng, 1 + (rng_next(&rng) >> (33 + i % 31)) % BLOOM_MAX_WORDS, 20);
}

Test(bloom_geometry, hash_order_follows_the_variant)
{
    struct rng rng;

    rng_init(&rng, 13);
    for (int i = 0; i < 1000; i++) {
        struct bloom_hash hash = {rng_next(&rng), rng_next(&rng)};
        struct bloom_geometry na = geometry_of(1000, 21, BLOOM_NA), me = geometry_of(1000, 21, BLOOM_ME);
        struct bloom_geometry ka = geometry_of(1000, 21, BLOOM_KA);

        expect_walk(&na, hash);
        expect_walk(&me, hash);
        expect_walk(&ka, hash);
    }
}

Test(bloom_geometry, shapes_outside_the_format_are_refused_with_the_limit)
{
    static const struct {
        struct bloom_shape shape;
        const char *error; /* NULL: valid */
    } rows[] = {
        {{.nwords = 0, .k = 1}, "0 words: must be in the range [1, 2147483647]"},
        {{.nwords = 1, .k = 1}, NULL},
        {{.nwords = BLOOM_MAX_WORDS, .k = BLOOM_MAX_K, .variant = BLOOM_KA}, NULL},
        {{.nwords = BLOOM_MAX_WORDS + 1, .k = 1}, "2147483648 words: must be in the range [1, 2147483647]"},
        {{.nwords = UINT64_MAX, .k = 1}, "18446744073709551615 words: must be in the range [1, 2147483647]"},
        {{.nwords = 1, .k = 0}, "hash count 0: must be in the range [1, 21]"},
        {{.nwords = 1, .k = BLOOM_MAX_K + 1}, "hash count 22: must be in the range [1, 21]"},
        {{.nwords = 1, .k = 1, .variant = BLOOM_VARIANTS}, "unknown layout variant 9"},
        {{2, 4, BLOOM_CUCKOO_RATE, 0, 0, 4, 8, 0.01, 12}, NULL},
        {{2, 4, BLOOM_CUCKOO_RATE, 0, 0, 4, 8, 0.01, 10}, "buckets of 4 slots of 10 bits"},
        {{2, 3, BLOOM_CUCKOO_RATE, 0, 0, 4, 8, 0.01, 12}, "buckets of 3 slots of 12 bits"},
        {{2, 4, BLOOM_CUCKOO_RATE, 0, 0, 3, 8, 0.01, 12}, "8 slots of 12 bits do not have 13 bytes"},
        {{2, 4, BLOOM_CUCKOO_RATE, 0, 1, 4, 8, 0.01, 12}, "8 slots of 12 bits do not have 12 bytes"},
        {{1, 4, BLOOM_CUCKOO_RATE, 0, 0, 2, 4, 0.01, 12}, "4 slots of 12 bits do not have 6 bytes"},
        {{2, 4, BLOOM_CUCKOO_RATE, 0, 0, 4, 8, 1, 12}, "slots of 12 bits with an error rate of 1"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct errbuf err = {""};

        cr_assert_eq(bloom_shape_valid(&rows[i].shape, &err), rows[i].error == NULL, "row %zu", i);
        cr_assert_str_eq(err.text, rows[i].error ? rows[i].error : "");
    }
}
