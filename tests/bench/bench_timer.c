/* The machine's delays for any program with work at fixed moments, without a server, a socket or a lock: a thread on
 * each processor measures its lateness at each moment. Asleep: each sleeps until the next moment. Awake: each reads
 * the clock in a loop, so it is late only if its processor is taken away: by the scheduler, an interrupt, the
 * hypervisor. Compare a server's slowest requests on this machine with these figures. Local: the same as awake, and at
 * each moment libbloomery is asked for an item of a filter of a million; the time ends with the answer.
 * scripts/bench_tail runs it.
 *
 *   bench_timer asleep|awake|local RATE SECONDS      RATE moments per second and processor; percentiles as JSON */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "bloomery.h"
#include "percentiles.h"

#define ITEMS 1000000

struct timer {
    pthread_t thread;
    long processor;
    bool asleep;
    double rate;
    uint64_t start_ns, end_ns;
    bloomery_filter *filter; /* of local, otherwise NULL */
    uint64_t asked, present;
    struct percentiles lateness;
};

/* A present item, at a place of the filter that does not follow from the one before. */
static void ask(struct timer *timer, uint64_t due)
{
    uint64_t item = timer->asked++ * UINT64_C(0x9e3779b97f4a7c15) % ITEMS;
    timer->present += (uint64_t)bloomery_has(timer->filter, &item, sizeof(item));
    percentiles_add(&timer->lateness, clock_ns() - due, 1);
}

static bloomery_filter *make_filter(void)
{
    bloomery_filter *filter;
    char text[BLOOMERY_TEXT];
    if (bloomery_create(0.01, ITEMS, "na", &filter, text, sizeof(text)) != BLOOMERY_OK) {
        fprintf(stderr, "bench_timer: %s\n", text);
        exit(1);
    }
    for (uint64_t item = 0; item < ITEMS; item++)
        bloomery_add(filter, &item, sizeof(item), NULL, NULL, 0);
    return filter;
}

static void *timer_main(void *arg)
{
    struct timer *timer = arg;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)timer->processor, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set); /* else on any processor */
    uint64_t n = 0;
    for (uint64_t now; (now = clock_ns()) < timer->end_ns;) {
        uint64_t due;
        for (; (due = timer->start_ns + (uint64_t)((double)n * 1e9 / timer->rate)) <= now; n++) {
            if (timer->filter)
                ask(timer, due);
            else
                percentiles_add(&timer->lateness, now - due, 1);
        }
        struct timespec until = {.tv_sec = (time_t)(due / 1000000000), .tv_nsec = (long)(due % 1000000000)};
        if (timer->asleep)
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
    return NULL;
}

static void print(const struct percentiles *all)
{
    static const double at[] = {50, 99, 99.9};
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
        printf("%s\"p%g\":%.3f", i ? ", " : "{", at[i], (double)percentiles_at(all, at[i]) / 1000);
    printf(", \"max\":%.3f}\n", (double)all->max / 1000);
}

int main(int argc, char **argv)
{
    double rate = argc == 4 ? strtod(argv[2], NULL) : 0, seconds = argc == 4 ? strtod(argv[3], NULL) : 0;
    const char *how = argc == 4 ? argv[1] : "";
    bool asleep = strcmp(how, "asleep") == 0, local = strcmp(how, "local") == 0;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (!(rate > 0) || !(seconds > 0) || (!asleep && !local && strcmp(how, "awake") != 0)) {
        fprintf(stderr, "usage: bench_timer asleep|awake|local RATE SECONDS\n");
        return 2;
    }
    struct timer *timers = calloc((size_t)processors, sizeof(*timers));
    struct percentiles *sum = calloc(1, sizeof(*sum));
    bloomery_filter *filter = local ? make_filter() : NULL;
    uint64_t start = clock_ns() + 50000000;
    if (!timers || !sum)
        return 1;
    for (long i = 0; i < processors; i++) {
        timers[i] = (struct timer){.processor = i, .asleep = asleep, .rate = rate, .filter = filter, .start_ns = start};
        timers[i].end_ns = start + (uint64_t)(seconds * 1e9);
        if (pthread_create(&timers[i].thread, NULL, timer_main, &timers[i]) != 0)
            return 1;
    }
    for (long i = 0; i < processors; i++) {
        pthread_join(timers[i].thread, NULL);
        for (size_t bucket = 0; bucket < PERCENTILES_SIZE; bucket++)
            sum->counts[bucket] += timers[i].lateness.counts[bucket];
        sum->total += timers[i].lateness.total;
        sum->max = timers[i].lateness.max > sum->max ? timers[i].lateness.max : sum->max;
        if (timers[i].present != (local ? timers[i].asked : 0))
            return 1;
    }
    print(sum);
    bloomery_free(filter);
    free(timers);
    free(sum);
    return 0;
}
