#include "slice.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DOUBLE_TEXT 128 /* further digits do not change a double */

bool slice_is(struct slice arg, const char *word)
{
    size_t i;
    for (i = 0; i < arg.len && word[i] != '\0'; i++) {
        if (slice_lower(arg.ptr[i]) != slice_lower(word[i]))
            return false;
    }
    return i == arg.len && word[i] == '\0';
}

bool slice_to_int64(struct slice arg, int64_t *value_out)
{
    bool negative = arg.len > 0 && arg.ptr[0] == '-';
    uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    uint64_t value = 0;
    size_t first = negative ? 1 : 0;

    if (arg.len == first || (arg.ptr[first] == '0' && arg.len > 1))
        return false;
    for (size_t i = first; i < arg.len; i++) {
        unsigned digit = (unsigned char)arg.ptr[i] - (unsigned)'0';
        if (digit > 9 || value > (limit - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *value_out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

bool slice_to_double(struct slice arg, double *value_out)
{
    char text[DOUBLE_TEXT], *end;
    if (arg.len == 0 || arg.len >= sizeof(text) || strchr(" \t\n\v\f\r", arg.ptr[0]) || memchr(arg.ptr, '\0', arg.len))
        return false;
    memcpy(text, arg.ptr, arg.len);
    text[arg.len] = '\0';
    errno = 0;
    double value = strtod(text, &end);
    if (*end != '\0' || isnan(value) || (errno == ERANGE && (value == 0 || isinf(value))))
        return false;
    *value_out = value;
    return true;
}
