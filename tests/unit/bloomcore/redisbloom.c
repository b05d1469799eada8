/* Filters in RedisBloom's layout against a very simple model, and numbers that no filter has. */
#include <math.h>

#include "bloom_batch.h"
#include "bloom_merge.h"
#include "bloom_scaling.h"
#include "bloom_vector.h"
#include "murmur.h"
#include "redisbloom_rig.h"
#include "rng.h"

TestSuite(redisbloom, .init = setup, .fini = teardown);

/* ---- a model ---- */

struct model_layer {
    unsigned char *bits;
    uint64_t modulus, entries, count;
    double error;
    unsigned hashes;
};

struct model {
    struct model_layer layers[128];
    unsigned nlayers;
    uint64_t growth;
};

static void model_push(struct model *model, uint64_t entries, double error)
{
    double bpe = -log(error) / 0.480453013918201;
    uint64_t bits = (uint64_t)((double)entries * bpe);
    struct model_layer *layer = &model->layers[model->nlayers++];

    bits = (bits + (bits == 0) + 63) / 64 * 64;
    *layer = (struct model_layer){.bits = calloc(bits / 8, 1),
                                  .modulus = bits,
                                  .entries = entries,
                                  .error = error,
                                  .hashes = (unsigned)ceil(0.693147180559945 * bpe)};
}

static bool model_has(const struct model *model, struct bloom_hash hash)
{
    for (unsigned l = model->nlayers; l-- > 0;) {
        const struct model_layer *layer = &model->layers[l];
        bool all = true;

        for (uint64_t i = 0; i < layer->hashes; i++) {
            uint64_t x = (hash.h1 + i * hash.h2) % layer->modulus;
            all = all && layer->bits[x >> 3] >> (x & 7) & 1;
        }
        if (all)
            return true;
    }
    return false;
}

static enum bloom_add model_add(struct model *model, struct bloom_hash hash)
{
    struct model_layer *layer = &model->layers[model->nlayers - 1];

    if (model_has(model, hash))
        return BLOOM_PRESENT;
    if (layer->count == layer->entries) {
        if (model->growth == 0)
            return BLOOM_FULL;
        model_push(model, layer->entries * model->growth, layer->error * 0.5);
        layer++;
    }
    for (uint64_t i = 0; i < layer->hashes; i++) {
        uint64_t x = (hash.h1 + i * hash.h2) % layer->modulus;
        layer->bits[x >> 3] |= (unsigned char)(1 << (x & 7));
    }
    layer->count++;
    return BLOOM_ADDED;
}

static void expect_model(const struct model *model, const struct bloom_filter *filter)
{
    cr_assert_eq(bloom_filter_nlayers(filter), model->nlayers);
    for (unsigned i = 0; i < model->nlayers; i++) {
        const struct model_layer *layer = &model->layers[i];
        struct bloom_layer_view view;

        bloom_filter_layer(filter, i, &view);
        cr_assert_eq(view.items, layer->count);
        cr_assert_eq(view.capacity, layer->entries);
        cr_assert_eq(view.shape.k, layer->hashes);
        cr_assert_eq(bloom_shape_bytes(&view.shape) * 8, layer->modulus);
        cr_assert_arr_eq((void *)view.words, layer->bits, layer->modulus / 8);
        free(layer->bits);
    }
}

/* Batches of adds and queries of random filters, including the lowest rates and many layers. */
Test(redisbloom, equals_a_simple_model)
{
    struct rng rng;

    rng_init(&rng, 7);
    for (unsigned round = 0; round < 300; round++) {
        double rate = round % 4 == 0 ? 1e-15 : pow(10, -0.1 - (double)rng_below(&rng, 80) / 10);
        uint64_t capacity = 1 + rng_below(&rng, round % 3 == 0 ? 4000 : 40);
        uint32_t expansion = (uint32_t)rng_below(&rng, 4);
        struct bloom_filter *filter = filter_new(rate, capacity, expansion);
        struct model model = {.growth = expansion};

        model_push(&model, capacity, expansion ? rate * 0.5 : rate);
        for (unsigned step = 0; step < 40 && model.nlayers < 60; step++) {
            char keys[BLOOM_BATCH][64];
            struct bloom_item items[BLOOM_BATCH];
            struct bloom_batch batch;
            uint32_t wanted = 0, added = 0;
            size_t n = 1 + rng_below(&rng, BLOOM_BATCH), done;
            enum bloom_add refused = BLOOM_PRESENT, expected = BLOOM_PRESENT;

            for (size_t i = 0; i < n; i++) {
                size_t len = rng_below(&rng, 3) == 0 ? 2 : rng_below(&rng, sizeof(keys[i]) + 1);
                rng_fill(&rng, keys[i], len);
                items[i] = (struct bloom_item){keys[i], len};
                wanted |= (uint32_t)model_has(&model, murmur2_hash(keys[i], len)) << i;
            }
            bloom_batch_start(&batch, filter, items, n);
            cr_assert_eq(bloom_batch_query(&batch, filter), wanted);
            done = bloom_batch_add_all(&batch, 0, filter, NULL, NULL, &added, &refused);
            for (size_t i = 0; i < n && expected != BLOOM_FULL; i++) {
                expected = model_add(&model, murmur2_hash(keys[i], items[i].len));
                cr_assert_eq(i < done, expected != BLOOM_FULL);
                cr_assert_eq(added >> i & 1, expected == BLOOM_ADDED);
            }
            cr_assert_eq(refused == BLOOM_FULL, expected == BLOOM_FULL);
            for (size_t i = 0; i < n; i++)
                cr_assert_eq(query(filter, keys[i], items[i].len),
                             model_has(&model, murmur2_hash(keys[i], items[i].len)));
        }
        expect_model(&model, filter);
        filter_free(filter);
    }
}

/* ---- positions ---- */

static void expect_positions(const struct redisbloom_layer *layer, unsigned options, uint64_t modulus, struct rng *rng)
{
    static struct redisbloom_filter one;

    one = (struct redisbloom_filter){.options = options, .growth = 2, .nlayers = 1};
    one.layers[0] = *layer;
    struct bloom_filter *filter = filter_from(&one);
    struct bloom_layer_view view;
    bloom_filter_layer(filter, 0, &view);
    for (unsigned round = 0; round < 200; round++) {
        struct bloom_hash hash = {rng_next(rng), rng_next(rng)};
        if (round < 4)
            hash = (struct bloom_hash){round & 1 ? UINT64_MAX : INT64_MAX, round & 2 ? UINT64_MAX : UINT64_C(1) << 63};
        struct bloom_replay_item item = {hash, 1};
        bool all = true;

        (void)bloom_filter_replay(filter, 0, 0, &item, 1);
        for (uint64_t i = 0; i < layer->hashes; i++) {
            uint64_t x = (hash.h1 + i * hash.h2) % modulus;
            all = all && atomic_load(&view.words[x / 64]) >> x % 64 & 1;
        }
        cr_assert(all, "%llu bits, n2 %llu", (unsigned long long)layer->bits, (unsigned long long)layer->n2);
        cr_assert(bloom_filter_query(filter, hash));
        for (uint64_t w = 0; w < view.shape.nwords; w++) {
            uint64_t word = atomic_load(&view.words[w]);
            for (uint64_t i = 0; i < layer->hashes; i++) {
                uint64_t x = (hash.h1 + i * hash.h2) % modulus;
                word &= x / 64 == w ? ~(UINT64_C(1) << x % 64) : UINT64_MAX;
            }
            cr_assert_eq(word, 0);
            atomic_store(&view.words[w], 0);
        }
    }
    filter_free(filter);
}

/* Every size from one byte on, with and without vectors, by modulo and by mask. */
Test(redisbloom, positions_are_sums_of_unsigned_numbers)
{
    struct rng rng;
    bool vectors = bloom_vector_enabled;

    rng_init(&rng, 3);
    for (unsigned round = 0; round < 400; round++) {
        double bpe = 0.1 + (double)rng_below(&rng, 700) / 10;
        uint64_t bytes = round < 40 ? round + 1 : 1 + rng_below(&rng, 1u << (3 + round % 10));
        struct redisbloom_layer layer = {.entries = 100,
                                         .error = 0.01,
                                         .bpe = bpe,
                                         .hashes = (uint64_t)ceil(0.693147180559945 * bpe),
                                         .bits = bytes * 8};
        unsigned options = round % 2 ? REDISBLOOM_FORCE64 : 0;

        bloom_vector_enable(round % 3 != 0);
        expect_positions(&layer, options | REDISBLOOM_NOROUND, bytes * 8, &rng);
        for (layer.n2 = 1; UINT64_C(1) << layer.n2 <= layer.bits; layer.n2++)
            expect_positions(&layer, options, UINT64_C(1) << layer.n2, &rng);
    }
    bloom_vector_enable(vectors);
}

/* ---- hashes ---- */

/* As Appleby's published code computes them, byte by byte. */
static uint64_t slow_64a(const unsigned char *p, size_t len, uint64_t seed)
{
    const uint64_t m = UINT64_C(0xc6a4a7935bd1e995);
    uint64_t h = seed ^ len * m;

    for (; len >= 8; len -= 8, p += 8) {
        uint64_t k = 0;
        for (unsigned i = 0; i < 8; i++)
            k |= (uint64_t)p[i] << 8 * i;
        k *= m;
        k ^= k >> 47;
        k *= m;
        h ^= k;
        h *= m;
    }
    for (size_t i = len; i-- > 0;)
        h ^= (uint64_t)p[i] << 8 * i;
    if (len)
        h *= m;
    h ^= h >> 47;
    h *= m;
    return h ^ h >> 47;
}

Test(redisbloom, hashes_of_batches_equal_those_of_single_items)
{
    struct rng rng;

    rng_init(&rng, 11);
    for (unsigned round = 0; round < 3000; round++) {
        unsigned char keys[BLOOM_BATCH][80];
        struct bloom_item items[BLOOM_BATCH];
        uint64_t h1[BLOOM_BATCH], h2[BLOOM_BATCH];
        size_t n = 1 + rng_below(&rng, BLOOM_BATCH), base = rng_below(&rng, 60);

        for (size_t i = 0; i < n; i++) {
            size_t len = round % 3 == 0 ? base : round % 3 == 1 ? base + rng_below(&rng, 9) : rng_below(&rng, 81);
            rng_fill(&rng, keys[i], len);
            items[i] = (struct bloom_item){len ? (char *)keys[i] + sizeof(keys[i]) - len : NULL, len};
            if (len)
                memmove(keys[i] + sizeof(keys[i]) - len, keys[i], len);
        }
        if (bloom_vector_enabled)
            bloom_vector_hash_murmur2(items, n, h1, h2);
        for (size_t i = 0; i < n; i++) {
            struct bloom_hash hash = murmur2_hash(items[i].ptr, items[i].len);
            uint64_t slow = slow_64a((const unsigned char *)items[i].ptr, items[i].len, MURMUR2_SEED_64);

            cr_assert_eq(hash.h1, slow);
            cr_assert_eq(hash.h2, slow_64a((const unsigned char *)items[i].ptr, items[i].len, slow));
            if (bloom_vector_enabled)
                cr_assert(h1[i] == hash.h1 && h2[i] == hash.h2, "round %u, item %zu of %zu bytes", round, i,
                          items[i].len);
        }
    }
}

/* ---- numbers from outside ---- */

static struct redisbloom_filter *some_filter(void)
{
    struct redisbloom_filter *filter = calloc(1, sizeof(*filter));
    struct bloom_filter *made = filter_new(0.01, 100, 2);

    for (uint64_t i = 0; i < 500; i++)
        (void)add(made, &i, sizeof(i));
    redisbloom_describe(made, bloom_filter_nlayers(made), filter);
    filter_free(made);
    return filter;
}

/* The description of a filter gives the same filter again, with the same bits. */
Test(redisbloom, a_filter_described_is_the_same_filter_again)
{
    struct bloom_filter *filter = filter_new(0.001, 50, 3), *again;
    struct redisbloom_filter *numbers = calloc(1, sizeof(*numbers));

    for (uint64_t i = 0; i < 3000; i++)
        (void)add(filter, &i, sizeof(i));
    redisbloom_describe(filter, bloom_filter_nlayers(filter), numbers);
    again = filter_from(numbers);
    for (unsigned i = 0; i < numbers->nlayers; i++) {
        size_t bytes = (size_t)numbers->layers[i].bits / 8;
        unsigned char *copy = malloc(bytes);

        for (size_t at = 0; at < bytes; at += 13)
            bloom_filter_get_bytes(filter, i, at, copy + at, bytes - at < 13 ? bytes - at : 13);
        for (size_t at = bytes; at > 0; at -= at < 7 ? at : 7) /* backwards */
            bloom_filter_put_bytes(again, i, at - (at < 7 ? at : 7), copy + at - (at < 7 ? at : 7), at < 7 ? at : 7);
        free(copy);
    }
    expect_same("described", again, filter);
    for (uint64_t i = 3000; i < 9000; i++)
        cr_assert_eq(add(again, &i, sizeof(i)), add(filter, &i, sizeof(i)));
    expect_same("described", again, filter);
    filter_free(filter);
    filter_free(again);
    free(numbers);
}

static void expect_refused(struct redisbloom_filter *numbers, const char *reason)
{
    static struct bloom_shape shapes[BLOOM_MAX_LAYERS];
    struct bloom_params params;
    struct errbuf err = {""};
    uint64_t bytes;

    cr_assert_eq(redisbloom_check(numbers, &params, shapes, &bytes, &err), BLOOM_REFUSED, "%s", reason);
    cr_assert(strstr(err.text, reason), "'%s' in '%s'", reason, err.text);
}

#define REFUSED(change, reason)                                \
    do {                                                       \
        struct redisbloom_filter *numbers_ = some_filter();    \
        struct redisbloom_layer *layer = &numbers_->layers[1]; \
        struct redisbloom_filter *filter = numbers_;           \
        (void)layer, (void)filter;                             \
        change;                                                \
        expect_refused(numbers_, reason);                      \
        free(numbers_);                                        \
    } while (0)

Test(redisbloom, numbers_that_no_filter_has_are_refused)
{
    REFUSED(filter->options = 16, "unknown options");
    REFUSED(filter->options = UINT64_MAX, "unknown options");
    REFUSED(filter->nlayers = 0, "0 layers");
    REFUSED(filter->nlayers = UINT32_MAX, "layers");
    REFUSED(filter->growth = 0, "growth");
    REFUSED(filter->growth = UINT32_MAX, "growth");
    REFUSED(filter->options |= REDISBLOOM_NO_SCALING, "fixed size");
    REFUSED(layer->n2 = 64, "n2 64");
    REFUSED(layer->n2 = 255, "n2 255");
    REFUSED(layer->n2 = 40, "n2 is 40");
    REFUSED(layer->bits = 0, "layer 1: 0 bits");
    REFUSED(layer->bits = 12, "12 bits");
    REFUSED(layer->bits = UINT64_MAX & ~7ull, "bits");
    REFUSED(layer->bits = UINT64_C(1) << 43, "bits");
    REFUSED(layer->hashes = 0, "hash count 0");
    REFUSED(layer->hashes++, "do not belong");
    REFUSED(layer->hashes = UINT32_MAX, "hashes");
    REFUSED(layer->bpe = NAN, "do not belong");
    REFUSED(layer->bpe = INFINITY, "do not belong");
    REFUSED(layer->bpe = -layer->bpe, "do not belong");
    REFUSED(layer->error = 0, "error rate");
    REFUSED(layer->error = 1, "error rate");
    REFUSED(layer->error = NAN, "error rate");
    REFUSED(layer->entries = UINT64_MAX, "capacity");
    REFUSED(layer->count = layer->entries + 1, "items in a layer");
    REFUSED((layer->entries = 0, layer->count = 0), "capacity 0");
}

/* Old filters, sized to powers of two, grow by the rule of their options. */
Test(redisbloom, sizes_that_are_rounded_to_powers_of_two)
{
    struct bloom_shape shape;
    struct errbuf err = {""};

    cr_assert_eq(redisbloom_size(REDISBLOOM_FORCE64, 1000, 0.01, &shape, &err), BLOOM_OK, "%s", err.text);
    cr_assert_eq(shape.n2, 14); /* the filter needs 9585 bits */
    cr_assert_eq(shape.nwords, (1u << 14) / 64);
    cr_assert_eq(shape.capacity, 1000 + (uint64_t)((16384 - 9585) / shape.bpe));
    cr_assert_eq(shape.k, 7);
    cr_assert_eq(redisbloom_size(0, 1, 0.5, &shape, &err), BLOOM_OK, "%s", err.text);
    cr_assert_eq(shape.n2, 1);
    cr_assert_eq(shape.variant, BLOOM_REDISBLOOM32);
    cr_assert_eq(redisbloom_size(REDISBLOOM_ENTS_IS_BITS, 20, 0.01, &shape, &err), BLOOM_OK, "%s", err.text);
    cr_assert_eq(shape.n2, 20);
    cr_assert_eq(redisbloom_size(REDISBLOOM_ENTS_IS_BITS, 64, 0.01, &shape, &err), BLOOM_REFUSED);
    cr_assert_eq(redisbloom_size(REDISBLOOM_DEFAULT, 1000, 1e-80, &shape, &err), BLOOM_REFUSED);
    cr_assert_eq(redisbloom_size(REDISBLOOM_DEFAULT, UINT64_MAX, 0.01, &shape, &err), BLOOM_REFUSED);
}

/* The largest capacity is valid, and the next number is not. */
Test(redisbloom, the_largest_capacity_is_exact)
{
    for (double rate = 1e-15; rate < 1; rate *= 9.7) {
        struct bloom_params params = {1, rate, 2, REDISBLOOM_DEFAULT};
        struct bloom_shape shape;
        uint64_t most = bloom_first_most(&params);

        cr_assert_geq(most, 1);
        cr_assert_eq(redisbloom_size(REDISBLOOM_DEFAULT, most, rate / 2, &shape, NULL), BLOOM_OK);
        cr_assert_eq(redisbloom_size(REDISBLOOM_DEFAULT, most + 1, rate / 2, &shape, NULL), BLOOM_REFUSED);
    }
}

Test(redisbloom, layouts_are_not_mixed)
{
    struct bloom_params params = {100, 0.01, 2, REDISBLOOM_DEFAULT}, native = {100, 0.01, 2, 0};
    struct bloom_shape shape;
    struct bloom_class *class;
    struct errbuf err = {""};
    struct bloom_filter *a = filter_make(pool, &params, NULL), *b = filter_make(pool, &native, NULL);

    cr_assert_eq(redisbloom_size(REDISBLOOM_DEFAULT, 100, 0.005, &shape, &err), BLOOM_OK);
    cr_assert_eq(bloom_class_get(pool, &native, &shape, &class, &err), BLOOM_REFUSED);
    shape.variant = BLOOM_REDISBLOOM32;
    cr_assert_eq(bloom_class_get(pool, &params, &shape, &class, &err), BLOOM_REFUSED);
    cr_assert_eq(bloom_filter_append_layer(a, &shape, &err), BLOOM_REFUSED);
    cr_assert_eq(bloom_filter_append_layer(b, &shape, &err), BLOOM_REFUSED);
    cr_assert_eq(bloom_filter_same_layout(a, b, &err), BLOOM_REFUSED);
    filter_free(a);
    filter_free(b);
}
