/* name_text: names of filters, which are any bytes, as printable UTF-8.
 *
 * Thread: any. */
#ifndef BLOOMERY_NAME_TEXT_H
#define BLOOMERY_NAME_TEXT_H

#include <stddef.h>

#include "resp_parse.h"

#define NAME_TEXT_MAX  128 /* bytes of a name that are shown */
#define NAME_TEXT_SIZE (4 * NAME_TEXT_MAX + 24)

struct name_text {
    size_t len;
    char text[NAME_TEXT_SIZE]; /* valid UTF-8 without control characters */
};

/* The length of the UTF-8 character at the front of a text that is not empty; 0 if there is none. */
size_t utf8_char(struct slice text);

/* Short names of valid UTF-8 without control characters are shown as they are. In others each byte that is neither is
 * \xHH, what is beyond NAME_TEXT_MAX bytes is left out, and a '~' with 16 digits of the name's hash follows, so that
 * different names have different texts. */
void name_text(struct slice name, struct name_text *text_out);

#endif
