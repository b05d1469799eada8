/* slow_disk: a disk whose syncs take longer, for a whole process: preloaded (LD_PRELOAD), each fdatasync() takes
 * BLOOMERY_SYNC_US microseconds more. */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int fdatasync(int fd)
{
    static int (*real)(int);
    const char *text = getenv("BLOOMERY_SYNC_US");
    long us = text ? strtol(text, NULL, 10) : 0;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fdatasync");
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
    return real(fd);
}
