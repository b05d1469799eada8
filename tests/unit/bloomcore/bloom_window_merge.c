/* Unions of windows, with a clock that the test sets: no item is forgotten within the window, and none is kept for
 * longer than the window and two parts, through repeated merges with adds on both sides, turns, growth, restarts from
 * the contents and any order of the log. */
#include "bloom_window.h"
#include "window_model.h"

TestSuite(bloom_window_merge, .init = window_setup, .fini = teardown);

static void some_steps(struct bloom_filter *filter, struct model *model, const struct bloom_params *params,
                       struct rng *rng)
{
    for (unsigned i = 0; i < 3; i++) {
        now_us += (int64_t)(rng_next(rng) % (params->window / 200));
        step(filter, model, params, rng);
    }
}

/* The union replaces `filter`. Adds to `filter` continue meanwhile, and the union gets adds once it is published, the
 * first ones from threads that still use `filter`. A crash leaves the union's contents at its publication and the
 * records of its id. */
static struct bloom_filter *merge(struct bloom_filter *filter, struct bloom_filter *other, struct model *model,
                                  const struct model *others, struct saved *saved, struct rng *rng)
{
    struct bloom_params params = *bloom_filter_params(filter);
    struct bloom_filter *made = filter_make(pool, &params, NULL);
    struct bloom_twins twins = {.older = filter, .younger = made, .younger_id = journal.id + 1};
    struct bloom_union counts = {{0}, {0}};
    struct bloom_ring ring = {0};
    struct errbuf err = {""};
    size_t kept = 0;

    cr_assert_eq(bloom_window_same(filter, other, &err), BLOOM_OK, "%s", err.text);
    uint64_t turn = bloom_ring_take(&ring, other);
    bloom_ring_take(&ring, filter);
    cr_assert_eq(bloom_ring_make(&ring, made, &err), 0, "%s", err.text);
    some_steps(filter, model, &params, rng);
    cr_assert(bloom_twins_begin(pool, &twins));
    some_steps(filter, model, &params, rng);
    cr_assert_eq(bloom_window_or(made, filter, UINT64_MAX, NULL, NULL, &err), 0, "%s", err.text);
    bloom_twins_level(pool, filter);
    some_steps(filter, model, &params, rng);
    cr_assert_eq(bloom_window_or(made, other, turn, &counts, NULL, &err), 0, "%s", err.text);
    cr_assert_eq(bloom_filter_count_union(made, &counts, NULL, true, &err), BLOOM_OK);
    some_steps(filter, model, &params, rng);
    save(made, saved);
    for (unsigned i = 0; i < 4; i++) {
        uint64_t item = rng_next(rng) % ITEMS;
        struct bloom_filter *first = i % 2 ? made : filter, *second = i % 2 ? filter : made;
        bool had = has(first, item);

        cr_assert_eq(bloom_filter_add_journaled(first, hash_of(first, item),
                                                &(struct bloom_journal){&ops, NULL, journal.id + (first == made)},
                                                &err),
                     had ? BLOOM_PRESENT : BLOOM_ADDED);
        cr_assert(had || bloom_filter_add(second, hash_of(second, item), &err) == BLOOM_PRESENT, "two have won");
        if (!had || params.window_flags & BLOOM_WINDOW_REFRESH) {
            model->put_us[item] = now_us;
            model->put[item] = ++model->nput;
        }
        some_steps(filter, model, &params, rng);
    }
    bloom_twins_end(pool, filter);
    filter_free(filter);
    journal.id++;
    for (size_t i = 0; i < nrecords; i++) {
        if (records[i].id == journal.id)
            records[kept++] = records[i];
    }
    nrecords = kept;
    saved->from = 0;
    for (uint64_t item = 0; item < ITEMS; item++) {
        if (!others->put[item] || others->put_us[item] <= model->put_us[item])
            continue;
        model->put_us[item] = others->put_us[item];
        model->put[item] = ++model->nput;
    }
    model->merged = true;
    return made;
}

static void add_to_other(struct bloom_filter *other, struct model *others, struct rng *rng)
{
    uint64_t item = rng_next(rng) % ITEMS;
    bool refresh = bloom_filter_params(other)->window_flags & BLOOM_WINDOW_REFRESH;

    if (bloom_filter_add(other, hash_of(other, item), NULL) == BLOOM_ADDED || refresh) {
        others->put_us[item] = now_us;
        others->put[item] = ++others->nput;
    }
}

static void expect_merging(struct bloom_params params, uint64_t seed)
{
    static struct model model, others;
    static struct saved saved;
    struct bloom_filter *filter = begin_life(&params, &model, &saved), *other = filter_make(pool, &params, NULL);
    struct rng rng;

    rng_init(&rng, seed);
    memset(&others, 0, sizeof(others));
    for (unsigned i = 0; i < 6000; i++) {
        uint64_t dice = live(&filter, &model, &params, &saved, &rng);
        if (dice % 3 == 0)
            add_to_other(other, &others, &rng);
        if (dice % 149 == 0)
            filter = merge(filter, other, &model, &others, &saved, &rng);
        if (i % 64 == 0)
            expect_promises(filter, &params, &model);
    }
    filter_free(other);
    end_life(filter, &params, &saved);
}

Test(bloom_window_merge, merged_again_and_again)
{
    static const unsigned parts[] = {1, 2, 8, 64};

    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        expect_merging(window_of(1000, 3 * SECOND, parts[i], 0), i);
        expect_merging(window_of(1000, 3600 * SECOND, parts[i], BLOOM_WINDOW_REFRESH), i);
    }
    expect_merging(window_of(40, 2 * SECOND, 4, 0), 9); /* its parts grow */
}

/* The newest part of the union began before that of the window it replaces: an item that needs no refresh in the
 * window is refreshed in the union. */
Test(bloom_window_merge, a_refreshed_item_stays_in_a_union)
{
    struct bloom_params params = window_of(100, 8 * SECOND, 4, BLOOM_WINDOW_REFRESH);
    struct bloom_filter *older = filter_make(pool, &params, NULL), *other = filter_make(pool, &params, NULL);
    struct bloom_filter *made = filter_make(pool, &params, NULL);
    int64_t takes = bloom_window_ends(&params, 0);
    struct bloom_ring ring = {0};
    struct errbuf err = {""};

    cr_assert_eq(bloom_filter_add(older, hash_of(older, 1), NULL), BLOOM_ADDED);
    now_us += takes / 2;
    cr_assert_eq(bloom_filter_add(other, hash_of(other, 2), NULL), BLOOM_ADDED);
    bloom_ring_take(&ring, other);
    bloom_ring_take(&ring, older);
    cr_assert_eq(bloom_ring_make(&ring, made, &err), 0);
    now_us += takes / 2 + 1;
    cr_assert_eq(bloom_filter_add(older, hash_of(older, 3), NULL), BLOOM_ADDED); /* begins a part */
    cr_assert(bloom_twins_begin(pool, &(struct bloom_twins){.older = older, .younger = made}));
    cr_assert_eq(bloom_filter_add(older, hash_of(older, 4), NULL), BLOOM_ADDED);
    now_us += takes * 9 / 10;
    cr_assert_eq(bloom_filter_add(older, hash_of(older, 4), NULL), BLOOM_PRESENT);
    bloom_twins_end(pool, older);
    now_us += 8 * SECOND;
    cr_assert(has(older, 4));
    cr_assert(has(made, 4));
    filter_free(older);
    filter_free(other);
    filter_free(made);
}

Test(bloom_window_merge, unlike_windows_have_no_union)
{
    struct bloom_params model = window_of(100, 8 * SECOND, 4, 0);
    struct {
        struct bloom_params params;
        const char *words;
    } cases[] = {{{100, 0.0001, 2}, "has a WINDOW"},
                 {window_of(200, 8 * SECOND, 4, 0), "capacities"},
                 {window_of(100, 9 * SECOND, 4, 0), "8 and 9 seconds"},
                 {window_of(100, 8 * SECOND, 5, 0), "4 and 5"},
                 {window_of(100, 8 * SECOND, 4, BLOOM_WINDOW_REFRESH), "REFRESH"},
                 {window_of(100, 1000, 4, BLOOM_WINDOW_ITEMS), "a time"}};
    struct bloom_params by_items = window_of(100, 1000, 4, BLOOM_WINDOW_ITEMS);
    struct bloom_filter *a = filter_make(pool, &model, NULL), *items = filter_make(pool, &by_items, NULL);
    struct errbuf err = {""};

    cr_assert_eq(bloom_window_same(a, a, &err), BLOOM_OK);
    cr_assert_eq(bloom_window_same(items, items, &err), BLOOM_REFUSED);
    cr_assert(strstr(err.text, "no common order"), "%s", err.text);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct bloom_filter *b = filter_make(pool, &cases[i].params, NULL);
        cr_assert_eq(bloom_window_same(a, b, &err), BLOOM_REFUSED, "case %zu", i);
        cr_assert(strstr(err.text, cases[i].words), "%s", err.text);
        filter_free(b);
    }
    filter_free(a);
    filter_free(items);
}

/* ---- rings ---- */

/* A window with one item, `first` and its successors, in each of `n` parts. */
static struct bloom_filter *turned(const struct bloom_params *params, uint64_t first, unsigned n)
{
    struct bloom_filter *filter = filter_make(pool, params, NULL);

    for (unsigned i = 0; i < n; i++) {
        cr_assert_eq(bloom_filter_add(filter, hash_of(filter, first + i), NULL), BLOOM_ADDED);
        now_us += bloom_window_ends(params, 0);
    }
    return filter;
}

static struct bloom_filter *ring_of(const struct bloom_params *params, struct bloom_filter *a, struct bloom_filter *b,
                                    struct bloom_ring *ring)
{
    struct bloom_filter *made = filter_make(pool, params, NULL);
    struct errbuf err = {""};

    *ring = (struct bloom_ring){0};
    bloom_ring_take(ring, a);
    if (b)
        bloom_ring_take(ring, b);
    cr_assert_eq(bloom_ring_make(ring, made, &err), 0, "%s", err.text);
    return made;
}

/* The union of these; its counts are set. */
static void unite(struct bloom_filter *made, struct bloom_filter *a, struct bloom_filter *b)
{
    struct bloom_union counts = {{0}, {0}};
    struct errbuf err = {""};

    cr_assert_eq(bloom_window_or(made, a, UINT64_MAX, &counts, NULL, &err), 0, "%s", err.text);
    if (b)
        cr_assert_eq(bloom_window_or(made, b, UINT64_MAX, &counts, NULL, &err), 0, "%s", err.text);
    cr_assert_eq(bloom_filter_count_union(made, &counts, NULL, true, &err), BLOOM_OK, "%s", err.text);
}

Test(bloom_window_merge, a_ring_has_the_living_parts_and_goes_on_with_their_numbers)
{
    struct bloom_params params = window_of(100, 8 * SECOND, 4, 0);
    struct bloom_filter *filter = turned(&params, 0, 10);
    struct bloom_window_state state, other;
    struct bloom_ring ring;

    now_us += 3 * SECOND; /* no one has checked the filter since */
    struct bloom_filter *made = ring_of(&params, filter, NULL, &ring);
    bloom_window_state(filter, &state);
    bloom_window_state(made, &other);
    cr_assert(state.parts > 1 && state.parts < 6);
    cr_assert_eq(ring.nparts, state.parts);
    cr_assert_eq(other.parts, state.parts);
    cr_assert_eq(other.turn, 10);
    filter_free(made);
    now_us += 20 * SECOND;
    made = ring_of(&params, filter, NULL, &ring);
    cr_assert_eq(ring.nparts, 0);
    filter_free(made);
    filter_free(filter);
}

/* The clock of one window has gone back: there are more spans than a ring has parts. */
Test(bloom_window_merge, a_ring_has_an_end_and_keeps_all_items)
{
    struct bloom_params params = window_of(640, 64 * SECOND, 64, 0);
    struct bloom_filter *early = turned(&params, 0, 60);
    int64_t then = now_us;
    now_us += 100 * SECOND;
    struct bloom_filter *late = turned(&params, 1000, 60);
    int64_t youngest = bloom_window_latest_us(late);
    struct bloom_filter *last = turned(&params, 2000, 1); /* younger than all, when the ring is full */
    now_us = then;
    for (unsigned order = 0; order < 2; order++) {
        struct bloom_ring ring;
        struct bloom_filter *made = ring_of(&params, order ? late : early, order ? early : late, &ring);

        cr_assert_eq(ring.nparts, BLOOM_RING_PARTS);
        cr_assert_eq(ring.turn, 60); /* it is behind the parts */
        cr_assert_eq(ring.started_us[BLOOM_RING_PARTS - 1], youngest);
        bloom_ring_take(&ring, last);
        cr_assert_eq(ring.nparts, BLOOM_RING_PARTS);
        cr_assert_eq(ring.started_us[BLOOM_RING_PARTS - 1], bloom_window_latest_us(last));
        for (unsigned i = 1; i < ring.nparts; i++)
            cr_assert_lt(ring.started_us[i - 1], ring.started_us[i]);
        unite(made, early, late);
        for (uint64_t item = 0; item < 60; item++)
            cr_assert(has(made, item) && has(made, 1000 + item), "item %llu", (unsigned long long)item);
        filter_free(made);
    }
    filter_free(early);
    filter_free(late);
    filter_free(last);
}

Test(bloom_window_merge, a_ring_goes_on_behind_the_highest_number_and_is_as_young_as_the_youngest)
{
    struct bloom_params params = window_of(100, 8 * SECOND, 4, 0);
    int64_t takes = bloom_window_ends(&params, 0);
    now_us = 100 * takes;
    struct bloom_filter *old = turned(&params, 0, 7), *young = filter_make(pool, &params, NULL);
    now_us = 200 * takes;
    cr_assert_eq(bloom_filter_add(old, hash_of(old, 100), NULL), BLOOM_ADDED);
    now_us += takes / 2;
    cr_assert_eq(bloom_filter_add(young, hash_of(young, 200), NULL), BLOOM_ADDED);
    for (unsigned order = 0; order < 2; order++) {
        struct bloom_window_state state;
        struct bloom_ring ring;
        struct bloom_filter *made = ring_of(&params, order ? old : young, order ? young : old, &ring);
        cr_assert_eq(ring.turn, 8);
        cr_assert_eq(ring.nparts, 1);
        cr_assert_eq(ring.started_us[0], now_us);
        unite(made, young, old);
        bloom_window_state(made, &state);
        cr_assert_eq(state.parts, 1);
        cr_assert_eq(state.turn, 8);
        cr_assert_eq(state.oldest_us, now_us);
        cr_assert(has(made, 100) && has(made, 200));
        filter_free(made);
    }
    filter_free(old);
    filter_free(young);
}

/* The other window began a part after the ring was made; since then the clock has gone back. */
Test(bloom_window_merge, a_part_from_the_future_goes_into_the_youngest)
{
    struct bloom_params params = window_of(100, 64 * SECOND, 4, 0);
    struct bloom_filter *now = turned(&params, 0, 1), *later = filter_make(pool, &params, NULL);
    struct bloom_ring ring;
    struct bloom_filter *made = ring_of(&params, now, NULL, &ring);
    int64_t then = now_us;
    now_us += 40 * SECOND;
    cr_assert_eq(bloom_filter_add(later, hash_of(later, 100), NULL), BLOOM_ADDED);
    now_us = then;
    unite(made, now, later);
    cr_assert(has(made, 0) && has(made, 100));
    filter_free(made);
    filter_free(now);
    filter_free(later);
}

/* Both windows began in one span, and the older one's time ends after the ring was made. */
Test(bloom_window_merge, parts_that_are_over_by_then_are_left_out)
{
    struct bloom_params params = window_of(100, 8 * SECOND, 4, 0);
    int64_t takes = bloom_window_ends(&params, 0);
    now_us = 100 * takes;
    struct bloom_filter *old = filter_make(pool, &params, NULL), *young = filter_make(pool, &params, NULL);
    struct bloom_ring ring;
    cr_assert_eq(bloom_filter_add(old, hash_of(old, 1), NULL), BLOOM_ADDED);
    now_us += takes - 1;
    cr_assert_eq(bloom_filter_add(young, hash_of(young, 2), NULL), BLOOM_ADDED);
    struct bloom_filter *made = ring_of(&params, old, young, &ring);
    now_us = bloom_window_expires(&params, 100 * takes);
    unite(made, old, young);
    cr_assert(has(made, 2) && !has(made, 1));
    filter_free(made);
    filter_free(old);
    filter_free(young);
}

/* ---- twins ---- */

/* A window whose part has taken a layer for the second time: its count continues from `before`. */
static struct bloom_filter *taken_again(const struct bloom_params *params, uint64_t before)
{
    struct bloom_filter *filter = filter_make(pool, params, NULL);
    for (uint64_t item = 0; item < before; item++)
        cr_assert_eq(bloom_filter_add(filter, hash_of(filter, 9000 + item), NULL), BLOOM_ADDED);
    now_us += 100 * (int64_t)params->window;
    cr_assert_eq(bloom_filter_items(filter), 0);
    return filter;
}

Test(bloom_window_merge, a_twin_begins_with_the_counts_of_the_older_one)
{
    struct bloom_params params = window_of(10, 60 * SECOND, 1, 0);
    struct {
        uint64_t before, items, expected;
    } cases[] = {{0, 5, 5}, {10, 5, 5}, {10, 10, 10}, {0, 25, 10}, {10, 25, 10}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct bloom_filter *made = taken_again(&params, cases[i].before), *older = filter_make(pool, &params, NULL);
        cr_assert_eq(bloom_filter_add(older, hash_of(older, 1), NULL), BLOOM_ADDED);
        cr_assert_eq(bloom_filter_add(made, hash_of(made, 1), NULL), BLOOM_ADDED); /* its part began no earlier */
        bloom_filter_set_items(older, 0, cases[i].items);
        cr_assert(bloom_twins_begin(pool, &(struct bloom_twins){.older = older, .younger = made}));
        cr_assert_eq(bloom_filter_items(made), cases[i].expected, "case %zu: %llu", i,
                     (unsigned long long)bloom_filter_items(made));
        bloom_twins_end(pool, older);
        filter_free(older);
        filter_free(made);
    }
}

/* The younger twin's layer is full: it grows before the older one's item takes a place. */
Test(bloom_window_merge, a_twin_that_is_full_grows_first)
{
    struct bloom_params params = window_of(10, 60 * SECOND, 1, 0), fixed = params;
    fixed.expansion = 0;
    for (unsigned grows = 0; grows < 2; grows++) {
        const struct bloom_params *like = grows ? &params : &fixed;
        struct bloom_filter *older = filter_make(pool, like, NULL), *made = filter_make(pool, like, NULL);
        struct bloom_layer_view view;
        for (uint64_t item = 0; item < 10; item++)
            cr_assert_eq(bloom_filter_add(made, hash_of(made, 100 + item), NULL), BLOOM_ADDED);
        cr_assert(bloom_twins_begin(pool, &(struct bloom_twins){.older = older, .younger = made}));
        cr_assert_eq(bloom_filter_add(older, hash_of(older, 1), NULL), grows ? BLOOM_ADDED : BLOOM_FULL);
        bloom_twins_end(pool, older);
        bloom_filter_layer(made, 0, &view);
        cr_assert_eq(view.items, 10);
        cr_assert_eq(bloom_filter_nlayers(made), grows ? 2 : 1);
        cr_assert_eq(has(older, 1), grows);
        cr_assert_eq(has(made, 1), grows);
        filter_free(older);
        filter_free(made);
    }
}

/* The union has grown like its source, and no one has checked it since. */
Test(bloom_window_merge, a_twin_goes_on_in_the_layer_that_it_has_grown_to)
{
    struct bloom_params params = window_of(10, 60 * SECOND, 1, 0);
    struct bloom_filter *older = filter_make(pool, &params, NULL);
    struct errbuf err = {""};
    struct bloom_ring ring;
    for (uint64_t item = 0; item < 15; item++)
        cr_assert_eq(bloom_filter_add(older, hash_of(older, item), NULL), BLOOM_ADDED);
    struct bloom_filter *made = ring_of(&params, older, NULL, &ring);
    bloom_window_forget(made);
    cr_assert(bloom_twins_begin(pool, &(struct bloom_twins){.older = older, .younger = made}));
    cr_assert_eq(bloom_window_or(made, older, UINT64_MAX, NULL, NULL, &err), 0, "%s", err.text);
    bloom_twins_level(pool, older);
    cr_assert_eq(bloom_filter_items(made), 15);
    for (uint64_t item = 15; item < 25; item++)
        cr_assert_eq(bloom_filter_add(older, hash_of(older, item), NULL), BLOOM_ADDED);
    bloom_twins_end(pool, older);
    cr_assert_eq(bloom_filter_nlayers(made), 2);
    cr_assert_eq(bloom_filter_items(made), 25);
    filter_free(older);
    filter_free(made);
}

/* ---- layers ---- */

Test(bloom_window_merge, adds_go_on_in_the_layer_that_a_part_has_grown_to)
{
    struct bloom_params params = window_of(10, 60 * SECOND, 1, 0);
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    struct bloom_ring ring;

    for (uint64_t item = 0; item < 15; item++)
        cr_assert_eq(bloom_filter_add(filter, hash_of(filter, item), NULL), BLOOM_ADDED);
    cr_assert_eq(bloom_filter_nlayers(filter), 2);
    struct bloom_filter *made = ring_of(&params, filter, NULL, &ring);
    bloom_window_forget(made); /* it has been checked before it grows */
    unite(made, filter, NULL);
    cr_assert_eq(bloom_filter_nlayers(made), 2);
    for (uint64_t item = 15; item < 25; item++)
        cr_assert_eq(bloom_filter_add(made, hash_of(made, item), NULL), BLOOM_ADDED);
    cr_assert_eq(bloom_filter_nlayers(made), 2);
    filter_free(made);
    filter_free(filter);
}

/* An item takes its place before it sets its bits: the count may exceed the bits' estimate. */
Test(bloom_window_merge, a_union_has_as_many_items_as_its_largest_window_at_least)
{
    struct bloom_params params = window_of(100, 60 * SECOND, 1, 0);
    struct bloom_filter *a = filter_make(pool, &params, NULL), *b = filter_make(pool, &params, NULL);
    struct bloom_ring ring;

    cr_assert_eq(bloom_filter_add(a, hash_of(a, 1), NULL), BLOOM_ADDED);
    cr_assert_eq(bloom_filter_add(b, hash_of(b, 2), NULL), BLOOM_ADDED);
    bloom_filter_set_items(a, 0, 50);
    struct bloom_filter *made = ring_of(&params, a, b, &ring);
    cr_assert_eq(ring.nparts, 1);
    unite(made, a, b);
    cr_assert_eq(bloom_filter_items(made), 50);
    filter_free(made);
    filter_free(a);
    filter_free(b);
}

Test(bloom_window_merge, a_union_of_disjoint_windows_counts_both)
{
    struct bloom_params params = window_of(100, 60 * SECOND, 1, 0);
    struct bloom_filter *a = filter_make(pool, &params, NULL), *b = filter_make(pool, &params, NULL);
    struct bloom_filter *made = taken_again(&params, 80); /* in a layer whose count continues from 80 */
    for (uint64_t item = 0; item < 30; item++) {
        cr_assert_eq(bloom_filter_add(a, hash_of(a, item), NULL), BLOOM_ADDED);
        cr_assert_eq(bloom_filter_add(b, hash_of(b, 1000 + item), NULL), BLOOM_ADDED);
    }
    unite(made, a, b);
    cr_assert(bloom_filter_items(made) >= 57 && bloom_filter_items(made) <= 60, "%llu",
              (unsigned long long)bloom_filter_items(made));
    for (uint64_t item = 0; item < 30; item++)
        cr_assert(has(made, item) && has(made, 1000 + item));
    filter_free(made);
    filter_free(a);
    filter_free(b);
}

/* A part that began after the merge has only later adds, which twins have already. */
Test(bloom_window_merge, later_parts_than_the_given_one_are_left_out)
{
    struct bloom_params params = window_of(100, 8 * SECOND, 4, 0);
    struct bloom_filter *filter = turned(&params, 0, 3);
    struct bloom_ring ring = {0};
    struct bloom_layer_map places;
    struct errbuf err = {""};
    uint64_t turn = bloom_ring_take(&ring, filter);
    struct bloom_filter *made = ring_of(&params, filter, NULL, &ring);
    cr_assert_eq(turn, 3);
    cr_assert_eq(bloom_filter_add(filter, hash_of(filter, 3), NULL), BLOOM_ADDED);
    cr_assert_eq(bloom_window_or(made, filter, turn, NULL, &places, &err), 0, "%s", err.text);
    for (uint64_t item = 0; item < 4; item++)
        cr_assert_eq(has(made, item), item < 3);
    for (unsigned i = 0; i < BLOOM_MAX_LAYERS; i++)
        cr_assert_eq(places.to[i], i < 3 ? i + 1 : 0, "layer %u went into %u", i, places.to[i]);
    filter_free(made);
    filter_free(filter);
}

/* The numbers of a made-up dump. */
Test(bloom_window_merge, layers_of_other_shapes_are_not_united)
{
    struct bloom_params params = window_of(10, 60 * SECOND, 1, 0);
    const struct bloom_shape large = {.nwords = 100, .k = 9}, upper = {.nwords = 100, .k = 9, .level = 1};
    const struct bloom_turn turn = {.number = 1, .started_us = now_us};
    struct bloom_filter *filter = filter_make(pool, &params, NULL), *other = filter_make(pool, &params, NULL);
    struct bloom_filter *first = filter_make(pool, &params, &large);
    struct errbuf err = {""};
    struct bloom_ring ring;

    for (uint64_t item = 0; item < 15; item++)
        cr_assert_eq(bloom_filter_add(filter, hash_of(filter, item), NULL), BLOOM_ADDED);
    cr_assert_eq(bloom_filter_append_layer(other, &upper, &err), BLOOM_OK, "%s", err.text);
    bloom_window_set_turn(other, 0, &turn);
    bloom_window_set_turn(other, 1, &turn);
    cr_assert_eq(bloom_window_same(filter, first, &err), BLOOM_REFUSED);
    cr_assert_eq(bloom_window_same(filter, other, &err), BLOOM_REFUSED);
    struct bloom_filter *made = ring_of(&params, filter, other, &ring);
    cr_assert_eq(bloom_window_same(made, other, &err), BLOOM_OK); /* it has no such layer yet */
    cr_assert_eq(bloom_window_or(made, filter, UINT64_MAX, NULL, NULL, &err), 0, "%s", err.text);
    cr_assert_eq(bloom_window_or(made, other, UINT64_MAX, NULL, NULL, &err), BLOOM_REFUSED);
    cr_assert_eq(bloom_window_or_layer(made, 1, filter, 1, &err), BLOOM_OK, "%s", err.text);
    cr_assert_eq(bloom_window_or_layer(made, 1, other, 1, &err), BLOOM_REFUSED);
    cr_assert_eq(bloom_window_or_layer(made, 0, filter, 1, &err), BLOOM_REFUSED);
    cr_assert_eq(bloom_window_or_layer(made, 2, filter, 1, &err), BLOOM_REFUSED);
    cr_assert_eq(bloom_window_or_layer(made, 1, filter, 2, &err), BLOOM_REFUSED);
    filter_free(made);
    filter_free(filter);
    filter_free(other);
    filter_free(first);
}
