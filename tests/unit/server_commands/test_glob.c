/* Patterns against texts: by hand, against a very simple model, and against the clock. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "glob_match.h"

/* The promises of the documentation in glob_match.h, one line each. */
Test(glob, meaning_of_each_element)
{
    static const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "anything", true},
        {"***", "", true},
        {"?", "", false},
        {"?", "a", true},
        {"?", "ab", false},
        {"a*c", "ac", true},
        {"a*c", "abbbc", true},
        {"a*c", "abbbd", false},
        {"*a", "bab", false},
        {"*ab*ab", "abab", true},
        {"*ab*ab", "aab", false},
        {"*.?", "file.c", true},
        {"[abc]", "b", true},
        {"[abc]", "d", false},
        {"[abc]", "", false},
        {"[a-c]x", "bx", true},
        {"[c-a]x", "bx", true},
        {"[a-c]", "d", false},
        {"[^a-c]", "d", true},
        {"[^a-c]", "b", false},
        {"[^", "x", true},
        {"[a^]", "^", true},
        {"[]", "]", false},
        {"[^]", "x", true},
        {"[\\]]", "]", true},
        {"[\\-]", "-", true},
        {"[a-]", "^", true}, /* a range up to ']', and the set has no end */
        {"[abc", "b", true},
        {"[abc", "d", false},
        {"[abc", "bc", false},
        {"[", "x", false},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"\\a", "a", true},
        {"\\", "\\", true},
        {"a\\", "a\\", true},
        {"*[0-9]", "a1b2", true},
        {"*[0-9]", "a1b2c", false},
        {"h[^e]llo", "hallo", true},
        {"h[^e]llo", "hello", false},
        {"A", "a", false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        cr_expect_eq(glob_match(slice_of(cases[i].pattern), slice_of(cases[i].text), false), cases[i].matches,
                     "'%s' against '%s'", cases[i].pattern, cases[i].text);
}

Test(glob, case_is_ignored_on_request_in_letters_sets_and_ranges)
{
    cr_expect(glob_match(slice_of("MaxMemory*"), slice_of("maxmemory-policy"), true));
    cr_expect(glob_match(slice_of("[ABC]x"), slice_of("bX"), true));
    cr_expect(glob_match(slice_of("[A-C]"), slice_of("b"), true));
    cr_expect(glob_match(slice_of("\\A"), slice_of("a"), true));
    cr_expect_not(glob_match(slice_of("[^A-C]"), slice_of("b"), true));
    cr_expect_not(glob_match(slice_of("@"), slice_of("`"), true), "only letters have case");
}

Test(glob, bytes_of_any_value_are_bytes)
{
    cr_expect(glob_match((struct slice){"a\0b", 3}, (struct slice){"a\0b", 3}, false));
    cr_expect_not(glob_match((struct slice){"a\0b", 3}, (struct slice){"a\0c", 3}, false));
    cr_expect(glob_match((struct slice){"[\x80-\xff]*", 6}, (struct slice){"\xc3\xa4", 2}, false));
    cr_expect(glob_match((struct slice){NULL, 0}, (struct slice){NULL, 0}, false));
}

/* ---- the model: by recursion over the definition ---- */

/* Reads the set after '['; returns the number of its pattern bytes. */
static size_t model_set(const char *p, size_t n, char c, bool *in_out)
{
    size_t i = 0;
    bool negated = n > 0 && p[0] == '^', in = false;

    if (negated)
        i = 1;
    for (;;) {
        if (i >= n)
            break;
        if (p[i] == '\\' && i + 1 < n) {
            if (p[i + 1] == c)
                in = true;
            i += 2;
            continue;
        }
        if (p[i] == ']') {
            i++;
            break;
        }
        if (i + 2 < n && p[i + 1] == '-') {
            char low = p[i] < p[i + 2] ? p[i] : p[i + 2], high = p[i] < p[i + 2] ? p[i + 2] : p[i];

            if (c >= low && c <= high)
                in = true;
            i += 3;
            continue;
        }
        if (p[i] == c)
            in = true;
        i++;
    }
    *in_out = in != negated;
    return i;
}

static bool model(const char *p, size_t n, const char *t, size_t m)
{
    bool in;
    size_t used;

    if (n == 0)
        return m == 0;
    if (p[0] == '*')
        return model(p + 1, n - 1, t, m) || (m > 0 && model(p, n, t + 1, m - 1));
    if (m == 0)
        return false;
    if (p[0] == '?')
        return model(p + 1, n - 1, t + 1, m - 1);
    if (p[0] == '[') {
        used = model_set(p + 1, n - 1, t[0], &in);
        return in && model(p + 1 + used, n - 1 - used, t + 1, m - 1);
    }
    if (p[0] == '\\' && n > 1)
        return p[1] == t[0] && model(p + 2, n - 2, t + 1, m - 1);
    return p[0] == t[0] && model(p + 1, n - 1, t + 1, m - 1);
}

Test(glob, random_patterns_match_as_the_model_says)
{
    static const char pattern_letters[] = "aabbc**?[]^-\\", text_letters[] = "aabbc]^-\\";
    unsigned long matched = 0;
    unsigned seed = 20261121;

    for (int round = 0; round < 400000; round++) {
        char pattern[12], text[12];
        size_t n = (size_t)rand_r(&seed) % sizeof(pattern), m = (size_t)rand_r(&seed) % sizeof(text);
        bool expected;

        for (size_t i = 0; i < n; i++)
            pattern[i] = pattern_letters[(size_t)rand_r(&seed) % (sizeof(pattern_letters) - 1)];
        for (size_t i = 0; i < m; i++)
            text[i] = text_letters[(size_t)rand_r(&seed) % (sizeof(text_letters) - 1)];
        expected = model(pattern, n, text, m);
        matched += expected;
        cr_assert_eq(glob_match((struct slice){pattern, n}, (struct slice){text, m}, false), expected,
                     "'%.*s' against '%.*s'", (int)n, pattern, (int)m, text);
        if (round % 4 == 0) { /* preparing it takes longer than this match */
            static struct glob glob;
            glob_compile(&glob, (struct slice){pattern, n}, false);
            cr_assert_eq(glob_test(&glob, (struct slice){text, m}), expected, "compiled: '%.*s' against '%.*s'", (int)n,
                         pattern, (int)m, text);
        }
    }
    cr_assert_gt(matched, 10000, "too few of the random pairs match to say anything: %lu", matched);
}

/* Long patterns, whose elements take several words of bits, against texts that match nearly or wholly. */
Test(glob, compiled_long_patterns_agree)
{
    static const char letters[] = "ab*?";
    static struct glob glob;
    unsigned long matched = 0;
    unsigned seed = 1;

    for (int round = 0; round < 3000; round++) {
        char pattern[GLOB_COMPILED_MAX], text[2 * GLOB_COMPILED_MAX];
        size_t n = (size_t)rand_r(&seed) % (sizeof(pattern) + 1), m = 0;

        for (size_t i = 0; i < n; i++)
            pattern[i] = letters[(size_t)rand_r(&seed) % (rand_r(&seed) % 8 ? 2 : 4)];
        for (size_t i = 0; i < n; i++) {
            if (pattern[i] != '*')
                text[m++] = pattern[i] == '?' ? 'z' : pattern[i];
            for (unsigned more = (unsigned)rand_r(&seed) % 3; pattern[i] == '*' && more && m < sizeof(text) / 2; more--)
                text[m++] = "abz"[rand_r(&seed) % 3];
        }
        if (m > 0 && rand_r(&seed) % 2)
            text[(size_t)rand_r(&seed) % m] = 'a';
        if (rand_r(&seed) % 8 == 0 && m < sizeof(text)) /* the text continues after a match */
            text[m++] = 'b';
        bool expected = glob_match((struct slice){pattern, n}, (struct slice){text, m}, false);
        matched += expected;
        glob_compile(&glob, (struct slice){pattern, n}, false);
        cr_assert_eq(glob_test(&glob, (struct slice){text, m}), expected, "'%.*s' against '%.*s'", (int)n, pattern,
                     (int)m, text);
    }
    cr_expect(matched > 1000 && matched < 2900, "%lu", matched);
}

/* Case is ignored on request, all 256 bytes are distinct, and an empty pattern matches the empty text only. */
Test(glob, compiled_bytes)
{
    static struct glob glob;
    for (unsigned p = 0; p < 256; p++) {
        char pattern[2] = {'\\', (char)p};
        glob_compile(&glob, (struct slice){pattern, 2}, false);
        for (unsigned t = 0; t < 256; t++)
            cr_assert_eq(glob_test(&glob, (struct slice){(char[]){(char)t}, 1}), p == t, "%u against %u", p, t);
    }
    glob_compile(&glob, (struct slice){"AbC*", 4}, true);
    cr_expect(glob_test(&glob, (struct slice){"aBcD", 4}));
    glob_compile(&glob, (struct slice){"", 0}, false);
    cr_expect(glob_test(&glob, (struct slice){"", 0}));
    cr_expect_not(glob_test(&glob, (struct slice){"a", 1}));
    glob_compile(&glob, (struct slice){"*", 1}, false);
    cr_expect(glob_test(&glob, (struct slice){"", 0}));
}

/* ---- the beginning of matches ---- */

static void expect_prefix(const char *pattern, const char *prefix, const char *rest)
{
    char room[64];
    size_t len;
    struct slice left = glob_prefix(slice_of(pattern), room, &len);
    cr_expect(len == strlen(prefix) && memcmp(room, prefix, len) == 0, "'%s' begins with '%.*s'", pattern, (int)len,
              room);
    cr_expect(left.len == strlen(rest) && memcmp(left.ptr, rest, left.len) == 0, "'%s'", pattern);
    cr_expect_eq(glob_is_literal(slice_of(pattern)), !strpbrk(pattern, "*?[\\"), "'%s'", pattern);
}

/* The prefix ends at the first character that may match several bytes; a backslash makes the next one literal. */
Test(glob, prefixes)
{
    expect_prefix("ks.users/*", "ks.users/", "*");
    expect_prefix("ks.*/1?", "ks.", "*/1?");
    expect_prefix("a?", "a", "?");
    expect_prefix("a[bc]d", "a", "[bc]d");
    expect_prefix("*", "", "*");
    expect_prefix("", "", "");
    expect_prefix("name", "name", "");
    expect_prefix("a\\*b*", "a*b", "*");
    expect_prefix("a\\", "a\\", "");
    expect_prefix("\\[x", "[x", "");
}

/* ---- the clock ---- */

/* Patterns that keep a matcher with recursion or with a stack of stars busy forever, or overflow the stack. */
Test(glob, hostile_patterns_take_no_more_than_length_times_length)
{
    static char pattern[GLOB_MAX_PATTERN], text[8192];
    clock_t start = clock();

    memset(text, 'a', sizeof(text));
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = i % 2 == 0 ? '*' : 'a';
    cr_expect(glob_match((struct slice){pattern, sizeof(pattern)}, (struct slice){text, sizeof(text)}, false));
    pattern[sizeof(pattern) - 1] = 'b';
    cr_expect_not(glob_match((struct slice){pattern, sizeof(pattern)}, (struct slice){text, sizeof(text)}, false));

    memset(pattern, '*', sizeof(pattern) - 1);
    cr_expect_not(glob_match((struct slice){pattern, sizeof(pattern)}, (struct slice){text, sizeof(text)}, false));

    memset(pattern, 'a', sizeof(pattern));
    pattern[0] = '*';
    pattern[sizeof(pattern) - 1] = 'b';
    cr_expect_not(glob_match((struct slice){pattern, sizeof(pattern)}, (struct slice){text, sizeof(text)}, false));

    memset(pattern, '[', sizeof(pattern));
    cr_expect_not(glob_match((struct slice){pattern, sizeof(pattern)}, (struct slice){text, sizeof(text)}, false));
    cr_expect_lt((double)(clock() - start) / CLOCKS_PER_SEC, 20.0); /* a tenth of a second on a quiet machine */
}
