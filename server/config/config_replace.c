#include "config_replace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int config_file_failed(const char *what, const char *path, struct errbuf *err)
{
    int status = errno != 0 ? -errno : -EIO;

    errbuf_set(err, "%s %s: %s", what, path, strerror(-status));
    return status;
}

static int read_all(int fd, const char *path, struct buf *out, struct errbuf *err)
{
    for (;;) {
        char *room = buf_reserve(out, 4096);
        if (!room) {
            errno = buf_len(out) + 4096 > out->cap ? EFBIG : ENOMEM;
            return config_file_failed("cannot read", path, err);
        }
        ssize_t n = read(fd, room, 4096);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return config_file_failed("cannot read", path, err);
        if (n == 0)
            return 0;
        buf_commit(out, (size_t)n);
    }
}

int config_file_read(const char *path, struct buf *out, struct stat *stat_out, struct errbuf *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return config_file_failed("cannot open", path, err);
    int status = fstat(fd, stat_out) != 0 ? config_file_failed("cannot read", path, err) : read_all(fd, path, out, err);
    close(fd);
    return status;
}

static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Keeps the mode, and the owner where that is permitted. */
static int write_file(const char *path, const struct buf *text, const struct stat *old, struct errbuf *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0)
        return config_file_failed("cannot create", path, err);
    int owner_kept = old ? fchown(fd, old->st_uid, old->st_gid) : 0;
    int status = 0;
    (void)owner_kept;
    if ((old && fchmod(fd, old->st_mode & 07777) != 0) || write_all(fd, buf_head(text), buf_len(text)) != 0 ||
        fsync(fd) != 0)
        status = config_file_failed("cannot write", path, err);
    if (close(fd) != 0 && status == 0)
        status = config_file_failed("cannot write", path, err);
    if (status != 0)
        unlink(path);
    return status;
}

static int sync_directory_of(const char *path, struct errbuf *err)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t len = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);

    memcpy(dir, len == 0 ? "." : path, len == 0 ? 1 : len);
    dir[len == 0 ? 1 : len] = '\0';
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return config_file_failed("cannot sync", dir, err);
    int status = fsync(fd) != 0 ? config_file_failed("cannot sync", dir, err) : 0;
    close(fd);
    return status;
}

int config_file_replace(const char *path, const struct buf *text, const struct stat *old, struct errbuf *err)
{
    char temporary[PATH_MAX];

    if (snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof(temporary)) {
        errno = ENAMETOOLONG;
        return config_file_failed("cannot write", path, err);
    }
    unlink(temporary); /* left by a killed process of the same number */
    int status = write_file(temporary, text, old, err);
    if (status != 0)
        return status;
    if (rename(temporary, path) != 0) {
        status = config_file_failed("cannot replace", path, err);
        unlink(temporary);
        return status;
    }
    return sync_directory_of(path, err);
}
