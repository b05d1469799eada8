/* The guess of an item's filter: the hash is the filter's own, in every layout, also when the filter is gone. */
#include "bloom_ahead.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "filters.h"
#include "redisbloom.h"

static struct bloom_pool *pool;

static void setup(void)
{
    cr_assert_eq(bloom_pool_create(&pool), 0);
}

static void teardown(void)
{
    bloom_pool_destroy(pool);
}

TestSuite(bloom_ahead, .init = setup, .fini = teardown);

Test(bloom_ahead, hashes_as_the_filter)
{
    const uint8_t options[] = {0, REDISBLOOM_DEFAULT, REDISBLOOM_NOROUND}; /* the last: hashes of 32 bits */

    for (size_t i = 0; i < sizeof(options); i++) {
        const struct bloom_params params = {1200000, 0.01, 2, options[i]};
        struct bloom_filter *filter = filter_make(pool, &params, NULL);
        struct bloom_ahead ahead;
        struct bloom_hash hashes[100];
        char item[16];

        cr_assert(bloom_ahead_take(&ahead, filter));
        cr_assert(bloom_ahead_is_new(&ahead, filter));
        for (int n = 0; n < 100; n++) {
            int len = snprintf(item, sizeof(item), "item-%d", n);
            struct bloom_hash hash = bloom_filter_hash(filter, item, (size_t)len);

            hashes[n] = bloom_ahead_fetch(&ahead, item, (size_t)len);
            cr_assert(hashes[n].h1 == hash.h1 && hashes[n].h2 == hash.h2, "options %u", options[i]);
        }
        filter_free(filter);
        for (int n = 0; n < 100; n++) {
            int len = snprintf(item, sizeof(item), "item-%d", n);
            struct bloom_hash hash = bloom_ahead_fetch(&ahead, item, (size_t)len);

            cr_assert(hashes[n].h1 == hash.h1 && hashes[n].h2 == hash.h2);
        }
    }
}

Test(bloom_ahead, small_layers_are_not_worth_it_and_a_new_layer_is_noticed)
{
    const struct bloom_params small = {1000, 0.01, 2, 0}, large = {1200000, 0.01, 1, 0};
    struct bloom_filter *filter = filter_make(pool, &small, NULL);
    struct bloom_shape shape;
    struct bloom_layer_view view;
    struct bloom_ahead ahead;
    struct errbuf err;

    cr_assert_not(bloom_ahead_take(&ahead, filter));
    filter_free(filter);
    filter = filter_make(pool, &large, NULL);
    cr_assert(bloom_ahead_take(&ahead, filter));
    bloom_filter_layer(filter, 0, &view);
    shape = view.shape;
    cr_assert_eq(bloom_filter_append_layer(filter, &shape, &err), 0);
    cr_assert_not(bloom_ahead_is_new(&ahead, filter));
    filter_free(filter);
}
