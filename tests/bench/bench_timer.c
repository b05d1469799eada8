/* What the machine does to any program that is to do something at fixed moments, without a server, a socket or a lock:
 * a thread on each processor, for each moment, says how late it was. Asleep: each sleeps until the next moment. Awake:
 * each checks the clock without end, so only somebody who takes its processor away makes it late: the scheduler, an
 * interrupt, the hypervisor. What is said of a server's slowest requests on this machine holds beside these figures.
 * scripts/bench_tail runs it.
 *
 *   bench_timer asleep|awake RATE SECONDS      RATE moments per second and processor; percentiles as JSON */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "schedule.h"

struct timer {
    pthread_t thread;
    long processor;
    bool asleep;
    double rate;
    uint64_t start_ns, end_ns;
    struct hdr lateness;
};

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void *timer_main(void *arg)
{
    struct timer *timer = arg;
    struct schedule schedule;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)timer->processor, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set); /* where it may not be, it is somewhere */
    schedule_init(&schedule, timer->start_ns, timer->rate, UINT64_MAX);
    for (uint64_t now; (now = now_ns()) < timer->end_ns;) {
        schedule_look(&schedule, now, &timer->lateness);
        while (schedule_waits(&schedule))
            schedule_take(&schedule);
        uint64_t due = schedule_next_due(&schedule);
        struct timespec until = {.tv_sec = (time_t)(due / 1000000000), .tv_nsec = (long)(due % 1000000000)};
        if (timer->asleep)
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
    return NULL;
}

static void print(const struct hdr *hdr)
{
    static const double percentiles[] = {50, 99, 99.9};
    for (size_t i = 0; i < sizeof(percentiles) / sizeof(percentiles[0]); i++)
        printf("%s\"p%g\":%.3f", i ? ", " : "{", percentiles[i], (double)hdr_percentile(hdr, percentiles[i]) / 1000);
    printf(", \"max\": %.3f}\n", (double)hdr->max / 1000);
}

int main(int argc, char **argv)
{
    double rate = argc == 4 ? strtod(argv[2], NULL) : 0, seconds = argc == 4 ? strtod(argv[3], NULL) : 0;
    bool asleep = argc == 4 && strcmp(argv[1], "asleep") == 0;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (!(rate > 0) || !(seconds > 0) || (!asleep && strcmp(argv[1], "awake") != 0)) {
        fprintf(stderr, "usage: bench_timer asleep|awake RATE SECONDS\n");
        return 2;
    }
    struct timer *timers = calloc((size_t)processors, sizeof(*timers));
    struct hdr *sum = calloc(1, sizeof(*sum));
    uint64_t start = now_ns() + 50000000;
    if (!timers || !sum)
        return 1;
    for (long i = 0; i < processors; i++) {
        timers[i] = (struct timer){.processor = i, .asleep = asleep, .rate = rate, .start_ns = start};
        timers[i].end_ns = start + (uint64_t)(seconds * 1e9);
        if (pthread_create(&timers[i].thread, NULL, timer_main, &timers[i]) != 0)
            return 1;
    }
    for (long i = 0; i < processors; i++) {
        pthread_join(timers[i].thread, NULL);
        hdr_merge(sum, &timers[i].lateness);
    }
    print(sum);
    free(timers);
    free(sum);
    return 0;
}
