/* Every element but '*' takes exactly one byte, so when a match fails behind a star only the latest star needs to be
 * reconsidered: whatever an earlier one could take in addition, the later one can take as well. Hence one place to go
 * back to instead of a stack of them, and no more than length times length steps. */
#include "glob.h"

#include <stddef.h>

static unsigned char fold(char c, bool ignore_case)
{
    unsigned char u = (unsigned char)c;

    return ignore_case && u >= 'A' && u <= 'Z' ? (unsigned char)(u + ('a' - 'A')) : u;
}

/* Whether the byte is in the set whose first byte behind '[' is at `*at`; moves `*at` behind the set. */
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

/* Whether the element at `*at`, which is not a star, takes the byte; moves `*at` behind it. */
static bool element_match(struct slice pattern, size_t *at, char c, bool ignore_case)
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

bool glob_match(struct slice pattern, struct slice text, bool ignore_case)
{
    size_t p = 0, t = 0;
    size_t star = 0, star_text = 0; /* behind the latest star; the text it has not taken yet */
    bool starred = false;

    while (t < text.len) {
        if (p < pattern.len && pattern.ptr[p] == '*') {
            star = ++p;
            star_text = t;
            starred = true;
            if (star == pattern.len)
                return true;
        } else if (p < pattern.len && element_match(pattern, &p, text.ptr[t], ignore_case)) {
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
