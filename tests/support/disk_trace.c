#include "disk_trace.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk.h"
#include "tmpdir.h"

#define MAX_FDS    4096
#define PATH_BYTES 4096

struct opened {
    char *path; /* NULL: not open */
    int fd;     /* of the crash_fs; -1: a directory */
};

struct disk_trace {
    unsigned char *bytes;
    size_t *starts; /* of each operation */
    size_t count;
    size_t played;
    struct crash_fs *fs;
    struct opened opened[MAX_FDS];
};

struct disk_trace *disk_trace_open(const char *path, struct crash_fs *start)
{
    struct disk_trace *trace = calloc(1, sizeof(*trace));
    size_t len = 0, size = 0;

    cr_assert_not_null(trace);
    cr_assert(file_exists(path), "nothing was recorded: the daemon does not use what disk_shim stands for");
    trace->bytes = file_read(path, &len);
    for (size_t at = 0; len - at >= sizeof(struct disk_record);) {
        struct disk_record head;

        memcpy(&head, trace->bytes + at, sizeof(head));
        if (len - at - sizeof(head) < head.bytes)
            break;
        if (trace->count == size) {
            size = size ? 2 * size : 1024;
            trace->starts = realloc(trace->starts, size * sizeof(*trace->starts));
            cr_assert_not_null(trace->starts);
        }
        trace->starts[trace->count++] = at;
        at += sizeof(head) + head.bytes;
    }
    trace->fs = start ? start : crash_fs_create();
    return trace;
}

static void forget(const struct fsops *ops, struct opened *opened)
{
    if (opened->path && opened->fd >= 0)
        ops->close(ops->ctx, opened->fd);
    free(opened->path);
    *opened = (struct opened){NULL, -1};
}

void disk_trace_close(struct disk_trace *trace)
{
    if (!trace)
        return;
    for (int fd = 0; fd < MAX_FDS; fd++)
        forget(crash_fs_ops(trace->fs), &trace->opened[fd]);
    crash_fs_destroy(trace->fs);
    free(trace->starts);
    free(trace->bytes);
    free(trace);
}

size_t disk_trace_count(const struct disk_trace *trace)
{
    return trace->count;
}

static struct disk_record head_of(const struct disk_trace *trace, size_t n)
{
    struct disk_record head;

    memcpy(&head, trace->bytes + trace->starts[n], sizeof(head));
    return head;
}

int64_t disk_trace_began_ns(const struct disk_trace *trace, size_t n)
{
    return n < trace->count ? head_of(trace, n).time_ns : INT64_MAX;
}

/* ---- playing ---- */

static void play_open(struct disk_trace *trace, const struct disk_record *head, const char *path)
{
    const struct fsops *ops = crash_fs_ops(trace->fs);
    struct opened *opened = &trace->opened[head->fd];
    unsigned flags = FS_READ;

    forget(ops, opened);
    if ((head->flags & O_ACCMODE) != O_RDONLY)
        flags |= FS_WRITE;
    if (head->flags & O_CREAT)
        flags |= FS_CREATE;
    if (head->flags & O_TRUNC)
        flags |= FS_TRUNCATE;
    opened->path = strdup(path);
    cr_assert_not_null(opened->path);
    if (!(head->flags & O_DIRECTORY) && ops->open(ops->ctx, path, flags, &opened->fd) != 0)
        cr_assert_fail("open %s: not in the record before", path);
}

static void play_write(struct disk_trace *trace, const struct disk_record *head, const void *bytes)
{
    const struct fsops *ops = crash_fs_ops(trace->fs);
    void *zeros = head->flags ? calloc(1, (size_t)head->len) : NULL;
    size_t n;

    cr_assert_eq(
        ops->pwrite(ops->ctx, trace->opened[head->fd].fd, zeros ? zeros : bytes, (size_t)head->len, head->offset, &n),
        0);
    free(zeros);
}

static void play_sync(struct disk_trace *trace, const struct disk_record *head)
{
    const struct fsops *ops = crash_fs_ops(trace->fs);
    const struct opened *opened = &trace->opened[head->fd];
    int rc = 0;

    cr_assert_not_null(opened->path);
    if (head->failed) {
        if (opened->fd >= 0 && head->kind == DISK_SYNC)
            crash_fs_sync_failed(trace->fs, opened->fd);
    } else if (head->kind == DISK_SYNC) {
        rc = ops->sync(ops->ctx, opened->fd);
    } else if (head->kind == DISK_SYNC_DIR) {
        rc = ops->sync_dir(ops->ctx, opened->path);
    } else { /* of a descriptor that may be a directory's */
        int fd = opened->fd;
        if (fd < 0)
            cr_assert_eq(ops->open(ops->ctx, opened->path, FS_READ, &fd), 0);
        rc = ops->sync_all(ops->ctx, fd);
        if (opened->fd < 0)
            ops->close(ops->ctx, fd);
    }
    cr_assert_eq(rc, 0, "%s", opened->path);
}

static void play_name(struct disk_trace *trace, const struct disk_record *head, const char *from)
{
    const struct fsops *ops = crash_fs_ops(trace->fs);
    const char *to = from + strlen(from) + 1; /* of a rename and a link */
    int rc = head->kind == DISK_MKDIR    ? ops->mkdir(ops->ctx, from)
             : head->kind == DISK_UNLINK ? ops->unlink(ops->ctx, from)
             : head->kind == DISK_RENAME ? ops->rename(ops->ctx, from, to)
                                         : ops->link(ops->ctx, from, to);

    cr_assert_eq(rc, 0, "operation %u on %s: %s", head->kind, from, strerror(-rc));
}

static void play_one(struct disk_trace *trace, size_t n)
{
    const struct fsops *ops = crash_fs_ops(trace->fs);
    struct disk_record head = head_of(trace, n);
    const void *bytes = trace->bytes + trace->starts[n] + sizeof(head);

    cr_assert(head.kind >= DISK_MKDIR || (head.fd >= 0 && head.fd < MAX_FDS));
    switch ((enum disk_op)head.kind) {
    case DISK_OPEN:
        play_open(trace, &head, bytes);
        break;
    case DISK_CLOSE:
        forget(ops, &trace->opened[head.fd]);
        break;
    case DISK_WRITE:
        play_write(trace, &head, bytes);
        break;
    case DISK_TRUNCATE:
        cr_assert_eq(ops->truncate(ops->ctx, trace->opened[head.fd].fd, head.len), 0);
        break;
    case DISK_SYNC:
    case DISK_SYNC_DIR:
    case DISK_SYNC_ALL:
        play_sync(trace, &head);
        break;
    case DISK_MKDIR:
    case DISK_UNLINK:
    case DISK_RENAME:
    case DISK_LINK:
        play_name(trace, &head, bytes);
        break;
    }
}

void disk_trace_play(struct disk_trace *trace, size_t count)
{
    cr_assert_leq(count, trace->count);
    while (trace->played < count)
        play_one(trace, trace->played++);
}

struct crash_fs *disk_trace_crash(const struct disk_trace *trace, enum crash_mode mode, uint64_t seed)
{
    return crash_fs_after(trace->fs, mode, seed);
}

/* ---- directories ---- */

struct export
{
    const struct fsops *ops;
    const char *from;
    const char *to;
};

static void export_file(const struct fsops *ops, const char *from, const char *to)
{
    uint64_t size;
    size_t n;
    int fd;

    cr_assert_eq(ops->open(ops->ctx, from, FS_READ, &fd), 0);
    cr_assert_eq(ops->size(ops->ctx, fd, &size), 0);
    char *bytes = malloc((size_t)size + 1);
    cr_assert_not_null(bytes);
    cr_assert(ops->pread(ops->ctx, fd, bytes, (size_t)size, 0, &n) == 0 && n == size, "%s", from);
    file_write(to, bytes, (size_t)size);
    free(bytes);
    ops->close(ops->ctx, fd);
}

static int export_entry(void *ctx, const char *name)
{
    const struct export *export = ctx;
    char from[PATH_BYTES], to[PATH_BYTES];
    struct fs_stat st;

    snprintf(from, sizeof(from), "%s/%s", export->from, name);
    snprintf(to, sizeof(to), "%s/%s", export->to, name);
    cr_assert_eq(export->ops->stat(export->ops->ctx, from, &st), 0);
    if (st.kind == FS_FILE) {
        export_file(export->ops, from, to);
        return 0;
    }
    struct export below = {export->ops, from, to};
    cr_assert_eq(mkdir(to, 0750), 0, "%s", to);
    return below.ops->list(below.ops->ctx, from, export_entry, &below);
}

void crash_fs_export(struct crash_fs *fs, const char *dir)
{
    struct export export = {crash_fs_ops(fs), "data", dir};
    struct fs_stat st;

    if (file_exists(dir))
        tmpdir_remove(dir);
    if (export.ops->stat(export.ops->ctx, "data", &st) != 0)
        return; /* the crash came before its creation */
    cr_assert_eq(mkdir(dir, 0750), 0, "%s", dir);
    cr_assert_eq(export.ops->list(export.ops->ctx, "data", export_entry, &export), 0);
}
