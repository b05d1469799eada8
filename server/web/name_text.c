#include "name_text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "murmur3.h"

#define HASH_DIGITS 16

/* Wrong bytes, overlong forms and surrogates are none. */
size_t utf8_char(struct slice text)
{
    const unsigned char *p = (const unsigned char *)text.ptr;
    if (p[0] < 0x80)
        return 1;
    size_t len = p[0] >= 0xc2 && p[0] <= 0xdf ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4 : 0;
    if (len == 0 || text.len < len)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
        (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return len;
}

/* C0, DEL and C1. */
static bool is_control(const char *at, size_t len)
{
    unsigned char first = (unsigned char)at[0];
    return len == 1 ? first < 0x20 || first == 0x7f : len == 2 && first == 0xc2 && (unsigned char)at[1] < 0xa0;
}

static bool ends_in_hash(struct slice name)
{
    if (name.len <= HASH_DIGITS || name.ptr[name.len - HASH_DIGITS - 1] != '~')
        return false;
    for (size_t i = name.len - HASH_DIGITS; i < name.len; i++)
        if (!strchr("0123456789abcdef", name.ptr[i]) || name.ptr[i] == '\0')
            return false;
    return true;
}

void name_text(struct slice name, struct name_text *text_out)
{
    size_t used = 0, at = 0;
    bool exact = !ends_in_hash(name);
    while (at < name.len && at < NAME_TEXT_MAX) {
        size_t len = utf8_char((struct slice){name.ptr + at, name.len - at});
        if (at + len > NAME_TEXT_MAX)
            break;
        if (len > 0 && !is_control(name.ptr + at, len)) {
            memcpy(text_out->text + used, name.ptr + at, len);
            used += len;
            at += len;
            continue;
        }
        used += (size_t)snprintf(text_out->text + used, 5, "\\x%02x", (unsigned char)name.ptr[at++]);
        exact = false;
    }
    if (!exact || at < name.len)
        used += (size_t)snprintf(text_out->text + used, HASH_DIGITS + 2, "~%016" PRIx64,
                                 murmur3_hash(name.ptr, name.len).h1);
    text_out->len = used;
}
