/* Shared between log_payload.c and log_old.c: numbers of 7 bits a byte, low bits first; the top bit says that more
 * follow. A cursor reads them and other values, and never beyond its end. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "bytes.h"
#include "log_payload.h"

#define VARINT_MAX 10 /* bytes of the largest number */

/* Writes at most VARINT_MAX bytes; returns where to continue. */
static inline unsigned char *varint_put(unsigned char *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    *at++ = (unsigned char)value;
    return at;
}

/* Reads a number from [*at, end) and moves *at after it. False, with nothing moved: it is cut off, does not fit 64
 * bits, or is longer than necessary (so that each number has one form). */
static inline bool varint_get(const unsigned char **at, const unsigned char *end, uint64_t *value_out)
{
    uint64_t value = 0;
    unsigned shift = 0;

    for (const unsigned char *p = *at; p < end && shift < 64; p++, shift += 7) {
        uint64_t low = *p & 0x7f;

        if (shift == 63 && low > 1)
            return false;
        value |= low << shift;
        if (*p & 0x80)
            continue;
        if (low == 0 && shift > 0)
            return false;
        *value_out = value;
        *at = p + 1;
        return true;
    }
    return false;
}

/* The bytes left to read. `bad` stays set once a value was cut off or not possible; all further values are 0. */
struct cursor {
    const unsigned char *at, *begin, *end;
    bool bad;
};

/* `bytes` may be NULL if there are none. */
static inline struct cursor cursor_of(const void *bytes, size_t len)
{
    return (struct cursor){.at = bytes, .begin = bytes, .end = len ? (const unsigned char *)bytes + len : bytes};
}

static inline uint64_t cursor_number(struct cursor *c)
{
    uint64_t value = 0;

    if (!c->bad && !varint_get(&c->at, c->end, &value))
        c->bad = true;
    return value;
}

/* The next `len` bytes; NULL if there are fewer. */
static inline const unsigned char *cursor_bytes(struct cursor *c, uint64_t len)
{
    const unsigned char *at = c->at;

    if (c->bad || (uint64_t)(c->end - at) < len) {
        c->bad = true;
        return NULL;
    }
    c->at += len;
    return at;
}

static inline void cursor_get(struct cursor *c, void *out, size_t len)
{
    const unsigned char *at = cursor_bytes(c, len);

    if (at)
        memcpy(out, at, len);
}

static inline uint8_t cursor_byte(struct cursor *c)
{
    const unsigned char *at = cursor_bytes(c, 1);
    return at ? *at : 0;
}

static inline uint64_t cursor_u64(struct cursor *c)
{
    const unsigned char *at = cursor_bytes(c, 8);
    return at ? le64_get(at) : 0;
}

static inline double cursor_double(struct cursor *c)
{
    const unsigned char *at = cursor_bytes(c, 8);
    return at ? le_double_get(at) : 0;
}

/* The next control record: its kind and its fields. */
void log_get_control(struct cursor *c, struct log_control *control);

/* A number of the counted ones. */
uint64_t log_get_counted(struct cursor *c, uint64_t min);

/* LOG_DAMAGED, with the place of the cursor. */
int log_payload_damaged(const struct cursor *c, const char *what, struct errbuf *err);
