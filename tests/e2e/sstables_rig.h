/* sstables_rig: a daemon that watches a directory, and files of SSTables below it. */
#pragma once

#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "wait.h"

extern struct daemon the_daemon;
extern redisContext *client;
extern char root[300]; /* the directory */

/* The whole file of a filter with the key `k`, in each layout (docs/FORMAT.md). */
extern const unsigned char na_file[16], me_file[16], ka_file[16];

#define ID "5a1c395e5a1c395e5a1c395e5a1c395e" /* of a table, in the name of its directory */

void prepare(void); /* makes the directory */
void start(void);   /* the daemon and the client; returns when all files there are known */
void discard(void); /* for .fini */

void wait_scanned(void); /* until the daemon has checked all directories */

/* The path of a file below the directory; valid until the next call but one. */
const char *below_root(const char *path);

void make_directories(const char *path); /* above the file */

/* Links a Filter.db below the root, and its TOC.txt, to those of first/nb-1-big. Changes `path`. */
void link_to_first(char *path);

void write_data(const char *path); /* an empty Data.db */

/* Write a file with a path below the directory that ends with Filter.db; the second function adds its TOC.txt. */
void write_filter(const char *path, const void *bytes, size_t len);
void write_sstable(const char *path, const void *bytes, size_t len);
void write_toc(const char *path); /* that of a Filter.db */

/* The reply to a command in hiredis's format as text, without the round that BF.FIND reports: `,"round",:N`. Valid
 * until the next call. */
const char *ask(const char *format, ...);

/* Asserts that the reply of BF.FIND is this one. */
#define expect_find(expected, ...)                                                                            \
    do {                                                                                                      \
        const char *text_got = ask(__VA_ARGS__);                                                              \
        cr_assert_str_eq(text_got, (expected), "got '%s' instead of '%s'; command: %s", text_got, (expected), \
                         #__VA_ARGS__);                                                                       \
    } while (0)

/* Waits until the reply to a command is this one: the daemon notices changes without a request. */
#define wait_for(expected, ...)                                                                 \
    do {                                                                                        \
        const char *text_got = "";                                                              \
        double until = wait_clock() + WAIT_PATIENCE_S;                                          \
        while (strcmp(text_got = ask(__VA_ARGS__), (expected)) != 0 && wait_clock() < until)    \
            usleep(50000);                                                                      \
        cr_assert_str_eq(text_got, (expected), "got '%s' instead of '%s'", text_got, expected); \
    } while (0)

/* Processor time of the daemon, independent of other load on the machine. */
double daemon_seconds(void);
