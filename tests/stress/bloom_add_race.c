/* Many threads add the same items to the same filter while it grows. Exactly one of them gets BLOOM_ADDED for each
 * item, the counts are exact, and an item that was acknowledged to anybody is never reported absent: not to another
 * thread, not during growth. A fixed filter has exactly as many winners as its capacity.
 *
 * An item may seem to be present before anybody adds it (a false positive). Such an item has no winner, so the claim
 * about each item is: at most one winner, and when all is done it is present; and the sum of winners is the count. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "bloom_filter.h"
#include "rng.h"

#define THREADS 6
#define ITEMS   20000
#define ROUNDS  3

#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

struct race {
    struct bloom_filter *filter;
    struct bloom_hash items[ITEMS];
    atomic_uint winners[ITEMS];      /* BLOOM_ADDED answers */
    atomic_uint acknowledged[ITEMS]; /* answered ADDED or PRESENT to somebody */
    atomic_uint full;
    atomic_uint started;
    atomic_bool done;
    bool fixed;
};

struct worker {
    pthread_t thread;
    struct race *race;
    unsigned number;
};

static void wait_for_all(struct race *race)
{
    atomic_fetch_add(&race->started, 1);
    while (atomic_load(&race->started) < THREADS)
        ;
}

static void take_answer(struct race *race, size_t i, enum bloom_add answer)
{
    EXPECT(answer != BLOOM_NO_ROOM, "item %zu", i);
    EXPECT(answer != BLOOM_FULL || race->fixed, "item %zu", i);
    if (answer == BLOOM_FULL) {
        atomic_fetch_add(&race->full, 1);
        return;
    }
    if (answer == BLOOM_ADDED)
        EXPECT(atomic_fetch_add(&race->winners[i], 1) == 0, "two winners of item %zu", i);
    atomic_store_explicit(&race->acknowledged[i], 1, memory_order_release);
}

/* All threads walk over the items in nearly the same order, at once, every other one through probes kept open for a few
 * items: so that the same item is added by several at the same time, and probes survive growth. */
static void *add_all(void *arg)
{
    struct worker *worker = arg;
    struct race *race = worker->race;
    struct bloom_probe probes[4];

    wait_for_all(race);
    if (worker->number % 2 == 0) {
        for (size_t i = 0; i < ITEMS; i++)
            take_answer(race, i, bloom_filter_add(race->filter, race->items[i], NULL));
        return NULL;
    }
    for (size_t i = 0; i < ITEMS + 4; i++) {
        if (i >= 4)
            take_answer(race, i - 4, bloom_probe_add(&probes[i % 4], race->filter, NULL));
        if (i < ITEMS)
            bloom_probe_start(&probes[i % 4], race->filter, race->items[i]);
    }
    return NULL;
}

/* Looks for acknowledged items and expects them to be there. */
static void *read_all(void *arg)
{
    struct race *race = arg;
    struct rng rng;
    struct bloom_probe probe;

    rng_init(&rng, 1);
    while (!atomic_load(&race->done)) {
        size_t i = rng_below(&rng, ITEMS);

        bloom_probe_start(&probe, race->filter, race->items[i]);
        if (atomic_load_explicit(&race->acknowledged[i], memory_order_acquire)) {
            EXPECT(bloom_filter_query(race->filter, race->items[i]), "item %zu was lost", i);
            EXPECT(bloom_probe_query(&probe, race->filter), "item %zu was lost to a probe", i);
        }
    }
    return NULL;
}

static void run(struct bloom_pool *pool, uint64_t capacity, uint32_t expansion, uint64_t seed)
{
    struct bloom_params params = {capacity, 1e-3, expansion};
    struct race *race = calloc(1, sizeof(*race));
    struct worker workers[THREADS];
    pthread_t reader;
    struct bloom_class *class;
    struct rng rng;
    unsigned winners = 0;

    EXPECT(race && bloom_class_get(pool, &params, NULL, &class, NULL) == 0, "set-up");
    race->filter = malloc(bloom_filter_bytes(class));
    EXPECT(race->filter && bloom_filter_init(race->filter, class, NULL) == 0, "set-up");
    bloom_class_release(class);
    race->fixed = expansion == 0;
    rng_init(&rng, seed);
    for (size_t i = 0; i < ITEMS; i++) {
        race->items[i].h1 = rng_next(&rng);
        race->items[i].h2 = rng_next(&rng);
    }

    EXPECT(pthread_create(&reader, NULL, read_all, race) == 0, "set-up");
    for (unsigned t = 0; t < THREADS; t++) {
        workers[t] = (struct worker){.race = race, .number = t};
        EXPECT(pthread_create(&workers[t].thread, NULL, add_all, &workers[t]) == 0, "set-up");
    }
    for (unsigned t = 0; t < THREADS; t++)
        pthread_join(workers[t].thread, NULL);
    atomic_store(&race->done, true);
    pthread_join(reader, NULL);

    for (size_t i = 0; i < ITEMS; i++) {
        winners += atomic_load(&race->winners[i]);
        EXPECT(race->fixed || bloom_filter_query(race->filter, race->items[i]), "item %zu is absent", i);
        EXPECT(!atomic_load(&race->acknowledged[i]) || bloom_filter_query(race->filter, race->items[i]), "item %zu", i);
    }
    EXPECT(bloom_filter_items(race->filter) == winners, "%u winners", winners);
    if (race->fixed) {
        EXPECT(winners == capacity, "%u winners", winners);
        EXPECT(atomic_load(&race->full) > 0, "nobody was refused");
    } else {
        EXPECT(winners >= ITEMS * 0.99, "%u winners", winners);
        for (unsigned i = 0; i < bloom_filter_nlayers(race->filter); i++) {
            struct bloom_layer_view view;

            bloom_filter_layer(race->filter, i, &view);
            EXPECT(view.items == view.capacity ||
                       (view.items < view.capacity && i + 1 == bloom_filter_nlayers(race->filter)),
                   "layer %u has %llu items of %llu", i, (unsigned long long)view.items,
                   (unsigned long long)view.capacity);
        }
    }
    bloom_filter_deinit(race->filter);
    free(race->filter);
    free(race);
}

/* Classes are found, shared and dropped by all threads at once. */
static void *churn_classes(void *arg)
{
    struct bloom_pool *pool = arg;
    struct rng rng;

    rng_init(&rng, (uint64_t)(uintptr_t)&rng);
    for (int i = 0; i < 5000; i++) {
        struct bloom_params params = {1 + rng_below(&rng, 3), 0.01, 2};
        struct bloom_class *class;
        struct bloom_filter *filter;

        EXPECT(bloom_class_get(pool, &params, NULL, &class, NULL) == 0, "class");
        EXPECT(bloom_class_params(class)->capacity == params.capacity, "another class");
        filter = malloc(bloom_filter_bytes(class));
        EXPECT(filter && bloom_filter_init(filter, class, NULL) == 0, "filter");
        bloom_class_release(class);
        EXPECT(bloom_filter_add(filter, (struct bloom_hash){1, 2}, NULL) == BLOOM_ADDED, "add");
        bloom_filter_deinit(filter);
        free(filter);
    }
    return NULL;
}

int main(void)
{
    struct bloom_pool *pool;
    pthread_t threads[THREADS];

    EXPECT(bloom_pool_create(&pool) == 0, "set-up");
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        run(pool, 1, 2, seed);
        run(pool, 1000, 1, seed);
        run(pool, 100000, 2, seed);
        run(pool, ITEMS / 2, 0, seed);
    }
    for (unsigned t = 0; t < THREADS; t++)
        EXPECT(pthread_create(&threads[t], NULL, churn_classes, pool) == 0, "set-up");
    for (unsigned t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    EXPECT(bloom_pool_bytes(pool) == 0, "bytes are left");
    bloom_pool_destroy(pool);
    return 0;
}
