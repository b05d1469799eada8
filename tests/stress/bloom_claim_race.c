/* Many owners claim the same items at the same time, each more than once, while the filter grows: each item has one
 * owner, who gets BLOOM_OWN whenever he asks again; whoever finds an item finds its owner's mark, without a lock, too;
 * and a fixed filter has room for as many claims as its capacity has pairs.
 *
 * The error rate is so low that nothing seems to be present before it has been added. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "bloom_filter.h"
#include "bloom_window.h"
#include "rng.h"
#include "stress.h"

#define OWNERS 4
#define ITEMS  30000

static struct bloom_filter *filter;
static struct bloom_hash items[ITEMS];
static atomic_uint owners[ITEMS]; /* from 1 on; 0: none yet */
static atomic_uint started, claims;
static atomic_bool done;
static bool fixed;

static void claim_of(unsigned owner, size_t i, struct bloom_hash hash[2])
{
    hash[0] = (struct bloom_hash){items[i].h1 * (2 * owner + 3), items[i].h2 ^ owner};
    hash[1] = items[i];
}

static void *claim_all(void *arg)
{
    unsigned owner = *(const unsigned *)arg;
    struct bloom_hash hash[2];

    atomic_fetch_add(&started, 1);
    while (atomic_load(&started) < OWNERS)
        ;
    for (size_t i = 0; i < ITEMS; i++) {
        claim_of(owner, i, hash);
        enum bloom_add answer = bloom_filter_claim(filter, hash, NULL, NULL);
        EXPECT(answer != BLOOM_NO_ROOM && answer != BLOOM_OWN, "item %zu: %d", i, (int)answer);
        if (answer == BLOOM_FULL) {
            EXPECT(fixed, "item %zu", i);
            continue;
        }
        if (answer == BLOOM_ADDED) {
            EXPECT(atomic_exchange(&owners[i], owner) == 0, "item %zu has two owners", i);
            atomic_fetch_add(&claims, 1);
        }
        claim_of(owner, i, hash);
        enum bloom_add again = bloom_filter_claim(filter, hash, NULL, NULL);
        EXPECT(again == (answer == BLOOM_ADDED ? BLOOM_OWN : BLOOM_PRESENT), "item %zu: %d", i, (int)again);
        unsigned earlier = atomic_load(&owners[i / 2]); /* 0: its owner has not noted it yet */
        claim_of(owner, i / 2, hash);
        again = earlier ? bloom_filter_claim(filter, hash, NULL, NULL) : BLOOM_FULL;
        EXPECT(!earlier || again == (earlier == owner ? BLOOM_OWN : BLOOM_PRESENT), "item %zu: %d", i / 2, (int)again);
    }
    return NULL;
}

static void *read_all(void *arg)
{
    struct bloom_hash hash[2];
    struct rng rng;

    (void)arg;
    rng_init(&rng, 1);
    for (size_t i = 0, at = 0; !atomic_load(&done); i++) {
        bool there = bloom_filter_query(filter, items[at]); /* mostly at the edge: the next one is being claimed */
        at = at + 1 < ITEMS && there ? at + 1 : rng_below(&rng, at + 1);
        if (!bloom_filter_query(filter, items[at]))
            continue;
        bool marked = false;
        for (unsigned owner = 1; owner <= OWNERS && !marked; owner++) {
            claim_of(owner, at, hash);
            marked = bloom_filter_query(filter, hash[0]);
        }
        EXPECT(marked, "item %zu is there without a mark", at);
    }
    return NULL;
}

static void run(struct bloom_pool *pool, const struct bloom_params *params)
{
    unsigned numbers[OWNERS];
    pthread_t threads[OWNERS], reader;
    struct bloom_class *class;
    struct errbuf err = {""};

    EXPECT(bloom_class_get(pool, params, NULL, &class, &err) == 0, "%s", err.text);
    filter = aligned_alloc(16, (bloom_filter_bytes(class) + 15) / 16 * 16);
    EXPECT(filter && bloom_filter_init(filter, class, &err) == 0, "%s", err.text);
    bloom_class_release(class);
    fixed = params->expansion == 0;
    started = claims = 0;
    done = false;
    for (size_t i = 0; i < ITEMS; i++)
        owners[i] = 0;
    EXPECT(pthread_create(&reader, NULL, read_all, NULL) == 0, "no thread");
    for (unsigned i = 0; i < OWNERS; i++) {
        numbers[i] = i + 1;
        EXPECT(pthread_create(&threads[i], NULL, claim_all, &numbers[i]) == 0, "no thread");
    }
    for (unsigned i = 0; i < OWNERS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&done, true);
    pthread_join(reader, NULL);
    EXPECT(claims == (fixed ? params->capacity / 2 : ITEMS), "%u claims", claims);
    EXPECT(bloom_filter_items(filter) == 2 * claims, "%llu items", (unsigned long long)bloom_filter_items(filter));
    bloom_filter_deinit(filter);
    free(filter);
}

int main(void)
{
    struct bloom_params params = {.capacity = 100000, .error_rate = 1e-10, .expansion = 2};
    struct bloom_pool *pool;
    struct rng rng;

    rng_init(&rng, 20260130);
    for (size_t i = 0; i < ITEMS; i++)
        items[i] = (struct bloom_hash){rng_next(&rng), rng_next(&rng)};
    EXPECT(bloom_pool_create(&pool) == 0, "no pool");
    run(pool, &params);
    params.capacity = 11;
    run(pool, &params);
    params.capacity = 20001;
    params.expansion = 0;
    run(pool, &params);
    params = (struct bloom_params){
        .capacity = 1000, .error_rate = 1e-10, .expansion = 2, .window = BLOOM_WINDOW_MAX_US, .window_parts = 4};
    run(pool, &params);
    bloom_pool_destroy(pool);
    return 0;
}
