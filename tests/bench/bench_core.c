/* The speed of one core with hash, indexes, queries and adds, without a network: shows a regression of the core.
 *
 * For filters of 1.2 MB, 12 MB and 1.2 GB (k = 7, half full): a naive loop with remainders and early exit, the
 * library's query one by one, and in batches of 32, without and with vector code, for keys that are all present and
 * all absent (except for false positives); adds, for keys that are all new and all present; in addition the memory's
 * own rate of independent random reads, and the cost of KEYED per item. Prints nanoseconds per key, the best and the
 * median of several rounds whose variants are interleaved, and the ratio to the first variant.
 *
 * bench_core [rounds [max-megabytes [layout]]]: default 5 rounds, all sizes, the layout na; or redisbloom, whose
 * hash and positions are others. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "bloom_batch.h"
#include "bloom_filter.h"
#include "bloom_vector.h"
#include "redisbloom.h"
#include "rng.h"
#include "bloom_key.h"

#define K          7
#define KEYS       (1u << 20) /* too many for any branch predictor to learn */
#define KEY_LEN    16
#define ROUNDS_MAX 100

static unsigned char (*keys)[KEY_LEN];
static struct bloom_item *items;
static struct rng rng;
static volatile uint64_t sink;
static struct bloom_shape layout = {.k = K, .variant = BLOOM_NA};

struct bench {
    struct bloom_filter *filter;
    struct bloom_layer_view view;
};

/* ---- variants: each returns the number of present keys ---- */

static uint64_t naive(const struct bench *bench)
{
    uint64_t present = 0, bits = bench->view.shape.nwords * 64;

    for (uint32_t i = 0; i < KEYS; i++) {
        struct bloom_hash hash = bloom_filter_hash(bench->filter, keys[i], KEY_LEN);
        bool redisbloom = bloom_layout_of(layout.variant)->own_numbers;
        uint64_t base = redisbloom ? hash.h1 : hash.h2, step = redisbloom ? hash.h2 : hash.h1;
        unsigned j;

        for (j = 0; j < K; j++, base += step) {
            int64_t remainder = (int64_t)base % (int64_t)bits;
            uint64_t bit = redisbloom ? base % bits : (uint64_t)(remainder < 0 ? -remainder : remainder);
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
        present += bloom_filter_query(bench->filter, bloom_filter_hash(bench->filter, keys[i], KEY_LEN));
    return present;
}

static unsigned count_ones(uint32_t x)
{
    unsigned n = 0;
    for (; x; x &= x - 1)
        n++;
    return n;
}

static uint64_t batched(const struct bench *bench)
{
    struct bloom_batch batch;
    uint64_t present = 0;

    for (uint32_t i = 0; i < KEYS; i += BLOOM_BATCH) {
        bloom_batch_start(&batch, bench->filter, &items[i], BLOOM_BATCH);
        present += count_ones(bloom_batch_query(&batch, bench->filter));
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

static uint64_t add(const struct bench *bench)
{
    uint64_t added = 0;

    for (uint32_t i = 0; i < KEYS; i++)
        added +=
            bloom_filter_add(bench->filter, bloom_filter_hash(bench->filter, keys[i], KEY_LEN), NULL) == BLOOM_ADDED;
    return added;
}

static uint64_t add_batched(const struct bench *bench)
{
    struct bloom_batch batch;
    uint64_t added = 0;

    for (uint32_t i = 0; i < KEYS; i += BLOOM_BATCH) {
        enum bloom_add refused;
        uint32_t these;

        bloom_batch_start(&batch, bench->filter, &items[i], BLOOM_BATCH);
        bloom_batch_add_all(&batch, 0, bench->filter, NULL, NULL, &these, &refused);
        added += count_ones(these);
    }
    return added;
}

static uint64_t add_batched_scalar(const struct bench *bench)
{
    bloom_vector_enable(false);
    uint64_t added = add_batched(bench);
    bloom_vector_enable(true);
    return added;
}

static uint64_t hash_only(const struct bench *bench)
{
    uint64_t x = 0;

    for (uint32_t i = 0; i < KEYS; i++)
        x ^= bloom_filter_hash(bench->filter, keys[i], KEY_LEN).h2;
    return x;
}

static uint64_t hash_batched(const struct bench *bench)
{
    uint64_t x = 0, h1[BLOOM_BATCH], h2[BLOOM_BATCH];

    if (!bloom_vector_enabled)
        return hash_only(bench);
    for (uint32_t i = 0; i < KEYS; i += BLOOM_BATCH) {
        if (bloom_layout_of(layout.variant)->own_numbers)
            bloom_vector_hash_murmur2(&items[i], BLOOM_BATCH, h1, h2);
        else
            bloom_vector_hash(&items[i], BLOOM_BATCH, h1, h2);
        x ^= h2[0];
    }
    return x;
}

/* K independent reads per key, as many as in a query. */
static uint64_t random_reads(const struct bench *bench)
{
    uint64_t x = 0, nwords = bench->view.shape.nwords;
    struct rng where;

    rng_init(&where, 1);
    for (uint32_t i = 0; i < KEYS * K; i++)
        x += atomic_load_explicit(&bench->view.words[rng_below(&where, nwords)], memory_order_relaxed);
    return x;
}

struct variant {
    const char *name;
    uint64_t (*run)(const struct bench *bench);
};

static const struct variant queries[] = {{"naive", naive},          {"hash", hash_only},
                                         {"hash x8", hash_batched}, {"7 random reads", random_reads},
                                         {"query", query},          {"batch, scalar", batched_scalar},
                                         {"batch", batched}};
static const struct variant adds[] = {{"add", add}, {"batch, scalar", add_batched_scalar}, {"batch", add_batched}};

#define NVARIANTS_MAX 8

static void new_keys(void)
{
    rng_fill(&rng, keys, (size_t)KEYS * KEY_LEN);
}

/* Half of the bits set. */
static void fill(const struct bench *bench)
{
    for (uint64_t i = 0; i < bench->view.shape.nwords; i++)
        atomic_store_explicit(&bench->view.words[i], rng_next(&rng), memory_order_relaxed);
}

/* `before`: called before each run; NULL: nothing. */
static void report(const struct bench *bench, const char *size, const char *kind, unsigned rounds,
                   const struct variant *variants, size_t nvariants, void (*before)(const struct bench *bench))
{
    static double times[NVARIANTS_MAX][ROUNDS_MAX];

    for (unsigned round = 0; round < rounds; round++) {
        for (size_t v = 0; v < nvariants; v++) {
            if (before)
                before(bench);
            double start = bench_ns(CLOCK_THREAD_CPUTIME_ID);
            sink = variants[v].run(bench);
            times[v][round] = (bench_ns(CLOCK_THREAD_CPUTIME_ID) - start) / KEYS;
        }
    }
    for (size_t v = 0; v < nvariants; v++)
        qsort(times[v], rounds, sizeof(double), by_value);
    for (size_t v = 0; v < nvariants; v++)
        printf("%-7s %-14s %-15s %9.2f %9.2f %9.2f\n", size, kind, variants[v].name, times[v][0], times[v][rounds / 2],
               times[0][0] / times[v][0]);
    fflush(stdout);
}

/* So that the keys of the next run are new, in a filter that is half full again: a large one is hardly fuller. */
static void prepare_adds(const struct bench *bench)
{
    new_keys();
    if (bench->view.shape.nwords * 8 < 100000000)
        fill(bench);
}

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static struct bloom_filter *filter_of(struct bloom_pool *pool, uint64_t bytes)
{
    bool redisbloom = bloom_layout_of(layout.variant)->own_numbers;
    struct bloom_params params = {UINT64_MAX, 0.01, 0, redisbloom ? REDISBLOOM_DEFAULT | REDISBLOOM_NO_SCALING : 0};
    struct bloom_shape shape = layout;
    struct bloom_class *class;
    struct bloom_filter *filter;

    shape.nwords = bytes / 8;
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

    bloom_filter_layer(bench.filter, 0, &bench.view);
    fill(&bench);
    new_keys();
    report(&bench, name, "query absent", rounds, queries, COUNT(queries), NULL);
    add(&bench);
    report(&bench, name, "query present", rounds, queries, COUNT(queries), NULL);
    report(&bench, name, "add present", rounds, adds, COUNT(adds), NULL);
    report(&bench, name, "add new", rounds, adds, COUNT(adds), prepare_adds);
    bloom_filter_deinit(bench.filter);
    free(bench.filter);
}

/* The hash of KEYED filters, of items of 50 bytes. */
static void bench_keyed(unsigned rounds)
{
    enum { ITEMS = 1 << 16, LEN = 50 };
    static unsigned char text[ITEMS][LEN], out[BLOOM_BATCH][SIPHASH_BYTES];
    static double times[2][ROUNDS_MAX];
    static size_t len[BLOOM_BATCH];
    struct siphash_key key;

    rng_fill(&rng, &key, sizeof(key));
    rng_fill(&rng, text, sizeof(text));
    for (unsigned i = 0; i < BLOOM_BATCH; i++)
        len[i] = LEN;
    for (unsigned round = 0; round < rounds; round++) {
        double start = bench_ns(CLOCK_THREAD_CPUTIME_ID);
        for (size_t i = 0; i < ITEMS; i++)
            siphash(&key, text[i], LEN, out[0]);
        double between = bench_ns(CLOCK_THREAD_CPUTIME_ID);
        for (size_t i = 0; i < ITEMS; i += BLOOM_BATCH) {
            const void *data[BLOOM_BATCH];
            for (size_t j = 0; j < BLOOM_BATCH; j++)
                data[j] = text[i + j];
            siphash_many(&key, data, len, BLOOM_BATCH, out);
        }
        times[0][round] = (between - start) / ITEMS;
        times[1][round] = (bench_ns(CLOCK_THREAD_CPUTIME_ID) - between) / ITEMS;
    }
    for (int v = 0; v < 2; v++) {
        qsort(times[v], rounds, sizeof(double), by_value);
        printf("%-7s %-14s %-15s %9.2f %9.2f\n", "KEYED", "50 bytes", v ? "hash x8" : "hash", times[v][0],
               times[v][rounds / 2]);
    }
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

    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_core [rounds 1..%d [max-megabytes [layout]]]\n", ROUNDS_MAX);
        return 2;
    }
    if (argc > 3 && strcmp(argv[3], "redisbloom") == 0)
        layout = (struct bloom_shape){.k = K,
                                      .variant = BLOOM_REDISBLOOM,
                                      .capacity = REDISBLOOM_MAX_ENTRIES,
                                      .error_rate = 0.01,
                                      .bpe = (K - 0.5) / 0.693147180559945};
    keys = malloc((size_t)KEYS * KEY_LEN);
    items = malloc(KEYS * sizeof(*items));
    if (!keys || !items || bloom_pool_create(&pool) != 0)
        return 1;
    rng_init(&rng, 1);
    for (uint32_t i = 0; i < KEYS; i++)
        items[i] = (struct bloom_item){(char *)keys[i], KEY_LEN};
    printf("%-7s %-14s %-15s %9s %9s %9s\n", "filter", "keys", "variant", "best ns", "median ns", "x naive");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        if (sizes[i].bytes <= max_bytes)
            bench_size(pool, sizes[i].name, sizes[i].bytes, rounds);
    }
    bench_keyed(rounds);
    bloom_pool_destroy(pool);
    free(items);
    free(keys);
    return 0;
}
