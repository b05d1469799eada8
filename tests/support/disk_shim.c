/* disk_shim: a disk that is slow or fails, for a whole process: preloaded (LD_PRELOAD), it stands between the daemon and
 * what it asks of the C library. BLOOMERY_DISK names a file that is read again at each call and says what is to happen:
 *
 *     delay_ms=5       each sync of data takes so long
 *     sync=5           each sync of data fails with this errno
 *     write=28         each write to a file in the log's directory fails with this errno
 *     hold_reads=1     a read of such a file waits until this is taken away
 *
 * An empty or absent file: nothing. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static long wanted(const char *what)
{
    const char *path = getenv("BLOOMERY_DISK");
    char text[256] = "", *at;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    at = strstr(text, what);
    return at ? strtol(at + strlen(what), NULL, 10) : 0;
}

static int is_log(int fd)
{
    char link[64], path[4096];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n < 0)
        return 0;
    path[n] = '\0';
    return strstr(path, "/data/log/") != NULL;
}

int fdatasync(int fd)
{
    static int (*real)(int);
    long ms = wanted("delay_ms="), error = wanted("sync=");

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fdatasync");
    if (ms)
        nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
    if (error && is_log(fd)) {
        errno = (int)error;
        return -1;
    }
    return real(fd);
}

ssize_t pwrite(int fd, const void *buf, size_t len, off_t offset)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    long error = wanted("write=");

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    if (error && is_log(fd)) {
        errno = (int)error;
        return -1;
    }
    return real(fd, buf, len, offset);
}

ssize_t pread(int fd, void *buf, size_t len, off_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off_t);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pread");
    while (is_log(fd) && wanted("hold_reads="))
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    return real(fd, buf, len, offset);
}
