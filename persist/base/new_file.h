/* new_file: a file that appears under its name when it is complete. A process killed before that leaves
 * `path`.<process>.part. Of two writers of one
 * path the first to end wins, or with `replace` the last. Thread: one. */
#pragma once

#include <stdbool.h>

#include "errbuf.h"

#define NEW_FILE_PATH 4096

struct new_file {
    int fd; /* to write to */
    const char *path;
    bool replace;
    bool placed; /* it has its name: a failure after that leaves it there */
    char part[NEW_FILE_PATH];
};

/* Whether `path` may become a new file: no directory and no device, and unless `replace` it must not exist. For a check
 * before long work. 0 or -errno with the reason. */
int new_file_check(const char *path, bool replace, struct errbuf *err);

/* new_file_check(), and a file to write to, with the rights that the umask leaves. new_file_end() must follow; `path`
 * is borrowed until then. 0 or -errno with the reason. */
int new_file_open(struct new_file *file, const char *path, bool replace, struct errbuf *err);

/* Syncs the file, gives it its name, and syncs the directory. If `rc`, the status of writing it, is a failure, removes
 * it. 0 or -errno with the reason; `placed` says whether it is under its name all the same. */
int new_file_end(struct new_file *file, int rc, struct errbuf *err);
