/* clock_ahead: another time of day for a program, as a machine with a wrong clock has it. Loaded before the C library
 * (LD_PRELOAD); BLOOMERY_CLOCK_AHEAD has the seconds, which may be negative. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

static long ahead(void)
{
    const char *text = getenv("BLOOMERY_CLOCK_AHEAD");
    return text ? strtol(text, NULL, 10) : 0;
}

static int real_gettime(clockid_t clock, struct timespec *at)
{
    static int (*next)(clockid_t, struct timespec *);
    if (!next) {
        void *symbol = dlsym(RTLD_NEXT, "clock_gettime");
        memcpy(&next, &symbol, sizeof(next));
    }
    return next(clock, at);
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    int status = real_gettime(clock, at);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += ahead();
    return status;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    *at = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
