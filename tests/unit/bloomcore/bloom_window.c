/* Windows, with a clock that the test drives: no item is forgotten within the window, and none is kept for longer than
 * the window and one part, whatever happens in between: turns, growth, restarts from a save and any order of the log.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_batch.h"
#include "bloom_window.h"
#include "filters.h"
#include "rng.h"

#define SECOND INT64_C(1000000)

static _Atomic int64_t now_us;
static struct bloom_pool *pool;

static int64_t driven_clock(void)
{
    return now_us;
}

static void setup(void)
{
    cr_assert_eq(bloom_pool_create(&pool), 0);
    bloom_pool_set_clock(pool, driven_clock);
    now_us = 1000 * SECOND;
}

static void teardown(void)
{
    bloom_pool_destroy(pool);
}

TestSuite(bloom_window, .init = setup, .fini = teardown);

static struct bloom_params window_of(uint64_t capacity, uint64_t window, unsigned parts, unsigned flags)
{
    return (struct bloom_params){.capacity = capacity,
                                 .error_rate = 0.0001,
                                 .expansion = 2,
                                 .window = window,
                                 .window_parts = (uint16_t)parts,
                                 .window_flags = (uint8_t)flags};
}

static struct bloom_hash hash_of(const struct bloom_filter *filter, uint64_t item)
{
    return bloom_filter_hash(filter, &item, sizeof(item));
}

static bool has(struct bloom_filter *filter, uint64_t item)
{
    struct bloom_item one = {(const char *)&item, sizeof(item)};
    struct bloom_batch batch;

    if (item % 2)
        return bloom_filter_query(filter, hash_of(filter, item));
    bloom_batch_start(&batch, filter, &one, 1);
    return bloom_batch_query(&batch, filter);
}

/* ---- a log, and a restart from it ---- */

struct record {
    bool turns;
    unsigned layer;
    struct bloom_shape shape;
    struct bloom_turn turn;
    struct bloom_replay_item item;
};

static struct record *records;
static size_t nrecords, room;

static void note(const struct record *record)
{
    if (nrecords == room) {
        room = room ? room * 2 : 1024;
        records = realloc(records, room * sizeof(*records));
        cr_assert_not_null(records);
    }
    records[nrecords++] = *record;
}

static void on_add(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    (void)ctx, (void)id;
    note(&(struct record){.layer = layer, .item = {hash, ordinal}});
}

static int on_turn(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape,
                   const struct bloom_turn *turn, struct errbuf *err)
{
    (void)ctx, (void)id, (void)err;
    note(&(struct record){.turns = true, .layer = layer, .shape = *shape, .turn = *turn});
    return 0;
}

static const struct bloom_journal_ops ops = {.add = on_add, .turn = on_turn};
static const struct bloom_journal journal = {.ops = &ops, .id = 1};

/* Layers as a save has them. */
struct saved {
    unsigned nlayers;
    size_t from; /* the record from which on the log is needed */
    struct bloom_shape shapes[BLOOM_MAX_LAYERS];
    struct bloom_turn turns[BLOOM_MAX_LAYERS];
    uint64_t ordinals[BLOOM_MAX_LAYERS];
    uint64_t *words[BLOOM_MAX_LAYERS];
};

static void save(const struct bloom_filter *filter, struct saved *saved)
{
    for (unsigned i = 0; i < saved->nlayers; i++)
        free(saved->words[i]);
    saved->nlayers = bloom_filter_nlayers(filter);
    saved->from = nrecords;
    for (unsigned i = 0; i < saved->nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        saved->shapes[i] = view.shape;
        saved->turns[i] = bloom_layer_turn(&view);
        saved->ordinals[i] = view.ordinal;
        saved->words[i] = malloc(view.shape.nwords * 8);
        for (uint64_t w = 0; w < view.shape.nwords; w++)
            saved->words[i][w] = view.words[w];
    }
}

static void load_saved(struct bloom_filter *filter, const struct saved *saved)
{
    for (unsigned i = 0; i < saved->nlayers; i++) {
        struct bloom_layer_view view;
        struct errbuf err;
        if (i > 0)
            cr_assert_eq(bloom_filter_append_layer(filter, &saved->shapes[i], &err), 0, "%s", err.text);
        bloom_filter_layer(filter, i, &view);
        for (uint64_t w = 0; w < view.shape.nwords; w++)
            view.words[w] = saved->words[i][w];
        bloom_filter_set_items(filter, i, saved->ordinals[i]);
        bloom_window_set_turn(filter, i, &saved->turns[i]);
    }
}

/* The last turn of each layer, in the order of layers; then the adds, from the last to the first. */
static void replay(struct bloom_filter *filter, const struct saved *saved, size_t from)
{
    const struct record *last[BLOOM_MAX_LAYERS] = {NULL};
    struct errbuf err;

    for (size_t i = from; i < nrecords; i++) {
        const struct record *r = &records[i];
        if (r->turns && (!last[r->layer] || last[r->layer]->turn.number < r->turn.number))
            last[r->layer] = r;
    }
    for (unsigned i = 0; i < BLOOM_MAX_LAYERS; i++) {
        if (last[i])
            cr_assert_eq(bloom_window_replay(filter, i, &last[i]->shape, &last[i]->turn, &err), 0, "%s", err.text);
    }
    for (size_t i = nrecords; i-- > from;) {
        const struct record *r = &records[i];
        if (!r->turns)
            bloom_filter_replay(filter, r->layer, r->layer < saved->nlayers ? saved->ordinals[r->layer] : 0, &r->item,
                                1);
    }
}

/* A filter that has come back after a crash. A log may begin before the save. */
static struct bloom_filter *restart(struct bloom_filter *filter, const struct bloom_params *params,
                                    const struct saved *saved, struct rng *rng)
{
    struct bloom_filter *again = filter_make(pool, params, NULL);
    uint64_t items = bloom_filter_items(filter);

    load_saved(again, saved);
    replay(again, saved, saved->from ? saved->from - rng_next(rng) % saved->from / 4 : 0);
    cr_assert_eq(bloom_filter_items(again), items);
    filter_free(filter);
    return again;
}

/* ---- the model ---- */

#define ITEMS 4096

struct model {
    int64_t put_us[ITEMS]; /* of the add that put it there; 0: never */
    uint64_t put[ITEMS];   /* by items: its number */
    uint64_t nput;
};

static void expect_promises(struct bloom_filter *filter, const struct bloom_params *params, const struct model *model)
{
    int64_t window = (int64_t)params->window, part = window / params->window_parts;
    unsigned wrong = 0;

    for (uint64_t item = 0; item < ITEMS; item++) {
        if (!model->put[item])
            continue;
        bool present = has(filter, item);
        if (params->window_flags & BLOOM_WINDOW_ITEMS) {
            uint64_t part_items = (params->window + params->window_parts - 1) / params->window_parts;
            uint64_t since = model->nput - model->put[item];
            cr_assert(present || since >= params->window, "item %llu is forgotten after %llu others",
                      (unsigned long long)item, (unsigned long long)since);
            wrong += present && since >= part_items * (params->window_parts + 1u);
        } else {
            int64_t age = now_us - model->put_us[item];
            cr_assert(present || age >= window, "item %llu is forgotten after %lld us", (unsigned long long)item,
                      (long long)age);
            wrong += present && age >= window + part;
        }
    }
    cr_assert_leq(wrong, 8, "%u items are kept for too long", wrong);
}

static void step(struct bloom_filter *filter, struct model *model, const struct bloom_params *params, struct rng *rng)
{
    uint64_t item = rng_next(rng) % ITEMS;
    bool present = has(filter, item);
    struct errbuf err;
    enum bloom_add answer = bloom_filter_add_journaled(filter, hash_of(filter, item), &journal, &err);

    cr_assert_eq(answer, present ? BLOOM_PRESENT : BLOOM_ADDED);
    cr_assert(has(filter, item));
    if (answer == BLOOM_PRESENT && !(params->window_flags & BLOOM_WINDOW_REFRESH))
        return;
    if (params->window_flags & BLOOM_WINDOW_ITEMS && answer == BLOOM_PRESENT)
        return; /* whether it takes a place depends on the part that has it */
    model->put_us[item] = now_us;
    model->put[item] = ++model->nput;
}

static void expect_window(struct bloom_params params, uint64_t seed)
{
    static struct model model;
    static struct saved saved;
    struct rng rng;
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    int64_t pace = params.window_flags & BLOOM_WINDOW_ITEMS ? 1000 : (int64_t)params.window / 400;

    rng_init(&rng, seed);
    memset(&model, 0, sizeof(model));
    nrecords = 0;
    save(filter, &saved);
    for (unsigned i = 0; i < 6000; i++) {
        uint64_t dice = rng_next(&rng);
        now_us += (int64_t)(rng_next(&rng) % (uint64_t)(2 * pace));
        if (dice % 997 == 0) /* nobody is there for a while */
            now_us += (int64_t)(rng_next(&rng) % (params.window_flags & BLOOM_WINDOW_ITEMS ? 1000 : 2 * params.window));
        if (dice % 211 == 0)
            save(filter, &saved);
        if (dice % 307 == 0)
            filter = restart(filter, &params, &saved, &rng);
        if (dice % 101 == 0)
            bloom_window_clean(filter);
        step(filter, &model, &params, &rng);
        if (i % 64 == 0)
            expect_promises(filter, &params, &model);
    }
    cr_assert_leq(bloom_filter_nlayers(filter), 6 * (params.window_parts + 3u));
    filter_free(filter);
    for (unsigned i = 0; i < saved.nlayers; i++)
        free(saved.words[i]);
    saved.nlayers = 0;
}

Test(bloom_window, by_time)
{
    static const unsigned parts[] = {1, 2, 4, 8, 64};

    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        expect_window(window_of(1000, 3 * SECOND, parts[i], 0), i);
        expect_window(window_of(1000, 3600 * SECOND, parts[i], BLOOM_WINDOW_REFRESH), i);
    }
}

Test(bloom_window, by_items)
{
    static const unsigned parts[] = {1, 3, 8, 50};

    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        expect_window(window_of(500, 500, parts[i], BLOOM_WINDOW_ITEMS), i);
}

Test(bloom_window, parts_that_grow)
{
    expect_window(window_of(40, 2 * SECOND, 4, 0), 1);
    expect_window(window_of(40, 2 * SECOND, 4, BLOOM_WINDOW_REFRESH), 2);
    expect_window(window_of(16, 600, 4, BLOOM_WINDOW_ITEMS), 3);
}

/* ---- single properties ---- */

Test(bloom_window, an_untouched_window_forgets_by_itself)
{
    struct bloom_params params = window_of(100, 10 * SECOND, 5, 0);
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    struct bloom_window_state state;

    cr_assert_eq(bloom_filter_add(filter, hash_of(filter, 1), NULL), BLOOM_ADDED);
    now_us += 10 * SECOND;
    cr_assert(has(filter, 1));
    cr_assert_eq(bloom_filter_items(filter), 1);
    now_us += 2 * SECOND;
    bloom_window_state(filter, &state);
    cr_assert(state.parts == 0 && state.items == 0 && state.stale);
    cr_assert(!has(filter, 1));
    cr_assert_eq(bloom_filter_add(filter, hash_of(filter, 1), NULL), BLOOM_ADDED);
    filter_free(filter);
}

Test(bloom_window, a_late_answer_is_covered)
{
    struct bloom_params params = window_of(100, 8 * SECOND, 8, 0);
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    int64_t margin = SECOND / 18;

    cr_assert_eq(bloom_filter_add(filter, hash_of(filter, 0), NULL), BLOOM_ADDED);
    now_us += SECOND - margin - 1; /* the last moment of the part */
    cr_assert_eq(bloom_filter_add(filter, hash_of(filter, 1), NULL), BLOOM_ADDED);
    cr_assert_eq(bloom_filter_nlayers(filter), 1);
    now_us += 8 * SECOND + margin / 2 - 1;
    cr_assert(has(filter, 1));
    now_us += margin;
    cr_assert(!has(filter, 1));
    filter_free(filter);
}

Test(bloom_window, the_rate_covers_all_parts)
{
    struct bloom_params params = window_of(8000, 8 * SECOND, 8, 0);
    struct bloom_filter *filter;
    unsigned wrong = 0;

    params.error_rate = 0.01;
    filter = filter_make(pool, &params, NULL);
    for (uint64_t i = 0; i < 30000; i++) {
        now_us += SECOND / 1000;
        bloom_filter_add(filter, hash_of(filter, i), NULL);
    }
    for (uint64_t i = 0; i < 100000; i++)
        wrong += has(filter, UINT64_C(1) << 40 | i);
    cr_assert_leq(wrong, 1100, "%u of 100000", wrong);
    filter_free(filter);
}

/* The ring has no more layers than it needs, when its dead layers are emptied in time. */
Test(bloom_window, large_layers_are_emptied_and_taken_again)
{
    struct bloom_params params = window_of(4000000, 4 * SECOND, 4, 0);
    struct bloom_filter *filter = filter_make(pool, &params, NULL);

    for (uint64_t i = 0; i < 200; i++) {
        now_us += SECOND / 10;
        cr_assert_eq(bloom_filter_add(filter, hash_of(filter, i), NULL), BLOOM_ADDED);
        if (bloom_window_forget(filter) && bloom_window_wants_clean(filter)) {
            cr_assert(!bloom_window_wants_clean(filter));
            bloom_window_clean(filter);
        }
        for (uint64_t j = i < 39 ? 0 : i - 39; j <= i; j++)
            cr_assert(has(filter, j));
        cr_assert(i < 60 || !has(filter, i - 52));
    }
    cr_assert_leq(bloom_filter_nlayers(filter), 6);
    filter_free(filter);
}

Test(bloom_window, impossible_windows_are_refused)
{
    struct bloom_params cases[] = {window_of(100, SECOND, 0, 0),     window_of(100, SECOND, 65, 0),
                                   window_of(100, SECOND - 1, 8, 0), window_of(100, 7, 8, BLOOM_WINDOW_ITEMS),
                                   window_of(100, SECOND, 8, 4),     window_of(100, 0, 8, 0),
                                   window_of(100, UINT64_MAX, 8, 0)};
    struct bloom_params plain = {100, 0.01, 2};
    struct errbuf err;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        err.text[0] = '\0';
        cr_assert(!bloom_params_valid(&cases[i], &err) && err.text[0], "case %zu", i);
    }
    cr_assert(bloom_params_valid(&plain, &err));
}

/* ---- threads ---- */

#define THREADS 4
#define SHARED  4000

static _Atomic unsigned winners[SHARED];
static struct bloom_filter *shared;

static void *add_all(void *arg)
{
    (void)arg;
    for (uint64_t i = 0; i < SHARED; i++) {
        now_us += SECOND / 1000;
        if (bloom_filter_add(shared, hash_of(shared, i), NULL) == BLOOM_ADDED)
            winners[i]++;
        cr_assert(bloom_filter_query(shared, hash_of(shared, i)));
        if (i % 100 == 0)
            bloom_window_clean(shared);
    }
    return NULL;
}

Test(bloom_window, one_winner_across_turns)
{
    struct bloom_params params = window_of(SHARED, 60 * SECOND, 16, 0);
    pthread_t threads[THREADS];
    unsigned none = 0;

    shared = filter_make(pool, &params, NULL);
    memset(winners, 0, sizeof(winners));
    for (unsigned i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, add_all, NULL), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < SHARED; i++) {
        cr_assert_leq(winners[i], 1, "item %u has %u winners", i, winners[i]);
        none += winners[i] == 0;
    }
    cr_assert_leq(none, 4);
    filter_free(shared);
}
