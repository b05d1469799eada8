/* tmpdir: directories and files of tests. Every failure here ends the test program with a message. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define TMPDIR_SIZE 128

/* A new empty directory under $TMPDIR or /tmp; tmpdir_remove() removes it with its content. */
void tmpdir_create(char path[TMPDIR_SIZE]);
void tmpdir_remove(const char *path);

/* A suite of Criterion whose tests have a new directory each, the file's `variable`. */
#define TMPDIR_SUITE(variable, suite)   \
    static char variable[TMPDIR_SIZE];  \
    static void suite##_set_up(void)    \
    {                                   \
        tmpdir_create(variable);        \
    }                                   \
    static void suite##_tear_down(void) \
    {                                   \
        tmpdir_remove(variable);        \
    }                                   \
    TestSuite(suite, .init = suite##_set_up, .fini = suite##_tear_down, .timeout = 3000)

/* A file in a directory, by a path below it that printf builds. */
struct tmp_path {
    char text[1024];
};
struct tmp_path tmp_path(const char *dir, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

bool file_exists(const char *path);
unsigned char *file_read(const char *path, size_t *len_out); /* with a NUL after it; to be freed */
const char *file_text(const char *path);                     /* the same, valid until the next call */
void file_write(const char *path, const void *bytes, size_t len);
void file_write_text(const char *path, const char *text);
void file_copy(const char *from, const char *to);
void file_truncate(const char *path, size_t len);
void file_flip_bit(const char *path, size_t bit);
void file_change_byte(const char *path, long at); /* from the end if negative */
size_t log_end(const char *segment);              /* after the last frame with a payload; marks may follow */
bool file_is(const char *path, const void *bytes, size_t len); /* has exactly these bytes */
size_t dir_count(const char *path);                            /* entries, 0 also when there is no such directory */
