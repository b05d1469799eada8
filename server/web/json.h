/* json: writes JSON into a buf. Keys are NULL within arrays; commas come by themselves.
 *
 * Thread: any, on distinct objects. */
#ifndef BLOOMERY_JSON_H
#define BLOOMERY_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "resp_parse.h"

void json_begin(struct buf *out, const char *key, char bracket); /* '{' or '[' */
void json_end(struct buf *out, char bracket);

void json_count(struct buf *out, const char *key, uint64_t value);
void json_real(struct buf *out, const char *key, double value); /* null if it is no number */
void json_bool(struct buf *out, const char *key, bool value);
void json_null(struct buf *out, const char *key);

/* Bytes that are no UTF-8 become U+FFFD; control characters and those that mean something in HTML are escaped. */
void json_text(struct buf *out, const char *key, struct slice text);
void json_str(struct buf *out, const char *key, const char *text);

#endif
