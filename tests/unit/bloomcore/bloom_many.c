/* bloom_many_query() against single calls of bloom_filter_query(), with wide vectors and without. */
#include "bloom_find.h"

#include <criterion/criterion.h>
#include <string.h>

#include "pool_rig.h"
#include "redisbloom.h"
#include "rng.h"

static struct rng rng;
static uint64_t h1[BLOOM_MANY], h2[BLOOM_MANY];

static void begin(void)
{
    rng_init(&rng, 25);
    setup();
    for (size_t i = 0; i < BLOOM_MANY; i++) {
        h1[i] = rng_next(&rng);
        h2[i] = rng_next(&rng);
    }
    static const uint64_t edges[] = {0, 1, UINT64_MAX, UINT64_C(1) << 63, (UINT64_C(1) << 63) - 1};
    for (size_t i = 0; i < 25; i++) {
        h1[i * 41] = edges[i % 5];
        h2[i * 41] = edges[i / 5];
    }
}

TestSuite(bloom_many, .init = begin, .fini = teardown);

static void expect_same(const struct bloom_filter *filter, size_t n)
{
    uint16_t found[BLOOM_MANY + 1];
    size_t expected = 0;
    memset(found, 0xff, sizeof(found));
    size_t nfound = bloom_many_query(filter, h1, h2, n, found);
    for (size_t i = 0; i < n; i++) {
        if (!bloom_filter_query(filter, (struct bloom_hash){h1[i], h2[i]}))
            continue;
        cr_assert_lt(expected, nfound, "item %zu of %zu is missing", i, n);
        cr_assert_eq(found[expected++], i);
    }
    cr_assert_eq(nfound, expected, "of %zu", n);
    cr_assert_eq(found[BLOOM_MANY], UINT16_MAX, "a number behind the last one was written");
}

static void expect_same_for_any_number(const struct bloom_filter *filter)
{
    for (int vectors = 1; vectors >= 0; vectors--) {
        bloom_vector_enable(vectors);
        for (size_t n = 0; n <= 17; n++)
            expect_same(filter, n);
        expect_same(filter, rng_below(&rng, BLOOM_MANY));
        expect_same(filter, BLOOM_MANY);
    }
    bloom_vector_enable(true);
}

/* Each bit is set with a probability of `quarters` / 4. */
static void fill(struct bloom_filter *filter, unsigned quarters)
{
    struct bloom_layer_view layer;
    bloom_filter_layer(filter, 0, &layer);
    for (uint64_t i = 0; i < layer.shape.nwords; i++) {
        uint64_t a = rng_next(&rng), b = rng_next(&rng);
        uint64_t word = quarters == 2 ? a : quarters == 3 ? a | b : quarters == 4 ? UINT64_MAX : 0;
        atomic_store_explicit(&layer.words[i], word, memory_order_relaxed);
    }
}

/* All layouts of SSTables, any size and k, from empty to full. */
Test(bloom_many, answers_equal_single_queries)
{
    const struct bloom_params params = {.capacity = UINT64_MAX, .error_rate = 0.5};
    for (unsigned i = 0; i < 300; i++) {
        struct bloom_shape shape = {.nwords = i % 7 == 0 ? 1 : 1 + rng_below(&rng, i % 10 == 1 ? 300000 : 600),
                                    .k = (uint8_t)(i % 11 == 0 ? 1 : 1 + rng_below(&rng, BLOOM_MAX_K)),
                                    .variant = (uint8_t)(i % 3)};
        struct bloom_filter *filter = filter_make(pool, &params, &shape);
        fill(filter, i % 4 + 1);
        expect_same_for_any_number(filter);
        filter_free(filter);
    }
}

/* Layouts of SSTables share one hash; RedisBloom's has another. */
Test(bloom_many, filters_with_the_same_hash)
{
    const struct bloom_params plain = {.capacity = 100, .error_rate = 0.3};
    const struct bloom_params other = {
        .capacity = 100, .error_rate = 0.3, .expansion = 2, .redisbloom = REDISBLOOM_DEFAULT};
    struct bloom_shape shapes[3] = {{.nwords = 20, .k = 2, .variant = 0}, {.nwords = 30, .k = 3, .variant = 2}};
    cr_assert_eq(redisbloom_size(REDISBLOOM_DEFAULT, 100, 0.15, &shapes[2], NULL), 0);
    struct bloom_filter *filters[3];
    for (int i = 0; i < 3; i++)
        filters[i] = filter_make(pool, i == 2 ? &other : &plain, &shapes[i]);
    cr_expect(bloom_many_same_hash(filters[0], filters[1]));
    cr_expect(!bloom_many_same_hash(filters[0], filters[2]));
    cr_expect(!bloom_many_same_hash(filters[2], filters[1]));
    cr_expect(bloom_many_same_hash(filters[2], filters[2]));
    for (int i = 0; i < 3; i++)
        filter_free(filters[i]);
}

/* A filter that has grown, and a filter in RedisBloom's layout. */
Test(bloom_many, filters_of_other_kinds)
{
    for (int redisbloom = 0; redisbloom <= 1; redisbloom++) {
        struct bloom_params params = {
            .capacity = 100, .error_rate = 0.3, .expansion = 2, .redisbloom = redisbloom ? REDISBLOOM_DEFAULT : 0};
        struct bloom_shape shape = {.nwords = 20, .k = 2};
        if (redisbloom)
            cr_assert_eq(redisbloom_size(REDISBLOOM_DEFAULT, 100, 0.15, &shape, NULL), 0);
        struct bloom_filter *filter = filter_make(pool, &params, &shape);
        for (size_t i = 0; i < BLOOM_MANY; i += 3)
            bloom_filter_add(filter, (struct bloom_hash){h1[i], h2[i]}, NULL);
        cr_assert_gt(bloom_filter_nlayers(filter), 1);
        expect_same_for_any_number(filter);
        filter_free(filter);
    }
}
