/* name_code: a filter's name, which is any bytes, as text in the MANIFEST and as the name of its directory.
 *
 * Encoded, [A-Za-z0-9_-] and a '.' that is not the first byte stand for themselves; every other byte is %XX in upper-case
 * hexadecimal. So the encoding is printable, has no '/', is never "." or "..", and one name has one encoding.
 *
 * A directory is named by the encoding, unless that is empty or longer than NAME_DIR_MAX: then by "%~" and the id of the
 * filter, which no encoding can be, because '~' is no hexadecimal digit. When something else is in the way of that, it is
 * "%~", the id, "-" and a number from 1 on. No two filters can want the same directory, unless they had the same name.
 *
 * Thread: any. */
#ifndef BLOOMERY_NAME_CODE_H
#define BLOOMERY_NAME_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NAME_DIR_MAX 200 /* file systems take 255; the rest is for what is added in quarantine/ */

/* Bytes of the encoding. */
size_t name_encoded_len(const char *name, size_t len);

/* Writes name_encoded_len() bytes, no NUL. */
void name_encode(const char *name, size_t len, char *out);

/* Writes at most `len` bytes of the decoded name and their count. False when `text` is not the encoding of any name. */
bool name_decode(const char *text, size_t len, char *out, size_t *len_out);

/* The name of the directory, NUL-terminated. */
void name_dir(const char *name, size_t len, uint64_t id, char out[NAME_DIR_MAX + 1]);
void name_dir_alternate(uint64_t id, unsigned number, char out[NAME_DIR_MAX + 1]);

/* Whether one of these gives this for some name, id and number. */
bool name_dir_valid(const char *dir, size_t len);

#endif
