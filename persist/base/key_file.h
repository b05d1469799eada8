/* key_file: the secrets of KEYED filters (bloom_key.h) as a file. Each line is the id of a key, a space, and its 32
 * bytes, both in hexadecimal digits; empty lines, and lines that begin with '#', are ignored. The first key is that of
 * new filters. Bytes of secrets pass through memory that core dumps leave out (alloc.h).
 *
 * Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "bloom_key.h"
#include "errbuf.h"
#include "fsops.h"

#define KEY_FILE_NAME "KEYS" /* in a data directory, unless another file is named */
#define KEY_FILE_KEYS 256    /* the most keys of a file */

#define KEY_ID_DIGITS 16
#define KEY_LINE_LEN  (KEY_ID_DIGITS + 1 + 2 * BLOOM_SECRET_BYTES + 1) /* with the end of the line */

struct key_file {
    size_t n; /* 1..KEY_FILE_KEYS */
    struct bloom_secret secrets[KEY_FILE_KEYS];
};

/* Reads a file, which must have a key. 0, and the caller frees it; or -errno with the reason in `err`: -ENOENT, -EINVAL
 * for one that is not such a file. */
int key_file_read(const struct fsops *fs, const char *path, struct key_file **out, struct errbuf *err)
    __attribute__((warn_unused_result));
void key_file_free(struct key_file *file); /* NULL is fine */

/* A text for a log if other users may read the file: a reader of a key can attack its filters. The group of a file that
 * another user owns, such as root, may read it: its owner has chosen so. (ssh has this rule.) */
bool key_file_is_exposed(const char *path, struct errbuf *text_out);

/* Makes a file with one new key, for its owner only (0600), whole and synced, or not at all. `dir`: of `path`. 0, also
 * if a file exists by then, which stays unchanged; or -errno with the reason. */
int key_file_make(const struct fsops *fs, const char *dir, const char *path, struct errbuf *err)
    __attribute__((warn_unused_result));

/* A line with a new key. 0 or -errno. The caller erases it. */
int key_line_make(char line[KEY_LINE_LEN]) __attribute__((warn_unused_result));

/* An id as it is in files and messages: 16 digits. True if it is one; never 0. */
bool key_id_parse(const char *text, size_t len, uint64_t *id_out);
