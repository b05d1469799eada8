/* Each allocation of a scenario fails in turn: the call that needs it returns the error, nothing else changes, nothing
 * leaks (the pool's destruction checks its own account; the asan preset checks the heap). */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_countdown.h"
#include "bloom_filter.h"
#include "bloom_pages.h"
#include "bloom_resident.h"
#include "cuckoo.h"
#include "cuckoo_shape.h"
#include "rng.h"

static char storage[64 * 1024];

/* Repeats an add after a failed growth, which must not have changed the filter. */
static unsigned add_until(struct bloom_filter *filter, struct rng *rng, uint64_t items)
{
    unsigned failures = 0;

    while (bloom_filter_items(filter) < items) {
        uint64_t h1 = rng_next(rng);
        struct bloom_hash hash = {h1, rng_next(rng)};
        uint64_t before = bloom_filter_items(filter), memory = bloom_filter_memory(filter);
        unsigned layers = bloom_filter_nlayers(filter);
        struct errbuf err = {""};
        enum bloom_add answer = bloom_filter_add(filter, hash, &err);

        if (answer == BLOOM_NO_ROOM) {
            failures++;
            cr_assert(strstr(err.text, "cannot grow by layer ") && strstr(err.text, ": cannot allocate "), "%s",
                      err.text);
            cr_assert(bloom_filter_items(filter) == before && bloom_filter_memory(filter) == memory);
            cr_assert_eq(bloom_filter_nlayers(filter), layers);
            cr_assert_not(bloom_filter_query(filter, hash));
            answer = bloom_filter_add(filter, hash, NULL);
            cr_assert_eq(answer, BLOOM_ADDED);
        }
        cr_assert(bloom_filter_query(filter, hash));
    }
    return failures;
}

/* Prepares a filter of medium size for filling: without memory its words stay in place and remain usable. Returns the
 * number of failed calls. */
static unsigned fill(struct bloom_filter *filter)
{
    struct bloom_layer_view view;

    for (unsigned failures = 0;; failures++) {
        bloom_filter_expect_fill(filter);
        bloom_filter_layer(filter, 0, &view);
        cr_assert_eq(view.words[view.shape.nwords - 1], 0);
        if (bloom_pages_kind_of((void *)view.words) == BLOOM_PAGES_DENSE)
            return failures;
    }
}

/* Pool, classes with and without shape, filters with inline, medium and mapped words, growth from inline to heap
 * words, a mapped layer appended, words evicted and restored. Returns the number of calls that failed for lack of
 * memory; each is repeated and must succeed then. */
static unsigned scenario(void)
{
    struct bloom_params params = {300, 0.01, 4};
    struct bloom_shape large = {1 << 18, 7, BLOOM_NA}, medium = {1 << 14, 7, BLOOM_NA};
    struct bloom_pool *pool = NULL;
    struct bloom_class *class = NULL, *shaped = NULL, *middle = NULL;
    struct bloom_filter *filter = (struct bloom_filter *)(void *)storage;
    struct bloom_filter *second = (struct bloom_filter *)(void *)(storage + sizeof(storage) / 2);
    struct bloom_filter *third = (struct bloom_filter *)(void *)(storage + sizeof(storage) / 4 * 3);
    struct errbuf err = {""};
    struct rng rng;
    unsigned failures = 0;

#define STRIDE(call, undone)           \
    do {                               \
        int rc = (call);               \
        if (rc != 0) {                 \
            cr_assert_eq(rc, -ENOMEM); \
            cr_assert(undone);         \
            failures++;                \
            cr_assert_eq((call), 0);   \
        }                              \
    } while (0)

    rng_init(&rng, 51);
    STRIDE(bloom_pool_create(&pool), pool == NULL);
    STRIDE(bloom_class_get(pool, &params, NULL, &class, &err), class == NULL);
    STRIDE(bloom_class_get(pool, &params, &large, &shaped, &err), shaped == NULL);
    STRIDE(bloom_filter_init(filter, class, &err), bloom_pool_bytes(pool) == 0);
    uint64_t held = bloom_pool_bytes(pool);
    STRIDE(bloom_filter_init(second, shaped, &err), bloom_pool_bytes(pool) == held);
    STRIDE(bloom_class_get(pool, &params, &medium, &middle, &err), middle == NULL);
    held = bloom_pool_bytes(pool);
    STRIDE(bloom_filter_init(third, middle, &err), bloom_pool_bytes(pool) == held);
    failures += fill(third);
    bloom_class_release(class);
    bloom_class_release(shaped);
    bloom_class_release(middle);
    failures += add_until(filter, &rng, 30000);
    held = bloom_pool_bytes(pool);
    STRIDE(bloom_filter_append_layer(filter, &large, &err), bloom_pool_bytes(pool) == held);
    bloom_filter_drop(filter);
    held = bloom_pool_bytes(pool);
    STRIDE(bloom_filter_undrop_begin(filter, &err), bloom_pool_bytes(pool) == held && bloom_filter_is_dropped(filter));
    bloom_filter_undrop_end(filter, true);
    bloom_filter_deinit(filter);
    bloom_filter_deinit(second);
    bloom_filter_deinit(third);
    bloom_pool_destroy(pool);
#undef TRY
    return failures;
}

Test(bloom_fault, every_allocation_may_fail_once)
{
    size_t n = 0;

    cr_assert_eq(scenario(), 0); /* all one-time allocations of the C library are done now */
    for (bool failed = true; failed; n += failed) {
        alloc_countdown_start(n);
        unsigned failures = scenario();
        failed = alloc_countdown_stop();
        cr_assert_eq(failures, failed, "allocation %zu", n);
    }
    /* pool 1, classes 3 and their table 1, `second` 1, `third` 1 and 1 for its filling, four layers by growth 4 + 3 for
     * words, one appended 2, words again 4 */
    cr_assert_eq(n, 21);
}

/* The table of classes cannot grow: more classes than buckets are found as well. */
Test(bloom_fault, classes_outgrow_their_table_without_memory_for_a_larger_one)
{
    static struct bloom_class *classes[70];
    struct bloom_pool *pool;

    cr_assert_eq(bloom_pool_create(&pool), 0);
    for (uint64_t i = 0; i < 70; i++) {
        struct bloom_params params = {i + 1, 0.01, 2};

        alloc_countdown_start(i == 0 ? 2 : 1); /* enough for the class and a first table, not for a larger one */
        cr_assert_eq(bloom_class_get(pool, &params, NULL, &classes[i], NULL), 0);
    }
    alloc_countdown_stop();
    for (uint64_t i = 0; i < 70; i++) {
        struct bloom_params params = {i + 1, 0.01, 2};
        struct bloom_class *again;

        cr_assert_eq(bloom_class_get(pool, &params, NULL, &again, NULL), 0);
        cr_assert_eq(again, classes[i]);
        bloom_class_release(again);
        bloom_class_release(classes[i]);
    }
    bloom_pool_destroy(pool);
}

/* A caller may end what it got from a still that could not begin. */
Test(bloom_fault, a_still_that_cannot_begin_is_none)
{
    struct cuckoo_numbers numbers = {64, 2, 20, 1};
    struct bloom_params params;
    struct bloom_shape shape;
    struct bloom_pool *pool;
    struct bloom_class *class;
    struct bloom_filter *filter = (struct bloom_filter *)(void *)storage, *still;
    struct errbuf err = {""};
    int status = -ENOMEM;
    size_t n = 0;

    cr_assert_eq(bloom_pool_create(&pool), 0);
    cr_assert_eq(cuckoo_plan(&numbers, &params, &shape, &err), BLOOM_OK);
    cr_assert_eq(bloom_class_get(pool, &params, &shape, &class, &err), 0);
    cr_assert_eq(bloom_filter_init(filter, class, &err), 0);
    for (; status != 0; n++) {
        alloc_countdown_start(n);
        status = bloom_still_begin(filter, &still, &err);
        alloc_countdown_stop();
        cr_assert_eq(still != NULL, status == 0, "allocation %zu", n);
        bloom_still_end(still);
    }
    cr_expect_gt(n, 2);
    bloom_filter_deinit(filter);
    bloom_class_release(class);
    bloom_pool_destroy(pool);
}
