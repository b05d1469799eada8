/* A million absent items, one half full filter of 1 MB after the other, in one thread: ns for an item and a filter,
 * by the processor's wide vectors and without them; one query after the other; and the floor: two words read at
 * known random places of 1 MB for each item and filter. Argument: filters (20). */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "bloom_find.h"
#include "rng.h"

#define ITEMS (1 << 20)
#define WORDS (UINT64_C(1) << 17) /* 1 MB */

static uint64_t *h1, *h2;
static struct bloom_filter **filters;
static size_t nfilters;
static uint64_t sum;

static void make_filters(struct bloom_pool *pool, struct rng *rng)
{
    struct bloom_params params = {.capacity = 838000, .error_rate = 0.01};
    struct bloom_shape shape = {.nwords = WORDS, .k = 7};
    struct bloom_class *class;
    check(bloom_class_get(pool, &params, &shape, &class, NULL) == 0, "class");
    for (size_t i = 0; i < nfilters; i++) {
        struct bloom_layer_view layer;
        filters[i] = malloc(bloom_filter_bytes(class));
        check(filters[i] && bloom_filter_init(filters[i], class, NULL) == 0, "filter");
        bloom_filter_expect_fill(filters[i]);
        bloom_filter_layer(filters[i], 0, &layer);
        for (uint64_t j = 0; j < WORDS; j++)
            atomic_store_explicit(&layer.words[j], rng_next(rng), memory_order_relaxed);
    }
}

static void many(const struct bloom_filter *filter)
{
    uint16_t found[BLOOM_MANY];
    for (size_t i = 0; i < ITEMS; i += BLOOM_MANY)
        sum += bloom_many_query(filter, h1 + i, h2 + i, BLOOM_MANY, found);
}

static void one_by_one(const struct bloom_filter *filter)
{
    for (size_t i = 0; i < ITEMS; i++)
        sum += bloom_filter_query(filter, (struct bloom_hash){h1[i], h2[i]});
}

static void only_read(const struct bloom_filter *filter)
{
    struct bloom_layer_view layer;
    bloom_filter_layer((struct bloom_filter *)filter, 0, &layer);
    for (size_t i = 0; i < ITEMS; i++)
        sum += atomic_load_explicit(&layer.words[h1[i] & (WORDS - 1)], memory_order_relaxed) +
               atomic_load_explicit(&layer.words[h2[i] & (WORDS - 1)], memory_order_relaxed);
}

/* Of this thread alone: others use the processor meanwhile. The least of five rounds counts. */
static void measure(const char *what, void (*ask)(const struct bloom_filter *filter))
{
    double least = 1e300;
    for (int round = 0; round < 5; round++) {
        double ns = bench_ns(CLOCK_THREAD_CPUTIME_ID);
        for (size_t i = 0; i < nfilters; i++)
            ask(filters[i]);
        ns = bench_ns(CLOCK_THREAD_CPUTIME_ID) - ns;
        least = ns < least ? ns : least;
    }
    printf("%-34s %6.2f ns\n", what, least / (double)nfilters / ITEMS);
}

int main(int argc, char **argv)
{
    struct rng rng;
    struct bloom_pool *pool = NULL;
    nfilters = argc > 1 ? strtoul(argv[1], NULL, 10) : 20;
    h1 = malloc(ITEMS * sizeof(*h1));
    h2 = malloc(ITEMS * sizeof(*h2));
    filters = malloc(nfilters * sizeof(struct bloom_filter *));
    check(h1 && h2 && filters && bloom_pool_create(&pool) == 0, "memory");
    rng_init(&rng, 1);
    make_filters(pool, &rng);
    for (size_t i = 0; i < ITEMS; i++) {
        h1[i] = rng_next(&rng);
        h2[i] = rng_next(&rng);
    }
    printf("a million absent items, %zu filters of 1 MB, for an item and a filter\n", nfilters);
    measure("two words read at random", only_read);
    measure("bloom_many_query()", many);
    bloom_vector_enable(false);
    measure("  without wide vectors", many);
    measure("one query after the other", one_by_one);
    return sum == 0;
}
