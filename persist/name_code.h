/* name_code: a filter's name, which is any bytes, as text in the MANIFEST and as the name of its directory.
 *
 * Encoded, [A-Za-z0-9_-] and a '.' that is not the first byte stand for themselves; every other byte is %XX in upper-case
 * hexadecimal. So the encoding is printable, has no '/', is never "." or "..", and one name has one encoding.
 *
 * A directory is named by the encoding, unless that is empty or longer than NAME_DIR_MAX: then by "%~" and the 128-bit
 * XXH3 of the name in hexadecimal, which no encoding can be, because '~' is no hexadecimal digit.
 *
 * Thread: any. */
#ifndef BLOOMERY_NAME_CODE_H
#define BLOOMERY_NAME_CODE_H

#include <stdbool.h>
#include <stddef.h>

#define NAME_DIR_MAX 200 /* file systems take 255; the rest is for what is added in quarantine/ */

/* Bytes of the encoding. */
size_t name_encoded_len(const char *name, size_t len);

/* Writes name_encoded_len() bytes, no NUL. */
void name_encode(const char *name, size_t len, char *out);

/* Writes at most `len` bytes of the decoded name and their count. False when `text` is not the encoding of any name. */
bool name_decode(const char *text, size_t len, char *out, size_t *len_out);

/* The name of the directory, NUL-terminated. */
void name_dir(const char *name, size_t len, char out[NAME_DIR_MAX + 1]);

/* Whether name_dir() gives this for some name. */
bool name_dir_valid(const char *dir, size_t len);

#endif
