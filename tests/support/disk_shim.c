/* The preloaded part of disk.h. An operation on the data directory is done and recorded under one lock, so the
 * record has the order of execution. */
#include "disk.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_FDS 4096

static struct disk nothing; /* before the control file exists: a good disk */
static struct disk *disk = &nothing;
static int trace = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(char *) open_files[MAX_FDS]; /* their paths; NULL: not in the data directory */

/* The C library's own function, past any other library in between. */
#define REAL(result, name, ...)         \
    static result (*real)(__VA_ARGS__); \
    if (!real)                          \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void attach(void)
{
    const char *path = getenv("BLOOMERY_DISK");
    int fd = path ? (open)(path, O_RDWR | O_CLOEXEC) : -1;

    if (fd < 0)
        return;
    struct disk *mapped = mmap(NULL, sizeof(*mapped), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED)
        return;
    disk = mapped;
    if (disk->trace[0])
        trace = (open)(disk->trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* "data/..." from a path into the data directory, otherwise NULL. Points into `path`. */
static const char *in_data(const char *path)
{
    const char *at = strstr(path, "/bloomery-e2e-");

    at = at ? strchr(at + 1, '/') : NULL;
    return at && strncmp(at, "/data", 5) == 0 && (at[5] == '/' || at[5] == '\0') ? at + 1 : NULL;
}

static const char *path_of(int fd)
{
    return fd >= 0 && fd < MAX_FDS ? atomic_load(&open_files[fd]) : NULL;
}

static bool is_log(int fd)
{
    const char *path = path_of(fd);

    return path && strncmp(path, "data/log/", 9) == 0;
}

static void wait_ms(int ms)
{
    if (ms > 0)
        nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    REAL(int, clock_gettime, clockid_t, struct timespec *);
    int status = real(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        now->tv_sec += atomic_load(&disk->clock_s);
    return status;
}

/* ---- memory ---- */

#if !DAEMON_SANITIZED                    /* a property of the program that loads this library, not of this build */
extern void *__libc_malloc(size_t size); /* the search for it would allocate */

void *malloc(size_t size)
{
    if (size && size == atomic_load(&disk->no_memory)) {
        atomic_fetch_add(&disk->memory_refused, 1);
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(size);
}
#endif

/* ---- faults ---- */

static bool counts(const char *what, const char *path)
{
    char text[sizeof(disk->only)];

    snprintf(text, sizeof(text), "%s %s", what, path);
    return disk->only[0] == '\0' || strcmp(text, disk->only) == 0;
}

/* The fate of an operation: -1 when it is to be done as usual, otherwise an enum disk_fault. Under the lock. */
static int fate(const char *what, const char *path, bool writes, bool is_pwrite)
{
    int fault = atomic_load(&disk->fault);

    atomic_fetch_add(&disk->calls, 1);
    long left = atomic_load(&disk->fail_in);
    if (left <= 0 || !counts(what, path))
        return -1;
    if (left > 1) {
        atomic_compare_exchange_strong(&disk->fail_in, &left, left - 1);
        return -1;
    }
    if (fault == DISK_FULL && !writes)
        return -1;
    if (fault != DISK_FULL)
        atomic_store(&disk->fail_in, 0);
    if (fault == DISK_SHORT && !is_pwrite)
        return -1;
    snprintf(disk->hit, sizeof(disk->hit), "%s %s", what, path);
    atomic_fetch_add(&disk->hits, 1);
    errno = atomic_load(&disk->error);
    if (fault == DISK_FULL || (fault == DISK_TORN && !is_pwrite))
        return DISK_ERROR;
    return fault;
}

/* ---- the record ---- */

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void record(struct disk_record head, const void *bytes, size_t len)
{
    static unsigned char *buf;
    static size_t size;
    int saved = errno;

    if (trace < 0)
        return;
    if (sizeof(head) + len > size) {
        size = 2 * (sizeof(head) + len);
        buf = realloc(buf, size);
        if (!buf)
            abort();
    }
    head.bytes = (uint32_t)len;
    memcpy(buf, &head, sizeof(head));
    if (len)
        memcpy(buf + sizeof(head), bytes, len);
    if (write(trace, buf, sizeof(head) + len) != (ssize_t)(sizeof(head) + len))
        abort(); /* else the test would not know the content of the disk */
    errno = saved;
}

static void record_paths(enum disk_op kind, int fd, int flags, int64_t began, const char *from, const char *to)
{
    char paths[8192];
    size_t len = (size_t)snprintf(paths, sizeof(paths), "%s", from) + 1;

    if (to)
        len += (size_t)snprintf(paths + len, sizeof(paths) - len, "%s", to) + 1;
    record((struct disk_record){.kind = kind, .fd = fd, .flags = (uint32_t)flags, .time_ns = began}, paths, len);
}

/* ---- files ---- */

int open(const char *path, int flags, ...)
{
    REAL(int, open, const char *, int, ...);
    mode_t mode = 0;
    const char *in = in_data(path);

    if (flags & O_CREAT) {
        va_list args;
        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
    }
    const char *name = strrchr(path, '/');
    while (name && strcmp(name, "/held") == 0 && atomic_load(&disk->hold_opens))
        wait_ms(5);
    if (!in)
        return real(path, flags, mode);
    pthread_mutex_lock(&lock);
    int64_t began = now_ns();
    int to_do = fate("open", in, (flags & O_CREAT) != 0, false), fd = -1;
    if (to_do < 0)
        fd = real(path, flags, mode);
    else if (to_do == DISK_LATE) { /* the file is created, but its descriptor is not returned */
        int made = real(path, flags, mode), error = atomic_load(&disk->error);
        if (made >= 0) {
            record_paths(DISK_OPEN, made, flags, began, in, NULL);
            record((struct disk_record){.kind = DISK_CLOSE, .fd = made, .time_ns = began}, NULL, 0);
            close(made);
        }
        errno = error;
    }
    if (fd >= 0 && fd < MAX_FDS) {
        free(atomic_exchange(&open_files[fd], strdup(in)));
        record_paths(DISK_OPEN, fd, flags, began, in, NULL);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static void forget(int fd)
{
    free(atomic_exchange(&open_files[fd], NULL));
    record((struct disk_record){.kind = DISK_CLOSE, .fd = fd, .time_ns = now_ns()}, NULL, 0);
}

int close(int fd)
{
    REAL(int, close, int);

    if (!path_of(fd))
        return real(fd);
    pthread_mutex_lock(&lock);
    forget(fd);
    int result = real(fd);
    pthread_mutex_unlock(&lock);
    return result;
}

/* For a directory that open() has opened: the C library closes it without close(). */
int closedir(DIR *dir)
{
    REAL(int, closedir, DIR *);

    if (!path_of(dirfd(dir)))
        return real(dir);
    pthread_mutex_lock(&lock);
    forget(dirfd(dir));
    int result = real(dir);
    pthread_mutex_unlock(&lock);
    return result;
}

static bool all_zeros(const unsigned char *bytes, size_t len)
{
    return len > 0 && bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0;
}

ssize_t pwrite(int fd, const void *buf, size_t len, off_t offset)
{
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    const char *path = path_of(fd);

    if (!path)
        return real(fd, buf, len, offset);
    pthread_mutex_lock(&lock);
    int64_t began = now_ns();
    int to_do = fate("write", path, true, true), error = is_log(fd) ? atomic_load(&disk->write_error) : 0;
    if (to_do == DISK_SHORT || to_do == DISK_TORN) /* writes past the page cache are of whole blocks */
        len = fcntl(fd, F_GETFL) & O_DIRECT ? len / 2 & ~(size_t)4095 : (len + 1) / 2;
    ssize_t n = -1;
    if (error) {
        atomic_fetch_add(&disk->writes_refused, 1);
        errno = error;
    } else if (to_do == DISK_ERROR)
        errno = atomic_load(&disk->error);
    else
        n = len ? real(fd, buf, len, offset) : 0;
    if (n > 0) {
        bool zeros = all_zeros(buf, (size_t)n);
        record((struct disk_record){.kind = DISK_WRITE,
                                    .fd = fd,
                                    .flags = zeros,
                                    .offset = (uint64_t)offset,
                                    .len = (uint64_t)n,
                                    .time_ns = began},
               buf, zeros ? 0 : (size_t)n);
    }
    if (to_do == DISK_TORN || to_do == DISK_LATE) {
        errno = atomic_load(&disk->error);
        n = -1;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

ssize_t pread(int fd, void *buf, size_t len, off_t offset)
{
    REAL(ssize_t, pread, int, void *, size_t, off_t);
    const char *path = path_of(fd);

    if (!path)
        return real(fd, buf, len, offset);
    while (is_log(fd) && atomic_load(&disk->hold_reads))
        wait_ms(5);
    if (is_log(fd))
        wait_ms(atomic_load(&disk->read_ms));
    pthread_mutex_lock(&lock);
    int to_do = fate("read", path, false, false);
    pthread_mutex_unlock(&lock);
    return to_do < 0 ? real(fd, buf, len, offset) : -1;
}

int ftruncate(int fd, off_t size)
{
    REAL(int, ftruncate, int, off_t);
    const char *path = path_of(fd);

    if (!path)
        return real(fd, size);
    pthread_mutex_lock(&lock);
    int64_t began = now_ns();
    int to_do = fate("truncate", path, false, false);
    int result = to_do < 0 || to_do == DISK_LATE ? real(fd, size) : -1;
    if (result == 0)
        record((struct disk_record){.kind = DISK_TRUNCATE, .fd = fd, .len = (uint64_t)size, .time_ns = began}, NULL, 0);
    if (to_do == DISK_LATE) {
        errno = atomic_load(&disk->error);
        result = -1;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* It is recorded before its delay: operations during the delay are not covered. A failing sync is recorded as well:
 * its data may never be synced. */
static int sync_file(const char *what, enum disk_op kind, int fd, int (*real)(int))
{
    const char *path = path_of(fd);

    if (!path)
        return real(fd);
    pthread_mutex_lock(&lock);
    int64_t began = now_ns();
    int to_do = fate(what, path, kind == DISK_SYNC_DIR, false);
    int error = kind == DISK_SYNC && is_log(fd) ? atomic_load(&disk->sync_error) : 0;
    if (to_do >= 0)
        error = atomic_load(&disk->error);
    record((struct disk_record){.kind = kind, .fd = fd, .failed = error && to_do != DISK_LATE, .time_ns = began}, NULL,
           0);
    pthread_mutex_unlock(&lock);
    if (kind == DISK_SYNC && is_log(fd) && atomic_load(&disk->hold_syncs))
        atomic_fetch_add(&disk->syncs_held, 1);
    while (kind == DISK_SYNC && is_log(fd) && atomic_load(&disk->hold_syncs))
        wait_ms(5);
    if (kind == DISK_SYNC)
        wait_ms(atomic_load(&disk->delay_ms));
    if (error) {
        errno = error;
        return -1;
    }
    return trace >= 0 ? 0 : real(fd);
}

int fdatasync(int fd)
{
    REAL(int, fdatasync, int);

    return sync_file("fdatasync", DISK_SYNC, fd, real);
}

int fsync(int fd) /* of directories: fsops.c */
{
    REAL(int, fsync, int);

    return sync_file("fsync", DISK_SYNC_DIR, fd, real);
}

int syncfs(int fd)
{
    REAL(int, syncfs, int);

    return sync_file("syncfs", DISK_SYNC_ALL, fd, real);
}

/* ---- names ---- */

/* After the operation, done or not: the caller's result. */
static int done(int to_do, int result, enum disk_op kind, int64_t began, const char *from, const char *to)
{
    if (result == 0)
        record_paths(kind, -1, 0, began, from, to);
    if (to_do >= 0) {
        errno = atomic_load(&disk->error);
        return -1;
    }
    return result;
}

#define NAME_OPERATION(what, kind, in, in_to, makes, call)          \
    do {                                                            \
        pthread_mutex_lock(&lock);                                  \
        int64_t began = now_ns();                                   \
        int to_do = fate(what, in, makes, false);                   \
        int result = to_do < 0 || to_do == DISK_LATE ? (call) : -1; \
        result = done(to_do, result, kind, began, in, in_to);       \
        pthread_mutex_unlock(&lock);                                \
        return result;                                              \
    } while (0)

int mkdir(const char *path, mode_t mode)
{
    REAL(int, mkdir, const char *, mode_t);
    const char *in = in_data(path);

    if (!in)
        return real(path, mode);
    NAME_OPERATION("mkdir", DISK_MKDIR, in, NULL, true, real(path, mode));
}

int unlink(const char *path)
{
    REAL(int, unlink, const char *);
    const char *in = in_data(path);

    if (!in)
        return real(path);
    NAME_OPERATION("unlink", DISK_UNLINK, in, NULL, false, real(path));
}

int rename(const char *from, const char *to)
{
    REAL(int, rename, const char *, const char *);
    const char *in = in_data(from), *in_to = in_data(to);

    if (!in || !in_to)
        return real(from, to);
    NAME_OPERATION("rename", DISK_RENAME, in, in_to, true, real(from, to));
}

int link(const char *from, const char *to)
{
    REAL(int, link, const char *, const char *);
    const char *in = in_data(from), *in_to = in_data(to);

    if (!in || !in_to)
        return real(from, to);
    NAME_OPERATION("link", DISK_LINK, in, in_to, true, real(from, to));
}

int lstat(const char *path, struct stat *st)
{
    REAL(int, lstat, const char *, struct stat *);
    const char *in = in_data(path);
    int to_do = -1;

    if (in) {
        pthread_mutex_lock(&lock);
        to_do = fate("stat", in, false, false);
        pthread_mutex_unlock(&lock);
    }
    return to_do < 0 ? real(path, st) : -1;
}

DIR *opendir(const char *path)
{
    REAL(DIR *, opendir, const char *);
    const char *in = in_data(path);
    int to_do = -1;

    if (in) {
        pthread_mutex_lock(&lock);
        to_do = fate("list", in, false, false);
        pthread_mutex_unlock(&lock);
    }
    return to_do < 0 ? real(path) : NULL;
}
