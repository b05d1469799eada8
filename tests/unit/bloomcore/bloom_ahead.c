/* A guess of an item's filter: its hash and its answers are those of the filter, in every layout. */
#include "bloom_ahead.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "pool_rig.h"
#include "redisbloom.h"

TestSuite(bloom_ahead, .init = setup, .fini = teardown);

/* Item n, in a buffer that the next call overwrites. */
static const char *item_of(int n, size_t *len_out)
{
    static char item[16];

    *len_out = (size_t)snprintf(item, sizeof(item), "item-%d", n);
    return item;
}

/* Aims do not need the filter. */
Test(bloom_ahead, aims_as_the_filter)
{
    const uint8_t options[] = {0, REDISBLOOM_DEFAULT, REDISBLOOM_NOROUND}; /* the last: 32-bit hashes */

    for (size_t i = 0; i < sizeof(options); i++) {
        const struct bloom_params params = {1200000, 0.01, 2, options[i]};
        struct bloom_filter *filter = filter_make(pool, &params, NULL);
        struct bloom_ahead ahead;
        struct bloom_hash hashes[100];
        struct bloom_aim aim;
        size_t len;

        bloom_ahead_take(&ahead, filter);
        cr_assert(bloom_ahead_is_new(&ahead, filter));
        for (int n = 0; n < 100; n++) {
            const char *item = item_of(n, &len);
            hashes[n] = bloom_filter_hash(filter, item, len);
            bloom_ahead_aim(&ahead, item, len, &aim);
            cr_assert(hashes[n].h1 == aim.hash.h1 && hashes[n].h2 == aim.hash.h2, "options %u", options[i]);
        }
        filter_free(filter);
        for (int n = 0; n < 100; n++) {
            const char *item = item_of(n, &len);
            bloom_ahead_aim(&ahead, item, len, &aim);
            cr_assert(hashes[n].h1 == aim.hash.h1 && hashes[n].h2 == aim.hash.h2);
        }
    }
}

static void count_add(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    uint64_t *last = ctx;

    (void)id, (void)hash, (void)layer;
    *last = ordinal;
}

static int count_growth(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, struct errbuf *err)
{
    (void)ctx, (void)id, (void)layer, (void)shape, (void)err;
    return 0;
}

/* Two filters get the same items, one of them by aims: all answers are equal, and so are the bits at the end. Small
 * layers, growth, and a full fixed filter. */
Test(bloom_ahead, answers_as_the_filter)
{
    static const struct bloom_journal_ops ops = {.add = count_add, .grow = count_growth};
    const struct bloom_params all[] = {
        {300, 0.01, 2, 0},
        {300, 0.01, 0, 0},
        {300, 0.01, 2, REDISBLOOM_DEFAULT},
        {300, 0.01, 2, REDISBLOOM_NOROUND},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const struct bloom_params params = all[i];
        struct bloom_filter *usual = filter_make(pool, &params, NULL), *aimed = filter_make(pool, &params, NULL);
        uint64_t usual_ordinal = 0, ordinal = 0;
        struct bloom_journal usual_journal = {&ops, &usual_ordinal, 1}, journal = {&ops, &ordinal, 2};
        struct bloom_ahead ahead;
        struct bloom_aim aim;
        struct errbuf err;
        size_t len;

        bloom_ahead_take(&ahead, aimed);
        for (int n = 0; n < 3000; n++) {
            const char *item = item_of(n * 7 % 2000, &len);
            struct bloom_hash hash = bloom_filter_hash(usual, item, len);

            if (!bloom_ahead_is_new(&ahead, aimed))
                bloom_ahead_take(&ahead, aimed);
            bloom_ahead_aim(&ahead, item, len, &aim);
            cr_assert_eq(bloom_ahead_query(aimed, &aim), bloom_filter_query(usual, hash));
            cr_assert_eq(bloom_ahead_add(aimed, &aim, &journal, &err),
                         bloom_filter_add_journaled(usual, hash, &usual_journal, &err));
            cr_assert_eq(ordinal, usual_ordinal);
        }
        cr_assert_eq(bloom_filter_nlayers(aimed), bloom_filter_nlayers(usual));
        for (unsigned layer = 0; layer < bloom_filter_nlayers(usual); layer++) {
            struct bloom_layer_view a, b;
            bloom_filter_layer(usual, layer, &a);
            bloom_filter_layer(aimed, layer, &b);
            cr_assert_eq(a.items, b.items);
            cr_assert_arr_eq(a.words, b.words, a.shape.nwords * 8);
        }
        filter_free(usual);
        filter_free(aimed);
    }
}

Test(bloom_ahead, a_new_layer_is_noticed)
{
    const struct bloom_params params = {1200000, 0.01, 1, 0};
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    struct bloom_shape shape;
    struct bloom_layer_view view;
    struct bloom_ahead ahead;
    struct errbuf err;

    bloom_ahead_take(&ahead, filter);
    bloom_filter_layer(filter, 0, &view);
    shape = view.shape;
    cr_assert_eq(bloom_filter_append_layer(filter, &shape, &err), 0);
    cr_assert_not(bloom_ahead_is_new(&ahead, filter));
    filter_free(filter);
}
