/* Numbers of arguments: the short ones, read here, and all others, read by strtod(). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rng.h"
#include "slice.h"

static struct slice of(const char *text)
{
    return (struct slice){text, strlen(text)};
}

static void expect_double(const char *text, double expected)
{
    double value = -1;
    cr_assert(slice_to_double(of(text), &value), "'%s'", text);
    cr_assert_eq(memcmp(&value, &expected, sizeof(value)), 0, "'%s' is %a, not %a", text, value, expected);
}

/* Numbers of up to 18 digits, with a point anywhere or nowhere, have the same bits as from strtod(). */
Test(slice, decimals_are_rounded_as_strtod_rounds_them)
{
    struct rng rng;
    rng_init(&rng, 1);
    for (int i = 0; i < 1000000; i++) {
        char text[32];
        size_t digits = 1 + rng_below(&rng, 18), point = rng_below(&rng, digits + 3), len = 0;
        for (size_t at = 0; at < digits; at++) {
            if (at == point)
                text[len++] = '.';
            text[len++] = (char)('0' + rng_below(&rng, at % 3 ? 10 : 2));
        }
        if (point == digits)
            text[len++] = '.';
        text[len] = '\0';
        expect_double(text, strtod(text, NULL));
    }
}

Test(slice, numbers_of_any_form_are_read)
{
    static const char *const texts[] = {"0",
                                        "0.",
                                        ".5",
                                        "0.01",
                                        "1e-3",
                                        "-1",
                                        "+2",
                                        "9007199254740991",
                                        "9007199254740992",
                                        "9007199254740993",
                                        "999999999999999.9",
                                        "0.000000000000001",
                                        "0x1p-3",
                                        "inf",
                                        "5e-324",
                                        "123456789012345678901234567890"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        expect_double(texts[i], strtod(texts[i], NULL));
}

Test(slice, what_is_no_number_is_refused_and_changes_nothing)
{
    static const char *const texts[] = {"",   ".",    "..",  "1.2.3", "1 ",     " 1",   "0.01x", "-",
                                        "1e", "0,01", "nan", "1e999", "1e-999", "1.0.", "\t2"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        double value = 7;
        cr_assert_not(slice_to_double(of(texts[i]), &value), "'%s'", texts[i]);
        cr_assert_eq(value, 7);
    }
    double value = 7;
    cr_assert_not(slice_to_double((struct slice){"0.5\0", 4}, &value));
    cr_assert_eq(value, 7);
}
