#include "quoted.h"

#include <string.h>

#include "bytes.h"

/* Returns the byte of an escape in double quotes. *read is after the backslash and moves past the escape. */
static char unescape(const char **read, const char *end)
{
    static const char letters[] = "nrtba", bytes[] = "\n\r\t\b\a";
    const char *p = *read;
    int byte = end - p >= 3 && p[0] == 'x' ? hex_byte(p + 1) : -1;
    if (byte >= 0) {
        *read = p + 3;
        return (char)byte;
    }
    *read = p + 1;
    const char *at = memchr(letters, p[0], sizeof(letters) - 1);
    return at ? bytes[at - letters] : p[0];
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
