/* The C library's calls for time, random numbers, processors and descriptors within a run of the schedule. */
#include "schedule.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <netdb.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "rng.h"

#define REAL(name)                 \
    static __typeof__(&name) real; \
    if (!real)                     \
    *(void **)&real = schedule_real(#name)

#define EPOCH_S UINT64_C(1750000000)
#define PROCESS 4321
#define READ_NS 40 /* a read of a clock takes this long, so that a loop that waits for a time ends */

/* ---- clocks ---- */

static uint64_t boot_ns;
static int64_t day_ms = (int64_t)EPOCH_S * 1000; /* the time of day at the time 0 of a run */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    REAL(clock_gettime);
    if (!schedule_is_on())
        return real(clock, now);
    schedule_pass(READ_NS);
    bool of_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    uint64_t ns = schedule_now_ns() + (of_day ? (uint64_t)day_ms * 1000000 : 0);
    if (clock == CLOCK_BOOTTIME)
        ns -= boot_ns;
    *now = (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    return 0;
}

uint64_t schedule_day_ms_at(uint64_t ns, int64_t ahead_ms)
{
    return EPOCH_S * 1000 + (uint64_t)ahead_ms + ns / 1000000;
}

uint64_t schedule_day_ms(void)
{
    return (uint64_t)day_ms + schedule_now_ns() / 1000000;
}

void schedule_set_boot(uint64_t ns)
{
    boot_ns = ns;
}

void schedule_stamp(const char *path)
{
    uint64_t ms = schedule_day_ms() & ~UINT64_C(3);
    struct timespec now = {(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};
    if (utimensat(AT_FDCWD, path, (struct timespec[]){now, now}, 0) != 0)
        abort();
}

void schedule_set_day(int64_t ahead_ms)
{
    day_ms = (int64_t)EPOCH_S * 1000 + ahead_ms;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

static uint64_t ns_of(const struct timespec *time)
{
    return (uint64_t)time->tv_sec * 1000000000 + (uint64_t)time->tv_nsec;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
    REAL(nanosleep);
    if (!schedule_is_on())
        return real(time, left);
    schedule_sleep(ns_of(time));
    return 0;
}

int usleep(useconds_t us)
{
    return nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L}, NULL);
}

/* ---- processors, processes and random numbers ---- */

/* A daemon has the same number each time, and no other process has one that it knows. */
pid_t getpid(void)
{
    REAL(getpid);
    return schedule_is_on() ? PROCESS : real();
}

int kill(pid_t pid, int signal)
{
    REAL(kill);
    if (!schedule_is_on())
        return real(pid, signal);
    errno = ESRCH;
    return pid == PROCESS ? 0 : -1; /* it asks only */
}

int sched_yield(void)
{
    REAL(sched_yield);
    if (!schedule_is_on())
        return real();
    schedule_yield();
    return 0;
}

/* The order of threads is the schedule's. */
int setpriority(__priority_which_t which, id_t who, int value)
{
    REAL(setpriority);
    return schedule_is_on() ? 0 : real(which, who, value);
}

int sched_setscheduler(pid_t pid, int policy, const struct sched_param *param)
{
    REAL(sched_setscheduler);
    return schedule_is_on() ? 0 : real(pid, policy, param);
}

void schedule_secret(uint64_t which, unsigned char secret[SCHEDULE_SECRET_BYTES])
{
    struct rng rng;
    rng_init(&rng, which);
    rng_fill(&rng, secret, SCHEDULE_SECRET_BYTES);
}

ssize_t getrandom(void *bytes, size_t n, unsigned flags)
{
    REAL(getrandom);
    if (!schedule_is_on())
        return real(bytes, n, flags);
    if (n == SCHEDULE_SECRET_BYTES) {
        schedule_secret(schedule_random() % SCHEDULE_SECRETS, bytes);
        return (ssize_t)n;
    }
    for (size_t at = 0; at < n; at += sizeof(uint64_t)) {
        uint64_t number = schedule_random();
        memcpy((char *)bytes + at, &number, n - at < sizeof(number) ? n - at : sizeof(number));
    }
    return (ssize_t)n;
}

/* ---- polls ---- */

static uint64_t after_ms(int ms)
{
    return ms < 0 ? SCHEDULE_FOREVER : schedule_now_ns() + (uint64_t)ms * 1000000;
}

int epoll_wait(int epfd, struct epoll_event *events, int size, int ms)
{
    REAL(epoll_wait);
    return schedule_is_on() ? schedule_epoll(epfd, events, size, after_ms(ms)) : real(epfd, events, size, ms);
}

int epoll_pwait(int epfd, struct epoll_event *events, int size, int ms, const sigset_t *mask)
{
    REAL(epoll_pwait);
    return schedule_is_on() ? schedule_epoll(epfd, events, size, after_ms(ms)) : real(epfd, events, size, ms, mask);
}

int poll(struct pollfd *fds, nfds_t n, int ms)
{
    REAL(poll);
    if (!schedule_is_on())
        return real(fds, n, ms);
    if (n == 0) {
        schedule_sleep((uint64_t)(ms > 0 ? ms : 0) * 1000000);
        return 0;
    }
    return schedule_poll(fds, n, after_ms(ms));
}

/* ---- descriptors: `wakes` a call may end another thread's poll; clients do not poll ---- */

#define PASSES(wakes, type, name, parameters, arguments) \
    type name parameters                                 \
    {                                                    \
        REAL(name);                                      \
        type result = real arguments;                    \
        if (schedule_is_on()) {                          \
            int error = errno;                           \
            if (wakes)                                   \
                schedule_io();                           \
            schedule_point();                            \
            errno = error;                               \
        }                                                \
        return result;                                   \
    }

PASSES(false, ssize_t, read, (int fd, void *bytes, size_t n), (fd, bytes, n))
PASSES(true, ssize_t, write, (int fd, const void *bytes, size_t n), (fd, bytes, n))
PASSES(true, ssize_t, writev, (int fd, const struct iovec *parts, int n), (fd, parts, n))
PASSES(false, ssize_t, recv, (int fd, void *bytes, size_t n, int flags), (fd, bytes, n, flags))
PASSES(false, ssize_t, send, (int fd, const void *bytes, size_t n, int flags), (fd, bytes, n, flags))
PASSES(false, ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
PASSES(true, int, shutdown, (int fd, int how), (fd, how))
PASSES(true, int, close, (int fd), (fd))

/* A log opens a pipe at the error output once more: a run is the same where that is none. */
int fstat(int fd, struct stat *out)
{
    REAL(fstat);
    int status = real(fd, out);
    if (status == 0 && schedule_is_on() && fd == STDERR_FILENO)
        out->st_mode = S_IFIFO;
    return status;
}

/* ---- the network: there is none ---- */

int connect(int fd, const struct sockaddr *address, socklen_t len)
{
    REAL(connect);
    if (!schedule_is_on() || address->sa_family == AF_UNIX)
        return real(fd, address, len);
    errno = ECONNREFUSED;
    return -1;
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    REAL(getaddrinfo);
    return schedule_is_on() ? EAI_AGAIN : real(name, service, hints, out);
}

/* ---- futexes, by which liburcu waits ---- */

static long wait_futex(const int *word, int value, const struct timespec *time)
{
    schedule_point();
    if (*(const volatile int *)word != value) {
        errno = EAGAIN;
        return -1;
    }
    if (schedule_wait(word, time ? schedule_now_ns() + ns_of(time) : SCHEDULE_FOREVER))
        return 0;
    errno = ETIMEDOUT;
    return -1;
}

long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (!real)
        *(void **)&real = schedule_real("syscall");
    if (!schedule_is_on() || number != SYS_futex)
        return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    int what = (int)a[1] & ~FUTEX_PRIVATE_FLAG;
    if (what == FUTEX_WAIT)
        return wait_futex((const int *)a[0], (int)a[2], (const struct timespec *)a[3]);
    int woken = schedule_wake_some((const void *)a[0], a[2] > INT_MAX ? INT_MAX : (int)a[2]);
    schedule_point();
    return woken;
}
