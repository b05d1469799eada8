#include "quoted.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the byte that an escape in double quotes stands for. *read is behind the backslash and moves behind the
 * escape. */
static char unescape(const char **read, const char *end)
{
    const char *p = *read;

    if (end - p >= 3 && p[0] == 'x' && hex_digit(p[1]) >= 0 && hex_digit(p[2]) >= 0) {
        *read = p + 3;
        return (char)(hex_digit(p[1]) << 4 | hex_digit(p[2]));
    }
    *read = p + 1;
    switch (p[0]) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'b':
        return '\b';
    case 'a':
        return '\a';
    default:
        return p[0];
    }
}

bool quoted_take(const char **read, const char *end, char **write)
{
    const char *p = *read;
    char quote = *p++, *out = *write;

    while (p < end && *p != quote) {
        if (*p != '\\' || p + 1 == end) {
            *out++ = *p++;
        } else if (quote == '"') {
            p++;
            *out++ = unescape(&p, end);
        } else {
            if (p[1] == '\'') /* the only escape in single quotes */
                p++;
            *out++ = *p++;
        }
    }
    if (p == end)
        return false;
    *read = p + 1;
    *write = out;
    return true;
}
