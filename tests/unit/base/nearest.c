/* Distances of words by hand, and their symmetry and triangles by chance. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "nearest.h"
#include "rng.h"

static size_t distance(const char *a, const char *b)
{
    return nearest_distance(slice_of(a), slice_of(b));
}

Test(nearest, distances)
{
    cr_expect_eq(distance("", ""), 0);
    cr_expect_eq(distance("", "abc"), 3);
    cr_expect_eq(distance("exist", "EXISTS"), 1);
    cr_expect_eq(distance("qurey", "query"), 1); /* two exchanged letters */
    cr_expect_eq(distance("ab", "ba"), 1);
    cr_expect_eq(distance("kitten", "sitting"), 3);
    cr_expect_eq(distance("abcdefghijklmnopqrstuvwxyz012345", "bbcdefghijklmnopqrstuvwxyz012345"), 1);
    cr_expect_eq(distance("abcdefghijklmnopqrstuvwxyz0123456", ""), SIZE_MAX);
}

Test(nearest, slips)
{
    cr_expect(nearest_is_slip((struct slice){"exist", 5}, 1));
    cr_expect(nearest_is_slip((struct slice){"quere", 5}, 2));
    cr_expect_not(nearest_is_slip((struct slice){"quere", 5}, 3));
    cr_expect_not(nearest_is_slip((struct slice){"ad", 2}, 1)); /* too short to tell */
    cr_expect_not(nearest_is_slip((struct slice){"none", 4}, SIZE_MAX));
}

Test(nearest, any_words)
{
    struct rng rng;
    rng_init(&rng, 51);
    for (int round = 0; round < 100000; round++) {
        char words[2][NEAREST_MAX];
        struct slice w[2];
        for (int i = 0; i < 2; i++) {
            w[i] = (struct slice){words[i], rng_below(&rng, NEAREST_MAX + 1)};
            for (size_t j = 0; j < w[i].len; j++)
                words[i][j] = (char)('a' + rng_below(&rng, 3));
        }
        size_t there = nearest_distance(w[0], w[1]), longer = w[0].len > w[1].len ? w[0].len : w[1].len;
        cr_assert_eq(there, nearest_distance(w[1], w[0]));
        cr_assert_leq(there, longer);
        cr_assert_geq(there, longer - (w[0].len + w[1].len - longer));
        cr_assert_eq(there == 0, w[0].len == w[1].len && memcmp(words[0], words[1], w[0].len) == 0);
    }
}
