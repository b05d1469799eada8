/* new_file: a file that appears under its name when it is whole. What is killed before leaves nothing behind, where the
 * file system knows files without a name; elsewhere it leaves `path`.<process>.part. Two that write the same file at a
 * time do not touch each other's: the first one to end has it, or with `replace` the last one. Thread: one. */
#ifndef BLOOMERY_TOOL_NEW_FILE_H
#define BLOOMERY_TOOL_NEW_FILE_H

#include <stdbool.h>

#include "errbuf.h"

#define NEW_FILE_PATH 4096

struct new_file {
    int fd; /* to write to */
    const char *path;
    bool replace;
    bool named; /* it is `part` */
    char part[NEW_FILE_PATH];
};

/* Whether `path` may become a new file: it is no directory, and is not there unless `replace`. To be asked before long
 * work. 0 or -errno with the reason. */
int new_file_check(const char *path, bool replace, struct errbuf *err);

/* new_file_check(), and a file to write to, with the rights that the umask leaves. new_file_end() has to follow; `path`
 * is borrowed until then. 0 or -errno with the reason. */
int new_file_open(struct new_file *file, const char *path, bool replace, struct errbuf *err);

/* Gives the file its name, on the disk, unless `rc`, which came of writing it, is a failure: then it is gone. 0 or
 * -errno with the reason. */
int new_file_end(struct new_file *file, int rc, struct errbuf *err);

#endif
