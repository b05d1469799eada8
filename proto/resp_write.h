/* resp_write: replies in RESP2 and RESP3, written into a buf. A handler states what it means (a boolean, a map, a null)
 * and the writer finds the form that the connection's protocol version has for it.
 *
 * Never fails half-way: a failure is noted in the buf (buf.h). Aggregates are announced with their number of elements,
 * which the caller then writes. No text taken from a client can break the framing: status and error texts are cleaned of
 * control characters.
 *
 * Thread: any, on distinct objects. */
#ifndef BLOOMERY_RESP_WRITE_H
#define BLOOMERY_RESP_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

struct resp_writer {
    struct buf *buf;
    int version; /* 2 or 3 */
};

void resp_status(struct resp_writer *w, const char *text);                        /* +text */
void resp_error(struct resp_writer *w, const char *text);                         /* -text; begins with its code: "ERR ..." */
void resp_errorf(struct resp_writer *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void resp_integer(struct resp_writer *w, int64_t value);                          /* :n */
void resp_bool(struct resp_writer *w, bool value);                                /* :0 :1 | #f #t */
void resp_null(struct resp_writer *w);                                            /* $-1   | _ */
void resp_null_array(struct resp_writer *w);                                      /* *-1   | _ */
void resp_bulk(struct resp_writer *w, const void *data, size_t len);              /* $n */
void resp_bulk_str(struct resp_writer *w, const char *text);
void resp_double(struct resp_writer *w, double value);                            /* $n (shortest round-trip) | ,x */
void resp_verbatim(struct resp_writer *w, const char *ext, const void *data, size_t len); /* $n | =n ext: */
void resp_array(struct resp_writer *w, size_t n);                                 /* *n */
void resp_map(struct resp_writer *w, size_t pairs);                               /* *2n   | %n */
void resp_set(struct resp_writer *w, size_t n);                                   /* *n    | ~n */
void resp_push(struct resp_writer *w, size_t n);                                  /* *n    | >n */

/* An array whose length is known only afterwards: begin, write elements, end with their number. The content is moved
 * by the few bytes the number needs. The token is opaque. */
size_t resp_array_begin(struct resp_writer *w);
void resp_array_end(struct resp_writer *w, size_t token, size_t n);

#endif
