/* utf8: which bytes are UTF-8 (RFC 3629). Thread: any. */
#ifndef BLOOMERY_UTF8_H
#define BLOOMERY_UTF8_H

#include <stddef.h>

/* The length of the character at the front of the text, 1 to 4 bytes; 0 if there is none: no byte, a wrong one, a
 * character that is cut, a longer form than needed, a surrogate, a number above U+10FFFF. */
size_t utf8_char(const char *text, size_t len);

#endif
