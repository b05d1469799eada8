/* bytes: numbers in the byte order that a format names, little-endian (le) or big-endian (be). Positions need no
 * alignment; the caller has checked that there is room. Each *_put() returns the position behind what it has written.
 * Inline. Thread: any. */
#ifndef BLOOMERY_BYTES_H
#define BLOOMERY_BYTES_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline unsigned char *le16_put(unsigned char *at, uint16_t value)
{
    value = htole16(value);
    memcpy(at, &value, sizeof(value));
    return at + sizeof(value);
}

static inline uint16_t le16_get(const unsigned char *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof(value));
    return le16toh(value);
}

static inline unsigned char *le32_put(unsigned char *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof(value));
    return at + sizeof(value);
}

static inline uint32_t le32_get(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof(value));
    return le32toh(value);
}

static inline unsigned char *le64_put(unsigned char *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof(value));
    return at + sizeof(value);
}

static inline uint64_t le64_get(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return le64toh(value);
}

static inline unsigned char *be32_put(unsigned char *at, uint32_t value)
{
    value = htobe32(value);
    memcpy(at, &value, sizeof(value));
    return at + sizeof(value);
}

static inline uint32_t be32_get(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof(value));
    return be32toh(value);
}

static inline unsigned char *be64_put(unsigned char *at, uint64_t value)
{
    value = htobe64(value);
    memcpy(at, &value, sizeof(value));
    return at + sizeof(value);
}

static inline uint64_t be64_get(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return be64toh(value);
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

static inline bool bytes_are_zero(const unsigned char *at, size_t len)
{
    unsigned char any = 0;

    for (size_t i = 0; i < len; i++)
        any |= at[i];
    return any == 0;
}

#endif
