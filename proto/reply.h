/* reply: replies in RESP2 and RESP3, written into a buf. A handler states what it means (a boolean, a map, a null)
 * and the writer finds the form that the connection's protocol version has for it.
 *
 * Never fails half-way: a failure is noted in the buf (buf.h). Aggregates are announced with their number of elements,
 * which the caller then writes. No text taken from a client can break the framing: in status and error texts every
 * control character (below 0x20, and 0x7f) is replaced by a space; bytes from 0x80 on pass, names may be UTF-8.
 *
 * Thread: any, on distinct objects. */
#ifndef BLOOMERY_REPLY_H
#define BLOOMERY_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "buf.h"

struct reply {
    struct buf *buf;
    int version; /* 2 or 3 */
};

void reply_status(struct reply *reply, const char *text);           /* +text */
void reply_error(struct reply *reply, const char *text);            /* -text; begins with its code: "ERR ..." */

/* As reply_error(), with a text that is formatted first. It is cut to REPLY_ERROR_MAX bytes, "..." at the end showing
 * it. */
#define REPLY_ERROR_MAX 1024
void reply_errorf(struct reply *reply, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void reply_integer(struct reply *reply, int64_t value);             /* :n */
void reply_null(struct reply *reply);                               /* $-1   | _ */
void reply_null_array(struct reply *reply);                         /* *-1   | _ */
void reply_bulk(struct reply *reply, const void *data, size_t len); /* $n; data may be NULL when len is 0 */
void reply_bulk_str(struct reply *reply, const char *text);
void reply_double(struct reply *reply, double value);               /* $n (shortest round-trip) | ,x */
void reply_array(struct reply *reply, size_t n);                    /* *n */
void reply_map(struct reply *reply, size_t pairs);                  /* *2n   | %n */
void reply_set(struct reply *reply, size_t n);                      /* *n    | ~n */
void reply_push(struct reply *reply, size_t n);                     /* *n    | >n */

/* A text with its kind, `ext`, of three characters ("txt", "mkd"). */
void reply_verbatim(struct reply *reply, const char *ext, const void *data, size_t len); /* $n | =n ext: */

/* :0 :1 | #f #t. Inline: it is the answer to nearly every command there is, a hundred of them to a batch. */
static inline void reply_bool(struct reply *reply, bool value)
{
    char *room = buf_reserve(reply->buf, 4);

    if (room != NULL) {
        memcpy(room, reply->version == 3 ? (value ? "#t\r\n" : "#f\r\n") : (value ? ":1\r\n" : ":0\r\n"), 4);
        buf_commit(reply->buf, 4);
    }
}

/* n replies (1..32) as by reply_bool(), of bits 0 to n - 1: the answers to a pipeline, in one piece. */
void reply_bools(struct reply *reply, uint32_t bits, size_t n);

/* An array whose length is known only afterwards: begin, write elements, end with their number. The content is moved
 * by the few bytes that a number of more than one digit needs. The token is opaque; nothing may be consumed from the
 * buf between begin and end. */
size_t reply_array_begin(struct reply *reply);
void reply_array_end(struct reply *reply, size_t token, size_t n);

/* The same for a map of n pairs. */
size_t reply_map_begin(struct reply *reply);
void reply_map_end(struct reply *reply, size_t token, size_t pairs);

#endif
