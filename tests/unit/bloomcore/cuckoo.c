/* Cuckoo filters: after any operation the slots are those of a simple model, byte for byte; a replayed journal gives
 * the same bytes, from an empty filter or from a copy; a refused growth changes nothing; memory is given back. */
#include "bloom_resident.h"
#include "cuckoo.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "cuckoo_model.h"
#include "filters.h"
#include "rng.h"

#define OPERATIONS_MAX 400000

static struct bloom_pool *pool;
static struct bloom_replay_item *operations; /* with full ordinals */
static size_t noperations;

/* Whether these are bytes of one layer. */
static bool has_bytes(const struct bloom_filter *filter, uint64_t at, uint64_t len)
{
    unsigned layer;
    uint64_t left;

    return bloom_filter_find_byte(filter, &at, &layer, &left) && len <= left;
}

static void setup(void)
{
    cr_assert_eq(bloom_pool_create(&pool), 0);
    operations = malloc(OPERATIONS_MAX * sizeof(operations[0]));
    cr_assert_not_null(operations);
    noperations = 0;
}

static void teardown(void)
{
    cr_assert_eq(bloom_pool_bytes(pool), 0);
    cr_assert_eq(bloom_pool_header_bytes(pool), 0);
    bloom_pool_destroy(pool);
    free(operations);
}

TestSuite(cuckoo, .init = setup, .fini = teardown);

/* With the filter's lock held. */
static void on_add(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    (void)ctx;
    cr_assert_eq(id, 5);
    cr_assert_lt(noperations, OPERATIONS_MAX);
    operations[noperations] = (struct bloom_replay_item){hash, cuckoo_ordinal(layer, ordinal)};
    noperations++;
    cr_assert_eq(operations[noperations - 1].ordinal, noperations, "ordinals rise by one");
}

static const struct bloom_journal_ops ops = {.add = on_add};
static const struct bloom_journal journal = {.ops = &ops, .id = 5};

static struct bloom_filter *make(const struct cuckoo_numbers *numbers)
{
    struct bloom_params params;
    struct bloom_shape shape;
    struct errbuf err = {""};

    cr_assert_eq(cuckoo_plan(numbers, &params, &shape, &err), BLOOM_OK, "%s", err.text);
    return filter_make(pool, &params, &shape);
}

/* An empty filter of the same class. */
static struct bloom_filter *make_like(const struct bloom_filter *filter)
{
    struct bloom_filter *like = malloc(bloom_filter_bytes(bloom_filter_class_of(filter)));
    struct errbuf err = {""};

    cr_assert_not_null(like);
    cr_assert_eq(bloom_filter_init_instead(like, bloom_filter_class_of(filter), &err), 0, "%s", err.text);
    return like;
}

static unsigned char *slots_of(const struct bloom_filter *filter)
{
    uint64_t bytes = cuckoo_bytes_of(filter);
    unsigned char *slots = malloc(bytes);

    cr_assert_not_null(slots);
    cuckoo_read(filter, 0, slots, bytes);
    return slots;
}

static void expect_equal(const struct bloom_filter *a, const struct bloom_filter *b, const char *what)
{
    struct cuckoo_state in_a, in_b;
    unsigned char *slots_a = slots_of(a), *slots_b = slots_of(b);

    cuckoo_state(a, &in_a);
    cuckoo_state(b, &in_b);
    cr_assert_eq(in_a.nlayers, in_b.nlayers, "%s: %u and %u layers", what, in_a.nlayers, in_b.nlayers);
    cr_assert_eq(in_a.items, in_b.items, "%s: items", what);
    cr_assert_eq(in_a.deletes, in_b.deletes, "%s: deletes", what);
    cr_assert_eq(in_a.ordinal, in_b.ordinal, "%s: ordinal", what);
    cr_assert(memcmp(slots_a, slots_b, in_a.bytes) == 0, "%s: slots", what);
    for (unsigned i = 0; i < in_a.nlayers; i++) {
        struct bloom_layer_view view_a, view_b;
        bloom_filter_layer(a, i, &view_a);
        bloom_filter_layer(b, i, &view_b);
        cr_assert_eq(view_a.items, view_b.items, "%s: items of layer %u", what, i);
    }
    free(slots_a);
    free(slots_b);
}

/* Repeats the operations journaled after this ordinal. */
static void replay(struct bloom_filter *filter, uint64_t behind)
{
    for (size_t i = behind; i < noperations; i++)
        cr_assert(cuckoo_replay(filter, &operations[i], operations[i].ordinal), "operation %zu", i);
}

static void expect_replay(const struct bloom_filter *filter)
{
    struct bloom_filter *again = make_like(filter);

    replay(again, 0);
    expect_equal(filter, again, "a replay of everything");
    filter_free(again);
}

/* ---- the model ---- */

struct pair {
    struct bloom_filter *filter;
    struct model model;
    uint64_t seed;
    unsigned step;
};

static void compare(const struct pair *pair)
{
    struct cuckoo_state state;
    unsigned char *slots = slots_of(pair->filter), *at = slots;

    cuckoo_state(pair->filter, &state);
    cr_assert_eq(state.nlayers, pair->model.n, "seed %" PRIu64 " step %u: %u layers, the model has %u", pair->seed,
                 pair->step, state.nlayers, pair->model.n);
    cr_assert_eq(state.items, model_items(&pair->model), "seed %" PRIu64 " step %u: items", pair->seed, pair->step);
    cr_assert_eq(state.deletes, pair->model.deletes, "seed %" PRIu64 " step %u: deletes", pair->seed, pair->step);
    for (unsigned i = 0; i < pair->model.n; i++) {
        uint64_t bytes = model_bytes(&pair->model, i);
        unsigned char *expected = malloc(bytes);
        cr_assert_not_null(expected);
        model_put(&pair->model, i, expected);
        cr_assert(memcmp(at, expected, bytes) == 0, "seed %" PRIu64 " step %u: slots of layer %u", pair->seed,
                  pair->step, i);
        free(expected);
        at += bytes;
    }
    free(slots);
}

static void add(struct pair *pair, uint64_t hash, bool only_new)
{
    enum bloom_add expected = BLOOM_PRESENT;

    if (!only_new || model_count(&pair->model, hash) == 0)
        expected = model_add(&pair->model, hash) ? BLOOM_ADDED : BLOOM_FULL;
    cr_assert_eq(cuckoo_add(pair->filter, hash, only_new, &journal, NULL), expected, "seed %" PRIu64 " step %u",
                 pair->seed, pair->step);
}

/* As in CF.DEL. */
static void delete (struct pair *pair, uint64_t hash)
{
    bool expected = model_delete(&pair->model, hash);

    cr_assert_eq(cuckoo_delete(pair->filter, hash, &journal), expected, "seed %" PRIu64 " step %u", pair->seed,
                 pair->step);
    cr_assert_eq(cuckoo_is_sparse(pair->filter), model_is_sparse(&pair->model), "seed %" PRIu64 " step %u: sparse",
                 pair->seed, pair->step);
    if (expected && model_is_sparse(&pair->model)) {
        model_compact(&pair->model, false);
        cuckoo_compact_begin(pair->filter, false);
        (void)cuckoo_compact(pair->filter, UINT64_MAX, &journal);
    }
}

static void ask(const struct pair *pair, uint64_t hash)
{
    uint64_t count = model_count(&pair->model, hash);

    cr_assert_eq(cuckoo_count(pair->filter, hash), count, "seed %" PRIu64 " step %u: count", pair->seed, pair->step);
    cr_assert_eq(cuckoo_query(pair->filter, hash), count > 0, "seed %" PRIu64 " step %u: query", pair->seed,
                 pair->step);
}

static void step(struct pair *pair, struct rng *rng, uint64_t nitems, unsigned adds)
{
    uint64_t key = rng_below(rng, nitems) * UINT64_C(0x9e3779b97f4a7c15);
    size_t len = rng_below(rng, 200) == 0 ? 0 : 1 + key % 8;
    uint64_t hash = cuckoo_hash(&key, len);
    unsigned choice = (unsigned)rng_below(rng, 100);

    cr_assert_eq(hash, model_hash(&key, len), "the hash of %zu bytes", len);
    ask(pair, hash);
    if (choice < adds && pair->model.n < 24 && model_bytes(&pair->model, pair->model.n - 1) < 1 << 18)
        add(pair, hash, choice % 2);
    else if (choice < 99)
        delete (pair, hash);
    else {
        model_compact(&pair->model, true);
        cuckoo_compact_begin(pair->filter, true);
        (void)cuckoo_compact(pair->filter, UINT64_MAX, &journal);
    }
    ask(pair, hash);
    if (pair->step % 37 == 0)
        compare(pair);
}

/* A filter in our layout, with slots of 8, 12 or 16 bits and up to this many layers. */
static void make_rate(struct pair *pair, struct rng *rng, struct cuckoo_numbers *numbers)
{
    static const unsigned all_bits[] = {8, 12, 16};
    unsigned bits = all_bits[rng_below(rng, 3)], most = 4 + (unsigned)rng_below(rng, 4);
    struct bloom_params params;
    struct bloom_shape shape;

    numbers->bucket_size = CUCKOO_RATE_BUCKET;
    numbers->capacity = 1 + rng_below(rng, 3) * rng_below(rng, 1000);
    numbers->error_rate = cuckoo_rate(bits, CUCKOO_RATE_BUCKET, 0.95) * (most + 0.5);
    cr_assert_eq(cuckoo_plan(numbers, &params, &shape, NULL), BLOOM_OK);
    if (numbers->expansion)
        cr_assert(shape.bpe == bits && cuckoo_most_layers(&params, &shape) == most);
    else
        bits = (unsigned)shape.bpe; /* a single layer has the whole rate */
    pair->filter = filter_make(pool, &params, &shape);
    model_init_rate(&pair->model, shape.capacity, bits, numbers->iterations, numbers->expansion, most);
}

static void play(uint64_t seed)
{
    static const unsigned sizes[] = {1, 2, 2, 3, 4, 8, 17, 255}, iterations[] = {1, 2, 20, 20, 500, 65535};
    struct pair pair = {.seed = seed};
    struct rng rng;

    rng_init(&rng, seed);
    struct cuckoo_numbers numbers = {
        .bucket_size = sizes[rng_below(&rng, sizeof(sizes) / sizeof(sizes[0]))],
        .iterations = iterations[rng_below(&rng, sizeof(iterations) / sizeof(iterations[0]))],
        .expansion = (unsigned)rng_below(&rng, 6),
    };
    numbers.capacity = numbers.bucket_size * 2u + rng_below(&rng, 3) * rng_below(&rng, 1000);
    if (seed % 2) {
        make_rate(&pair, &rng, &numbers);
    } else {
        pair.filter = make(&numbers);
        model_init(&pair.model, numbers.capacity, numbers.bucket_size, numbers.iterations, numbers.expansion);
    }
    uint64_t nitems = 1 + rng_below(&rng, 2 * numbers.capacity);
    noperations = 0;
    for (unsigned phase = 0; phase < 6; phase++) { /* the filter fills, empties and fills again */
        unsigned adds = phase % 2 ? 20 : 85;
        for (unsigned i = 0; i < 500; i++, pair.step++)
            step(&pair, &rng, nitems, adds);
    }
    compare(&pair);
    expect_replay(pair.filter);
    filter_free(pair.filter);
    model_free(&pair.model);
}

Test(cuckoo, every_operation_leaves_the_bytes_of_the_model)
{
    const char *rounds = getenv("BLOOMERY_MODEL_ROUNDS");
    uint64_t n = rounds ? strtoull(rounds, NULL, 10) : 100;

    for (uint64_t seed = 1; seed <= n; seed++)
        play(seed);
}

/* ---- refusals ---- */

/* Returns at the first refusal. */
static void fill_until_refused(struct bloom_filter *filter, struct rng *rng, enum bloom_add refusal, uint64_t *hash_out)
{
    struct errbuf err = {""};
    unsigned char *before;
    enum bloom_add answer;
    struct cuckoo_state state;

    do {
        size_t journaled = noperations;
        *hash_out = rng_next(rng);
        before = slots_of(filter);
        cuckoo_state(filter, &state);
        answer = cuckoo_add(filter, *hash_out, false, &journal, &err);
        if (answer == BLOOM_ADDED)
            free(before);
        else
            cr_assert_eq(noperations, journaled, "a refused add is not journaled");
    } while (answer == BLOOM_ADDED);
    cr_assert_eq(answer, refusal, "%s", err.text);
    struct cuckoo_state after;
    unsigned char *slots = slots_of(filter);
    cuckoo_state(filter, &after);
    cr_assert(after.items == state.items && after.nlayers == state.nlayers && after.ordinal == state.ordinal);
    cr_assert(memcmp(slots, before, state.bytes) == 0, "a refused add has changed slots");
    free(before);
    free(slots);
}

Test(cuckoo, a_refused_growth_changes_nothing)
{
    struct bloom_filter *filter = make(&(struct cuckoo_numbers){512, 2, 20, 2});
    struct rng rng;
    uint64_t hash;

    rng_init(&rng, 77);
    for (uint64_t limit = 512; limit <= 512 * 15; limit = limit * 2 + 512) {
        bloom_pool_set_limits(pool, limit, 0);
        fill_until_refused(filter, &rng, BLOOM_NO_ROOM, &hash);
        cr_assert_eq(cuckoo_bytes_of(filter), limit);
        bloom_pool_set_limits(pool, 0, limit);
        fill_until_refused(filter, &rng, BLOOM_NO_ROOM, &hash);
        bloom_pool_set_limits(pool, 0, 0);
        enum bloom_add expected = cuckoo_query(filter, hash) ? BLOOM_PRESENT : BLOOM_ADDED;
        cr_assert_eq(cuckoo_add(filter, hash, true, &journal, NULL), expected);
    }
    expect_replay(filter);
    filter_free(filter);
}

Test(cuckoo, a_full_filter_of_fixed_size_stays_as_it_is)
{
    struct rng rng;
    uint64_t hash;

    rng_init(&rng, 78);
    for (unsigned size = 1; size <= 255; size = size * 2 + 1) {
        struct bloom_filter *filter = make(&(struct cuckoo_numbers){1024, size, 3 * size, 0});
        noperations = 0;
        for (unsigned i = 0; i < 10; i++)
            fill_until_refused(filter, &rng, BLOOM_FULL, &hash);
        expect_replay(filter);
        filter_free(filter);
    }
}

/* ---- copies while others write ---- */

#define CLONES 6

static struct bloom_filter *changing;
static atomic_bool stop;
static atomic_uint changes;

static void *change(void *arg)
{
    struct rng rng;
    uint64_t nitems = 60000;

    rng_init(&rng, (uintptr_t)arg);
    for (unsigned i = 0; i < 60000 && !atomic_load(&stop); i++) {
        uint64_t key = rng_below(&rng, nitems), hash = cuckoo_hash(&key, sizeof(key));
        atomic_fetch_add(&changes, 1);
        bool adds = i / 4000 % 2 == 0; /* the filter grows and shrinks */
        if (rng_below(&rng, 10) < (adds ? 8 : 3))
            (void)cuckoo_add(changing, hash, rng_below(&rng, 2), &journal, NULL);
        else if (cuckoo_delete(changing, hash, &journal) && cuckoo_is_sparse(changing))
            cuckoo_compact_begin(changing, rng_below(&rng, 2));
        (void)cuckoo_compact(changing, 1, &journal);
    }
    return NULL;
}

static struct bloom_filter *take_still(struct bloom_filter *still)
{
    struct bloom_filter *copy = make_like(still);
    cr_assert_eq(cuckoo_take(copy, still, NULL), 0);
    bloom_still_end(still);
    return copy;
}

Test(cuckoo, a_copy_and_what_was_journaled_after_it_are_the_filter)
{
    static const struct cuckoo_numbers numbers[] = {
        {1024, 2, 20, 1},        {40000, 4, 20, 2},       {16384, 2, 20, 1},       {8192, 8, 50, 2},
        {70000, 3, 20, 4},       {100000, 1, 5, 0},       {20000, 4, 500, 2, 0.3}, {3000, 4, 20, 2, 0.01},
        {5000, 4, 500, 1, 0.01}, {9000, 4, 500, 2, 1e-3}, {400000, 4, 20, 0}};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct bloom_filter *stills[CLONES], *copies[CLONES];
        pthread_t threads[2];
        changing = make(&numbers[i]);
        noperations = 0;
        atomic_store(&stop, false);
        atomic_store(&changes, 0);
        for (uintptr_t t = 0; t < 2; t++)
            cr_assert_eq(pthread_create(&threads[t], NULL, change, (void *)(t + 1 + 2 * i)), 0);
        for (unsigned c = 0; c < CLONES; c++) {
            while (atomic_load(&changes) < 1000 + c * 15000) /* of 120,000, so that copies have changes to miss */
                sched_yield();
            cr_assert_eq(bloom_still_begin(changing, &stills[c], NULL), 0);
            if (c % 2 == 0) /* others are read when the changes are over */
                copies[c] = take_still(stills[c]);
        }
        for (unsigned t = 0; t < 2; t++)
            pthread_join(threads[t], NULL);
        for (unsigned c = 0; c < CLONES; c++) {
            struct cuckoo_state state;
            if (c % 2)
                copies[c] = take_still(stills[c]);
            cuckoo_state(copies[c], &state);
            replay(copies[c], state.ordinal);
            expect_equal(changing, copies[c], "a copy");
            filter_free(copies[c]);
        }
        expect_replay(changing);
        filter_free(changing);
        cr_assert_eq(bloom_pool_still_bytes(pool), 0);
    }
}

/* ---- chunks ---- */

/* Sets slots of one layer: some with the bytes they have, some with new ones. */
static void set_some(struct bloom_filter *filter, struct rng *rng)
{
    unsigned char bytes[3000];
    unsigned layer = (unsigned)rng_below(rng, bloom_filter_nlayers(filter));
    struct bloom_layer_view view;
    uint64_t first = 0;

    for (unsigned i = 0; i < layer; i++) {
        bloom_filter_layer(filter, i, &view);
        first += bloom_shape_bytes(&view.shape);
    }
    bloom_filter_layer(filter, layer, &view);
    uint64_t bytes_of = bloom_shape_bytes(&view.shape), at = rng_below(rng, bytes_of), most = bytes_of - at;
    size_t len = 1 + rng_below(rng, most < sizeof(bytes) ? most : sizeof(bytes));
    cr_assert(has_bytes(filter, first + at, len));
    cr_assert_not(has_bytes(filter, first + at, most + 1));
    cuckoo_read(filter, first + at, bytes, len);
    for (size_t i = 0; i < len; i++)
        if (rng_below(rng, 4) == 0)
            bytes[i] = (unsigned char)(rng_below(rng, 2) ? 0 : rng_next(rng));
    cuckoo_set_slots(filter, first + at, bytes, len, &journal);
    unsigned char now[sizeof(bytes)];
    cuckoo_read(filter, first + at, now, len);
    cr_assert(memcmp(bytes, now, len) == 0);
}

Test(cuckoo, chunks_are_replayed_as_they_were_loaded)
{
    struct rng rng;

    for (uint64_t seed = 1; seed <= 60; seed++) {
        rng_init(&rng, seed);
        unsigned size = 1 + (unsigned)rng_below(&rng, 9), nlayers = 1 + (unsigned)rng_below(&rng, 4);
        struct cuckoo_numbers numbers = {size * 2 + rng_below(&rng, 2000), size, 20, 2};
        if (seed % 2) {
            numbers.bucket_size = CUCKOO_RATE_BUCKET;
            numbers.error_rate = seed % 3 == 0 ? 0.2 : seed % 3 == 1 ? 0.01 : 0.001;
        }
        struct bloom_filter *filter = make(&numbers);
        noperations = 0;
        cr_assert_eq(cuckoo_extend(filter, nlayers, rng_below(&rng, 2) * 7, &journal, NULL), BLOOM_OK);
        for (unsigned i = 0; i < 200; i++) {
            uint64_t hash = rng_next(&rng);
            (void)cuckoo_add(filter, hash, i % 2, &journal, NULL);
            if (i % 3 == 0)
                (void)cuckoo_delete(filter, hash, &journal);
            set_some(filter, &rng);
            if (i % 50 == 49) {
                cuckoo_compact_begin(filter, true);
                (void)cuckoo_compact(filter, 100, &journal);
            }
        }
        struct cuckoo_state before, after;
        cuckoo_state(filter, &before);
        expect_replay(filter);
        cuckoo_recount(filter);
        cuckoo_state(filter, &after);
        cr_assert_eq(before.items, after.items, "seed %" PRIu64, seed);
        filter_free(filter);
    }
}

/* ---- the work of a compaction ---- */

/* All slots of a filter with this many layers are taken; a compaction moves nothing. Returns the number of its
 * calls. */
static unsigned compact_full(unsigned size, uint64_t slots, unsigned nlayers)
{
    struct bloom_filter *filter = make(&(struct cuckoo_numbers){slots, size, 20, 1});
    unsigned char *taken = malloc(slots);
    unsigned calls = 0;

    noperations = 0;
    cr_assert_not_null(taken);
    cr_assert_eq(cuckoo_extend(filter, nlayers, 0, NULL, NULL), BLOOM_OK);
    memset(taken, 1, slots);
    for (unsigned i = 0; i < nlayers; i++)
        cuckoo_set_slots(filter, i * slots, taken, slots, NULL);
    cuckoo_set_counts(filter, 0, 0);
    cuckoo_compact_begin(filter, true);
    while (cuckoo_compact(filter, UINT64_C(5242880), &journal))
        calls++;
    for (size_t i = 0; i + 1 < noperations; i++) { /* the last one sets the count of deletions */
        uint64_t layer = operations[i].hash.h2 >> 8 & 0xffff, n = operations[i].hash.h2 >> 24;
        cr_assert(n >= 1 && n * 2 * size * layer <= 400000, "%" PRIu64 " slots of layer %" PRIu64, n, layer);
    }
    free(taken);
    filter_free(filter);
    return calls;
}

/* Writers wait for a step, so it is short for any number of layers and any size of buckets; one call compacts a small
 * filter with any number of layers. */
Test(cuckoo, a_step_of_a_compaction_is_short)
{
    cr_assert_eq(compact_full(2, 4, 31), 1);
    cr_assert_eq(compact_full(2, 1024, 31), 1);
    cr_assert_gt(compact_full(255, 255 * 4, 31), 1);
    cr_assert_gt(compact_full(2, 1 << 19, 3), 1);
}

/* The second layer fills a hole of the first although the third cannot be emptied: only with `all`. */
Test(cuckoo, a_compaction_under_way_is_made_to_go_on)
{
    enum { SLOTS = 128, SIZE = 2, HOLE = 5 };
    const uint64_t other = (HOLE ^ UINT64_C(0x5bd1e995)) % (SLOTS / SIZE);

    for (unsigned all = 0; all < 2; all++) {
        struct bloom_filter *filter = make(&(struct cuckoo_numbers){SLOTS, SIZE, 20, 1});
        unsigned char taken[3 * SLOTS];
        struct bloom_layer_view first;

        cr_assert_eq(cuckoo_extend(filter, 3, 0, NULL, NULL), BLOOM_OK);
        memset(taken, 1, sizeof(taken));
        memset(taken + HOLE * SIZE, 0, SIZE);
        memset(taken + 2 * SLOTS + HOLE * SIZE, 0, SIZE);
        memset(taken + 2 * SLOTS + other * SIZE, 0, SIZE);
        for (unsigned i = 0; i < 3; i++)
            cuckoo_set_slots(filter, i * SLOTS, taken + i * SLOTS, SLOTS, NULL);
        cuckoo_compact_begin(filter, false);
        if (all)
            cuckoo_compact_begin(filter, true);
        (void)cuckoo_compact(filter, UINT64_MAX, NULL);
        bloom_filter_layer(filter, 0, &first);
        cr_assert_eq(first.items, all ? SLOTS : SLOTS - SIZE);
        filter_free(filter);
    }
}
