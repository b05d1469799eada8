/* Large filters are added to, queried, created and freed while their memory moves from small to huge pages, or is populated
 * for them: no bit is lost, and every mapping is settled in the end. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "bloom_batch.h"
#include "bloom_filter.h"

#define FILTERS 4
#define ITEMS   60000
#define ROUNDS  3

static struct bloom_pool *pool;
static struct bloom_class *class;
static struct bloom_filter *filters[FILTERS];
static _Atomic bool stop;

static struct bloom_hash hash_of(unsigned filter, unsigned item)
{
    uint64_t key[2] = {filter, item};
    return murmur3_hash(key, sizeof(key));
}

/* As hash_of() for the items from `first` on. */
static void add_batch(unsigned filter, unsigned first)
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
}

/* One by one, or in batches, which say when their filter is in use. */
static void *add_all(void *arg)
{
    size_t f = (size_t)arg;
    for (unsigned i = 0; i < ITEMS; i++) {
        if (f % 2 == 0)
            bloom_filter_add(filters[f], hash_of((unsigned)f, i), NULL);
        else if (i % BLOOM_BATCH == 0)
            add_batch((unsigned)f, i);
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
        bloom_pool_settle(pool);
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
        for (unsigned item = 0; item < 200; item++)
            bloom_filter_add(filter, hash_of(99, item), NULL);
        if (i % 4 == 0)
            bloom_filter_expect_fill(filter);
        bloom_filter_deinit(filter);
        free(filter);
    }
    return NULL;
}

static void one_round(void)
{
    pthread_t adders[FILTERS], settler, churn;
    atomic_store(&stop, false);
    for (unsigned f = 0; f < FILTERS; f++)
        filters[f] = new_filter();
    pthread_create(&settler, NULL, settle_all, NULL);
    pthread_create(&churn, NULL, create_and_free, NULL);
    for (size_t f = 0; f < FILTERS; f++)
        pthread_create(&adders[f], NULL, add_all, (void *)f);
    for (unsigned f = 0; f < FILTERS; f++)
        pthread_join(adders[f], NULL);
    pthread_join(churn, NULL);
    atomic_store(&stop, true);
    pthread_join(settler, NULL);

    unsigned steps = 0;
    while (bloom_pool_settle(pool) != BLOOM_SETTLED_NOTHING && ++steps < 10000)
        ;
    for (unsigned f = 0; f < FILTERS; f++) {
        for (unsigned i = 0; i < ITEMS; i++) {
            if (!bloom_filter_query(filters[f], hash_of(f, i))) {
                fprintf(stderr, "filter %u: item %u is absent at the end\n", f, i);
                exit(1);
            }
        }
        bloom_filter_deinit(filters[f]);
        free(filters[f]);
    }
    if (steps == 10000) {
        fprintf(stderr, "settling does not come to an end\n");
        exit(1);
    }
}

int main(void)
{
    struct bloom_params params = {8000000, 0.01, 0}; /* 9.6 MB */
    if (bloom_pool_create(&pool) != 0 || bloom_class_get(pool, &params, NULL, &class, NULL) != 0)
        return 1;
    for (unsigned i = 0; i < ROUNDS; i++) {
        bloom_pool_set_ahead(pool, i % 2 ? UINT64_C(64) << 20 : 0, NULL, NULL);
        one_round();
    }
    bloom_class_release(class);
    bloom_pool_destroy(pool);
    return 0;
}
