/* Inline commands: words as a human types them. The quoting is that of redis-cli: "..." with \n \r \t \b \a \xHH and a
 * backslash before anything else for itself; '...' with \' alone. A word may begin unquoted and go on in quotes, but
 * behind a closing quote it must end. */
#include "resp_internal.h"

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Unescapes what follows a backslash in double quotes: from *read, which moves on, to the byte returned. */
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

/* Copies the quoted text that begins at *read, its opening quote, to *write. False if the closing quote is missing or
 * glued to what follows. */
static bool take_quoted(const char **read, const char *end, char **write)
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
    p++;
    *read = p;
    *write = out;
    return p == end || is_space(*p);
}

enum split resp_split_line(char *line, size_t len, const struct resp_limits *limits, struct resp_args *list)
{
    const char *p = line, *end = line + len;

    for (;;) {
        while (p < end && is_space(*p))
            p++;
        if (p == end)
            return SPLIT_FINE;

        size_t off = (size_t)(p - line);
        char *write = line + off;
        while (p < end && *p != ' ' && *p != '\t' && *p != '\r') {
            if (*p == '"' || *p == '\'') {
                if (!take_quoted(&p, end, &write))
                    return SPLIT_QUOTES;
                break;
            }
            *write++ = *p++;
        }

        size_t word_len = (size_t)(write - line) - off;
        if (list->count == limits->max_args)
            return SPLIT_TOO_MANY;
        if (word_len > limits->max_bulk)
            return SPLIT_TOO_LONG;
        if (!resp_args_add(list, off, word_len))
            return SPLIT_NO_MEMORY;
    }
}
