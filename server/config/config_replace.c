#include "config_replace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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

/* The directory of a file, and the file's name in it. */
static const char *split_path(const char *path, char dir_out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t len = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);

    memcpy(dir_out, len == 0 ? "." : path, len == 0 ? 1 : len);
    dir_out[len == 0 ? 1 : len] = '\0';
    return slash ? slash + 1 : path;
}

/* Whether a name is "<base>.<number>.tmp", and no process has that number: it was killed while it wrote. */
static bool is_left_behind(const char *name, const char *base)
{
    size_t len = strlen(base);
    char *end;

    if (strncmp(name, base, len) != 0 || name[len] != '.' || name[len + 1] < '1' || name[len + 1] > '9')
        return false;
    errno = 0;
    long number = strtol(name + len + 1, &end, 10);
    return errno == 0 && strcmp(end, ".tmp") == 0 && number == (pid_t)number && kill((pid_t)number, 0) != 0 &&
           errno == ESRCH;
}

/* Removes the temporary files that killed processes have left: they may hold secrets, and would pile up. A file that
 * cannot be removed is tried again at the next write. */
static void sweep(const char *path)
{
    char dir[PATH_MAX];
    const char *base = split_path(path, dir);
    DIR *entries = opendir(dir);

    for (struct dirent *entry; entries && (entry = readdir(entries)) != NULL;) {
        if (is_left_behind(entry->d_name, base))
            (void)unlinkat(dirfd(entries), entry->d_name, 0);
    }
    if (entries)
        closedir(entries);
}

static int sync_directory_of(const char *path, struct errbuf *err)
{
    char dir[PATH_MAX];

    (void)split_path(path, dir);
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
    sweep(path);
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
