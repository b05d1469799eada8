/* BF.FIND's work in one thread: one item, 500 filters of 1 MB that are half full, found by a pattern or by their
 * names, beside one query after the other; the same pattern among a million other names; and the cost of the index
 * of names at a creation. The least of many rounds counts, since other programs run, too. Arguments: filters (500),
 * other names (1000000). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "bloom_find.h"
#include "name_index.h"
#include "rcu.h"
#include "registry.h"
#include "rng.h"
#include "slab.h"
#include "entry_internal.h"

#define ROUNDS 2000
#define WORDS  (UINT64_C(1) << 17) /* 1 MB */
#define HASHES 7

static struct bloom_pool *pool;
static struct reclaimer *reclaimer;
static struct registry *registry;
static struct rng rng;

static const struct bloom_filter **filters;
static struct slice *names;
static uint64_t *found;
static size_t nfilters, nchosen;

/* Half of the bits of each word, so no item needs to be added. */
static void fill(struct bloom_filter *filter)
{
    struct bloom_layer_view layer;
    bloom_filter_expect_fill(filter);
    bloom_filter_layer(filter, 0, &layer);
    for (uint64_t i = 0; i < layer.shape.nwords; i++)
        atomic_store_explicit(&layer.words[i], rng_next(&rng), memory_order_relaxed);
}

static void make_filters(void)
{
    struct bloom_params params = {.capacity = 838000, .error_rate = 0.01};
    struct bloom_shape shape = {.nwords = WORDS, .k = HASHES};
    struct bloom_class *class;
    check(bloom_class_get(pool, &params, &shape, &class, NULL) == 0, "class");
    for (size_t i = 0; i < nfilters; i++) {
        struct entry *entry;
        char text[64];
        int len = snprintf(text, sizeof(text), "ks.users/%zu", i);
        names[i] = (struct slice){strdup(text), (size_t)len};
        check(registry_create_filter(registry, names[i], 0, class, &entry, NULL) == REGISTRY_OK, "filter");
        fill(entry_filter(entry));
    }
    bloom_class_release(class);
}

static double make_others(size_t n)
{
    struct bloom_params params = {.capacity = 100, .error_rate = 0.01, .expansion = 2};
    struct bloom_class *class;
    check(bloom_class_get(pool, &params, NULL, &class, NULL) == 0, "class");
    double start = bench_ns(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = 0; i < n; i++) {
        struct entry *entry;
        char text[64];
        int len = snprintf(text, sizeof(text), "tenant:%08zu:seen", i * 2654435761u % n);
        check(registry_create_filter(registry, (struct slice){text, (size_t)len}, 0, class, &entry, NULL) >= 0,
              "filter");
    }
    double took = bench_ns(CLOCK_THREAD_CPUTIME_ID) - start;
    bloom_class_release(class);
    return took / (double)n;
}

/* ---- the ways to query ---- */

static void choose(void *ctx, struct slice name, struct entry *entry)
{
    (void)ctx, (void)name;
    filters[nchosen++] = entry_filter(entry);
}

static size_t by_pattern(const struct bloom_item *item)
{
    nchosen = 0;
    registry_scan_prefix(registry, (struct slice){"ks.users/", 9}, NULL, nfilters, choose, NULL);
    return bloom_find(item, filters, nchosen, found);
}

static size_t names_alone(const struct bloom_item *item)
{
    (void)item;
    nchosen = 0;
    registry_scan_prefix(registry, (struct slice){"ks.users/", 9}, NULL, nfilters, choose, NULL);
    return 0;
}

static size_t filters_alone(const struct bloom_item *item)
{
    return bloom_find(item, filters, nchosen, found);
}

static size_t by_names(const struct bloom_item *item)
{
    nchosen = 0;
    for (size_t i = 0; i < nfilters; i++)
        filters[nchosen++] = entry_filter(registry_lookup(registry, names[i]));
    return bloom_find(item, filters, nchosen, found);
}

static size_t one_by_one(const struct bloom_item *item)
{
    size_t n = 0;
    for (size_t i = 0; i < nfilters; i++) {
        const struct bloom_filter *filter = entry_filter(registry_lookup(registry, names[i]));
        n += bloom_filter_query(filter, bloom_filter_hash(filter, item->ptr, item->len));
    }
    return n;
}

static void measure(const char *what, size_t (*ask)(const struct bloom_item *item))
{
    static double took[ROUNDS];
    size_t present = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t key = rng_next(&rng);
        double start = bench_ns(CLOCK_MONOTONIC);
        present += ask(&(struct bloom_item){(const char *)&key, sizeof(key)});
        took[round] = bench_ns(CLOCK_MONOTONIC) - start;
    }
    qsort(took, ROUNDS, sizeof(took[0]), by_value);
    printf("%-28s %8.1f us at best, %8.1f us in the median, %.2f filters found\n", what, took[0] / 1000,
           took[ROUNDS / 2] / 1000, (double)present / ROUNDS);
}

/* ---- the index alone ---- */

static void measure_index(size_t n)
{
    struct slab *slab = slab_create();
    struct name_index index = {.slab = slab, .reclaimer = reclaimer};
    struct entry **entries = malloc(n * sizeof(struct entry *));
    char text[64];
    check(slab && entries, "memory");
    for (size_t i = 0; i < n; i++) {
        int len = snprintf(text, sizeof(text), "tenant:%08zu:seen", i * 2654435761u % n);
        entries[i] = entry_alloc(slab, ENTRY_FILTER, (struct slice){text, (size_t)len}, 8);
        check(entries[i], "memory");
    }
    double start = bench_ns(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = 0; i < n; i++) {
        check(name_index_reserve(&index), "memory");
        name_index_add(&index, entries[i]);
    }
    printf("a name in the index of %zu %10.1f ns\n", n, (bench_ns(CLOCK_THREAD_CPUTIME_ID) - start) / (double)n);
    name_index_clear(&index);
    reclaimer_flush(reclaimer);
    name_index_deinit(&index);
    slab_destroy(slab);
    free(entries);
}

int main(int argc, char **argv)
{
    nfilters = argc > 1 ? strtoul(argv[1], NULL, 10) : 500;
    size_t others = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000000;
    rng_init(&rng, 14);
    filters = calloc(nfilters, sizeof(*filters));
    names = calloc(nfilters, sizeof(*names));
    found = calloc(BLOOM_FIND_WORDS(nfilters), sizeof(*found));
    check(filters && names && found && bloom_pool_create(&pool) == 0 && reclaimer_create(&reclaimer) == 0, "memory");
    check(registry_create(&registry, pool, reclaimer) == 0, "registry");
    make_filters();
    rcu_reader_begin();
    printf("%zu filters of 1 MB, one item\n", nfilters);
    measure("by a pattern", by_pattern);
    measure("  the names alone", names_alone);
    measure("  the filters alone", filters_alone);
    measure("by their names", by_names);
    measure("one query after the other", one_by_one);
    rcu_reader_offline();
    double created = make_others(others);
    printf("a filter created, of %zu %10.1f ns\n", others, created);
    rcu_reader_online();
    measure("by a pattern among these", by_pattern);
    rcu_reader_end();
    measure_index(others);
    registry_destroy(registry);
    reclaimer_destroy(reclaimer);
    bloom_pool_destroy(pool);
    return 0;
}
