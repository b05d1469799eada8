/* What one core does with hash, indexes and queries, without a network: so that a regression of the core is seen.
 *
 * For filters of 1.2 MB, 12 MB and 1.2 GB (k = 7, half full): a naive loop with remainders and early exit, the
 * library's query one by one, and its probe in batches of 32, without and with vector code, for keys that are all present and all absent (but for
 * false positives), beside the memory's own rate of independent random reads. Prints nanoseconds per key, the best and
 * the median of several rounds whose variants are interleaved, and the ratio to the naive loop.
 *
 * bench_core [rounds [max-megabytes]]: default 5 rounds, all sizes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bloom_filter.h"
#include "bloom_vector.h"
#include "rng.h"

#define K       7
#define KEYS    (1u << 20) /* more than any branch predictor learns by heart */
#define KEY_LEN 16
#define BATCH   32
#define ROUNDS_MAX 100

static unsigned char (*keys)[KEY_LEN];
static volatile uint64_t sink;

static double cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts); /* one thread, no waiting: other processes do not count */
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

struct bench {
    struct bloom_filter *filter;
    struct bloom_layer_view view;
};

/* ---- variants: each returns how many of the keys were present --------------------------------------------------- */

static uint64_t naive(const struct bench *bench)
{
    uint64_t present = 0, bits = bench->view.shape.nwords * 64;

    for (uint32_t i = 0; i < KEYS; i++) {
        struct bloom_hash hash = murmur3_hash(keys[i], KEY_LEN);
        uint64_t base = hash.h2;
        unsigned j;

        for (j = 0; j < K; j++, base += hash.h1) {
            int64_t remainder = (int64_t)base % (int64_t)bits;
            uint64_t bit = (uint64_t)(remainder < 0 ? -remainder : remainder);
            if (!(atomic_load_explicit(&bench->view.words[bit / 64], memory_order_relaxed) >> (bit % 64) & 1))
                break;
        }
        present += j == K;
    }
    return present;
}

static uint64_t query(const struct bench *bench)
{
    uint64_t present = 0;

    for (uint32_t i = 0; i < KEYS; i++)
        present += bloom_filter_query(bench->filter, murmur3_hash(keys[i], KEY_LEN));
    return present;
}

static uint64_t batched(const struct bench *bench)
{
    struct bloom_probe probes[BATCH];
    uint64_t present = 0;

    for (uint32_t i = 0; i < KEYS; i += BATCH) {
        for (uint32_t j = 0; j < BATCH; j++)
            bloom_probe_start(&probes[j], bench->filter, murmur3_hash(keys[i + j], KEY_LEN));
        for (uint32_t j = 0; j < BATCH; j++)
            present += bloom_probe_query(&probes[j], bench->filter);
    }
    return present;
}

static uint64_t batched_scalar(const struct bench *bench)
{
    bloom_vector_enable(false);
    uint64_t present = batched(bench);
    bloom_vector_enable(true);
    return present;
}

static uint64_t hash_only(const struct bench *bench)
{
    uint64_t x = 0;

    (void)bench;
    for (uint32_t i = 0; i < KEYS; i++)
        x ^= murmur3_hash(keys[i], KEY_LEN).h1;
    return x;
}

/* K independent reads per key, as many as a query has. */
static uint64_t random_reads(const struct bench *bench)
{
    uint64_t x = 0, nwords = bench->view.shape.nwords;
    struct rng rng;

    rng_init(&rng, 1);
    for (uint32_t i = 0; i < KEYS * K; i++)
        x += atomic_load_explicit(&bench->view.words[rng_below(&rng, nwords)], memory_order_relaxed);
    return x;
}

static const struct {
    const char *name;
    uint64_t (*run)(const struct bench *bench);
} variants[] = {
    {"hash", hash_only}, {"7 random reads", random_reads}, {"naive", naive}, {"query", query},
    {"probe x32", batched_scalar}, {"vector x32", batched}};

#define NVARIANTS (sizeof(variants) / sizeof(*variants))

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void report(const struct bench *bench, const char *size, const char *kind, unsigned rounds)
{
    static double times[NVARIANTS][ROUNDS_MAX];

    for (unsigned round = 0; round < rounds; round++) {
        for (size_t v = 0; v < NVARIANTS; v++) {
            double start = cpu_ns();
            sink = variants[v].run(bench);
            times[v][round] = (cpu_ns() - start) / KEYS;
        }
    }
    for (size_t v = 0; v < NVARIANTS; v++)
        qsort(times[v], rounds, sizeof(double), by_value);
    for (size_t v = 0; v < NVARIANTS; v++)
        printf("%-7s %-8s %-15s %9.2f %9.2f %9.2f\n", size, kind, variants[v].name, times[v][0], times[v][rounds / 2],
               times[2][0] / times[v][0]);
    fflush(stdout);
}

static struct bloom_filter *filter_of(struct bloom_pool *pool, uint64_t bytes)
{
    struct bloom_params params = {UINT64_MAX, 0.01, 0};
    struct bloom_shape shape = {bytes / 8, K, BLOOM_NA};
    struct bloom_class *class;
    struct bloom_filter *filter;

    if (bloom_class_get(pool, &params, &shape, &class, NULL) != 0 || !(filter = malloc(bloom_filter_bytes(class))) ||
        bloom_filter_init(filter, class, NULL) != 0) {
        fprintf(stderr, "cannot make a filter of %" PRIu64 " bytes\n", bytes);
        exit(1);
    }
    bloom_class_release(class);
    bloom_filter_expect_fill(filter);
    return filter;
}

/* Absent keys first, in a filter of random bits, half of them set; then the same keys added. */
static void bench_size(struct bloom_pool *pool, const char *name, uint64_t bytes, unsigned rounds)
{
    struct bench bench = {.filter = filter_of(pool, bytes)};
    struct rng rng;

    rng_init(&rng, bytes);
    bloom_filter_layer(bench.filter, 0, &bench.view);
    for (uint64_t i = 0; i < bench.view.shape.nwords; i++)
        atomic_store_explicit(&bench.view.words[i], rng_next(&rng), memory_order_relaxed);
    report(&bench, name, "absent", rounds);
    for (uint32_t i = 0; i < KEYS; i++)
        bloom_filter_add(bench.filter, murmur3_hash(keys[i], KEY_LEN), NULL);
    report(&bench, name, "present", rounds);
    bloom_filter_deinit(bench.filter);
    free(bench.filter);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } sizes[] = {{"1.2 MB", 1200000}, {"12 MB", 12000000}, {"1.2 GB", 1200000000}};
    unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 5;
    uint64_t max_bytes = argc > 2 ? strtoull(argv[2], NULL, 10) * 1000000 : UINT64_MAX;
    struct bloom_pool *pool;
    struct rng rng;

    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_core [rounds 1..%d [max-megabytes]]\n", ROUNDS_MAX);
        return 2;
    }
    keys = malloc((size_t)KEYS * KEY_LEN);
    if (!keys || bloom_pool_create(&pool) != 0)
        return 1;
    rng_init(&rng, 1);
    rng_fill(&rng, keys, (size_t)KEYS * KEY_LEN);
    printf("%-7s %-8s %-15s %9s %9s %9s\n", "filter", "keys", "variant", "best ns", "median ns", "x naive");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        if (sizes[i].bytes <= max_bytes)
            bench_size(pool, sizes[i].name, sizes[i].bytes, rounds);
    }
    bloom_pool_destroy(pool);
    free(keys);
    return 0;
}
