/* name_code: a filter's name, which is any bytes, as printable text: in the MANIFEST and in messages.
 *
 * [A-Za-z0-9_-] and a '.' that is not the first byte represent themselves; every other byte is %XX in upper-case
 * hexadecimal. So the encoding is printable, has no '/', is never "." or "..", and one name has one encoding.
 *
 * Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the encoding. */
size_t name_encoded_len(const char *name, size_t len);

/* Writes name_encoded_len() bytes, no NUL. */
void name_encode(const char *name, size_t len, char *out);

/* Writes at most `len` bytes of the decoded name and their count. False when `text` is not the encoding of any name. */
bool name_decode(const char *text, size_t len, char *out, size_t *len_out);
