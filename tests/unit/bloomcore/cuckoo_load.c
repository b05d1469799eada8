#include <criterion/criterion.h>

#include "cuckoo.h"

/* RedisBloom's own filters of 65,536 slots, filled once each; another filling may end some per cent earlier or
 * later. */
Test(cuckoo_load, is_that_of_redisblooms_filters)
{
    static const struct {
        unsigned bucket_size, iterations;
        double load, within;
    } rows[] = {
        {1, 20, 0.35, 0.1},  {1, 500, 0.46, 0.1},  {2, 1, 0.12, 0.1},       {2, 20, 0.61, 0.1},
        {2, 500, 0.67, 0.1}, {4, 20, 0.84, 0.05},  {4, 500, 0.96, 0.02},    {4, 65535, 0.97, 0.02},
        {8, 20, 0.92, 0.05}, {8, 500, 0.99, 0.01}, {8, 65535, 0.997, 0.01},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double load = cuckoo_load(rows[i].bucket_size, rows[i].iterations);
        cr_expect(load > rows[i].load - rows[i].within && load < rows[i].load + rows[i].within, "%u, %u: %g",
                  rows[i].bucket_size, rows[i].iterations, load);
    }
}

Test(cuckoo_load, of_all_numbers_is_a_share)
{
    for (unsigned size = 1; size <= CUCKOO_MAX_BUCKET_SIZE; size++) {
        double load = cuckoo_load(size, 1 + size % 3);
        cr_expect(load > 0 && load <= 1, "%u: %g", size, load);
    }
}

/* docs/FORMAT.md: filled slots of a bucket add up; measured on RedisBloom's filters with a million absent items
 * each. */
Test(cuckoo_load, the_rate_follows_from_it)
{
    cr_expect_float_eq(cuckoo_rate(8, 1, 0.85), 0.0067, 0.0002);
    cr_expect_float_eq(cuckoo_rate(8, 2, 0.68), 0.0107, 0.0003);
    cr_expect_float_eq(cuckoo_rate(8, 4, 0.95), 0.0294, 0.0005);
    cr_expect_float_eq(cuckoo_rate(8, 8, 1), 0.0607, 0.0005);
    cr_expect_eq(cuckoo_rate(8, 8, 0), 0);
}
