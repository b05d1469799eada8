/* glob_match(). Every element but '*' takes exactly one byte. So when a match fails after a star, only the latest star
 * must take more: it can take any bytes that an earlier star could take in addition. Hence one place to go back to
 * instead of a stack, and at most length times length steps.
 *
 * glob_test() follows all possible matches at once. Bit i of the state means that the elements before i can match the
 * text so far. A byte moves the bit on if element i takes it; with a star before element i the bit also stays. */
#include "glob_match.h"

#include <string.h>

static unsigned char fold(char c, bool ignore_case)
{
    unsigned char u = (unsigned char)c;

    return ignore_case && u >= 'A' && u <= 'Z' ? (unsigned char)(u + ('a' - 'A')) : u;
}

/* Whether the byte is in the set whose first byte after '[' is at `*at`; moves `*at` past the set. */
static bool set_match(struct slice pattern, size_t *at, unsigned char byte, bool ignore_case)
{
    size_t i = *at;
    bool negated = i < pattern.len && pattern.ptr[i] == '^';
    bool found = false;

    if (negated)
        i++;
    while (i < pattern.len && pattern.ptr[i] != ']') {
        if (pattern.ptr[i] == '\\' && pattern.len - i >= 2) {
            found |= fold(pattern.ptr[i + 1], ignore_case) == byte;
            i += 2;
        } else if (pattern.len - i >= 3 && pattern.ptr[i + 1] == '-') {
            unsigned char first = fold(pattern.ptr[i], ignore_case);
            unsigned char last = fold(pattern.ptr[i + 2], ignore_case);

            found |= first <= last ? byte >= first && byte <= last : byte >= last && byte <= first;
            i += 3;
        } else {
            found |= fold(pattern.ptr[i], ignore_case) == byte;
            i++;
        }
    }
    *at = i < pattern.len ? i + 1 : i;
    return found != negated;
}

/* Whether the element at `*at`, which is not a star, takes the byte; moves `*at` past the element. */
static bool glob_element(struct slice pattern, size_t *at, char c, bool ignore_case)
{
    unsigned char byte = fold(c, ignore_case);

    switch (pattern.ptr[*at]) {
    case '?':
        ++*at;
        return true;
    case '[':
        ++*at;
        return set_match(pattern, at, byte, ignore_case);
    case '\\':
        if (pattern.len - *at >= 2)
            ++*at;
        break;
    default:
        break;
    }
    return fold(pattern.ptr[(*at)++], ignore_case) == byte;
}

bool glob_is_literal(struct slice pattern)
{
    static const bool special[256] = {['*'] = true, ['?'] = true, ['['] = true, ['\\'] = true};
    bool any = false;

    for (size_t i = 0; i < pattern.len; i++)
        any |= special[(unsigned char)pattern.ptr[i]];
    return !any;
}

struct slice glob_prefix(struct slice pattern, char *prefix_out, size_t *len_out)
{
    size_t at = 0, len = 0;

    while (at < pattern.len && pattern.ptr[at] != '*' && pattern.ptr[at] != '?' && pattern.ptr[at] != '[') {
        if (pattern.ptr[at] == '\\' && pattern.len - at >= 2)
            at++;
        prefix_out[len++] = pattern.ptr[at++];
    }
    *len_out = len;
    return (struct slice){pattern.ptr + at, pattern.len - at};
}

bool glob_match(struct slice pattern, struct slice text, bool ignore_case)
{
    size_t p = 0, t = 0;
    size_t star = 0, star_text = 0; /* after the latest star; the text it has not taken yet */
    bool starred = false;

    while (t < text.len) {
        if (p < pattern.len && pattern.ptr[p] == '*') {
            star = ++p;
            star_text = t;
            starred = true;
            if (star == pattern.len)
                return true;
        } else if (p < pattern.len && glob_element(pattern, &p, text.ptr[t], ignore_case)) {
            t++;
        } else if (starred) {
            p = star;
            t = ++star_text;
        } else {
            return false;
        }
    }
    while (p < pattern.len && pattern.ptr[p] == '*')
        p++;
    return p == pattern.len;
}

/* ---- compiled ---- */

static void set_bit(uint64_t *words, unsigned bit)
{
    words[bit / 64] |= UINT64_C(1) << (bit % 64);
}

static bool has_bit(const uint64_t *words, unsigned bit)
{
    return words[bit / 64] >> (bit % 64) & 1;
}

void glob_compile(struct glob *glob, struct slice pattern, bool ignore_case)
{
    size_t at = 0;

    memset(glob, 0, sizeof(*glob));
    while (at < pattern.len) {
        size_t behind = at;

        if (pattern.ptr[at] == '*') {
            set_bit(glob->stars, glob->nelements);
            at++;
            continue;
        }
        for (unsigned byte = 0; byte < 256; byte++) {
            behind = at;
            if (glob_element(pattern, &behind, (char)byte, ignore_case))
                set_bit(glob->takes[byte], glob->nelements);
        }
        at = behind;
        glob->nelements++;
    }
    glob->nwords = glob->nelements / 64 + 1;
}

static bool test_short(const struct glob *glob, struct slice text)
{
    uint64_t state = 1, stars = glob->stars[0];
    uint64_t any_rest = stars & UINT64_C(1)
                                    << glob->nelements; /* all elements have matched, and a star is behind them */

    for (size_t i = 0; i < text.len && state && !(state & any_rest); i++)
        state = (state & glob->takes[(unsigned char)text.ptr[i]][0]) << 1 | (state & stars);
    return state >> glob->nelements & 1;
}

bool glob_test(const struct glob *glob, struct slice text)
{
    uint64_t state[GLOB_COMPILED_WORDS] = {1};
    uint64_t left = 1;
    bool any_rest = has_bit(glob->stars, glob->nelements);

    if (glob->nwords == 1)
        return test_short(glob, text);
    for (size_t i = 0; i < text.len && left && !(any_rest && has_bit(state, glob->nelements)); i++) {
        const uint64_t *takes = glob->takes[(unsigned char)text.ptr[i]];
        uint64_t carry = 0;

        left = 0;
        for (unsigned w = 0; w < glob->nwords; w++) {
            uint64_t taken = state[w] & takes[w];

            state[w] = taken << 1 | carry | (state[w] & glob->stars[w]);
            carry = taken >> 63;
            left |= state[w];
        }
    }
    return has_bit(state, glob->nelements);
}
