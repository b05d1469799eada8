#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "lateness.h"

static pthread_t thread;
static int fd;
static atomic_bool watched;
static _Atomic int64_t late_ms, beat_ms; /* at most, until the last beat; that beat's time */

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t lateness_ms(void)
{
    int64_t now = now_ms() - atomic_load(&beat_ms), before = atomic_load(&late_ms);

    return now > before ? now : before;
}

static void *watch(void *arg)
{
    (void)arg;
    while (atomic_load(&watched)) {
        cr_assert(pwrite(fd, "x", 1, 0) == 1 && fdatasync(fd) == 0);
        usleep(20000);
        atomic_store(&late_ms, lateness_ms());
        atomic_store(&beat_ms, now_ms());
    }
    return NULL;
}

void lateness_watch(const char *dir)
{
    char name[400];

    snprintf(name, sizeof(name), "%s/watch", dir);
    fd = open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    atomic_store(&watched, true);
    atomic_store(&beat_ms, now_ms());
    cr_assert_eq(pthread_create(&thread, NULL, watch, NULL), 0);
}

void lateness_end(void)
{
    atomic_store(&watched, false);
    pthread_join(thread, NULL);
    close(fd);
}
