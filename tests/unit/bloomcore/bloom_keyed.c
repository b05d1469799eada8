/* KEYED filters: their bits are those of a plain filter of the 16 bytes that represent the items. Keys can be added
 * and removed. */
#include "bloom_ahead.h"
#include "bloom_batch.h"
#include "bloom_find.h"
#include "bloom_keyring.h"
#include "bloom_merge.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "pool_rig.h"

static struct bloom_secret secrets[3];

static void begin(void)
{
    setup();
    for (unsigned i = 0; i < 3; i++) {
        unsigned char bytes[BLOOM_SECRET_BYTES];

        memset(bytes, (int)(i + 1), sizeof(bytes)); /* equal halves */
        bloom_secret_derive(bytes, &secrets[i]);
    }
    cr_assert_eq(bloom_keyring_set(pool, secrets, 2), 0);
}

TestSuite(bloom_keyed, .init = begin, .fini = teardown);

static struct bloom_filter *keyed_chain(const struct bloom_secret *secret, uint64_t capacity, uint32_t expansion)
{
    const struct bloom_params params = {
        .capacity = capacity, .error_rate = 0.001, .expansion = expansion, .key = secret ? secret->id : 0};
    return filter_make(pool, &params, NULL);
}

static struct bloom_filter *keyed_filter(const struct bloom_secret *secret, uint8_t redisbloom)
{
    const struct bloom_params params = {
        .capacity = 300, .error_rate = 0.001, .expansion = 2, .redisbloom = redisbloom, .key = secret ? secret->id : 0};
    return filter_make(pool, &params, NULL);
}

static size_t item_text(char text[64], unsigned i)
{
    return (size_t)snprintf(text, 64, "%.*shttps://example.org/%u", (int)(i % 9), "xxxxxxxxx", i);
}

/* Adds items in batches of n to `keyed`, and the bytes that represent them one by one to `plain`. */
static void add_both(struct bloom_filter *keyed, struct bloom_filter *plain, unsigned items, unsigned n)
{
    for (unsigned first = 0; first < items; first += n) {
        char text[BLOOM_BATCH][64];
        struct bloom_item list[BLOOM_BATCH];
        struct bloom_batch batch;

        for (unsigned i = 0; i < n; i++)
            list[i] = (struct bloom_item){text[i], item_text(text[i], first + i)};
        bloom_batch_start(&batch, keyed, list, n);
        for (unsigned i = 0; i < n; i++) {
            unsigned char bytes[SIPHASH_BYTES];

            siphash(&secrets[0].items, list[i].ptr, list[i].len, bytes);
            struct bloom_hash hash = bloom_filter_hash(plain, bytes, sizeof(bytes));
            struct bloom_hash same = bloom_filter_hash(keyed, list[i].ptr, list[i].len);
            cr_assert(hash.h1 == same.h1 && hash.h2 == same.h2);
            cr_assert_eq(bloom_batch_add(&batch, i, keyed, NULL, NULL), bloom_filter_add(plain, hash, NULL));
        }
    }
}

static void expect_same_bits(const struct bloom_filter *a, const struct bloom_filter *b)
{
    cr_assert_eq(bloom_filter_nlayers(a), bloom_filter_nlayers(b));
    for (unsigned i = 0; i < bloom_filter_nlayers(a); i++) {
        struct bloom_layer_view va, vb;

        bloom_filter_layer(a, i, &va);
        bloom_filter_layer(b, i, &vb);
        cr_assert_eq(memcmp((void *)va.words, (void *)vb.words, (size_t)va.shape.nwords * 8), 0, "layer %u", i);
    }
}

Test(bloom_keyed, bits_are_those_of_the_16_bytes)
{
    static const uint8_t layouts[] = {0, REDISBLOOM_NOROUND | REDISBLOOM_FORCE64};

    for (unsigned l = 0; l < 2; l++) {
        for (unsigned n = 1; n <= BLOOM_BATCH; n += 7) {
            struct bloom_filter *keyed = keyed_filter(&secrets[0], layouts[l]);
            struct bloom_filter *plain = keyed_filter(NULL, layouts[l]);

            add_both(keyed, plain, 2000, n); /* it grows */
            cr_assert_gt(bloom_filter_nlayers(keyed), 1);
            expect_same_bits(keyed, plain);
            filter_free(keyed);
            filter_free(plain);
        }
    }
}

/* Filters that get items have at least `nlayers` layers. */
static void expect_agreement(uint64_t capacity, uint32_t expansion, unsigned nlayers)
{
    struct bloom_filter *filters[] = {
        keyed_chain(&secrets[0], capacity, expansion), keyed_chain(NULL, capacity, expansion),
        keyed_chain(&secrets[1], capacity, expansion), keyed_chain(&secrets[0], capacity, expansion)};
    struct bloom_ahead ahead;

    add_both(filters[0], filters[1], 960, 32);
    expect_same_bits(filters[0], filters[1]);
    cr_assert_geq(bloom_filter_nlayers(filters[0]), nlayers);
    bloom_ahead_take(&ahead, filters[0]);
    for (unsigned i = 0; i < 2000; i++) {
        char text[64];
        struct bloom_item item = {text, item_text(text, i)};
        struct bloom_aim aim;
        struct bloom_batch batch;
        uint64_t found[BLOOM_FIND_WORDS(4)];

        bool present = bloom_filter_query(filters[0], bloom_filter_hash(filters[0], item.ptr, item.len));
        cr_assert(present || i >= 960);
        bloom_ahead_aim(&ahead, item.ptr, item.len, &aim);
        cr_assert_eq(bloom_ahead_query(filters[0], &aim), present);
        bloom_batch_start(&batch, filters[0], &item, 1);
        cr_assert_eq(bloom_batch_query(&batch, filters[0]), present);
        bloom_find(&item, (const struct bloom_filter *const *)filters, 4, found);
        cr_assert_eq(found[0] & 1, present);
        for (unsigned f = 1; f < 4; f++)
            cr_assert_eq(found[0] >> f & 1,
                         bloom_filter_query(filters[f], bloom_filter_hash(filters[f], item.ptr, item.len)));
    }
    for (unsigned f = 0; f < 4; f++)
        filter_free(filters[f]);
}

Test(bloom_keyed, all_ways_to_ask_agree)
{
    expect_agreement(300, 2, 2);
}

/* Their layers are tested in runs (bloom_run.h). */
Test(bloom_keyed, all_ways_to_ask_agree_in_deep_chains)
{
    expect_agreement(20, 1, 40);
}

Test(bloom_keyed, merges_take_equal_keys_only)
{
    struct bloom_filter *a = keyed_filter(&secrets[0], 0), *b = keyed_filter(&secrets[1], 0),
                        *c = keyed_filter(NULL, 0);
    struct errbuf err;

    cr_assert_eq(bloom_filter_same_layout(a, a, &err), BLOOM_OK);
    cr_assert_eq(bloom_filter_same_layout(a, b, &err), BLOOM_REFUSED);
    cr_assert(strstr(err.text, "keys differ"), "%s", err.text);
    cr_assert_eq(bloom_filter_same_layout(a, c, &err), BLOOM_REFUSED);
    filter_free(a);
    filter_free(b);
    filter_free(c);
}

Test(bloom_keyed, keys_come_and_go)
{
    struct bloom_filter *a = keyed_filter(&secrets[0], 0), *c = keyed_filter(&secrets[2], 0);

    cr_assert_eq(bloom_keyring_first(pool), secrets[0].id);
    cr_assert_eq(bloom_filter_missing_key(a), 0);
    cr_assert_eq(bloom_filter_missing_key(c), secrets[2].id);
    cr_assert_eq(bloom_keyring_set(pool, &secrets[1], 2), 0);
    cr_assert_eq(bloom_keyring_first(pool), secrets[1].id);
    cr_assert_eq(bloom_filter_missing_key(a), secrets[0].id);
    cr_assert_eq(bloom_filter_missing_key(c), 0);
    struct bloom_hash hash = bloom_filter_hash(c, "item", 4);
    cr_assert_eq(bloom_filter_add(c, hash, NULL), BLOOM_ADDED);
    cr_assert_eq(bloom_keyring_set(pool, NULL, 0), 0);
    cr_assert_eq(bloom_keyring_first(pool), 0);
    cr_assert_eq(bloom_filter_missing_key(c), secrets[2].id);
    cr_assert_eq(bloom_keyring_set(pool, secrets, 3), 0);
    cr_assert(bloom_filter_query(c, bloom_filter_hash(c, "item", 4)));
    filter_free(a);
    filter_free(c);
}

/* Filters with unknown keys leave no memory behind, however many there were. */
Test(bloom_keyed, unknown_keys_leave_with_their_filters)
{
    for (uint64_t id = 1; id < 100000; id++) {
        const struct bloom_params params = {.capacity = 10, .error_rate = 0.1, .key = id};
        struct bloom_filter *filter = filter_make(pool, &params, NULL);

        cr_assert_eq(bloom_filter_missing_key(filter), id);
        filter_free(filter);
    }
}
