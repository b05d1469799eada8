/* Shared by the files of the request parser only. */
#ifndef BLOOMERY_RESP_INTERNAL_H
#define BLOOMERY_RESP_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "resp_parse.h"

/* Four bytes as a word, for comparisons of four at a time. */
static inline uint32_t resp_load32(const char *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof(word));
    return word;
}

/* Makes room for at least one more argument, by doubling. False when memory is out. */
bool resp_args_grow(struct resp_args *args);

/* Both numbers are at most UINT32_MAX. False when memory is out. */
static inline bool resp_args_add(struct resp_args *args, size_t off, size_t len)
{
    if (args->count == args->size && !resp_args_grow(args))
        return false;
    args->spans[args->count++] = (struct resp_span){(uint32_t)off, (uint32_t)len};
    return true;
}

enum split {
    SPLIT_FINE,
    SPLIT_QUOTES,   /* unbalanced */
    SPLIT_TOO_MANY, /* more than max_args */
    SPLIT_TOO_LONG, /* an argument is longer than max_bulk */
    SPLIT_NO_MEMORY,
};

/* Splits an inline command, without its line end and without NUL bytes, into the arguments it adds to `list`. An
 * argument never gets longer by unescaping, so it is rewritten where it is. */
enum split resp_split_line(char *line, size_t len, const struct resp_limits *limits, struct resp_args *list);

#endif
