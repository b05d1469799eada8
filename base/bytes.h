/* bytes: numbers in the byte order that a format names, little-endian (le) or big-endian (be). Positions need no
 * alignment, but room. Each *_put() returns the position after the bytes it wrote. Thread: any. */
#pragma once

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BYTES_OF(order, bits, to, from)                                                     \
    static inline unsigned char *order##bits##_put(unsigned char *at, uint##bits##_t value) \
    {                                                                                       \
        value = to(value);                                                                  \
        memcpy(at, &value, sizeof(value));                                                  \
        return at + sizeof(value);                                                          \
    }                                                                                       \
    static inline uint##bits##_t order##bits##_get(const unsigned char *at)                 \
    {                                                                                       \
        uint##bits##_t value;                                                               \
        memcpy(&value, at, sizeof(value));                                                  \
        return from(value);                                                                 \
    }

/* le16_put() and le16_get(), and so on. */
BYTES_OF(le, 16, htole16, le16toh)
BYTES_OF(le, 32, htole32, le32toh)
BYTES_OF(le, 64, htole64, le64toh)
BYTES_OF(be, 16, htobe16, be16toh)
BYTES_OF(be, 32, htobe32, be32toh)
BYTES_OF(be, 64, htobe64, be64toh)

/* Four bytes as a word, for comparisons of four at a time. */
static inline uint32_t bytes_word(const char *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof(word));
    return word;
}

/* A double is the eight bytes of its IEEE 754 form. */
static inline unsigned char *le_double_put(unsigned char *at, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return le64_put(at, bits);
}

static inline double le_double_get(const unsigned char *at)
{
    uint64_t bits = le64_get(at);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* The value of a hexadecimal digit; -1 for another character. */
static inline int hex_value(char c)
{
    char lower = (char)(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* The byte of two hexadecimal digits; -1 for other characters. */
static inline int hex_byte(const char *at)
{
    int high = hex_value(at[0]), low = high < 0 ? -1 : hex_value(at[1]);
    return low < 0 ? -1 : high << 4 | low;
}

/* Two lower-case digits, without a NUL. Returns the position after them. */
static inline char *hex_put(char *at, char byte)
{
    static const char digits[] = "0123456789abcdef";
    *at++ = digits[(unsigned char)byte >> 4];
    *at++ = digits[byte & 15];
    return at;
}

/* The escape \xHH, likewise. */
static inline char *hex_escape(char *at, char byte)
{
    *at++ = '\\';
    *at++ = 'x';
    return hex_put(at, byte);
}

static inline bool bytes_are_zero(const unsigned char *at, size_t len)
{
    unsigned char any = 0;

    for (size_t i = 0; i < len; i++)
        any |= at[i];
    return any == 0;
}
