/* Batches of hashes against single calls of bloom_filter_query(), with wide vectors and without. */
#include "bloom_batch.h"

#include <criterion/criterion.h>

#include "bloom_vector.h"
#include "pool_rig.h"
#include "redisbloom.h"
#include "rng.h"

#define HASHES 1024

static struct rng rng;
static uint64_t h1[HASHES], h2[HASHES];

static void begin(void)
{
    rng_init(&rng, 25);
    setup();
    for (size_t i = 0; i < HASHES; i++) {
        h1[i] = rng_next(&rng);
        h2[i] = rng_next(&rng);
    }
    static const uint64_t edges[] = {0, 1, UINT64_MAX, UINT64_C(1) << 63, (UINT64_C(1) << 63) - 1};
    for (size_t i = 0; i < 25; i++) {
        h1[i * 41] = edges[i % 5];
        h2[i * 41] = edges[i / 5];
    }
}

TestSuite(bloom_hashed, .init = begin, .fini = teardown);

static void expect_same(const struct bloom_filter *filter, size_t from, size_t n)
{
    struct bloom_batch batch;
    uint32_t expected = 0;
    for (size_t i = 0; i < n; i++)
        expected |= (uint32_t)bloom_filter_query(filter, (struct bloom_hash){h1[from + i], h2[from + i]}) << i;
    bloom_batch_start_hashed(&batch, h1 + from, h2 + from, n);
    cr_assert_eq(bloom_batch_query(&batch, filter), expected, "%zu items from %zu on", n, from);
}

static void expect_same_for_any_number(const struct bloom_filter *filter)
{
    for (int vectors = 1; vectors >= 0; vectors--) {
        bloom_vector_enable(vectors);
        for (size_t n = 0; n <= 17; n++)
            expect_same(filter, 0, n);
        for (size_t from = 0; from < HASHES; from += BLOOM_BATCH)
            expect_same(filter, from, BLOOM_BATCH);
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
Test(bloom_hashed, answers_equal_single_queries)
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
Test(bloom_hashed, filters_with_the_same_hash)
{
    const struct bloom_params plain = {.capacity = 100, .error_rate = 0.3};
    const struct bloom_params other = {
        .capacity = 100, .error_rate = 0.3, .expansion = 2, .redisbloom = REDISBLOOM_DEFAULT};
    struct bloom_shape shapes[3] = {{.nwords = 20, .k = 2, .variant = 0}, {.nwords = 30, .k = 3, .variant = 2}};
    cr_assert_eq(redisbloom_size(REDISBLOOM_DEFAULT, 100, 0.15, &shapes[2], NULL), 0);
    struct bloom_filter *filters[3];
    for (int i = 0; i < 3; i++)
        filters[i] = filter_make(pool, i == 2 ? &other : &plain, &shapes[i]);
    cr_expect(bloom_same_hash(filters[0], filters[1]));
    cr_expect(!bloom_same_hash(filters[0], filters[2]));
    cr_expect(!bloom_same_hash(filters[2], filters[1]));
    cr_expect(bloom_same_hash(filters[2], filters[2]));
    for (int i = 0; i < 3; i++)
        filter_free(filters[i]);
}

/* A filter that has grown, and a filter in RedisBloom's layout. */
Test(bloom_hashed, filters_of_other_kinds)
{
    for (int redisbloom = 0; redisbloom <= 1; redisbloom++) {
        struct bloom_params params = {
            .capacity = 100, .error_rate = 0.3, .expansion = 2, .redisbloom = redisbloom ? REDISBLOOM_DEFAULT : 0};
        struct bloom_shape shape = {.nwords = 20, .k = 2};
        if (redisbloom)
            cr_assert_eq(redisbloom_size(REDISBLOOM_DEFAULT, 100, 0.15, &shape, NULL), 0);
        struct bloom_filter *filter = filter_make(pool, &params, &shape);
        for (size_t i = 0; i < HASHES; i += 3)
            bloom_filter_add(filter, (struct bloom_hash){h1[i], h2[i]}, NULL);
        cr_assert_gt(bloom_filter_nlayers(filter), 1);
        expect_same_for_any_number(filter);
        filter_free(filter);
    }
}
