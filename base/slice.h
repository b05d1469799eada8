/* slice: a borrowed range of bytes, and the words and numbers that a client's argument can hold.
 *
 * A slice owns nothing and is valid as long as the bytes are. Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct slice {
    const char *ptr; /* not NUL-terminated; may be NULL when len is 0 */
    size_t len;
};

static inline struct slice slice_of(const char *text)
{
    return (struct slice){text, strlen(text)};
}

/* The part of an argument that a message repeats, for "%.*s". */
#define SLICE_SHOWN_MAX 128
static inline int slice_shown(struct slice arg)
{
    return arg.len < SLICE_SHOWN_MAX ? (int)arg.len : SLICE_SHOWN_MAX;
}

static inline bool slice_equal(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* The order of the bytes, as memcmp() has it. A slice with which another one begins comes first. */
static inline int slice_compare(struct slice a, struct slice b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len ? memcmp(a.ptr, b.ptr, len) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

/* Malloc'ed, with a NUL after it; NULL without memory. */
static inline char *slice_copy(struct slice text)
{
    char *copy = malloc(text.len + 1);
    if (copy && text.len)
        memcpy(copy, text.ptr, text.len);
    if (copy)
        copy[text.len] = '\0';
    return copy;
}

static inline unsigned char slice_lower(char c) /* of ASCII letters */
{
    unsigned char u = (unsigned char)c;
    return (unsigned char)(u - 'A') < 26 ? (unsigned char)(u + ('a' - 'A')) : u;
}

/* Whether the argument is this word, ASCII case ignored. */
bool slice_is(struct slice arg, const char *word);

/* Reads digits of the base, at most 10: at least one, and at most 64 bits. False otherwise. */
bool slice_to_digits(struct slice arg, unsigned base, uint64_t *value_out);

/* Reads a decimal integer as strictly as Redis ("-?[1-9][0-9]*" or "0", no spaces, no plus). False if it is none; then
 * *value_out is untouched. */
bool slice_to_int64(struct slice arg, int64_t *value_out);

/* Reads a floating-point number that fills the whole argument. Hexadecimal, infinite and denormal numbers are accepted,
 * but no NaN, and no finite number that would become 0 or infinity. False otherwise; then *value_out is untouched. */
bool slice_to_double(struct slice arg, double *value_out);

/* The length of the first character of a text in UTF-8 (RFC 3629), 1 to 4 bytes. 0 for an empty text, an invalid byte,
 * a truncated character, an overlong form, a surrogate, or a number above U+10FFFF. */
size_t utf8_char(const char *text, size_t len);
