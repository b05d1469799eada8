/* Batches compared with single calls for the same items, on a second filter of the same class. */
#include "bloom_batch.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "pool_rig.h"
#include "rng.h"

TestSuite(bloom_batch, .init = setup, .fini = teardown);

/* ---- two filters ---- */

struct pair {
    struct bloom_filter *batched, *single;
};

static struct pair pair_new(const struct bloom_params *params, const struct bloom_shape *shape)
{
    return (struct pair){filter_make(pool, params, shape), filter_make(pool, params, shape)};
}

static void pair_free(struct pair *pair)
{
    filter_free(pair->batched);
    filter_free(pair->single);
}

static void expect_same(const struct pair *pair)
{
    unsigned nlayers = bloom_filter_nlayers(pair->single);

    cr_assert_eq(bloom_filter_nlayers(pair->batched), nlayers);
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view batched, single;

        bloom_filter_layer(pair->batched, i, &batched);
        bloom_filter_layer(pair->single, i, &single);
        cr_assert_eq(batched.items, single.items, "layer %u", i);
        cr_assert_eq(memcmp((void *)batched.words, (void *)single.words, (size_t)single.shape.nwords * 8), 0,
                     "layer %u", i);
    }
}

/* ---- items ---- */

enum lengths { EQUAL, MIXED, ANY };

#define BYTES 1024

struct items {
    struct bloom_item item[BLOOM_BATCH];
    size_t n;
    char bytes[BLOOM_BATCH][BYTES];
};

static struct bloom_hash hash_of(const struct items *items, size_t i)
{
    return murmur3_hash(items->item[i].ptr, items->item[i].len);
}

/* Some new, some seen before in this run (of `seen` numbers), some twice in the batch. */
static void items_new(struct items *items, struct rng *rng, enum lengths lengths, uint64_t seen)
{
    size_t equal = rng_below(rng, 70);

    items->n = rng_below(rng, BLOOM_BATCH + 1);
    for (size_t i = 0; i < items->n; i++) {
        struct rng bytes;
        char *at = items->bytes[i] + rng_below(rng, 64);

        rng_init(&bytes, rng_below(rng, seen));
        size_t len = lengths == EQUAL ? equal : rng_below(&bytes, lengths == MIXED ? 40 : BYTES - 64);
        rng_fill(&bytes, at, len);
        items->item[i] = (struct bloom_item){len ? at : NULL, len};
        if (i > 0 && rng_below(rng, 10) == 0)
            items->item[i] = items->item[rng_below(rng, i)];
    }
}

/* ---- runs ---- */

static void add_to_both(struct pair *pair, struct bloom_hash hash)
{
    cr_assert_eq(bloom_filter_add(pair->batched, hash, NULL), bloom_filter_add(pair->single, hash, NULL));
}

static void add_one_by_one(struct pair *pair, struct bloom_batch *batch, const struct items *items)
{
    for (size_t i = 0; i < items->n; i++)
        cr_assert_eq(bloom_batch_add(batch, i, pair->batched, NULL, NULL),
                     bloom_filter_add(pair->single, hash_of(items, i), NULL));
}

/* Adds all items; continues after each refused one. */
static void add_all(struct pair *pair, const struct bloom_batch *batch, const struct items *items)
{
    for (size_t from = 0; from < items->n;) {
        enum bloom_add refused = BLOOM_PRESENT;
        uint32_t added = 0xdeadbeef;
        size_t to = bloom_batch_add_all(batch, from, pair->batched, NULL, NULL, &added, &refused);

        cr_assert(from <= to && to <= items->n);
        for (size_t i = 0; i < BLOOM_BATCH; i++) {
            if (i < from || i >= to)
                cr_assert_not(added >> i & 1, "item %zu", i);
            else
                cr_assert_eq((enum bloom_add)(added >> i & 1), bloom_filter_add(pair->single, hash_of(items, i), NULL));
        }
        if (to < items->n)
            cr_assert_eq(bloom_filter_add(pair->single, hash_of(items, to), NULL), refused);
        from = to + 1;
    }
}

static void step(struct pair *pair, struct rng *rng, enum lengths lengths, uint64_t seen)
{
    static struct items items;
    static struct bloom_batch batch;

    items_new(&items, rng, lengths, seen);
    memset(&batch, 0xee, sizeof(batch));
    bool staged = rng_below(rng, 2),
         narrow = staged && bloom_batch_start_staged(&batch, pair->batched, items.item, items.n);
    if (!staged)
        bloom_batch_start(&batch, pair->batched, items.item, items.n);
    /* Others add in between: other items, or one of these. */
    for (uint64_t others = rng_below(rng, 4); others > 0; others--)
        add_to_both(pair, (struct bloom_hash){rng_next(rng), rng_next(rng)});
    if (items.n > 0 && rng_below(rng, 4) == 0)
        add_to_both(pair, hash_of(&items, rng_below(rng, items.n)));

    if (narrow && rng_below(rng, 4)) /* items left out change no answer either */
        bloom_batch_narrow(&batch, pair->batched);

    for (unsigned round = 0; round < 2; round++) {
        uint32_t expected = 0;
        for (size_t i = 0; i < items.n; i++)
            expected |= (uint32_t)bloom_filter_query(pair->single, hash_of(&items, i)) << i;
        uint32_t answers = bloom_batch_query(&batch, pair->batched);
        cr_assert_eq(answers, expected, "%zu items: %x, %x is right", items.n, answers, expected);
        if (round == 1 || rng_below(rng, 2))
            break;
        if (rng_below(rng, 2))
            add_one_by_one(pair, &batch, &items);
        else
            add_all(pair, &batch, &items);
    }
}

static void run(const struct bloom_params *params, const struct bloom_shape *shape, unsigned steps, uint64_t seed)
{
    struct pair pair = pair_new(params, shape);
    struct rng rng;

    rng_init(&rng, seed);
    for (unsigned i = 0; i < steps; i++)
        step(&pair, &rng, (enum lengths)rng_below(&rng, 3), 1 + seed % 3 * 700);
    expect_same(&pair);
    pair_free(&pair);
}

Test(bloom_batch, answers_as_the_items_one_by_one_while_the_filter_grows)
{
    static const struct bloom_params rows[] = {{1, 0.5, 0},    {1, 0.01, 2}, {10, 0.01, 2},    {100, 0.001, 2},
                                               {300, 0.01, 0}, {7, 0.1, 3},  {500, 0.2, 1},    {1000, 0.01, 4},
                                               {2, 0.1, 1000}, {3, 0.9, 2},  {30000, 0.05, 0}, {5, 1e-5, 2}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (uint64_t seed = 0; seed < 6; seed++)
            run(&rows[i], NULL, 60, seed);
}

Test(bloom_batch, answers_as_the_items_one_by_one_for_every_hash_count_and_variant)
{
    static const uint64_t sizes[] = {1, 63, 64, 1000, 150000};

    for (unsigned k = 1; k <= BLOOM_MAX_K; k++) {
        for (unsigned variant = BLOOM_NA; variant <= BLOOM_KA; variant++) {
            for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
                run(&(struct bloom_params){UINT64_MAX, 0.01, 0},
                    &(struct bloom_shape){sizes[i], (uint8_t)k, (uint8_t)variant}, 20, k * 3 + variant);
        }
    }
}

/* The half of the batch code that prefetches words. The filters grow to more than the cache and back to less. */
Test(bloom_batch, answers_as_the_items_one_by_one_beyond_the_cache)
{
    static const struct bloom_shape shapes[] = {
        {3000000, 7, BLOOM_NA}, {3000001, 21, BLOOM_ME}, {2500000, 8, BLOOM_KA}};

    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        run(&(struct bloom_params){UINT64_MAX, 0.01, 0}, &shapes[i], 40, i);
        run(&(struct bloom_params){100, 0.01, 2}, &shapes[i], 40, i + 3);
    }
}

/* With staged starts. The second kind of filter grows by layers that are not staged and fit the cache. */
Test(bloom_batch, answers_as_the_items_one_by_one_beyond_the_last_cache)
{
    static const struct bloom_shape shapes[] = {{5000000, 7, BLOOM_NA},
                                                {5000001, 2, BLOOM_ME},
                                                {4500000, 3, BLOOM_KA},
                                                {4500000, 1, BLOOM_NA},
                                                {5000000, 21, BLOOM_KA}};

    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        run(&(struct bloom_params){UINT64_MAX, 0.01, 0}, &shapes[i], 30, i);
        run(&(struct bloom_params){100, 0.01, 2}, &shapes[i], 30, i + 3);
    }
}

/* Stages are for items that come from memory, and leave something to the second one. */
Test(bloom_batch, is_staged_beyond_the_last_cache_only)
{
    static const struct row {
        struct bloom_shape shape;
        bool staged;
    } rows[] = {{{5000000, 7, BLOOM_NA}, true},  {{5000000, 3, BLOOM_NA}, true}, {{5000000, 2, BLOOM_NA}, false},
                {{4194304, 7, BLOOM_NA}, false}, {{4194305, 7, BLOOM_NA}, true}, {{1000, 7, BLOOM_NA}, false}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct bloom_filter *filter = filter_make(pool, &(struct bloom_params){UINT64_MAX, 0.01, 0}, &rows[i].shape);
        struct bloom_item item = {"item", 4};
        struct bloom_batch batch;

        cr_expect_eq(bloom_batch_start_staged(&batch, filter, &item, 1), rows[i].staged, "row %zu", i);
        filter_free(filter);
    }
}

Test(bloom_batch, knows_which_filters_are_beyond_the_cache)
{
    struct pair small = pair_new(&(struct bloom_params){1000, 0.01, 2}, NULL);
    struct pair large = pair_new(&(struct bloom_params){1000000000, 0.01, 2}, NULL);

    cr_expect_not(bloom_filter_beyond_cache(small.single));
    cr_expect(bloom_filter_beyond_cache(large.single));
    pair_free(&small);
    pair_free(&large);
}

/* ---- many items ---- */

enum { MANY = 200 };

struct asked {
    struct pair pair;
    struct rng rng;
    size_t n, next, stop; /* after `stop` items answer() refuses */
    bool absent;
    size_t len[MANY];
};

static char many_bytes[70000];

static struct bloom_item many_item(const void *ctx, size_t i)
{
    const struct asked *asked = ctx;
    cr_assert_lt(i, asked->n);
    return (struct bloom_item){many_bytes + i * 8, asked->len[i]};
}

/* Between two batches others add, also items that have been started. */
static bool many_answer(void *ctx, size_t next, uint32_t present, size_t n)
{
    struct asked *asked = ctx;
    size_t first = next - n;
    cr_assert(first == asked->next && n >= 1 && n <= BLOOM_BATCH && first + n <= asked->n);
    for (size_t i = 0; i < n; i++) {
        struct bloom_item item = many_item(asked, first + i);
        cr_assert_eq(present >> i & 1, bloom_filter_query(asked->pair.single, murmur3_hash(item.ptr, item.len)));
    }
    asked->next += n;
    if (asked->next < asked->n && rng_below(&asked->rng, 2)) {
        struct bloom_item item = many_item(asked, asked->next + rng_below(&asked->rng, asked->n - asked->next));
        add_to_both(&asked->pair, murmur3_hash(item.ptr, item.len));
    }
    return asked->next < asked->stop;
}

static void ask_many(struct asked *asked, bool long_items)
{
    asked->n = rng_below(&asked->rng, MANY + 1);
    asked->next = 0;
    asked->stop = rng_below(&asked->rng, 4) ? asked->n : rng_below(&asked->rng, asked->n + 1);
    for (size_t i = 0; i < asked->n; i++) {
        asked->len[i] = long_items && rng_below(&asked->rng, 8) == 0 ? 66000 : rng_below(&asked->rng, 60);
        struct bloom_item item = many_item(asked, i);
        if (!asked->absent && rng_below(&asked->rng, 10))
            add_to_both(&asked->pair, murmur3_hash(item.ptr, item.len));
    }
    rng_fill(&asked->rng, many_bytes, asked->absent ? sizeof(many_bytes) : 8);
    bloom_query_all(asked->pair.batched, &(struct bloom_questions){0, asked->n, many_item, asked, many_answer, asked,
                                                                   rng_below(&asked->rng, 2)});
    cr_assert(asked->n == 0 || (asked->next >= asked->stop && (asked->stop < asked->n || asked->next == asked->n)));
}

Test(bloom_batch, many_items_have_the_answers_of_single_ones)
{
    static const uint64_t capacities[] = {100, 400000, 40000000}; /* the last one's words are beyond the last cache */
    for (size_t i = 0; i < sizeof(capacities) / sizeof(*capacities); i++) {
        struct asked asked = {.pair = pair_new(&(struct bloom_params){capacities[i], 0.01, 2}, NULL)};
        rng_init(&asked.rng, i);
        for (unsigned round = 0; round < 60; round++) {
            asked.absent = round / 4 % 2;
            ask_many(&asked, round % 5 == 0);
        }
        pair_free(&asked.pair);
    }
}

/* ---- journal ---- */

struct told {
    struct bloom_filter *filter;
    struct bloom_hash hash[100];
    uint64_t n;
};

static void note_add(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    struct told *told = ctx;

    cr_assert_eq(id, 7);
    cr_assert_eq(layer, 0);
    cr_assert_eq(ordinal, told->n + 1);
    cr_assert_not(bloom_filter_query(told->filter, hash), "the bits are there before the journal knows");
    told->hash[told->n++] = hash;
}

static int note_grow(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, struct errbuf *err)
{
    (void)ctx, (void)id, (void)layer, (void)shape, (void)err;
    return 0;
}

Test(bloom_batch, tells_the_journal_of_each_item_once_and_before_its_bits_are_set)
{
    static const struct bloom_journal_ops ops = {note_add, note_grow};
    struct pair pair = pair_new(&(struct bloom_params){40, 1e-6, 0}, NULL);
    struct told told = {.filter = pair.batched};
    struct bloom_journal journal = {&ops, &told, 7};
    char bytes[48];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)(100 + i * 3);
    for (unsigned round = 0; round < 3; round++) { /* 48 items, each twice; 40 have room */
        struct bloom_item items[BLOOM_BATCH];
        struct bloom_batch batch;

        for (size_t i = 0; i < BLOOM_BATCH; i++)
            items[i] = (struct bloom_item){bytes + round * 16 + i / 2, 1};
        bloom_batch_start(&batch, pair.batched, items, BLOOM_BATCH);
        if (round % 2) {
            for (size_t i = 0; i < BLOOM_BATCH; i++)
                bloom_batch_add(&batch, i, pair.batched, &journal, NULL);
        } else {
            uint32_t added;
            enum bloom_add refused;
            bloom_batch_add_all(&batch, 0, pair.batched, &journal, NULL, &added, &refused);
        }
    }
    cr_assert_eq(told.n, bloom_filter_items(pair.batched));
    cr_assert_eq(told.n, 40);
    for (uint64_t i = 0; i < told.n; i++)
        cr_assert(bloom_filter_query(pair.batched, told.hash[i]));
    pair_free(&pair);
}
