/* The memory of a still of a cuckoo filter: it takes some for changes ahead of its reader, and none of the limits.
 * cuckoo.c tests the words that it reads. */
#include "cuckoo.h"
#include "bloom_resident.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "filters.h"

static struct bloom_pool *pool;
static atomic_bool over;

static void setup(void)
{
    cr_assert_eq(bloom_pool_create(&pool), 0);
}

static void teardown(void)
{
    cr_assert_eq(bloom_pool_bytes(pool), 0);
    bloom_pool_destroy(pool);
}

TestSuite(cuckoo_still, .init = setup, .fini = teardown);

static struct bloom_filter *make(uint64_t capacity)
{
    const struct cuckoo_numbers numbers = {capacity, 2, 20, 1};
    struct bloom_params params;
    struct bloom_shape shape;
    struct errbuf err = {""};

    cr_assert_eq(cuckoo_plan(&numbers, &params, &shape, &err), BLOOM_OK, "%s", err.text);
    return filter_make(pool, &params, &shape);
}

static void *begin_and_end(void *arg)
{
    for (int i = 0; i < 20000; i++) {
        struct bloom_filter *still;
        cr_assert_eq(bloom_still_begin(arg, &still, NULL), 0);
        bloom_still_end(still);
    }
    atomic_store(&over, true);
    return NULL;
}

/* Not for a moment: a creation or an add would be refused. */
Test(cuckoo_still, the_pool_has_the_same_bytes_while_a_still_begins_and_ends)
{
    struct bloom_filter *filter = make(1000);
    uint64_t bytes = bloom_pool_bytes(pool);
    pthread_t thread;
    atomic_store(&over, false);
    cr_assert_eq(pthread_create(&thread, NULL, begin_and_end, filter), 0);
    while (!atomic_load(&over))
        cr_assert_eq(bloom_pool_bytes(pool), bytes);
    pthread_join(thread, NULL);
    filter_free(filter);
}

/* A still takes memory for pages that are changed before they have been read; the limits do not see it. */
Test(cuckoo_still, a_still_takes_memory_for_changes_only)
{
    struct bloom_filter *filter = make(8 << 20), *still;
    uint64_t before = bloom_pool_bytes(pool), *words = calloc(2048, 8);
    cr_assert_eq(bloom_still_begin(filter, &still, NULL), 0);
    cr_expect_eq(bloom_pool_bytes(pool), before);
    cr_expect_eq(bloom_pool_still_bytes(pool), 0);
    for (uint64_t i = 0; i < 20; i++)
        cr_assert_eq(cuckoo_add(filter, cuckoo_hash(&i, sizeof(i)), false, NULL, NULL), BLOOM_ADDED);
    cr_expect_leq(bloom_pool_still_bytes(pool), 20 * 4096);
    cr_expect_gt(bloom_pool_still_bytes(pool), 4096);
    for (uint64_t word = 0; word < 1 << 20; word += 2048) {
        cuckoo_still_read(still, 0, word, 2048, words, false);
        cuckoo_still_read(still, 0, word, 2048, words, true);
        for (unsigned i = 0; i < 2048; i++)
            cr_assert_eq(words[i], 0);
    }
    cr_expect_eq(bloom_pool_still_bytes(pool), 0);
    for (uint64_t i = 20; i < 40; i++)
        cr_assert_eq(cuckoo_add(filter, cuckoo_hash(&i, sizeof(i)), false, NULL, NULL), BLOOM_ADDED);
    cr_expect_eq(bloom_pool_still_bytes(pool), 0, "it has been read");
    bloom_still_end(still);
    cr_expect_eq(bloom_pool_bytes(pool), before);
    cr_expect_eq(bloom_pool_dropped(pool), 0);
    free(words);
    filter_free(filter);
}
