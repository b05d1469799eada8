#include "slice.h"

#include <errno.h>
#include <float.h>
#include <math.h>

#define DOUBLE_TEXT 128 /* further digits do not change a double */

bool slice_is(struct slice arg, const char *word)
{
    size_t i;
    for (i = 0; i < arg.len && word[i] != '\0'; i++)
        if (slice_lower(arg.ptr[i]) != slice_lower(word[i]))
            return false;
    return i == arg.len && word[i] == '\0';
}

bool slice_to_digits(struct slice arg, unsigned base, uint64_t *value_out)
{
    uint64_t value = 0;

    for (size_t i = 0; i < arg.len; i++) {
        unsigned digit = (unsigned char)arg.ptr[i] - (unsigned)'0';

        if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *value_out = value;
    return arg.len > 0;
}

bool slice_to_int64(struct slice arg, int64_t *value_out)
{
    bool negative = arg.len > 0 && arg.ptr[0] == '-';
    struct slice digits = {negative ? arg.ptr + 1 : arg.ptr, arg.len - negative};
    uint64_t value;

    if (!slice_to_digits(digits, 10, &value) || value > (uint64_t)INT64_MAX + negative ||
        (digits.ptr[0] == '0' && arg.len > 1))
        return false;
    *value_out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

/* "0.01", "100": a significand below 2^53 and a power of ten up to 10^22 are exact doubles, so one division of them
 * rounds as strtod() does, in a tenth of its instructions (W. D. Clinger, How to Read Floating Point Numbers
 * Accurately, 1990). False for another form or more digits. */
static bool short_decimal(struct slice arg, double *value_out)
{
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    uint64_t significand = 0;
    size_t point = arg.len;
    if (FLT_EVAL_METHOD != 0 || arg.len == 0 || arg.len > 16)
        return false;
    for (size_t i = 0; i < arg.len; i++) {
        if (arg.ptr[i] == '.' && point == arg.len)
            point = i;
        else if (arg.ptr[i] >= '0' && arg.ptr[i] <= '9')
            significand = significand * 10 + (uint64_t)(arg.ptr[i] - '0');
        else
            return false;
    }
    size_t decimals = arg.len - point - (point < arg.len);
    if (arg.len - (point < arg.len) == 0 || significand >> 53)
        return false;
    *value_out = (double)significand / powers[decimals];
    return true;
}

bool slice_to_double(struct slice arg, double *value_out)
{
    if (short_decimal(arg, value_out))
        return true;
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

size_t utf8_char(const char *text, size_t len)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)text;

    if (len == 0)
        return 0;
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    if (n == 0 || n > len)
        return 0;
    uint32_t code = n == 1 ? s[0] : s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2)
            return 0;
        code = code << 6 | (s[i] & 0x3fu);
    }
    return code < smallest[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : n;
}
