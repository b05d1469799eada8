/* The real file system. Every function turns errno into a return value on the spot; interrupted calls are repeated. */
#include "fsops.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FILE_MODE      0640
#define PRIVATE_MODE   0600
#define DIRECTORY_MODE 0750

static int status(int result)
{
    return result == 0 ? 0 : -errno;
}

static int posix_open(void *ctx, const char *path, unsigned flags, int *fd_out)
{
    int mode = O_CLOEXEC | O_NOCTTY;

    (void)ctx;
    mode |= (flags & FS_WRITE) ? (flags & FS_READ) ? O_RDWR : O_WRONLY : O_RDONLY;
    mode |= (flags & FS_CREATE) ? O_CREAT : 0;
    mode |= (flags & FS_TRUNCATE) ? O_TRUNC : 0;
    mode |= (flags & FS_EXCLUSIVE) ? O_EXCL : 0;
    mode |= (flags & FS_DIRECT) ? O_DIRECT : 0;
    mode |= O_NONBLOCK; /* a FIFO in place of a file must not delay the start; files ignore the flag */

    int fd = open(path, mode, flags & FS_PRIVATE ? PRIVATE_MODE : FILE_MODE);
    if (fd < 0)
        return -errno;
    *fd_out = fd;
    return 0;
}

static int posix_close(void *ctx, int fd)
{
    (void)ctx;
    /* On Linux the descriptor is closed also after EINTR. No data is lost: all data that matters is synced before. */
    return close(fd) == 0 || errno == EINTR ? 0 : -errno;
}

static int posix_pread(void *ctx, int fd, void *buf, size_t len, uint64_t offset, size_t *n_out)
{
    ssize_t n;

    (void)ctx;
    do
        n = pread(fd, buf, len, (off_t)offset);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    *n_out = (size_t)n;
    return 0;
}

static int posix_pwrite(void *ctx, int fd, const void *buf, size_t len, uint64_t offset, size_t *n_out)
{
    ssize_t n;

    (void)ctx;
    do
        n = pwrite(fd, buf, len, (off_t)offset);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    *n_out = (size_t)n;
    return 0;
}

static int posix_size(void *ctx, int fd, uint64_t *size_out)
{
    struct stat st;

    (void)ctx;
    if (fstat(fd, &st) != 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return -EISDIR;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    *size_out = (uint64_t)st.st_size;
    return 0;
}

static int posix_truncate(void *ctx, int fd, uint64_t size)
{
    (void)ctx;
    return status(ftruncate(fd, (off_t)size));
}

static int posix_sync(void *ctx, int fd)
{
    (void)ctx;
    return status(fdatasync(fd));
}

static int posix_map(void *ctx, int fd, uint64_t offset, size_t len, void **memory_out)
{
    (void)ctx;
    void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (off_t)offset);
    if (memory == MAP_FAILED)
        return -errno;
    *memory_out = memory;
    return 0;
}

static void posix_unmap(void *ctx, void *memory, size_t len)
{
    (void)ctx;
    munmap(memory, len);
}

static int posix_stat(void *ctx, const char *path, struct fs_stat *stat_out)
{
    struct statx st;

    (void)ctx;
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &st) != 0)
        return -errno;
    stat_out->kind = S_ISREG(st.stx_mode) ? FS_FILE : S_ISDIR(st.stx_mode) ? FS_DIRECTORY : FS_OTHER;
    stat_out->size = st.stx_size;
    stat_out->device = makedev(st.stx_dev_major, st.stx_dev_minor);
    stat_out->made_ns = 0;
    if (st.stx_mask & STATX_BTIME)
        stat_out->made_ns = (uint64_t)st.stx_btime.tv_sec * 1000000000 + st.stx_btime.tv_nsec;
    return 0;
}

static int posix_mkdir(void *ctx, const char *path)
{
    (void)ctx;
    return status(mkdir(path, DIRECTORY_MODE));
}

static int posix_unlink(void *ctx, const char *path)
{
    (void)ctx;
    return status(unlink(path));
}

static int posix_rename(void *ctx, const char *from, const char *to)
{
    (void)ctx;
    return status(rename(from, to));
}

static int posix_link(void *ctx, const char *from, const char *to)
{
    (void)ctx;
    return status(link(from, to));
}

/* libuv closes descriptors by its own system call, which ThreadSanitizer does not see. It recognises a number's reuse
 * by open(), but not by opendir(), and would then report closedir() as a race with the former owner of the number. */
DIR *fs_open_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

    if (fd >= 0 && !dir) {
        int error = errno;
        close(fd);
        errno = error;
    }
    return dir;
}

static int posix_list(void *ctx, const char *path, fs_visit_fn *visit, void *visit_ctx)
{
    DIR *dir = fs_open_dir(path);
    int rc = 0;

    (void)ctx;
    if (!dir)
        return -errno;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry) {
            rc = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        rc = visit(visit_ctx, entry->d_name);
        if (rc != 0)
            break;
    }
    closedir(dir);
    return rc;
}

static int posix_sync_dir(void *ctx, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc;

    (void)ctx;
    if (fd < 0)
        return -errno;
    rc = status(fsync(fd));
    close(fd);
    return rc;
}

static int posix_sync_all(void *ctx, int fd)
{
    (void)ctx;
    return status(syncfs(fd));
}

static pid_t read_owner(int fd)
{
    char text[32] = "";
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;

    return pid > 0 ? (pid_t)pid : 0;
}

static int posix_lock(void *ctx, const char *path, int *fd_out, pid_t *owner_out)
{
    char text[32];
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, FILE_MODE);
    int rc = 0;

    (void)ctx;
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        rc = -errno;
        *owner_out = read_owner(fd);
        goto out;
    }
    int len = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)len, 0) != len) {
        rc = errno ? -errno : -EIO;
        goto out;
    }
    *fd_out = fd;
    fd = -1;
out:
    if (fd >= 0)
        close(fd);
    return rc;
}

static int posix_is_at(void *ctx, int fd, const char *path)
{
    struct stat open_file, named;

    (void)ctx;
    if (fstat(fd, &open_file) != 0)
        return -errno;
    if (stat(path, &named) != 0)
        return errno == ENOENT || errno == ENOTDIR ? -ESTALE : -errno;
    return open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino ? 0 : -ESTALE;
}

const struct fsops *fsops_posix(void)
{
    static const struct fsops ops = {
        .open = posix_open,
        .close = posix_close,
        .pread = posix_pread,
        .pwrite = posix_pwrite,
        .size = posix_size,
        .truncate = posix_truncate,
        .map = posix_map,
        .unmap = posix_unmap,
        .sync = posix_sync,
        .stat = posix_stat,
        .mkdir = posix_mkdir,
        .unlink = posix_unlink,
        .rename = posix_rename,
        .link = posix_link,
        .list = posix_list,
        .sync_dir = posix_sync_dir,
        .sync_all = posix_sync_all,
        .lock = posix_lock,
        .is_at = posix_is_at,
    };

    return &ops;
}

int fs_fill_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        /* All lower descriptors are open, so this is the lowest free number. */
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDONLY) != fd)
            return errno ? -errno : -EIO;
    }
    return 0;
}

int fs_open_new(const struct fsops *fs, const char *path, unsigned flags, int *fd_out)
{
    int rc = fs->open(fs->ctx, path, flags | FS_CREATE | FS_EXCLUSIVE, fd_out);

    if (rc != -EEXIST)
        return rc;
    rc = fs->unlink(fs->ctx, path);
    return rc == 0 ? fs->open(fs->ctx, path, flags | FS_CREATE | FS_EXCLUSIVE, fd_out) : rc;
}

/* The part of a path up to the next slash; false if the part does not lead downwards. */
static bool next_part(const char **path, char part[NAME_MAX + 1])
{
    size_t len = strcspn(*path, "/");

    if (len == 0 || len > NAME_MAX)
        return false;
    memcpy(part, *path, len);
    part[len] = '\0';
    *path += len;
    return strcmp(part, ".") != 0 && strcmp(part, "..") != 0;
}

/* Each part is opened by itself, so a link cannot take its place between a check and its use. */
int fs_open_beneath(const char *directory, const char *path, int *fd_out)
{
    int at = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC), rc = 0;
    char part[NAME_MAX + 1];
    struct stat st;

    if (at < 0)
        return -errno;
    for (bool last = false; !last && rc == 0;) {
        if (!next_part(&path, part)) {
            rc = -EINVAL;
            break;
        }
        last = *path == '\0';
        path += !last;
        int fd = last ? openat(at, part, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
                      : openat(at, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) {
            rc = -errno;
            if (rc == -ENOTDIR && fstatat(at, part, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
                rc = -ELOOP;
        }
        close(at);
        at = fd;
    }
    if (rc == 0 && (fstat(at, &st) != 0 || !S_ISREG(st.st_mode)))
        rc = -EINVAL;
    if (rc == 0)
        *fd_out = at;
    else if (at >= 0)
        close(at);
    return rc;
}

int fs_read_some(const struct fsops *fs, int fd, void *buf, size_t need, size_t len, uint64_t offset)
{
    for (size_t done = 0; done < need;) {
        size_t n = 0;
        TRY(fs->pread(fs->ctx, fd, (char *)buf + done, len - done, offset + done, &n));
        if (n == 0)
            return FS_ENDS;
        done += n;
    }
    return 0;
}

int fs_read_all(const struct fsops *fs, int fd, void *buf, size_t len, uint64_t offset)
{
    return fs_read_some(fs, fd, buf, len, len, offset);
}

void fs_boot(const struct fsops *fs, char boot_out[FS_BOOT_SIZE])
{
    int fd;

    memset(boot_out, 0, FS_BOOT_SIZE);
    if (fs->open(fs->ctx, "/proc/sys/kernel/random/boot_id", FS_READ, &fd) != 0)
        return;
    if (fs_read_all(fs, fd, boot_out, 36, 0) != 0)
        boot_out[0] = '\0';
    fs->close(fs->ctx, fd);
}

int path_format(struct path *path, struct errbuf *err, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int len = vsnprintf(path->text, sizeof(path->text), fmt, args);
    va_end(args);
    if (len >= 0 && (size_t)len < sizeof(path->text))
        return 0;
    return errbuf_fail(err, -ENAMETOOLONG, "the path of the data directory is too long");
}

int fs_write_file(const struct fsops *fs, const char *path, const void *bytes, size_t len)
{
    int fd;
    TRY(fs_open_new(fs, path, FS_WRITE, &fd));
    int rc = fs_write_all(fs, fd, bytes, len, 0);
    STEP(rc, fs->sync(fs->ctx, fd));
    int close_rc = fs->close(fs->ctx, fd);
    return rc != 0 ? rc : close_rc;
}

const char *fs_error_text(int rc)
{
    return rc == FS_ENDS ? "the file is too short" : strerror(-rc);
}

bool fs_error_passes(int error)
{
    return error == -ENOMEM || error == -EMFILE || error == -ENFILE || error == -EINTR || error == -EAGAIN;
}

int fs_write_all(const struct fsops *fs, int fd, const void *buf, size_t len, uint64_t offset)
{
    for (size_t done = 0; done < len;) {
        size_t n = 0;
        TRY(fs->pwrite(fs->ctx, fd, (const char *)buf + done, len - done, offset + done, &n));
        if (n == 0)
            return -EIO;
        done += n;
    }
    return 0;
}
