#include "nearest.h"

#include <ctype.h>
#include <stdint.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int lower(struct slice word, size_t i)
{
    return tolower((unsigned char)word.ptr[i]);
}

size_t nearest_distance(struct slice a, struct slice b)
{
    size_t rows[3][NEAREST_MAX + 1]; /* of the prefixes of `a` of three lengths: to each prefix of `b` */
    if (a.len > NEAREST_MAX || b.len > NEAREST_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= b.len; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        size_t *now = rows[i % 3], *before = rows[(i + 2) % 3], *two_before = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            now[j] = least(before[j - 1] + (lower(a, i - 1) != lower(b, j - 1)), least(before[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && lower(a, i - 1) == lower(b, j - 2) && lower(a, i - 2) == lower(b, j - 1))
                now[j] = least(now[j], two_before[j - 2] + 1);
        }
    }
    return rows[a.len % 3][b.len];
}

bool nearest_is_slip(struct slice unknown, size_t distance)
{
    return distance <= 2 && 2 * distance < unknown.len;
}
