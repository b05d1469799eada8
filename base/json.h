/* json: writes JSON into a buf, without spaces. `key` is NULL within arrays; the writer adds the commas, except
 * after a line break.
 *
 * Thread: any, on distinct objects. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

void json_begin(struct buf *out, const char *key, char bracket); /* '{' or '[' */
void json_end(struct buf *out, char bracket);

void json_count(struct buf *out, const char *key, uint64_t value);
/* Several counts: JSON_COUNTS(out, {"k", k}, {"bits", bits}). */
struct json_number {
    const char *key;
    uint64_t value;
};
void json_counts(struct buf *out, const struct json_number *numbers, size_t n);
#define JSON_COUNTS(out, ...)                                     \
    json_counts((out), (const struct json_number[]){__VA_ARGS__}, \
                sizeof((const struct json_number[]){__VA_ARGS__}) / sizeof(struct json_number))

void json_real(struct buf *out, const char *key, double value); /* null unless finite */
void json_bool(struct buf *out, const char *key, bool value);
void json_null(struct buf *out, const char *key);

/* A string. Bytes that are not UTF-8 become U+FFFD; control characters and those special in HTML are escaped. */
void json_text(struct buf *out, const char *key, struct slice text);
void json_str(struct buf *out, const char *key, const char *text);

/* A string if the bytes are UTF-8, otherwise {"hex":"e9"}: different values never look alike. No escapes for HTML. */
void json_bytes(struct buf *out, const char *key, struct slice bytes);
