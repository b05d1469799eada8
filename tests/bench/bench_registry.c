/* What a filter costs beside its bits and its name, with and without a time, and what it costs others when many expire
 * at once. One line per figure: name, value, unit. Argument: how many filters (default 200000). */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "expirer.h"
#include "rcu.h"
#include "registry.h"

static struct bloom_pool *pool;
static struct reclaimer *reclaimer;
static struct registry *registry;
static struct bloom_class *class;

static int64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static struct slice name_of(char *text, unsigned i)
{
    int len = sprintf(text, "tenant:%08u:seen", i);
    return (struct slice){text, (size_t)len};
}

static size_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void figure(const char *name, double value, const char *unit)
{
    printf("%-44s %10.1f %s\n", name, value, unit);
}

static void per_filter(const char *name, size_t before, unsigned n)
{
    char text[32];
    uint64_t bits = bloom_pool_bytes(pool);
    size_t names = name_of(text, 0).len * n;
    figure(name, ((double)(heap_bytes() - before) - (double)bits - (double)names) / n, "bytes");
}

static double look_up_ns(unsigned n)
{
    char text[32];
    unsigned found = 0;
    int64_t start = now_ns(CLOCK_MONOTONIC);
    for (unsigned i = 0; i < n; i++)
        found += registry_lookup(registry, name_of(text, i * 2654435761u % n)) != NULL;
    if (found != n)
        printf("only %u of %u found\n", found, n);
    return (double)(now_ns(CLOCK_MONOTONIC) - start) / n;
}

static _Atomic bool stop;
static int64_t longest_ns;
static uint64_t changes;

/* Creates and deletes all the time: how long does one of these take at most while the expirer works? */
static void *bystander(void *arg)
{
    struct entry *entry;
    (void)arg;
    rcu_reader_begin();
    while (!atomic_load(&stop)) {
        rcu_reader_online();
        int64_t start = now_ns(CLOCK_MONOTONIC);
        registry_create_filter(registry, (struct slice){"bystander", 9}, 0, class, &entry, NULL);
        registry_delete(registry, (struct slice){"bystander", 9});
        int64_t took = now_ns(CLOCK_MONOTONIC) - start;
        longest_ns = took > longest_ns ? took : longest_ns;
        changes++;
        rcu_reader_offline();
    }
    rcu_reader_end();
    return NULL;
}

static void start_bystander(pthread_t *thread_out)
{
    atomic_store(&stop, false);
    longest_ns = 0;
    changes = 0;
    if (pthread_create(thread_out, NULL, bystander, NULL))
        exit(2);
}

static void stop_bystander(pthread_t thread, const char *when, double seconds)
{
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    printf("%s:\n", when);
    figure("  creations and deletions", (double)changes / seconds, "per second");
    figure("  the longest of them", (double)longest_ns / 1000, "us");
}

static void expire_all(unsigned n)
{
    struct expirer *expirer;
    pthread_t thread;
    char text[32];
    int64_t at = now_ns(CLOCK_REALTIME) / 1000000 + 1000 + n / 100; /* when all have been told so */
    for (unsigned i = 0; i < n; i++)
        registry_expire(registry, name_of(text, i), at, 0);
    rcu_reader_offline();
    while (now_ns(CLOCK_REALTIME) / 1000000 < at)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    start_bystander(&thread);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    stop_bystander(thread, "nothing expires", 1);
    start_bystander(&thread);
    if (expirer_create(&expirer, registry, NULL, NULL))
        exit(2);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    struct registry_expiry expiry;
    do {
        struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
        registry_expiry(registry, &expiry);
    } while (expiry.count);
    double seconds = (double)(now_ns(CLOCK_MONOTONIC) - start) / 1e9;
    stop_bystander(thread, "many expire", seconds);
    expirer_destroy(expirer);
    rcu_reader_online();
    figure("  of these removed", n / seconds, "per second");
}

int main(int argc, char **argv)
{
    struct bloom_params params = {.capacity = 10, .error_rate = 0.01, .expansion = 2};
    unsigned n = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 200000;
    struct entry *entry;
    char text[32];
    if (n == 0 || bloom_pool_create(&pool) || reclaimer_create(&reclaimer) ||
        registry_create(&registry, pool, reclaimer) || bloom_class_get(pool, &params, NULL, &class, NULL))
        return 2;
    rcu_reader_begin();
    size_t before = heap_bytes();
    int64_t start = now_ns(CLOCK_MONOTONIC);
    for (unsigned i = 0; i < n; i++)
        if (registry_create_filter(registry, name_of(text, i), 0, class, &entry, NULL) != REGISTRY_OK)
            return 2;
    figure("creating a filter", (double)(now_ns(CLOCK_MONOTONIC) - start) / n, "ns");
    rcu_reader_offline();
    reclaimer_flush(reclaimer);
    rcu_reader_online();
    per_filter("a filter beside bits and name", before, n);
    figure("looking one up", look_up_ns(n), "ns");
    start = now_ns(CLOCK_MONOTONIC);
    for (unsigned i = 0; i < n; i++)
        registry_expire(registry, name_of(text, i), INT64_MAX - (int64_t)i, 0);
    figure("giving a time", (double)(now_ns(CLOCK_MONOTONIC) - start) / n, "ns");
    per_filter("one with a time beside bits and name", before, n);
    figure("looking one with a time up", look_up_ns(n), "ns");
    expire_all(n);
    rcu_reader_end();
    bloom_class_release(class);
    registry_destroy(registry);
    reclaimer_destroy(reclaimer);
    bloom_pool_destroy(pool);
    return 0;
}
