/* Inline commands: words as a person types them. A word may begin unquoted and continue in quotes, but a closing quote
 * ends it. */
#include "quoted.h"
#include "resp_internal.h"

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
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
                if (!quoted_take(&p, end, &write) || (p < end && !is_space(*p)))
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
