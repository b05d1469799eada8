#include "fault_fs.h"

#include <errno.h>
#include <string.h>

/* Counts an operation. True when it is to fail. */
static bool strikes(struct fault_fs *fault, const char *op)
{
    fault->calls++;
    if (fault->kind == FAULT_FULL)
        return false;
    if (fault->fail_at == 0 || fault->calls < fault->fail_at || (fault->calls > fault->fail_at && !fault->from_then_on))
        return false;
    if (!fault->hit)
        fault->hit_op = op;
    fault->hit = true;
    return true;
}

/* Whether there is no room for an operation that has been counted. */
static bool is_full(struct fault_fs *fault, const char *op)
{
    if (fault->kind != FAULT_FULL || fault->fail_at == 0 || fault->calls < fault->fail_at)
        return false;
    if (!fault->hit)
        fault->hit_op = op;
    fault->hit = true;
    return true;
}

static bool is_stuck(const struct fault_fs *fault, const char *path)
{
    struct fs_stat st;

    return fault->stuck && strstr(path, fault->stuck) && fault->below->stat(fault->below->ctx, path, &st) == 0;
}

/* An operation without other results than its status. */
#define FORWARD(fault, op, call)                                            \
    do {                                                                    \
        bool struck = strikes(fault, op);                                   \
        if (struck && (fault)->kind == FAULT_ERROR)                         \
            return (fault)->error;                                          \
        int rc = (call);                                                    \
        return struck && (fault)->kind == FAULT_LATE ? (fault)->error : rc; \
    } while (0)

static int fault_open(void *ctx, const char *path, unsigned flags, int *fd_out)
{
    struct fault_fs *fault = ctx;

    if (fault->refuse_direct && (flags & FS_DIRECT))
        return -EINVAL;
    if (strikes(fault, "open") && fault->kind != FAULT_SHORT)
        return fault->error;
    struct fs_stat st;
    if ((flags & FS_CREATE) && fault->below->stat(fault->below->ctx, path, &st) != 0 && is_full(fault, "open"))
        return -ENOSPC;
    return fault->below->open(fault->below->ctx, path, flags, fd_out);
}

static int fault_close(void *ctx, int fd)
{
    struct fault_fs *fault = ctx;

    return fault->below->close(fault->below->ctx, fd);
}

static int fault_pread(void *ctx, int fd, void *buf, size_t len, uint64_t offset, size_t *n_out)
{
    struct fault_fs *fault = ctx;

    FORWARD(fault, "pread", fault->below->pread(fault->below->ctx, fd, buf, len, offset, n_out));
}

static int fault_pwrite(void *ctx, int fd, const void *buf, size_t len, uint64_t offset, size_t *n_out)
{
    struct fault_fs *fault = ctx;
    bool struck = strikes(fault, "pwrite");

    if (struck && fault->kind == FAULT_ERROR)
        return fault->error;
    if (is_full(fault, "pwrite"))
        return -ENOSPC;
    if (struck && fault->kind == FAULT_SHORT && len > 1)
        len /= 2;
    int rc = fault->below->pwrite(fault->below->ctx, fd, buf, len, offset, n_out);
    return struck && fault->kind == FAULT_LATE ? fault->error : rc;
}

static int fault_size(void *ctx, int fd, uint64_t *size_out)
{
    struct fault_fs *fault = ctx;

    return fault->below->size(fault->below->ctx, fd, size_out);
}

static int fault_truncate(void *ctx, int fd, uint64_t size)
{
    struct fault_fs *fault = ctx;

    FORWARD(fault, "truncate", fault->below->truncate(fault->below->ctx, fd, size));
}

static int fault_sync(void *ctx, int fd)
{
    struct fault_fs *fault = ctx;

    FORWARD(fault, "sync", fault->below->sync(fault->below->ctx, fd));
}

static int fault_stat(void *ctx, const char *path, struct fs_stat *stat_out)
{
    struct fault_fs *fault = ctx;
    bool struck = strikes(fault, "stat");

    if (struck && fault->kind == FAULT_ERROR)
        return fault->error;
    int rc = fault->below->stat(fault->below->ctx, path, stat_out);
    if (rc == 0 && fault->mounted && strstr(path, fault->mounted))
        stat_out->device++;
    return struck && fault->kind == FAULT_LATE ? fault->error : rc;
}

static int fault_mkdir(void *ctx, const char *path)
{
    struct fault_fs *fault = ctx;

    if (fault->kind == FAULT_FULL && fault->fail_at && fault->calls + 1 >= fault->fail_at) {
        fault->calls++;
        is_full(fault, "mkdir");
        return -ENOSPC;
    }
    FORWARD(fault, "mkdir", fault->below->mkdir(fault->below->ctx, path));
}

static int fault_unlink(void *ctx, const char *path)
{
    struct fault_fs *fault = ctx;

    if (is_stuck(fault, path))
        return -EPERM;
    FORWARD(fault, "unlink", fault->below->unlink(fault->below->ctx, path));
}

static int fault_rename(void *ctx, const char *from, const char *to)
{
    struct fault_fs *fault = ctx;

    if (is_stuck(fault, from) || is_stuck(fault, to))
        return -EPERM;
    FORWARD(fault, "rename", fault->below->rename(fault->below->ctx, from, to));
}

static int fault_link(void *ctx, const char *from, const char *to)
{
    struct fault_fs *fault = ctx;

    if (fault->kind == FAULT_FULL && fault->fail_at && fault->calls + 1 >= fault->fail_at) {
        fault->calls++;
        is_full(fault, "link");
        return -ENOSPC;
    }
    FORWARD(fault, "link", fault->below->link(fault->below->ctx, from, to));
}

static int fault_list(void *ctx, const char *path, fs_visit_fn *visit, void *visit_ctx)
{
    struct fault_fs *fault = ctx;

    FORWARD(fault, "list", fault->below->list(fault->below->ctx, path, visit, visit_ctx));
}

static int fault_sync_dir(void *ctx, const char *path)
{
    struct fault_fs *fault = ctx;

    FORWARD(fault, "sync_dir", fault->below->sync_dir(fault->below->ctx, path));
}

static int fault_sync_all(void *ctx, int fd)
{
    struct fault_fs *fault = ctx;

    FORWARD(fault, "sync_all", fault->below->sync_all(fault->below->ctx, fd));
}

static int fault_lock(void *ctx, const char *path, int *fd_out, pid_t *owner_out)
{
    struct fault_fs *fault = ctx;

    if (strikes(fault, "lock") && fault->kind != FAULT_SHORT)
        return fault->error;
    return fault->below->lock(fault->below->ctx, path, fd_out, owner_out);
}

static int fault_is_at(void *ctx, int fd, const char *path)
{
    struct fault_fs *fault = ctx;

    FORWARD(fault, "is_at", fault->below->is_at(fault->below->ctx, fd, path));
}

void fault_fs_init(struct fault_fs *fault, const struct fsops *below)
{
    *fault = (struct fault_fs){
        .ops =
            {
                .ctx = fault,
                .open = fault_open,
                .close = fault_close,
                .pread = fault_pread,
                .pwrite = fault_pwrite,
                .size = fault_size,
                .truncate = fault_truncate,
                .sync = fault_sync,
                .stat = fault_stat,
                .mkdir = fault_mkdir,
                .unlink = fault_unlink,
                .rename = fault_rename,
                .link = fault_link,
                .list = fault_list,
                .sync_dir = fault_sync_dir,
                .sync_all = fault_sync_all,
                .lock = fault_lock,
                .is_at = fault_is_at,
            },
        .below = below,
    };
}

void fault_fs_arm(struct fault_fs *fault, size_t at, enum fault_kind kind, int error, bool from_then_on)
{
    fault->calls = 0;
    fault->fail_at = at;
    fault->kind = kind;
    fault->error = error;
    fault->from_then_on = from_then_on;
    fault->hit = false;
    fault->hit_op = NULL;
}
