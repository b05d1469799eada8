/* The filter against a model as simple as the contract: per layer a plain bit array, signed remainders, counts. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "filters.h"
#include "bloom_batch.h"
#include "bloom_layer.h"
#include "bloom_state.h"
#include "rng.h"
#include "pool_rig.h"

/* The destruction of the pool checks that every class is released and every byte is given back. */
TestSuite(bloom_filter, .init = setup, .fini = teardown);

static struct bloom_filter *filter_new_shaped(uint64_t capacity, double rate, uint32_t expansion,
                                              const struct bloom_shape *shape)
{
    return filter_make(pool, &(struct bloom_params){capacity, rate, expansion}, shape);
}

static struct bloom_filter *filter_new(uint64_t capacity, double rate, uint32_t expansion)
{
    return filter_new_shaped(capacity, rate, expansion, NULL);
}

/* ---- model ---- */

#define MODEL_LAYERS 14

struct model_layer {
    struct bloom_shape shape;
    uint64_t capacity, items;
    uint64_t words[4096];
};

struct model {
    struct bloom_params params;
    unsigned nlayers;
    struct model_layer layers[MODEL_LAYERS];
};

static uint64_t model_index(uint64_t base, uint64_t bits)
{
    int64_t remainder = (int64_t)base % (int64_t)bits;

    return (uint64_t)(remainder < 0 ? -remainder : remainder);
}

/* Returns whether all bits are set; sets them with `set`. */
static bool model_touch(struct model_layer *layer, struct bloom_hash hash, bool set)
{
    uint64_t base = layer->shape.variant == BLOOM_KA ? hash.h1 : hash.h2;
    uint64_t step = layer->shape.variant == BLOOM_KA ? hash.h2 : hash.h1;
    bool all = true;

    for (unsigned i = 0; i < layer->shape.k; i++, base += step) {
        uint64_t bit = model_index(base, layer->shape.nwords * 64);

        all = all && (layer->words[bit / 64] >> (bit % 64) & 1);
        if (set)
            layer->words[bit / 64] |= UINT64_C(1) << (bit % 64);
    }
    return all;
}

static void model_push(struct model *model)
{
    cr_assert_lt(model->nlayers, MODEL_LAYERS);
    unsigned i = model->nlayers++;
    struct model_layer *layer = &model->layers[i];
    uint64_t capacity = model->params.capacity;
    struct bloom_size size;

    for (unsigned j = 0; j < i; j++)
        capacity *= model->params.expansion;
    double rate =
        model->params.expansion == 0 ? model->params.error_rate : model->params.error_rate / ((i + 1.0) * (i + 2.0));
    cr_assert_eq(bloom_size_plan(capacity, rate, &size, NULL), BLOOM_SIZE_OK);
    cr_assert_leq(size.nwords, 4096);
    *layer = (struct model_layer){.shape = {size.nwords, (uint8_t)size.k, BLOOM_NA}, .capacity = capacity};
}

static bool model_query(struct model *model, struct bloom_hash hash)
{
    for (unsigned i = 0; i < model->nlayers; i++) {
        if (model_touch(&model->layers[i], hash, false))
            return true;
    }
    return false;
}

static enum bloom_add model_add(struct model *model, struct bloom_hash hash)
{
    if (model_query(model, hash))
        return BLOOM_PRESENT;
    if (model->layers[model->nlayers - 1].items == model->layers[model->nlayers - 1].capacity) {
        if (model->params.expansion == 0)
            return BLOOM_FULL;
        model_push(model);
    }
    model_touch(&model->layers[model->nlayers - 1], hash, true);
    model->layers[model->nlayers - 1].items++;
    return BLOOM_ADDED;
}

static void expect_equal(const struct bloom_filter *filter, const struct model *model)
{
    uint64_t items = 0, capacity = 0, set = 0;
    struct bloom_state state;

    cr_assert_eq(bloom_filter_nlayers(filter), model->nlayers);
    for (unsigned i = 0; i < model->nlayers; i++) {
        const struct model_layer *layer = &model->layers[i];
        struct bloom_layer_view view;

        bloom_filter_layer(filter, i, &view);
        cr_assert(view.shape.nwords == layer->shape.nwords && view.shape.k == layer->shape.k);
        cr_assert_eq(view.items, layer->items);
        cr_assert_eq(view.capacity, layer->capacity);
        cr_assert_eq(memcmp((void *)view.words, layer->words, layer->shape.nwords * 8), 0);
        items += layer->items;
        capacity += layer->capacity;
        for (uint64_t w = 0; w < layer->shape.nwords; w++)
            set += (uint64_t)__builtin_popcountll(layer->words[w]);
    }
    cr_assert_eq(bloom_filter_items(filter), items);
    cr_assert_eq(bloom_filter_capacity(filter), capacity);
    bloom_filter_state(filter, &state);
    cr_assert_eq(state.bits_set, set);
}

/* A batch of one item that is open while others are added. */
struct pending {
    struct bloom_batch batch;
    struct bloom_hash hash;
};

static void pending_start(struct pending *pending, const struct bloom_filter *filter, struct rng *rng)
{
    uint64_t key = rng_below(rng, 10000);

    pending->hash = murmur3_hash(&key, sizeof(key));
    bloom_batch_start(&pending->batch, filter, &(struct bloom_item){(const char *)&key, sizeof(key)}, 1);
}

/* A random sequence of adds and queries, in single calls and through batches started before other operations (up to
 * eight are open at once, across growths). Answers and bits are those of the model at every step. */
static void run_against_model(uint64_t capacity, double rate, uint32_t expansion, unsigned adds, uint64_t seed)
{
    static struct model model;
    struct bloom_filter *filter = filter_new(capacity, rate, expansion);
    struct pending open[8];
    struct bloom_hash *known = malloc(adds * sizeof(*known));
    unsigned nknown = 0;
    struct rng rng;

    rng_init(&rng, seed);
    model = (struct model){.params = {capacity, rate, expansion}};
    model_push(&model);
    for (unsigned i = 0; i < 8; i++)
        pending_start(&open[i], filter, &rng);

    for (unsigned step = 0; nknown < adds && step < 6 * adds; step++) {
        bool again = nknown > 0 && rng_below(&rng, 3) == 0;
        struct bloom_hash hash = again ? known[rng_below(&rng, nknown)] : hash_of_rng(&rng);
        struct pending *pending = &open[rng_below(&rng, 8)];

        switch (rng_below(&rng, 4)) {
        case 0:
            cr_assert_eq(bloom_filter_query(filter, hash), model_query(&model, hash));
            break;
        case 1:
            cr_assert_eq(bloom_batch_query(&pending->batch, filter) != 0, model_query(&model, pending->hash));
            pending_start(pending, filter, &rng);
            break;
        case 2:
            cr_assert_eq(bloom_filter_add(filter, hash, NULL), model_add(&model, hash));
            known[nknown++] = hash;
            break;
        default:
            cr_assert_eq(bloom_batch_add(&pending->batch, 0, filter, NULL, NULL), model_add(&model, pending->hash));
            known[nknown++] = pending->hash;
            pending_start(pending, filter, &rng);
        }
    }
    expect_equal(filter, &model);
    free(known);
    filter_free(filter);
}

Test(bloom_filter, behaves_as_the_model)
{
    static const struct {
        uint64_t capacity;
        double rate;
        uint32_t expansion;
        unsigned adds;
    } rows[] = {
        {1, 0.5, 0, 10},     {1, 0.5, 1, 12},       {1, 0.01, 2, 300}, {10, 0.01, 2, 2000},   {100, 0.001, 2, 3000},
        {100, 0.01, 0, 300}, {7, 0.1, 3, 2000},     {50, 0.2, 1, 500}, {1000, 0.01, 4, 9000}, {2, 0.1, 1000, 1500},
        {3, 0.9, 2, 1000},   {2000, 0.05, 0, 4000}, {5, 1e-5, 2, 300},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (uint64_t seed = 0; seed < 5; seed++)
            run_against_model(rows[i].capacity, rows[i].rate, rows[i].expansion, rows[i].adds, seed);
}

/* ---- capacity and growth ---- */

/* Adds random items until `n` were new. */
static void fill(struct bloom_filter *filter, struct rng *rng, uint64_t n)
{
    while (n > 0) {
        enum bloom_add answer = bloom_filter_add(filter, hash_of_rng(rng), NULL);

        cr_assert(answer == BLOOM_ADDED || answer == BLOOM_PRESENT);
        n -= answer == BLOOM_ADDED;
    }
}

Test(bloom_filter, a_fixed_filter_takes_its_capacity_and_not_one_more)
{
    static const uint64_t capacities[] = {1, 2, 63, 64, 1000, 30000};

    for (size_t i = 0; i < sizeof(capacities) / sizeof(*capacities); i++) {
        struct bloom_filter *filter = filter_new(capacities[i], 0.01, 0);
        struct bloom_hash first = {1, 2};
        struct rng rng;
        uint64_t full = 0;

        rng_init(&rng, 41);
        cr_assert_eq(bloom_filter_add(filter, first, NULL), BLOOM_ADDED);
        fill(filter, &rng, capacities[i] - 1);
        cr_assert_eq(bloom_filter_items(filter), capacities[i]);
        /* Absent items are refused and stay absent; present items stay present. */
        for (int j = 0; j < 1000; j++) {
            struct bloom_hash hash = hash_of_rng(&rng);
            bool present = bloom_filter_query(filter, hash);

            cr_assert_eq(bloom_filter_add(filter, hash, NULL), present ? BLOOM_PRESENT : BLOOM_FULL);
            cr_assert_eq(bloom_filter_query(filter, hash), present);
            full += !present;
        }
        cr_assert_gt(full, 900);
        cr_assert_eq(bloom_filter_add(filter, first, NULL), BLOOM_PRESENT);
        cr_assert_eq(bloom_filter_items(filter), capacities[i]);
        cr_assert_eq(bloom_filter_nlayers(filter), 1);
        filter_free(filter);
    }
}

Test(bloom_filter, a_layer_is_added_by_the_first_item_above_its_capacity)
{
    static const uint32_t expansions[] = {1, 2, 3, BLOOM_MAX_EXPANSION};

    for (size_t i = 0; i < sizeof(expansions) / sizeof(*expansions); i++) {
        struct bloom_filter *filter = filter_new(10, 0.01, expansions[i]);
        uint64_t capacity = 10, sum = 10;
        struct rng rng;

        rng_init(&rng, 42);
        for (unsigned layers = 1; layers <= (expansions[i] > 100 ? 1u : 6u); layers++) {
            struct bloom_layer_view view;

            fill(filter, &rng, sum - bloom_filter_items(filter) - 1);
            cr_assert_eq(bloom_filter_nlayers(filter), layers);
            fill(filter, &rng, 1);
            cr_assert_eq(bloom_filter_nlayers(filter), layers);
            fill(filter, &rng, 1);
            cr_assert_eq(bloom_filter_nlayers(filter), layers + 1);

            capacity *= expansions[i];
            sum += capacity;
            cr_assert_eq(bloom_filter_capacity(filter), sum);
            cr_assert_eq(bloom_filter_items(filter), sum - capacity + 1);
            bloom_filter_layer(filter, layers, &view);
            cr_assert_eq(view.capacity, capacity);
            cr_assert_eq(view.items, 1);
            cr_assert_eq(view.error_rate, 0.01 / ((layers + 1) * (layers + 2)));
        }
        filter_free(filter);
    }
}

Test(bloom_filter, a_filter_has_at_most_1024_layers)
{
    struct bloom_filter *filter = filter_new(1, 0.5, 1);
    struct errbuf err = {""};
    struct rng rng;

    /* Shapes as in a file, large enough that nothing is present by chance; planned ones would need gigabytes for such
     * rates in tiny filters. */
    for (unsigned i = 1; i < BLOOM_MAX_LAYERS; i++)
        cr_assert_eq(bloom_filter_append_layer(filter, &(struct bloom_shape){64, 7, BLOOM_NA}, &err), 0, "%s",
                     err.text);
    cr_assert_eq(bloom_filter_append_layer(filter, &(struct bloom_shape){64, 7, BLOOM_NA}, &err), BLOOM_REFUSED);
    cr_assert_str_eq(err.text, "a filter has at most 1024 layers");
    rng_init(&rng, 43);
    cr_assert_eq(bloom_filter_add(filter, hash_of_rng(&rng), &err), BLOOM_ADDED);
    cr_assert_eq(bloom_filter_add(filter, hash_of_rng(&rng), &err), BLOOM_NO_ROOM);
    cr_assert_str_eq(err.text, "a filter has at most 1024 layers");
    cr_assert_eq(bloom_filter_nlayers(filter), 1024);
    filter_free(filter);
}

/* Growth without memory is refused each time, with the reason, and changes nothing. */
Test(bloom_filter, growth_beyond_what_a_file_can_hold_has_no_room)
{
    struct bloom_filter *filter = filter_new(UINT64_C(1) << 30, 0.01, BLOOM_MAX_EXPANSION);
    struct bloom_hash item = {3, 4};
    struct errbuf err = {""};

    cr_assert_eq(bloom_filter_add(filter, item, &err), BLOOM_ADDED);
    bloom_filter_set_items(filter, 0, UINT64_C(1) << 30);
    for (int i = 0; i < 2; i++) {
        err.text[0] = '\0';
        cr_assert_eq(bloom_filter_add(filter, (struct bloom_hash){5, 6}, &err), BLOOM_NO_ROOM);
        cr_assert_eq(strncmp(err.text,
                             "cannot grow by layer 1 (capacity 35184372088832, error rate 0.00166667): capacity must "
                             "be in the range [1, ",
                             107),
                     0, "%s", err.text);
        cr_assert_eq(bloom_filter_add(filter, item, &err), BLOOM_PRESENT);
        cr_assert_eq(bloom_filter_nlayers(filter), 1);
    }
    filter_free(filter);
}

Test(bloom_filter, growth_whose_capacity_overflows_has_no_room)
{
    struct bloom_shape shape = {16, 5, BLOOM_NA};
    struct bloom_filter *filter = filter_new_shaped(UINT64_C(1) << 49, 0.01, BLOOM_MAX_EXPANSION, &shape);
    struct errbuf err = {""};

    bloom_filter_set_items(filter, 0, UINT64_C(1) << 49);
    cr_assert_eq(bloom_filter_add(filter, (struct bloom_hash){5, 6}, &err), BLOOM_NO_ROOM);
    cr_assert_str_eq(err.text, "capacity 562949953421312 times expansion 32768 is more than 64 bits hold");
    cr_assert_eq(bloom_filter_append_layer(filter, &shape, &err), BLOOM_REFUSED);
    filter_free(filter);
}

/* The file of a saved filter does not state the hash order: all layers have the same. */
Test(bloom_filter, layers_are_of_one_variant)
{
    for (uint8_t own = BLOOM_NA; own <= BLOOM_KA; own++) {
        struct bloom_shape shape = {16, 5, own};
        struct bloom_filter *filter = filter_new_shaped(100, 0.01, 2, &shape);
        struct errbuf err = {""};

        for (shape.variant = BLOOM_NA; shape.variant <= BLOOM_KA; shape.variant++)
            cr_assert_eq(bloom_filter_append_layer(filter, &shape, &err),
                         shape.variant == own ? BLOOM_OK : BLOOM_REFUSED);
        cr_assert_eq(bloom_filter_nlayers(filter), 2);
        cr_assert(strstr(err.text, "variant"));
        filter_free(filter);
    }
}

Test(bloom_filter, a_fixed_filter_takes_no_second_layer)
{
    struct bloom_filter *filter = filter_new(10, 0.01, 0);
    struct errbuf err = {""};

    cr_assert_eq(bloom_filter_append_layer(filter, &(struct bloom_shape){1, 1, BLOOM_NA}, &err), BLOOM_REFUSED);
    cr_assert_str_eq(err.text, "a filter of fixed size has one layer");
    filter_free(filter);
}

/* ---- loading ---- */

/* Layers of any shape, inline and not, with words written through the view: the copy gives the answers of the
 * original. */
Test(bloom_filter, a_copy_made_layer_by_layer_equals_the_original)
{
    struct bloom_filter *filter = filter_new(20, 0.01, 3), *copy = NULL;
    struct bloom_layer_view from, to;
    struct rng rng;

    rng_init(&rng, 44);
    fill(filter, &rng, 20000);
    for (unsigned i = 0; i < bloom_filter_nlayers(filter); i++) {
        bloom_filter_layer(filter, i, &from);
        if (i == 0)
            copy = filter_new_shaped(20, 0.01, 3, &from.shape);
        else
            cr_assert_eq(bloom_filter_append_layer(copy, &from.shape, NULL), 0);
        bloom_filter_layer(copy, i, &to);
        cr_assert(to.capacity == from.capacity && to.error_rate == from.error_rate && to.items == 0);
        for (uint64_t w = 0; w < from.shape.nwords; w++) {
            cr_assert_eq(atomic_load(&to.words[w]), 0);
            atomic_store(&to.words[w], atomic_load(&from.words[w]));
        }
        bloom_filter_set_items(copy, i, from.items);
    }
    cr_assert_eq(bloom_filter_items(copy), 20000);
    cr_assert_eq(bloom_filter_memory(copy), bloom_filter_memory(filter));
    for (int i = 0; i < 100000; i++) {
        struct bloom_hash hash = hash_of_rng(&rng);
        cr_assert_eq(bloom_filter_query(filter, hash), bloom_filter_query(copy, hash));
    }
    for (int i = 0; i < 30000; i++) {
        struct bloom_hash hash = hash_of_rng(&rng);
        cr_assert_eq(bloom_filter_add(filter, hash, NULL), bloom_filter_add(copy, hash, NULL));
    }
    filter_free(filter);
    filter_free(copy);
}

Test(bloom_filter, what_is_no_shape_is_refused)
{
    struct bloom_filter *filter = filter_new(10, 0.01, 2);
    struct errbuf err = {""};

    cr_assert_eq(bloom_filter_append_layer(filter, &(struct bloom_shape){0, 1, 0}, &err), BLOOM_REFUSED);
    cr_assert_str_eq(err.text, "0 words: must be in the range [1, 2147483647]");
    cr_assert_eq(bloom_filter_append_layer(filter, &(struct bloom_shape){1, 22, 0}, &err), BLOOM_REFUSED);
    cr_assert_eq(bloom_filter_nlayers(filter), 1);
    filter_free(filter);
}

/* An imported filter of the oldest variant grows by layers of the same variant. */
Test(bloom_filter, grown_layers_keep_the_hash_order)
{
    struct bloom_shape shape = {10, 5, BLOOM_KA};
    struct bloom_filter *filter = filter_new_shaped(50, 0.01, 2, &shape);
    struct bloom_layer_view view;
    struct rng rng;

    rng_init(&rng, 45);
    fill(filter, &rng, 51);
    bloom_filter_layer(filter, 1, &view);
    cr_assert_eq(view.shape.variant, BLOOM_KA);
    filter_free(filter);
}

/* ---- memory and state ---- */

/* A million small filters: the memory of one, with its header, without its name. */
Test(bloom_filter, a_small_filter_costs_24_bytes_beside_its_bits)
{
    struct bloom_params params = {100, 0.01, 2};
    struct bloom_class *class;
    struct bloom_filter *filter = filter_new(100, 0.01, 2);
    struct bloom_layer_view view;

    cr_assert_eq(bloom_class_get(pool, &params, NULL, &class, NULL), 0);
    bloom_filter_layer(filter, 0, &view);
    cr_assert_eq(bloom_filter_bytes(class), 24 + 8 * view.shape.nwords);
    cr_assert_eq(bloom_filter_memory(filter), bloom_filter_bytes(class));
    cr_assert_eq(bloom_pool_bytes(pool), 8 * view.shape.nwords);
    bloom_class_release(class);
    filter_free(filter);
}

/* 16 GB, the largest file: made, used and freed without 16 GB of memory or a second of time. */
Test(bloom_filter, the_largest_filter_costs_nothing_until_it_is_used)
{
    struct bloom_shape shape = {BLOOM_MAX_WORDS, 21, BLOOM_NA};
    struct bloom_filter *filter = filter_new_shaped(1000, 0.01, 0, &shape);
    struct bloom_layer_view view;
    struct rng rng;

    cr_assert_eq(bloom_pool_bytes(pool), BLOOM_MAX_WORDS * 8);
    bloom_filter_layer(filter, 0, &view);
    cr_expect_eq((uintptr_t)view.room % (2 << 20), 0);
    cr_expect_eq((uintptr_t)view.words, (uintptr_t)view.room + BLOOM_ROOM_HEAD);
    rng_init(&rng, 46);
    for (int i = 0; i < 10; i++) {
        struct bloom_hash hash = hash_of_rng(&rng);
        cr_assert_eq(bloom_filter_add(filter, hash, NULL), BLOOM_ADDED);
        cr_assert(bloom_filter_query(filter, hash));
    }
    atomic_fetch_or(&view.words[BLOOM_MAX_WORDS - 1], 1);
    filter_free(filter);
    cr_assert_eq(bloom_pool_bytes(pool), 0);
}

Test(bloom_filter, state_is_computed_from_the_bits)
{
    struct bloom_filter *filter = filter_new(10000, 0.01, 2);
    struct bloom_state state;
    struct rng rng;

    bloom_filter_state(filter, &state);
    cr_assert(state.bits_set == 0 && state.fill_ratio == 0 && state.rate == 0 && state.estimated_items == 0);
    rng_init(&rng, 47);
    for (int filled = 1000; filled <= 60000; filled += 1000) {
        unsigned positives = 0;

        fill(filter, &rng, 1000);
        bloom_filter_state(filter, &state);
        cr_assert_float_eq(state.estimated_items, filled, 0.02 * filled, "%d: %g", filled, state.estimated_items);
        cr_assert_float_eq(state.fill_ratio, (double)state.bits_set / (double)state.bits, 1e-12);
        for (int i = 0; i < 100000; i++)
            positives += bloom_filter_query(filter, hash_of_rng(&rng));
        double expected = 1e5 * state.rate;
        cr_assert_float_eq(positives, expected, 5.2 * sqrt(expected) + 5, "%d: %u, expected %g", filled, positives,
                           expected);
    }
    filter_free(filter);
}

/* Every number of words around the stride of the counting, with random bits and with all bits set. */
Test(bloom_filter, bits_are_counted_exactly)
{
    struct rng rng;

    rng_init(&rng, 48);
    for (uint64_t nwords = 1; nwords <= 600; nwords++) {
        struct bloom_filter *filter = filter_new_shaped(10, 0.01, 0, &(struct bloom_shape){nwords, 3, BLOOM_NA});
        struct bloom_layer_view view;
        struct bloom_state state;
        uint64_t set = 0;

        bloom_filter_layer(filter, 0, &view);
        for (uint64_t i = 0; i < nwords; i++) {
            uint64_t word = rng_next(&rng);
            atomic_store(&view.words[i], word);
            set += (uint64_t)__builtin_popcountll(word);
        }
        bloom_filter_state(filter, &state);
        cr_assert_eq(state.bits_set, set);
        for (uint64_t i = 0; i < nwords; i++)
            atomic_store(&view.words[i], UINT64_MAX);
        bloom_filter_state(filter, &state);
        cr_assert_eq(state.bits_set, nwords * 64);
        cr_assert(state.rate == 1 && isfinite(state.estimated_items) && state.estimated_items > (double)nwords * 64);
        filter_free(filter);
    }
}

/* ---- adds that meet ---- */

static void grow_to(struct bloom_filter *filter, struct rng *rng, unsigned index)
{
    while (bloom_filter_nlayers(filter) <= index)
        (void)bloom_filter_add(filter, hash_of_rng(rng), NULL);
}

/* Three adders have tested for an item without finding it, with layer `tested` as the newest: a single add, a batch,
 * and a third one whose add goes into layer `in`. Then the filter grows to layer `newest`. The first two find the
 * item. */
static void adds_meet(unsigned tested, unsigned in, unsigned newest)
{
    static const struct bloom_item items[] = {{"first", 5}, {"item", 4}};
    struct bloom_hash hash = murmur3_hash("item", 4), other = murmur3_hash("other", 5);
    struct bloom_filter *filter = filter_new(8, 0.0001, 2);
    uint64_t bit[BLOOM_PROBE_BITS], other_bit[BLOOM_PROBE_BITS];
    struct bloom_batch batch;
    struct rng rng;

    rng_init(&rng, 100 * tested + 10 * in + newest);
    grow_to(filter, &rng, tested);
    const struct bloom_layer *layer = bloom_filter_newest(filter);
    bloom_layer_bits(layer, hash, bit);
    bloom_layer_bits(layer, other, other_bit);
    bloom_batch_start(&batch, filter, items, 2);
    cr_assert_eq(bloom_batch_add(&batch, 0, filter, NULL, NULL), BLOOM_ADDED);
    cr_assert_eq(bloom_filter_newest(filter), layer);
    grow_to(filter, &rng, in);
    cr_assert_eq(bloom_filter_add(filter, hash, NULL), BLOOM_ADDED);
    grow_to(filter, &rng, newest);
    cr_assert_eq(bloom_filter_nlayers(filter), newest + 1);
    cr_expect_eq(bloom_filter_add_absent(filter, hash, layer, bit, NULL, NULL), BLOOM_PRESENT, "%u %u %u", tested, in,
                 newest);
    cr_expect_eq(bloom_batch_add(&batch, 1, filter, NULL, NULL), BLOOM_PRESENT, "%u %u %u", tested, in, newest);
    cr_expect_eq(bloom_filter_add_absent(filter, other, layer, other_bit, NULL, NULL), BLOOM_ADDED);
    cr_expect_eq(bloom_filter_add_absent(filter, other, layer, other_bit, NULL, NULL), BLOOM_PRESENT);
    filter_free(filter);
}

Test(bloom_filter, an_item_that_came_after_the_test_is_found_whichever_layer_has_it)
{
    for (unsigned tested = 0; tested < 4; tested++) {
        for (unsigned in = tested; in < 5; in++) {
            for (unsigned newest = in; newest < 6; newest++)
                adds_meet(tested, in, newest);
        }
    }
}
