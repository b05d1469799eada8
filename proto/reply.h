/* reply: writes replies in RESP2 and RESP3 into a buf. A handler names a value (a boolean, a map, a null), and the
 * writer chooses its form in the connection's protocol version.
 *
 * A reply never fails half-way: the buf remembers a failure (buf.h). An aggregate begins with its number of elements,
 * which the caller writes next. No text from a client can break the framing: in status and error texts a space replaces
 * every control character (below 0x20, and 0x7f). Bytes from 0x80 on pass, because names may be UTF-8.
 *
 * Thread: any, on distinct objects. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "buf.h"

struct reply {
    struct buf *buf;
    int version; /* 2 or 3 */
};

void reply_status(struct reply *reply, const char *text); /* +text */

/* -text; begins with its code: "ERR ...". Both are false, for a check that refuses: return reply_error(...). A
 * formatted text longer than REPLY_ERROR_MAX bytes is cut and ends with "...". */
#define REPLY_ERROR_MAX 1024
bool reply_error(struct reply *reply, const char *text);
bool reply_errorf(struct reply *reply, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void reply_integer(struct reply *reply, int64_t value);             /* :n */
void reply_null(struct reply *reply);                               /* $-1   | _ */
void reply_null_array(struct reply *reply);                         /* *-1   | _ */
void reply_bulk(struct reply *reply, const void *data, size_t len); /* $n; data may be NULL when len is 0 */
void reply_bulk_take(struct reply *reply, void *data, size_t len);  /* the same of malloc'ed bytes, which pass to it;
                                                                     * a reply of any size */
void reply_bulk_str(struct reply *reply, const char *text);
void reply_double(struct reply *reply, double value); /* $n (shortest round-trip) | ,x */

/* The text of reply_double(), NUL-terminated, for a host that writes its replies otherwise. */
#define REPLY_DOUBLE_MAX 32 /* "-2.2250738585072014e-308" and its NUL */
void reply_double_text(double value, char text_out[REPLY_DOUBLE_MAX]);

void reply_array(struct reply *reply, size_t n);   /* *n */
void reply_map(struct reply *reply, size_t pairs); /* *2n   | %n */
void reply_set(struct reply *reply, size_t n);     /* *n    | ~n */
void reply_push(struct reply *reply, size_t n);    /* *n    | >n */

/* A text with its kind, `ext`, of three characters ("txt", "mkd"). */
void reply_verbatim(struct reply *reply, const char *ext, const void *data, size_t len); /* $n | =n ext: */

/* :0 :1 | #f #t. Inline: most replies are one of these, and a batch has hundreds of them. */
static inline void reply_bool(struct reply *reply, bool value)
{
    char *room = buf_reserve(reply->buf, 4);

    if (room) {
        memcpy(room, reply->version == 3 ? (value ? "#t\r\n" : "#f\r\n") : (value ? ":1\r\n" : ":0\r\n"), 4);
        buf_commit(reply->buf, 4);
    }
}

/* Writes bits 0 to n - 1 as n replies (1..32) of reply_bool(): the answers to a pipeline, in one piece. */
void reply_bools(struct reply *reply, uint32_t bits, size_t n);

/* An array whose length is known only at its end: begin, write the elements, end with their number. A number of more
 * than one digit moves the content by a few bytes. Nothing may be consumed from the buf between begin and end. */
size_t reply_array_begin(struct reply *reply);
void reply_array_end(struct reply *reply, size_t token, size_t n);

/* The same for a map of n pairs. */
size_t reply_map_begin(struct reply *reply);
void reply_map_end(struct reply *reply, size_t token, size_t pairs);
