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

#include "bloom_batch.h"
#include "bloom_filter.h"
#include "redisbloom.h"
#include "rng.h"
#include "stress.h"

#define THREADS 6
#define ITEMS   20000
#define ROUNDS  3

struct race {
    struct bloom_filter *filter;
    uint64_t keys[ITEMS];
    struct bloom_hash items[ITEMS];  /* their hashes */
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

static void start(struct bloom_batch *batch, const struct race *race, size_t first, size_t n)
{
    struct bloom_item items[BLOOM_BATCH];

    for (size_t i = 0; i < n; i++)
        items[i] = (struct bloom_item){(const char *)&race->keys[first + i], sizeof(race->keys[0])};
    bloom_batch_start(batch, race->filter, items, n);
}

/* In batches of four that are kept open for a while. */
static void add_by_fours(struct race *race)
{
    struct bloom_batch batches[4];

    for (size_t i = 0; i < ITEMS + 16; i += 4) {
        for (size_t j = 0; i >= 16 && j < 4; j++)
            take_answer(race, i - 16 + j, bloom_batch_add(&batches[i / 4 % 4], j, race->filter, NULL, NULL));
        if (i < ITEMS)
            start(&batches[i / 4 % 4], race, i, 4);
    }
}

static void add_by_batches(struct race *race)
{
    struct bloom_batch batch;

    for (size_t first = 0; first < ITEMS; first += BLOOM_BATCH) {
        size_t n = ITEMS - first < BLOOM_BATCH ? ITEMS - first : BLOOM_BATCH;
        enum bloom_add refused = BLOOM_PRESENT;
        uint32_t added;

        start(&batch, race, first, n);
        for (size_t from = 0, to; from < n; from = to + 1) {
            to = bloom_batch_add_all(&batch, from, race->filter, NULL, NULL, &added, &refused);
            for (size_t i = from; i < to; i++)
                take_answer(race, first + i, (enum bloom_add)(added >> i & 1));
            if (to < n)
                take_answer(race, first + to, refused);
        }
    }
}

/* All threads walk over the items in the same order, at once, one by one and in batches: so that the same item is added
 * by several at the same time, and batches survive growth. */
static void *add_all(void *arg)
{
    struct worker *worker = arg;
    struct race *race = worker->race;

    wait_for_all(race);
    if (worker->number % 3 == 0) {
        for (size_t i = 0; i < ITEMS; i++)
            take_answer(race, i, bloom_filter_add(race->filter, race->items[i], NULL));
    } else if (worker->number % 3 == 1) {
        add_by_fours(race);
    } else {
        add_by_batches(race);
    }
    return NULL;
}

_Static_assert(ITEMS % 4 == 0, "as add_by_fours() takes them");

/* Looks for acknowledged items and expects them to be there. */
static void *read_all(void *arg)
{
    struct race *race = arg;
    struct rng rng;
    struct bloom_batch batch;

    rng_init(&rng, 1);
    while (!atomic_load(&race->done)) {
        size_t i = rng_below(&rng, ITEMS);

        start(&batch, race, i, 1);
        if (atomic_load_explicit(&race->acknowledged[i], memory_order_acquire)) {
            EXPECT(bloom_filter_query(race->filter, race->items[i]), "item %zu was lost", i);
            EXPECT(bloom_batch_query(&batch, race->filter) == 1, "item %zu was lost to a batch", i);
        }
    }
    return NULL;
}

static void run(struct bloom_pool *pool, uint64_t capacity, uint32_t expansion, uint64_t seed)
{
    unsigned redisbloom = REDISBLOOM_DEFAULT | (expansion ? 0 : REDISBLOOM_NO_SCALING);
    struct bloom_params params = {capacity, 1e-3, expansion, (uint8_t)(seed % 3 == 2 ? redisbloom : 0)};
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
        race->keys[i] = rng_next(&rng);
        race->items[i] = bloom_filter_hash(race->filter, &race->keys[i], sizeof(race->keys[i]));
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
        /* RedisBloom's smallest layers do not keep their rate: whole probe sequences coincide. */
        EXPECT(winners >= ITEMS * (params.redisbloom ? 0.95 : 0.99), "%u winners", winners);
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
        filter = malloc(bloom_filter_bytes(class));
        EXPECT(filter && bloom_filter_init(filter, class, NULL) == 0, "filter");
        EXPECT(bloom_filter_params(filter)->capacity == params.capacity, "another class");
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
        if (seed % 3 != 2) /* at the hundredth halving of its rate RedisBloom has no layer any more */
            run(pool, 200, 1, seed);
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
