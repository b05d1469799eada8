/* utf8: checks of UTF-8 (RFC 3629). Thread: any. */
#ifndef BLOOMERY_UTF8_H
#define BLOOMERY_UTF8_H

#include <stddef.h>

/* The length of the first character of the text, 1 to 4 bytes. 0 for an empty text, an invalid byte, a truncated
 * character, an overlong form, a surrogate, or a number above U+10FFFF. */
size_t utf8_char(const char *text, size_t len);

#endif
