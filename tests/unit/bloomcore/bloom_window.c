/* Windows, with a clock that the test sets: no item is forgotten within the window, and none is kept for longer than
 * the window and one part, through turns, growth, restarts from a save and any order of the log. */
#include <pthread.h>

#include "bloom_plan.h"
#include "bloom_window.h"
#include "window_model.h"

TestSuite(bloom_window, .init = window_setup, .fini = teardown);

static void expect_window(struct bloom_params params, uint64_t seed)
{
    static struct model model;
    static struct saved saved;
    struct bloom_filter *filter = begin_life(&params, &model, &saved);
    struct rng rng;

    rng_init(&rng, seed);
    for (unsigned i = 0; i < 6000; i++) {
        live(&filter, &model, &params, &saved, &rng);
        if (i % 64 == 0)
            expect_promises(filter, &params, &model);
    }
    end_life(filter, &params, &saved);
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

/* The ring has no more layers than needed if its dead layers are emptied in time. */
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

/* The plan equals the ring that is made, once every part has its planned items. */
Test(bloom_window, a_plan_is_the_ring_that_is_made)
{
    static const struct {
        uint64_t capacity, items;
        unsigned parts;
    } cases[] = {{1000, 1000, 8}, {1001, 0, 8}, {80, 320, 4}, {10, 10, 1}, {4000, 10000, 2}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bloom_params params = window_of(cases[i].capacity, 8 * SECOND, cases[i].parts, 0);
        uint64_t items = cases[i].items ? cases[i].items : cases[i].capacity, item = 0;
        struct bloom_filter *filter = filter_make(pool, &params, NULL);
        struct bloom_plan plan;
        struct errbuf err = {""};

        cr_assert_eq(bloom_plan(&params, cases[i].items, &plan, &err), BLOOM_OK, "%s", err.text);
        for (unsigned part = 0; part < 2 * plan.parts; part++) {
            uint64_t least = items / cases[i].parts;
            for (uint64_t n = 0; n < least; n += bloom_filter_add(filter, hash_of(filter, item++), NULL) == BLOOM_ADDED)
                ;
            now_us += bloom_window_ends(&params, 0);
        }
        cr_assert_eq(plan.parts * plan.nlayers, bloom_filter_nlayers(filter), "case %zu: %u x %u, and %u", i,
                     plan.parts, plan.nlayers, bloom_filter_nlayers(filter));
        cr_assert_eq(plan.memory, bloom_filter_memory(filter));
        cr_assert(plan.predicted_rate > 0 && plan.predicted_rate <= params.error_rate * 1.01, "%g",
                  plan.predicted_rate);
        cr_assert_lt(plan.part_rate * cases[i].parts, plan.predicted_rate);
        filter_free(filter);
    }
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

/* Such a filter would turn without end: each part would begin with a layer other than its first. */
Test(bloom_window, a_ring_begins_with_the_first_layer_of_a_part)
{
    const struct bloom_params params = window_of(8, 8, 4, BLOOM_WINDOW_ITEMS);
    const struct bloom_shape shape = {.nwords = 1, .k = 5, .level = 5};
    struct bloom_class *class;
    struct errbuf err = {""};

    cr_assert_eq(bloom_class_get(pool, &params, &shape, &class, &err), BLOOM_REFUSED);
    cr_assert(strstr(err.text, "level 5"), "%s", err.text);
}

/* A made-up dump may have any number; a filter that could not be loaded again must be refused. */
Test(bloom_window, a_part_has_a_number_that_can_be_loaded)
{
    const struct bloom_params params = window_of(4, 4, 2, BLOOM_WINDOW_ITEMS);
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    const struct bloom_turn last = {.number = (UINT64_C(1) << 60) - 1, .started_us = now_us};
    struct bloom_window_state state;
    struct errbuf err = {""};

    bloom_window_set_turn(filter, 0, &last);
    cr_assert_eq(bloom_filter_add(filter, hash_of(filter, 1), &err), BLOOM_ADDED, "%s", err.text);
    cr_assert_eq(bloom_filter_add(filter, hash_of(filter, 2), &err), BLOOM_ADDED, "%s", err.text);
    cr_assert_eq(bloom_filter_add(filter, hash_of(filter, 3), &err), BLOOM_NO_ROOM);
    bloom_window_state(filter, &state);
    cr_assert_eq(state.turn, last.number);
    cr_assert(has(filter, 1) && has(filter, 2) && !has(filter, 3));
    filter_free(filter);
}

/* ---- a host with replicas ---- */

static int64_t other_clock(void)
{
    return now_us / 2 * 2 + 5000 * SECOND;
}

/* Applies the primary's records since `from` to the replica, then the primary's drops. */
static void follow(struct bloom_filter *replica, struct bloom_filter *primary, size_t from)
{
    uint64_t below = bloom_window_droppable(primary);
    struct errbuf err;

    for (size_t i = from; i < nrecords; i++) {
        const struct record *r = &records[i];
        struct bloom_turn turn = {.number = r->turn.number};
        if (!r->turns) {
            cr_assert(bloom_window_place(replica, r->item.hash));
            continue;
        }
        if (!bloom_window_part_started(replica, turn.number, &turn.started_us))
            turn.started_us = bloom_window_now_us(replica);
        cr_assert_eq(bloom_window_replay(replica, r->layer, &r->shape, &turn, &err), 0, "%s", err.text);
    }
    if (from == nrecords)
        return; /* nothing was placed: drops are sent with placed items */
    if (below) {
        bloom_window_drop(primary, below);
        bloom_window_drop(replica, below);
    }
}

static void expect_same_layers(const struct bloom_filter *a, const struct bloom_filter *b)
{
    cr_assert_eq(bloom_filter_nlayers(a), bloom_filter_nlayers(b));
    for (unsigned i = 0; i < bloom_filter_nlayers(a); i++) {
        struct bloom_layer_view x, y;
        bloom_filter_layer(a, i, &x);
        bloom_filter_layer(b, i, &y);
        cr_assert(bloom_shape_equal(&x.shape, &y.shape));
        cr_assert_eq(x.turn, y.turn);
        if (x.turn == 0)
            continue;
        cr_assert_eq(bloom_layer_placed(&x), bloom_layer_placed(&y));
        cr_assert_eq(memcmp((const void *)x.words, (const void *)y.words, x.shape.nwords * 8), 0);
    }
}

/* The replica has another clock, and sometimes it becomes the primary. Returns the number of layers. */
static unsigned expect_equal_replicas(struct bloom_params params, uint64_t seed)
{
    static struct model model;
    struct bloom_pool *other;
    struct rng rng;
    unsigned nlayers;

    cr_assert_eq(bloom_pool_create(&other), 0);
    bloom_pool_set_clock(other, other_clock);
    struct bloom_filter *primary = filter_make(pool, &params, NULL), *replica = filter_make(other, &params, NULL);
    rng_init(&rng, seed);
    memset(&model, 0, sizeof(model));
    nrecords = 0;
    for (unsigned i = 0; i < 3000; i++) {
        uint64_t dice = rng_next(&rng);
        size_t from = nrecords;
        now_us += (int64_t)(rng_next(&rng) % (params.window / 100 + 1));
        if (dice % 997 == 0)
            now_us += (int64_t)(rng_next(&rng) % (2 * params.window));
        if (dice % 301 == 0) {
            struct bloom_filter *old = primary;
            primary = replica;
            replica = old;
        }
        step(primary, &model, &params, &rng);
        follow(replica, primary, from);
        bloom_window_clean_piece(primary);
        if (dice % 3)
            bloom_window_clean_piece(replica);
        if (i % 64 == 0) {
            expect_same_layers(primary, replica);
            expect_promises(primary, &params, &model);
            expect_promises(replica, &params, &model);
        }
    }
    nlayers = bloom_filter_nlayers(primary);
    filter_free(primary);
    filter_free(replica);
    bloom_pool_destroy(other);
    return nlayers;
}

Test(bloom_window, a_replica_follows)
{
    for (unsigned parts = 1; parts <= 16; parts *= 4) {
        expect_equal_replicas(window_of(1000, 3600 * SECOND, parts, 0), parts);
        expect_equal_replicas(window_of(1000, 3 * SECOND, parts, BLOOM_WINDOW_REFRESH), parts);
        expect_equal_replicas(window_of(40, 2 * SECOND, parts, 0), parts); /* parts that grow */
        expect_equal_replicas(window_of(500, 500, parts, BLOOM_WINDOW_ITEMS), parts);
    }
}

Test(bloom_window, large_dropped_layers_are_emptied_in_time)
{
    cr_assert_leq(expect_equal_replicas(window_of(600000, 4 * SECOND, 4, 0), 1), 7);
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
