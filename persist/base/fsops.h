/* fsops: the file operations that persist uses, as a table, so that tests can make each one fail and can play a crash.
 * The only place in the room that calls the system for files.
 *
 * Errors: 0 or -errno, always; counts come in outputs. Paths are NUL-terminated and may be relative.
 *
 * Thread: any; the real implementation has no state. */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "errbuf.h"

#define FS_BLOCK 4096 /* alignment of memory, offset and length under FS_DIRECT */

enum fs_open_flags {
    FS_READ = 1,
    FS_WRITE = 2,
    FS_CREATE = 4, /* if absent, mode 0640 */
    FS_TRUNCATE = 8,
    FS_EXCLUSIVE = 32, /* with FS_CREATE: -EEXIST if present */
    FS_PRIVATE = 64,   /* with FS_CREATE: mode 0600 */
    FS_DIRECT = 16,    /* past the page cache; -EINVAL where the file system cannot */
};

enum fs_kind { FS_FILE, FS_DIRECTORY, FS_OTHER };

struct fs_stat {
    enum fs_kind kind;
    uint64_t size;
    uint64_t device;  /* the same for all that one sync_all() covers and link() reaches */
    uint64_t made_ns; /* when this file was made, which no copy has; 0: not known */
};

/* Called once per entry, "." and ".." excepted; nonzero ends the listing and is returned. */
typedef int fs_visit_fn(void *ctx, const char *name);

struct fsops {
    void *ctx; /* passed as the first argument of each */

    int (*open)(void *ctx, const char *path, unsigned flags, int *fd_out);
    int (*close)(void *ctx, int fd);
    int (*pread)(void *ctx, int fd, void *buf, size_t len, uint64_t offset, size_t *n_out);        /* 0 bytes: end */
    int (*pwrite)(void *ctx, int fd, const void *buf, size_t len, uint64_t offset, size_t *n_out); /* may be short */
    int (*size)(void *ctx, int fd, uint64_t *size_out);
    int (*truncate)(void *ctx, int fd, uint64_t size);

    /* This part of the file, which has been written, as shared memory to write to. Whole pages. */
    int (*map)(void *ctx, int fd, uint64_t offset, size_t len, void **memory_out);
    void (*unmap)(void *ctx, void *memory, size_t len);
    int (*sync)(void *ctx, int fd); /* the data, and the metadata needed to read it back */
    int (*stat)(void *ctx, const char *path, struct fs_stat *stat_out);

    int (*mkdir)(void *ctx, const char *path); /* mode 0750 */
    int (*unlink)(void *ctx, const char *path);
    int (*rename)(void *ctx, const char *from, const char *to); /* replaces `to` */
    int (*link)(void *ctx, const char *from, const char *to);
    int (*list)(void *ctx, const char *path, fs_visit_fn *visit, void *visit_ctx);
    int (*sync_dir)(void *ctx, const char *path); /* the names in it */

    /* Everything written or renamed on the file system of the open file `fd`. Errors of earlier background writes are
     * reported if `fd` has been open since before them. */
    int (*sync_all)(void *ctx, int fd);

    /* Opens (creates) the file and takes an exclusive lock that ends with the descriptor, or -EWOULDBLOCK with the
     * holder's process id, 0 if unknown, in `owner_out`. Writes our process id into the file. */
    int (*lock)(void *ctx, const char *path, int *fd_out, pid_t *owner_out);

    /* Whether the path still leads to the open file: 0, -ESTALE if it leads to another one or to none, or -errno. */
    int (*is_at)(void *ctx, int fd, const char *path);
};

/* The real file system. */
const struct fsops *fsops_posix(void);

/* Identifies the boot of the machine; "" if it is not known. */
#define FS_BOOT_SIZE 40
void fs_boot(const struct fsops *fs, char boot_out[FS_BOOT_SIZE]);

/* Opens /dev/null, for reading, in place of each closed standard descriptor. Otherwise the next file would get the
 * number, and all printed text with it. Printing fails then. Called before any file is opened. 0 or -errno. */
int fs_fill_standard_descriptors(void) __attribute__((warn_unused_result));

/* ---- on top of the table ---- */

/* The path of a file, whole: 0, or -ENAMETOOLONG with the reason in `err` (may be NULL). */
struct path {
    char text[4096];
};
__attribute__((format(printf, 3, 4))) int path_format(struct path *path, struct errbuf *err, const char *fmt, ...);

/* Writes a file of these bytes, new as by fs_open_new(), and syncs it. 0 or -errno. */
int fs_write_file(const struct fsops *fs, const char *path, const void *bytes, size_t len)
    __attribute__((warn_unused_result));

/* The file ends before the bytes that were asked for. No system call fails with this number: a disk that cannot be read
 * (-EIO) must never be taken for a file that a crash has left short. */
#define FS_ENDS (-4096)

/* strerror() of a negative errno; has a text for FS_ENDS, too. */
const char *fs_error_text(int rc);

/* Reads at least `need` and at most `len` bytes. 0, FS_ENDS or -errno. */
int fs_read_some(const struct fsops *fs, int fd, void *buf, size_t need, size_t len, uint64_t offset)
    __attribute__((warn_unused_result));

/* opendir() for callers that need more than names. The caller closes it by closedir(). NULL with errno. */
DIR *fs_open_dir(const char *path);

/* A new file under this name; an older one is removed, not emptied: later syncs after a failed one prove nothing. */
int fs_open_new(const struct fsops *fs, const char *path, unsigned flags, int *fd_out)
    __attribute__((warn_unused_result));

/* Opens a regular file below a directory for reading, by a path from a foreign source. -EINVAL: the path is empty or
 * absolute, has an empty part, "." or "..", or leads to something other than a regular file; -ELOOP: one of its parts
 * is a symbolic link (the directory itself may be one); or -errno. */
int fs_open_beneath(const char *directory, const char *path, int *fd_out) __attribute__((warn_unused_result));

/* Whether an error can pass by itself: too little memory, too few descriptors. */
bool fs_error_passes(int error);

/* The whole range, or an error: FS_ENDS when the file ends before, -EIO when a write makes no progress. */
int fs_read_all(const struct fsops *fs, int fd, void *buf, size_t len, uint64_t offset)
    __attribute__((warn_unused_result));
int fs_write_all(const struct fsops *fs, int fd, const void *buf, size_t len, uint64_t offset)
    __attribute__((warn_unused_result));
