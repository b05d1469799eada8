/* The memory of a filter in addition to its bits and its name, with and without a time; the time of a lookup among
 * many filters; and the delay for others when many expire at once. One line per figure: name, value, unit.
 * Arguments: the number of filters (default 1000000), and "expiry" for the last part. */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "murmur.h"
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
    return info.uordblks + info.hblkhd + (registry ? registry_slab_bytes(registry) : 0);
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

/* ---- queries of one item each, of filters at random, as they come from clients ---- */

#define QUERIES 1000000u
#define BATCH   32u

struct query {
    char name[24];
    struct bloom_hash item;
};

static struct query *queries_of(unsigned n)
{
    struct query *queries = malloc(QUERIES * sizeof(*queries));
    char text[32];
    if (!queries)
        exit(2);
    for (unsigned i = 0; i < QUERIES; i++) {
        strcpy(queries[i].name, name_of(text, i * 2654435761u % n).ptr);
        queries[i].item = murmur3_hash(&i, sizeof(i));
    }
    return queries;
}

static unsigned query(const struct query *query, uint64_t hash)
{
    struct entry *entry = registry_find(registry, hash, (struct slice){query->name, strlen(query->name)});
    if (!entry)
        exit(2);
    return bloom_filter_query(entry_filter(entry), query->item);
}

static double one_by_one_ns(const struct query *queries)
{
    unsigned present = 0;
    int64_t start = now_ns(CLOCK_MONOTONIC);
    for (unsigned i = 0; i < QUERIES; i++)
        present +=
            query(&queries[i], registry_hash(registry, (struct slice){queries[i].name, strlen(queries[i].name)}));
    return present ? 0 : (double)(now_ns(CLOCK_MONOTONIC) - start) / QUERIES; /* nothing has been added */
}

/* The steps of the pipeline: the misses of this many queries overlap. */
static double batched_ns(const struct query *queries)
{
    unsigned present = 0;
    int64_t start = now_ns(CLOCK_MONOTONIC);
    for (unsigned i = 0; i + BATCH <= QUERIES; i += BATCH) {
        uint64_t hashes[BATCH];
        for (unsigned j = 0; j < BATCH; j++) {
            const char *name = queries[i + j].name;
            hashes[j] = registry_hash(registry, (struct slice){name, strlen(name)});
            registry_prefetch(registry, hashes[j]);
        }
        for (unsigned j = 0; j < BATCH; j++)
            registry_prefetch_entry(registry, hashes[j]);
        for (unsigned j = 0; j < BATCH; j++)
            present += query(&queries[i + j], hashes[j]);
    }
    return present ? 0 : (double)(now_ns(CLOCK_MONOTONIC) - start) / (QUERIES / BATCH * BATCH);
}

static void measure_queries(unsigned n)
{
    struct query *queries = queries_of(n);
    double one_by_one = one_by_one_ns(queries), batched = batched_ns(queries);
    printf("%10u filters: a query %18.1f ns one by one %8.1f ns in batches of %u\n", n, one_by_one, batched, BATCH);
    free(queries);
}

static _Atomic bool stop;
static int64_t longest_ns;
static uint64_t changes;

/* Repeatedly creates and deletes: the longest duration of one of these while the expirer works. */
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
    int64_t at = now_ns(CLOCK_REALTIME) / 1000000 + 1000 + n / 100; /* after all have got their times */
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
    struct bloom_params params = {.capacity = 100, .error_rate = 0.01, .expansion = 2};
    unsigned n = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1000000;
    struct entry *entry;
    char text[32];
    if (n == 0 || bloom_pool_create(&pool) || reclaimer_create(&reclaimer) ||
        registry_create(&registry, pool, reclaimer) || bloom_class_get(pool, &params, NULL, &class, NULL))
        return 2;
    rcu_reader_begin();
    size_t before = heap_bytes();
    int64_t start, took = 0;
    for (unsigned made = 0, some = 1; made<n; some = some> n / 1000 ? n : some * 1000) {
        start = now_ns(CLOCK_MONOTONIC);
        for (; made < some && made < n; made++)
            if (registry_create_filter(registry, name_of(text, made), 0, class, &entry, NULL) != REGISTRY_OK)
                return 2;
        took += now_ns(CLOCK_MONOTONIC) - start;
        measure_queries(made);
    }
    figure("creating a filter", (double)took / n, "ns");
    rcu_reader_offline();
    reclaimer_flush(reclaimer);
    rcu_reader_online();
    per_filter("accounted beside bits and name", before, n);
    start = now_ns(CLOCK_MONOTONIC);
    for (unsigned i = 0; i < n; i++)
        registry_expire(registry, name_of(text, i), INT64_MAX - (int64_t)i, 0);
    figure("giving a time", (double)(now_ns(CLOCK_MONOTONIC) - start) / n, "ns");
    per_filter("accounted with a time", before, n);
    measure_queries(n);
    if (argc > 2 && strcmp(argv[2], "expiry") == 0)
        expire_all(n);
    rcu_reader_end();
    bloom_class_release(class);
    registry_destroy(registry);
    reclaimer_destroy(reclaimer);
    bloom_pool_destroy(pool);
    return 0;
}
