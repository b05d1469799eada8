/* Deep chains, whose layers are tested in runs: every answer equals that of a walk over all layers, bit by bit, also
 * after other writes than adds and after moves of words. High error rates make most answers for foreign items depend
 * on some bit of some layer. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "bloom_ahead.h"
#include "bloom_batch.h"
#include "bloom_plan.h"
#include "bloom_resident.h"
#include "bloom_vector.h"
#include "filters.h"
#include "pool_rig.h"
#include "redisbloom.h"
#include "rng.h"

TestSuite(bloom_run, .init = setup, .fini = teardown);

static struct errbuf err;
static struct rng rng;

static struct bloom_hash random_hash(void)
{
    uint64_t h1 = rng_next(&rng);

    return (struct bloom_hash){h1, rng_next(&rng)};
}

/* FORMAT.md, section 25. */
static bool block_has(const struct bloom_layer_view *view, struct bloom_hash hash)
{
    uint64_t n = view->shape.nwords / 8, block = (uint64_t)(((unsigned __int128)hash.h1 * n) >> 64);
    const unsigned char *bytes = (const unsigned char *)(view->words + view->shape.nwords % 8) + 64 * block;

    for (unsigned i = 0; i < view->shape.k; i++, hash.h2 *= UINT64_C(0x9e3779b97f4a7c15)) {
        if (!(bytes[(hash.h2 >> 55) / 8] >> ((hash.h2 >> 55) % 8) & 1))
            return false;
    }
    return true;
}

/* FORMAT.md, section 4. */
static bool layer_has(const struct bloom_layer_view *view, struct bloom_hash hash)
{
    if (view->shape.variant == BLOOM_BLOCKED)
        return block_has(view, hash);
    bool h1_first = view->shape.variant >= BLOOM_KA, redisbloom = view->shape.variant == BLOOM_REDISBLOOM;
    uint64_t at = h1_first ? hash.h1 : hash.h2, step = h1_first ? hash.h2 : hash.h1;

    for (unsigned i = 0; i < view->shape.k; i++, at += step) {
        uint64_t bit = (redisbloom || (int64_t)at >= 0 ? at : 0 - at) % bloom_shape_bits(&view->shape);

        if (!(atomic_load(&view->words[bit / 64]) >> (bit % 64) & 1))
            return false;
    }
    return true;
}

static bool any_layer_has(const struct bloom_filter *filter, struct bloom_hash hash)
{
    for (unsigned i = 0; i < bloom_filter_nlayers(filter); i++) {
        struct bloom_layer_view view;

        bloom_filter_layer(filter, i, &view);
        if (layer_has(&view, hash))
            return true;
    }
    return false;
}

/* Queries foreign items in each way; returns the number of those reported as present. */
static unsigned expect_same_answers(struct bloom_filter *filter, unsigned rounds)
{
    unsigned nlayers = bloom_filter_nlayers(filter), sum = 0;

    for (unsigned round = 0; round < rounds; round++) {
        uint64_t keys[BLOOM_BATCH], h1[BLOOM_BATCH], h2[BLOOM_BATCH];
        struct bloom_item items[BLOOM_BATCH];
        struct bloom_batch batch, hashed;
        uint32_t present = 0;

        for (unsigned i = 0; i < BLOOM_BATCH; i++) {
            struct bloom_ahead ahead;
            struct bloom_aim aim;

            keys[i] = rng_next(&rng);
            items[i] = (struct bloom_item){(const char *)&keys[i], sizeof(keys[i])};
            struct bloom_hash hash = bloom_filter_hash(filter, &keys[i], sizeof(keys[i]));
            bool there = any_layer_has(filter, hash);
            h1[i] = hash.h1;
            h2[i] = hash.h2;
            present |= (uint32_t)there << i;
            cr_assert_eq(bloom_filter_query(filter, hash), there, "%u layers", nlayers);
            bloom_ahead_take(&ahead, filter);
            bloom_ahead_aim(&ahead, &keys[i], sizeof(keys[i]), &aim);
            cr_assert_eq(bloom_ahead_query(filter, &aim), there, "%u layers", nlayers);
        }
        bloom_batch_start(&batch, filter, items, BLOOM_BATCH);
        cr_assert_eq(bloom_batch_query(&batch, filter), present, "%u layers", nlayers);
        bloom_batch_start_hashed(&hashed, h1, h2, BLOOM_BATCH);
        cr_assert_eq(bloom_batch_query(&hashed, filter), present, "%u layers", nlayers);
        sum += (unsigned)__builtin_popcount(present);
    }
    return sum;
}

/* Adds until the filter has `nlayers` layers. An add's answer equals that of the walk. */
static void grow_to(struct bloom_filter *filter, unsigned nlayers)
{
    while (bloom_filter_nlayers(filter) < nlayers) {
        struct bloom_hash hash = random_hash();
        bool there = any_layer_has(filter, hash);

        cr_assert_eq(bloom_filter_add(filter, hash, &err), there ? BLOOM_PRESENT : BLOOM_ADDED, "%s", err.text);
        cr_assert(bloom_filter_query(filter, hash));
    }
}

Test(bloom_run, answers_are_those_of_a_walk_over_all_layers)
{
    static const unsigned depths[] = {15, 16, 17, 18, 32, 33, 34, 64, 100};

    rng_init(&rng, 71);
    for (uint8_t variant = BLOOM_NA; variant <= BLOOM_REDISBLOOM; variant++) {
        bool redisbloom = variant == BLOOM_REDISBLOOM;
        struct bloom_params params = {10, 0.9, 1, .redisbloom = redisbloom ? REDISBLOOM_DEFAULT : 0};
        struct bloom_shape shape = {.nwords = 2, .k = 3, .variant = variant};
        struct bloom_filter *filter = filter_make(pool, &params, redisbloom ? NULL : &shape);
        unsigned present = 0;

        for (size_t i = 0; i < sizeof(depths) / sizeof(*depths) - (redisbloom ? 4 : 0); i++) {
            grow_to(filter, depths[i]);
            present += expect_same_answers(filter, 100);
        }
        cr_assert(present > 500, "variant %u: only %u of the items decided anything", variant, present);
        filter_free(filter);
    }
    cr_assert_eq(bloom_pool_header_bytes(pool), 0);
}

Test(bloom_run, answers_in_blocks_are_those_of_a_walk_over_all_layers)
{
    struct bloom_params params = {200, 0.9, 1, .redisbloom = BLOOM_OPTION_BLOCKED};
    unsigned present = 0;

    rng_init(&rng, 77);
    for (int vectors = 0; vectors < 2; vectors++) {
        struct bloom_filter *filter = filter_make(pool, &params, NULL);
        (void)bloom_vector_enable(vectors);
        for (unsigned depth = 15; depth < 70; depth += depth < 18 ? 1 : 15) {
            grow_to(filter, depth);
            present += expect_same_answers(filter, 100);
        }
        cr_assert(present > 500, "only %u of the items decided anything", present);
        filter_free(filter);
    }
}

/* As a load does: shapes that no growth would choose, words without adds, bits from a log in any layer. */
Test(bloom_run, words_of_loaded_layers_are_found)
{
    struct bloom_params params = {100, 0.5, 1};
    struct bloom_filter *filter = filter_make(pool, &params, NULL);

    rng_init(&rng, 72);
    for (unsigned i = 1; i < 70; i++) {
        struct bloom_shape shape = {.nwords = 1 + rng_below(&rng, 900), .k = (uint8_t)(1 + rng_below(&rng, 20))};

        cr_assert_eq(bloom_filter_append_layer(filter, &shape, &err), 0, "%s", err.text);
    }
    bloom_filter_expect_fill(filter);
    cr_assert_eq(expect_same_answers(filter, 10), 0);
    for (unsigned i = 0; i < 70; i++) {
        struct bloom_layer_view view;

        bloom_filter_layer(filter, i, &view);
        for (uint64_t w = 0; w < view.shape.nwords; w++)
            atomic_store(&view.words[w], rng_next(&rng) & (view.shape.k < 4 ? rng_next(&rng) & rng_next(&rng) : ~0u));
    }
    cr_assert(expect_same_answers(filter, 100) > 100);
    for (unsigned i = 0; i < 70; i++) {
        struct bloom_replay_item item = {random_hash(), 1};

        bloom_filter_replay(filter, i, 0, &item, 1);
        cr_assert(bloom_filter_query(filter, item.hash), "layer %u", i);
    }
    filter_free(filter);
}

/* Most of the layers are too large to lie behind their headers. */
static struct bloom_filter *large_layers(unsigned nlayers)
{
    struct bloom_params params = {100, 0.5, 1};
    struct bloom_filter *filter = filter_make(pool, &params, NULL);

    for (unsigned i = 1; i < nlayers; i++) {
        struct bloom_shape shape = {.nwords = i % 3 == 0 ? 100 : 600 + i, .k = 2};

        cr_assert_eq(bloom_filter_append_layer(filter, &shape, &err), 0, "%s", err.text);
    }
    return filter;
}

/* One item in each layer, in no other one. */
static void expect_one_in_each(struct bloom_filter *filter)
{
    for (unsigned i = 0; i < bloom_filter_nlayers(filter); i++) {
        struct bloom_replay_item item = {random_hash(), 1};

        bloom_filter_replay(filter, i, 0, &item, 1);
        cr_assert(bloom_filter_query(filter, item.hash), "layer %u", i);
    }
    expect_same_answers(filter, 10);
}

Test(bloom_run, words_that_have_come_back_are_found)
{
    struct bloom_filter *filter = large_layers(50);

    rng_init(&rng, 73);
    for (unsigned round = 0; round < 3; round++) {
        bloom_filter_drop(filter);
        cr_assert_eq(bloom_filter_undrop_begin(filter, &err), 0, "%s", err.text);
        bloom_filter_undrop_end(filter, round != 1);
        if (round != 1) {
            expect_one_in_each(filter);
            continue;
        }
        cr_assert_eq(bloom_filter_undrop_begin(filter, &err), 0, "%s", err.text);
        bloom_filter_undrop_end(filter, true);
    }
    filter_free(filter);
}

Test(bloom_run, runs_are_counted_in_memory_as_planned)
{
    struct bloom_params params = {20, 0.01, 1};
    static struct bloom_plan plan;
    struct bloom_filter *filter = filter_make(pool, &params, NULL);

    rng_init(&rng, 74);
    for (unsigned nlayers = 1; nlayers <= 70; nlayers++) {
        grow_to(filter, nlayers);
        cr_assert_eq(bloom_plan(&params, nlayers * params.capacity, &plan, &err), BLOOM_OK, "%s", err.text);
        cr_assert_eq(plan.nlayers, nlayers);
        cr_assert_eq(bloom_filter_memory(filter), plan.memory, "%u layers", nlayers);
    }
    uint64_t before = bloom_pool_header_bytes(pool);
    filter_free(filter);
    cr_assert_gt(before, 70 * 100);
    cr_assert_eq(bloom_pool_header_bytes(pool), 0);
}
