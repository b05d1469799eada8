/* Large filters are added to, queried, created and freed while their memory moves from small to huge pages: no item is
 * lost, each item has one winner, and every filter is moved in the end. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "bloom_batch.h"
#include "bloom_pool.h"
#include "bloom_shared.h"

#define FILTERS 4
#define ITEMS   60000
#define ROUNDS  3

static struct bloom_pool *pool;
static struct bloom_class *class;
static struct bloom_filter *filters[FILTERS];
static _Atomic bool stop;
static _Atomic uint64_t won[FILTERS];

static struct bloom_hash hash_of(unsigned filter, unsigned item)
{
    uint64_t key[2] = {filter, item};
    return murmur3_hash(key, sizeof(key));
}

/* As hash_of() for the items from `first` on. How many were new. */
static unsigned add_batch(unsigned filter, unsigned first)
{
    uint64_t keys[BLOOM_BATCH][2];
    struct bloom_item items[BLOOM_BATCH];
    struct bloom_batch batch;
    enum bloom_add refused;
    uint32_t added;

    for (unsigned i = 0; i < BLOOM_BATCH; i++) {
        keys[i][0] = filter;
        keys[i][1] = first + i;
        items[i] = (struct bloom_item){(const char *)keys[i], sizeof(keys[i])};
    }
    bloom_batch_start(&batch, filters[filter], items, BLOOM_BATCH);
    bloom_batch_add_all(&batch, 0, filters[filter], NULL, NULL, &added, &refused);
    return (unsigned)__builtin_popcount(added);
}

/* Two threads add the same items to each filter, one by one and in batches. */
static void *add_all(void *arg)
{
    size_t f = (size_t)arg % FILTERS;
    bool batches = (size_t)arg >= FILTERS;
    for (unsigned i = 0; i < ITEMS; i++) {
        unsigned added = 0;
        if (!batches)
            added = bloom_filter_add(filters[f], hash_of((unsigned)f, i), NULL) == BLOOM_ADDED;
        else if (i % BLOOM_BATCH == 0)
            added = add_batch((unsigned)f, i);
        atomic_fetch_add(&won[f], added);
        if (!bloom_filter_query(filters[f], hash_of((unsigned)f, i / 2))) {
            fprintf(stderr, "filter %zu: item %u of %u is absent\n", f, i / 2, i);
            exit(1);
        }
    }
    return NULL;
}

static void *settle_all(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop))
        bloom_pool_settle(pool, NULL, NULL);
    return NULL;
}

static struct bloom_filter *new_filter(void)
{
    struct bloom_filter *filter = malloc(bloom_filter_bytes(class));
    if (!filter || bloom_filter_init(filter, class, NULL) != 0) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    return filter;
}

/* Filters that come and go, also while one of their pages is worked on. */
static void *create_and_free(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < 40; i++) {
        struct bloom_filter *filter = new_filter();
        for (unsigned item = 0; item < 3000; item++)
            bloom_filter_add(filter, hash_of(99, item), NULL);
        if (i % 4 == 0)
            bloom_filter_expect_fill(filter);
        bloom_filter_deinit(filter);
        free(filter);
    }
    return NULL;
}

static void check_and_free(unsigned f)
{
    for (unsigned i = 0; i < ITEMS; i++) {
        if (!bloom_filter_query(filters[f], hash_of(f, i))) {
            fprintf(stderr, "filter %u: item %u is absent at the end\n", f, i);
            exit(1);
        }
    }
    if (bloom_filter_items(filters[f]) != atomic_load(&won[f])) {
        fprintf(stderr, "filter %u has %" PRIu64 " items, %" PRIu64 " adds were new\n", f,
                bloom_filter_items(filters[f]), atomic_load(&won[f]));
        exit(1);
    }
    bloom_filter_deinit(filters[f]);
    free(filters[f]);
}

static void one_round(void)
{
    pthread_t adders[2 * FILTERS], settler, churn;
    atomic_store(&stop, false);
    for (unsigned f = 0; f < FILTERS; f++) {
        filters[f] = new_filter();
        atomic_store(&won[f], 0);
    }
    pthread_create(&settler, NULL, settle_all, NULL);
    pthread_create(&churn, NULL, create_and_free, NULL);
    for (size_t i = 0; i < 2 * FILTERS; i++)
        pthread_create(&adders[i], NULL, add_all, (void *)i);
    for (unsigned i = 0; i < 2 * FILTERS; i++)
        pthread_join(adders[i], NULL);
    pthread_join(churn, NULL);
    atomic_store(&stop, true);
    pthread_join(settler, NULL);
    bloom_pool_settle(pool, NULL, NULL);
    if (pool->maps.n != 0) {
        fprintf(stderr, "%zu filters have not been moved\n", pool->maps.n);
        exit(1);
    }
    for (unsigned f = 0; f < FILTERS; f++)
        check_and_free(f);
}

int main(void)
{
    struct bloom_params params = {8000000, 0.01, 0}; /* 9.6 MB */
    if (bloom_pool_create(&pool) != 0 || bloom_class_get(pool, &params, NULL, &class, NULL) != 0)
        return 1;
    for (unsigned i = 0; i < ROUNDS; i++)
        one_round();
    bloom_class_release(class);
    bloom_pool_destroy(pool);
    return 0;
}
