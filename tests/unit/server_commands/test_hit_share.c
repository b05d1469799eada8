/* When queries count as mostly hits, and when as mostly misses. */
#include <criterion/criterion.h>

#include "pipeline.h"

static void note(struct hit_share *share, unsigned hits, unsigned n, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        hit_share_note(share, hits, n);
}

Test(hit_share, begins_with_hits)
{
    struct hit_share share = {0};

    cr_expect_not(hit_share_is_low(&share));
}

/* With runs of any length: one by one, and the longest possible. */
Test(hit_share, follows_what_is_asked_both_ways)
{
    for (unsigned n = 1; n <= 32; n++) {
        struct hit_share share = {0};

        for (unsigned round = 0; round < 3; round++) {
            note(&share, 0, n, 80 / n + 1);
            cr_expect(hit_share_is_low(&share), "runs of %u", n);
            note(&share, n, n, 80 / n + 1);
            cr_expect_not(hit_share_is_low(&share), "runs of %u", n);
        }
    }
}

Test(hit_share, is_not_moved_by_single_answers)
{
    struct hit_share share = {0};

    note(&share, 0, 1, 1000);
    note(&share, 1, 1, 20);
    cr_expect(hit_share_is_low(&share));
    note(&share, 1, 1, 1000);
    note(&share, 0, 1, 20);
    cr_expect_not(hit_share_is_low(&share));
}

Test(hit_share, tells_a_third_from_two_thirds)
{
    struct hit_share share = {0};

    note(&share, 8, 24, 1000);
    cr_expect(hit_share_is_low(&share));
    note(&share, 16, 24, 1000);
    cr_expect_not(hit_share_is_low(&share));
}
