/* text: bytes that grow, for requests in one piece. Zero-initialise; the caller frees `data`. */
#pragma once

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
    char *data; /* with a NUL after it */
    size_t len, size;
};

static inline char *text_room(struct text *text, size_t n)
{
    if (text->size - text->len <= n)
        cr_assert(text->data = realloc(text->data, text->size = text->size * 2 + n + 65536));
    return text->data + text->len;
}

static inline void text_add(struct text *text, const void *data, size_t len)
{
    char *at = text_room(text, len);

    if (len)
        memcpy(at, data, len);
    at[len] = '\0';
    text->len += len;
}

static inline void __attribute__((format(printf, 2, 3))) text_print(struct text *text, const char *format, ...)
{
    va_list args, again;

    va_start(args, format);
    va_copy(again, args);
    size_t len = (size_t)vsnprintf(NULL, 0, format, args);
    vsnprintf(text_room(text, len), len + 1, format, again);
    text->len += len;
    va_end(again);
    va_end(args);
}
