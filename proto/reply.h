/* reply: replies in RESP2 and RESP3, written into a buf. A handler states what it means (a boolean, a map, a null)
 * and the writer finds the form that the connection's protocol version has for it.
 *
 * Never fails half-way: a failure is noted in the buf (buf.h). Aggregates are announced with their number of elements,
 * which the caller then writes. No text taken from a client can break the framing: status and error texts are cleaned of
 * control characters.
 *
 * Thread: any, on distinct objects. */
#ifndef BLOOMERY_REPLY_H
#define BLOOMERY_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

struct reply {
    struct buf *buf;
    int version; /* 2 or 3 */
};

void reply_status(struct reply *reply, const char *text);                        /* +text */
void reply_error(struct reply *reply, const char *text);                         /* -text; begins with its code: "ERR ..." */
void reply_errorf(struct reply *reply, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void reply_integer(struct reply *reply, int64_t value);                          /* :n */
void reply_bool(struct reply *reply, bool value);                                /* :0 :1 | #f #t */
void reply_null(struct reply *reply);                                            /* $-1   | _ */
void reply_null_array(struct reply *reply);                                      /* *-1   | _ */
void reply_bulk(struct reply *reply, const void *data, size_t len);              /* $n */
void reply_bulk_str(struct reply *reply, const char *text);
void reply_double(struct reply *reply, double value);                            /* $n (shortest round-trip) | ,x */
void reply_verbatim(struct reply *reply, const char *ext, const void *data, size_t len); /* $n | =n ext: */
void reply_array(struct reply *reply, size_t n);                                 /* *n */
void reply_map(struct reply *reply, size_t pairs);                               /* *2n   | %n */
void reply_set(struct reply *reply, size_t n);                                   /* *n    | ~n */
void reply_push(struct reply *reply, size_t n);                                  /* *n    | >n */

/* An array whose length is known only afterwards: begin, write elements, end with their number. The content is moved
 * by the few bytes the number needs. The token is opaque. */
size_t reply_array_begin(struct reply *reply);
void reply_array_end(struct reply *reply, size_t token, size_t n);

#endif
