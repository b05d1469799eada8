#include "name_code.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define NUMBERED_PREFIX "%~"
#define MAX_DIGITS 20

static const char hex_digits[] = "0123456789ABCDEF";

static bool stands_for_itself(unsigned char byte, size_t at)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '_' ||
           byte == '-' || (byte == '.' && at > 0);
}

size_t name_encoded_len(const char *name, size_t len)
{
    size_t encoded = 0;

    for (size_t i = 0; i < len; i++)
        encoded += stands_for_itself((unsigned char)name[i], i) ? 1 : 3;
    return encoded;
}

void name_encode(const char *name, size_t len, char *out)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)name[i];

        if (stands_for_itself(byte, i)) {
            *out++ = (char)byte;
        } else {
            *out++ = '%';
            *out++ = hex_digits[byte >> 4];
            *out++ = hex_digits[byte & 15];
        }
    }
}

static int hex_value(char c)
{
    const char *at = c ? strchr(hex_digits, c) : NULL;

    return at ? (int)(at - hex_digits) : -1;
}

bool name_decode(const char *text, size_t len, char *out, size_t *len_out)
{
    size_t n = 0;

    for (size_t i = 0; i < len; n++) {
        if (stands_for_itself((unsigned char)text[i], n)) {
            out[n] = text[i++];
            continue;
        }
        if (text[i] != '%' || len - i < 3 || hex_value(text[i + 1]) < 0 || hex_value(text[i + 2]) < 0)
            return false;
        unsigned char byte = (unsigned char)(hex_value(text[i + 1]) << 4 | hex_value(text[i + 2]));
        if (stands_for_itself(byte, n))
            return false;
        out[n] = (char)byte;
        i += 3;
    }
    *len_out = n;
    return true;
}

void name_dir(const char *name, size_t len, uint64_t id, char out[NAME_DIR_MAX + 1])
{
    size_t encoded = name_encoded_len(name, len);

    if (encoded > 0 && encoded <= NAME_DIR_MAX) {
        name_encode(name, len, out);
        out[encoded] = '\0';
        return;
    }
    snprintf(out, NAME_DIR_MAX + 1, "%s%" PRIu64, NUMBERED_PREFIX, id);
}

void name_dir_alternate(uint64_t id, unsigned number, char out[NAME_DIR_MAX + 1])
{
    snprintf(out, NAME_DIR_MAX + 1, "%s%" PRIu64 "-%u", NUMBERED_PREFIX, id, number);
}

/* Digits, the first of which is not 0; their count, 0 when there is no such number. */
static size_t number_len(const char *text, size_t len)
{
    size_t n = 0;

    while (n < len && text[n] >= '0' && text[n] <= '9')
        n++;
    return n == 0 || n > MAX_DIGITS || text[0] == '0' ? 0 : n;
}

static bool is_numbered(const char *dir, size_t len)
{
    size_t prefix = strlen(NUMBERED_PREFIX);

    if (len <= prefix || memcmp(dir, NUMBERED_PREFIX, prefix) != 0)
        return false;
    dir += prefix;
    len -= prefix;
    size_t id = number_len(dir, len);
    if (id == 0 || id == len)
        return id > 0;
    return dir[id] == '-' && len - id > 1 && number_len(dir + id + 1, len - id - 1) == len - id - 1;
}

bool name_dir_valid(const char *dir, size_t len)
{
    char name[NAME_DIR_MAX];
    size_t name_len;

    return is_numbered(dir, len) || (len >= 1 && len <= NAME_DIR_MAX && name_decode(dir, len, name, &name_len));
}
