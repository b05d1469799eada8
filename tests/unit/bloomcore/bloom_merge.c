/* Unions: they have every item of every source, their counts are between the largest and the sum, and no layer exceeds
 * its capacity unasked. Plans: they equal the filter that is made later. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bloom_merge.h"
#include "bloom_plan.h"
#include "bloom_shared.h"
#include "bloom_state.h"
#include "pool_rig.h"
#include "rng.h"

static struct rng rng;

static void begin(void)
{
    setup();
    rng_init(&rng, 99);
}

TestSuite(bloom_merge, .init = begin, .fini = teardown);
TestSuite(bloom_plan, .init = begin, .fini = teardown);

static struct bloom_filter *filter_shaped(uint64_t capacity, double rate, uint32_t expansion,
                                          const struct bloom_shape *shape)
{
    return filter_make(pool, &(struct bloom_params){capacity, rate, expansion}, shape);
}

static struct bloom_filter *filter_new(uint64_t capacity, double rate, uint32_t expansion)
{
    return filter_shaped(capacity, rate, expansion, NULL);
}

static struct bloom_hash item(uint64_t n)
{
    struct rng bits;

    rng_init(&bits, n);
    uint64_t h1 = rng_next(&bits);
    return (struct bloom_hash){h1, rng_next(&bits)};
}

static void add(struct bloom_filter *filter, uint64_t first, uint64_t end)
{
    for (uint64_t n = first; n < end; n++)
        bloom_filter_add(filter, item(n), NULL);
}

static bool has(const struct bloom_filter *filter, uint64_t first, uint64_t end)
{
    for (uint64_t n = first; n < end; n++) {
        if (!bloom_filter_query(filter, item(n)))
            return false;
    }
    return true;
}

static int unite(struct bloom_filter *dst, struct bloom_filter *const *sources, size_t n, bool overfull,
                 struct errbuf *err)
{
    struct bloom_union counts = {{0}, {0}};

    for (size_t i = 0; i < n; i++) {
        unsigned nlayers = bloom_filter_nlayers(sources[i]);

        cr_assert_eq(bloom_filter_append_like(dst, sources[i], nlayers, err), 0, "%s", err->text);
        bloom_filter_or(dst, sources[i], nlayers, &counts);
    }
    return bloom_filter_count_union(dst, &counts, NULL, overfull, err);
}

/* Chains of different lengths are united layer by layer; the count is close to the number of distinct items. */
Test(bloom_merge, a_union_has_every_item_of_every_source)
{
    struct bloom_filter *sources[3] = {filter_new(1000, 0.001, 2), filter_new(1000, 0.001, 2),
                                       filter_new(1000, 0.001, 2)};
    struct bloom_filter *dst = filter_new(1000, 0.001, 2);
    struct errbuf err = {""};

    add(sources[0], 0, 300);
    add(sources[1], 200, 500); /* 100 in common */
    add(sources[2], 0, 300);   /* equal to the first */
    cr_assert_eq(unite(dst, sources, 3, false, &err), BLOOM_OK, "%s", err.text);
    cr_assert(has(dst, 0, 500));
    cr_assert(bloom_filter_items(dst) > 480 && bloom_filter_items(dst) < 520, "%llu",
              (unsigned long long)bloom_filter_items(dst));
    for (size_t i = 0; i < 3; i++)
        filter_free(sources[i]);
    filter_free(dst);
}

/* The count is never below that of a source, and never above the sum or the capacity: disjoint, equal, empty. */
Test(bloom_merge, counts_stay_within_their_bounds)
{
    for (unsigned round = 0; round < 200; round++) {
        uint64_t capacity = 20 + rng_below(&rng, 300), a = rng_below(&rng, capacity / 2),
                 b = rng_below(&rng, capacity / 2);
        uint64_t shift = rng_below(&rng, capacity);
        struct bloom_filter *sources[2] = {filter_new(capacity, 0.01, 0), filter_new(capacity, 0.01, 0)};
        struct bloom_filter *dst = filter_new(capacity, 0.01, 0);
        struct errbuf err = {""};

        add(sources[0], 0, a);
        add(sources[1], shift, shift + b);
        uint64_t ca = bloom_filter_items(sources[0]), cb = bloom_filter_items(sources[1]);
        cr_assert_eq(unite(dst, sources, 2, false, &err), BLOOM_OK, "%s", err.text);
        uint64_t items = bloom_filter_items(dst);
        cr_assert(items >= (ca > cb ? ca : cb) && items <= ca + cb && items <= capacity);
        cr_assert(has(dst, 0, a) && has(dst, shift, shift + b));
        filter_free(sources[0]);
        filter_free(sources[1]);
        filter_free(dst);
    }
}

/* The union of two full filters with different items is twice too full: it is refused with the numbers, or made on
 * request with the capacity as its count. A full filter united with its own copy is not too full. */
Test(bloom_merge, more_than_the_capacity_is_refused)
{
    struct bloom_filter *sources[2] = {filter_new(1000, 0.01, 0), filter_new(1000, 0.01, 0)};
    struct bloom_filter *dst = filter_new(1000, 0.01, 0), *copy = filter_new(1000, 0.01, 0);
    struct bloom_filter *same[2] = {sources[0], sources[0]};
    struct errbuf err = {""};

    add(sources[0], 0, 1100); /* the last adds are refused */
    add(sources[1], 5000, 6100);
    cr_assert_eq(bloom_filter_items(sources[0]), 1000);
    cr_assert_eq(unite(dst, sources, 2, false, &err), BLOOM_REFUSED);
    cr_assert(strstr(err.text, "1000"), "%s", err.text);
    cr_assert_eq(bloom_filter_items(dst), 0);
    cr_assert_eq(unite(dst, sources, 2, true, &err), BLOOM_OK);
    cr_assert_eq(bloom_filter_items(dst), 1000);
    cr_assert_eq(bloom_filter_add(dst, item(9999), NULL), BLOOM_FULL);
    cr_assert_eq(unite(copy, same, 2, false, &err), BLOOM_OK, "%s", err.text);
    cr_assert_eq(bloom_filter_items(copy), 1000);
    filter_free(sources[0]);
    filter_free(sources[1]);
    filter_free(dst);
    filter_free(copy);
}

/* A destination that is too full already (because of adds during an earlier union, say) accepts sources that add
 * nothing; it refuses sources that make it clearly fuller. */
Test(bloom_merge, a_destination_that_is_too_full_is_not_the_fault_of_a_union)
{
    struct bloom_filter *older = filter_new(1000, 0.01, 0), *more = filter_new(1000, 0.01, 0);
    struct bloom_filter *sources[2] = {older, more}, *known[2] = {older, older};
    struct bloom_filter *dst = filter_new(1000, 0.01, 0), *fuller = filter_new(1000, 0.01, 0);
    struct bloom_union counts = {{0}, {0}};
    struct errbuf err = {""};

    add(more, 0, 400);
    add(older, 5000, 6000);
    bloom_filter_or(older, more, 1, &counts);
    cr_assert_eq(unite(fuller, known, 2, false, &err), BLOOM_REFUSED); /* refused as a new filter */
    counts = (struct bloom_union){{0}, {0}};
    for (size_t i = 0; i < 2; i++)
        bloom_filter_or(dst, sources[i], 1, &counts);
    cr_assert_eq(bloom_filter_count_union(dst, &counts, older, false, &err), BLOOM_OK, "%s", err.text);
    cr_assert_eq(bloom_filter_items(dst), 1000);
    add(more, 7000, 7400);
    bloom_filter_or(fuller, more, 1, &counts);
    cr_assert_eq(bloom_filter_count_union(fuller, &counts, older, false, &err), BLOOM_REFUSED);
    filter_free(older);
    filter_free(more);
    filter_free(dst);
    filter_free(fuller);
}

/* The error names the difference. */
Test(bloom_merge, what_differs_is_said)
{
    struct bloom_shape shape = {16, 5, BLOOM_NA}, more_hashes = {16, 6, BLOOM_NA}, more_words = {17, 5, BLOOM_NA};
    struct bloom_shape other_order = {16, 5, BLOOM_KA};
    struct bloom_filter *model = filter_shaped(100, 0.01, 2, &shape);
    struct {
        struct bloom_filter *filter;
        const char *word;
    } cases[] = {
        {filter_shaped(101, 0.01, 2, &shape), "capacities"}, {filter_shaped(100, 0.02, 2, &shape), "error rates"},
        {filter_shaped(100, 0.01, 0, &shape), "expansion"},  {filter_shaped(100, 0.01, 2, &more_hashes), "hash"},
        {filter_shaped(100, 0.01, 2, &more_words), "sizes"}, {filter_shaped(100, 0.01, 2, &other_order), "layouts"},
    };
    struct errbuf err = {""};

    cr_assert_eq(bloom_filter_same_layout(model, model, &err), BLOOM_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_assert_eq(bloom_filter_same_layout(model, cases[i].filter, &err), BLOOM_REFUSED);
        cr_assert(strstr(err.text, cases[i].word), "%s", err.text);
        filter_free(cases[i].filter);
    }
    filter_free(model);
}

/* One thread on each side: an add to the older filter is in both, and a second add of the item returns PRESENT on
 * either. */
Test(bloom_merge, twins_share_their_adds)
{
    struct bloom_filter *older = filter_new(100, 1e-6, 2), *younger = filter_new(100, 1e-6, 2);
    struct bloom_filter *other = filter_new(100, 1e-6, 2);

    cr_assert(bloom_twins_begin(pool, &(struct bloom_twins){.older = older, .younger = younger}));
    cr_assert_not(bloom_twins_begin(pool, &(struct bloom_twins){.older = younger, .younger = other}));
    for (uint64_t n = 0; n < 1000; n += 2) {
        cr_assert_eq(bloom_filter_add(older, item(n), NULL), BLOOM_ADDED);
        cr_assert_eq(bloom_filter_add(younger, item(n), NULL), BLOOM_PRESENT);
        cr_assert_eq(bloom_filter_add(younger, item(n + 1), NULL), BLOOM_ADDED);
        cr_assert_eq(bloom_filter_add(older, item(n + 1), NULL), BLOOM_PRESENT);
    }
    cr_assert(has(younger, 0, 1000));
    cr_assert_eq(bloom_filter_items(younger), 1000);
    bloom_twins_end(pool, older);
    cr_assert_eq(bloom_filter_add(older, item(5000), NULL), BLOOM_ADDED);
    cr_assert_not(bloom_filter_query(younger, item(5000)));
    filter_free(older);
    filter_free(younger);
    filter_free(other);
}

/* Layers of the younger filter are full when those of the older one are, although its bits come later: no layer gets
 * items that the older filter has in the next layer. */
Test(bloom_merge, twins_fill_the_same_layers)
{
    struct bloom_filter *older = filter_new(100, 0.001, 2), *younger = filter_new(100, 0.001, 2);
    struct bloom_union counts = {{0}, {0}};
    struct errbuf err = {""};

    add(older, 0, 90);
    cr_assert(bloom_twins_begin(pool, &(struct bloom_twins){.older = older, .younger = younger}));
    add(older, 90, 200);
    bloom_twins_level(pool, older);
    cr_assert_eq(bloom_filter_nlayers(younger), bloom_filter_nlayers(older));
    bloom_filter_or(younger, older, bloom_filter_nlayers(older), NULL);
    cr_assert_eq(bloom_filter_count_union(younger, &counts, older, false, &err), BLOOM_OK, "%s", err.text);
    for (unsigned i = 0; i < bloom_filter_nlayers(older); i++) {
        struct bloom_layer_view a, b;
        struct bloom_state in_a, in_b;

        bloom_filter_layer(older, i, &a);
        bloom_filter_layer(younger, i, &b);
        bloom_layer_state(&a, &in_a);
        bloom_layer_state(&b, &in_b);
        cr_assert(b.items == a.items && in_a.estimated_items == in_b.estimated_items, "layer %u", i);
    }
    bloom_twins_end(pool, older);
    filter_free(older);
    filter_free(younger);
}

struct passing {
    struct bloom_filter *older, *younger;
    unsigned noted[2]; /* for the older filter, for the younger one */
    unsigned changed;
};

static void on_record(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    struct passing *p = ctx;

    (void)layer;
    (void)ordinal;
    cr_assert_not(bloom_filter_query(p->older, hash), "seen in the older one before the record for filter %d", (int)id);
    cr_assert(id != 2 || !bloom_filter_query(p->younger, hash));
    p->noted[id - 1]++;
}

static int on_growth(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, struct errbuf *err)
{
    (void)ctx, (void)id, (void)layer, (void)shape, (void)err;
    return BLOOM_OK;
}

static void on_change(void *ctx)
{
    struct passing *p = ctx;

    cr_assert(has(p->younger, p->changed, p->changed + 1));
    cr_assert_not(has(p->older, p->changed, p->changed + 1), "seen in the older one first");
    p->changed++;
}

/* Another client that finds an item in the older filter reports it as present. So the younger filter, which may be
 * published the next moment, and its log must have the item by then. */
Test(bloom_merge, an_item_is_in_the_younger_twin_before_it_is_seen_in_the_older_one)
{
    static const struct bloom_journal_ops ops = {on_record, on_growth};
    struct bloom_filter *older = filter_new(100, 1e-9, 2), *younger = filter_new(100, 1e-9, 2);
    struct passing passing = {.older = older, .younger = younger};
    struct bloom_journal journal = {&ops, &passing, 1};

    cr_assert(bloom_twins_begin(pool, &(struct bloom_twins){older, younger, on_change, &passing, 2}));
    for (uint64_t n = 0; n < 500; n++)
        cr_assert_eq(bloom_filter_add_journaled(older, item(n), &journal, NULL), BLOOM_ADDED);
    bloom_twins_end(pool, older);
    cr_assert(has(older, 0, 500) && has(younger, 0, 500));
    cr_assert(passing.changed == 500 && passing.noted[0] == 500 && passing.noted[1] == 500);
    filter_free(older);
    filter_free(younger);
}

struct one_add {
    struct bloom_filter *filter;
    struct bloom_hash hash;
    _Atomic int answer; /* -1: none yet */
};

static void *add_one(void *arg)
{
    struct one_add *one = arg;

    atomic_store(&one->answer, (int)bloom_filter_add(one->filter, one->hash, NULL));
    return NULL;
}

/* An add to `filter` waits while another thread holds the lock of `held`. */
static void expect_waits(struct bloom_filter *filter, struct bloom_filter *held, struct bloom_hash hash)
{
    struct one_add one = {filter, hash, -1};
    struct bloom_lock *lock = bloom_pool_lock_of(pool, held);
    pthread_t thread;

    bloom_lock_take(lock);
    cr_assert_eq(pthread_create(&thread, NULL, add_one, &one), 0);
    usleep(30000);
    cr_assert_eq(atomic_load(&one.answer), -1, "it has not waited");
    bloom_lock_give(lock);
    pthread_join(thread, NULL);
    cr_assert_eq(atomic_load(&one.answer), BLOOM_ADDED);
}

static void expect_turns(struct bloom_filter *older, struct bloom_filter *younger, uint64_t n)
{
    cr_assert(bloom_twins_begin(pool, &(struct bloom_twins){.older = older, .younger = younger}));
    expect_waits(older, younger, item(n));
    expect_waits(older, older, item(n + 1));
    expect_waits(younger, younger, item(n + 2));
    for (uint64_t i = n; i < n + 3; i++)
        cr_assert(bloom_filter_query(older, item(i)) && bloom_filter_query(younger, item(i)));
    bloom_twins_end(pool, older);
}

/* Two threads add one item, one on either side: the later add finds the item of the earlier one, because both hold the
 * lock of the younger filter, whichever of the two locks comes first. An add to the older filter holds its lock as
 * well, against adders that do not know of the pair yet. */
Test(bloom_merge, adds_to_twins_take_turns)
{
    struct bloom_filter *a = filter_new(1000, 0.001, 2), *b = filter_new(1000, 0.001, 2), *same = NULL;

    if (bloom_pool_lock_of(pool, a) == bloom_pool_lock_of(pool, b)) {
        same = b;
        b = filter_new(1000, 0.001, 2);
    }
    cr_assert_neq(bloom_pool_lock_of(pool, a), bloom_pool_lock_of(pool, b));
    expect_turns(a, b, 0);
    expect_turns(b, a, 1000000);
    filter_free(a);
    filter_free(b);
    if (same)
        filter_free(same);
}

/* A younger filter that cannot count another item stores it anyway. */
Test(bloom_merge, a_full_twin_keeps_what_was_acknowledged)
{
    struct bloom_filter *older = filter_new(100, 0.01, 0), *younger = filter_new(100, 0.01, 0);

    bloom_filter_set_items(younger, 0, 100);
    cr_assert(bloom_twins_begin(pool, &(struct bloom_twins){.older = older, .younger = younger}));
    add(older, 0, 80);
    bloom_twins_end(pool, older);
    cr_assert(has(younger, 0, 80));
    cr_assert_eq(bloom_filter_items(younger), 100);
    filter_free(older);
    filter_free(younger);
}

/* The number of pairs is limited; each place is reusable. */
Test(bloom_merge, pairs_are_limited)
{
    struct bloom_filter *filters[2 * BLOOM_MAX_TWINS + 2];

    for (size_t i = 0; i < 2 * BLOOM_MAX_TWINS + 2; i++)
        filters[i] = filter_new(10, 0.1, 2);
    for (unsigned round = 0; round < 3; round++) {
        for (size_t i = 0; i < BLOOM_MAX_TWINS; i++)
            cr_assert(
                bloom_twins_begin(pool, &(struct bloom_twins){.older = filters[2 * i], .younger = filters[2 * i + 1]}));
        cr_assert_not(bloom_twins_begin(pool, &(struct bloom_twins){.older = filters[2 * BLOOM_MAX_TWINS],
                                                                    .younger = filters[2 * BLOOM_MAX_TWINS + 1]}));
        for (size_t i = 0; i < BLOOM_MAX_TWINS; i++)
            bloom_twins_end(pool, filters[2 * i]);
    }
    for (size_t i = 0; i < 2 * BLOOM_MAX_TWINS + 2; i++)
        filter_free(filters[i]);
}

/* ---- plans ---- */

/* For filters of any kind: the plan has the layers, bits, hash counts and memory of the filter made and filled. */
Test(bloom_plan, a_plan_is_the_filter_that_is_made)
{
    static const struct {
        uint64_t capacity;
        double rate;
        uint32_t expansion;
        uint64_t items;
    } cases[] = {{100, 0.01, 2, 0}, {100, 0.01, 2, 5000}, {3000, 0.001, 0, 3000}, {5, 0.3, 1, 60}, {1, 1e-6, 4, 100}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bloom_params params = {cases[i].capacity, cases[i].rate, cases[i].expansion};
        struct bloom_filter *filter = filter_new(cases[i].capacity, cases[i].rate, cases[i].expansion);
        struct bloom_plan plan;
        struct errbuf err = {""};

        cr_assert_eq(bloom_plan(&params, cases[i].items, &plan, &err), BLOOM_OK, "%s", err.text);
        for (uint64_t n = 0; bloom_filter_items(filter) < cases[i].items; n++)
            bloom_filter_add(filter, item(n), NULL);
        cr_assert_eq(plan.nlayers, bloom_filter_nlayers(filter), "case %zu", i);
        cr_assert_eq(plan.capacity, bloom_filter_capacity(filter));
        cr_assert_eq(plan.memory, bloom_filter_memory(filter));
        cr_assert(plan.predicted_rate > 0 && plan.predicted_rate <= cases[i].rate * 1.01, "%g", plan.predicted_rate);
        for (unsigned l = 0; l < plan.nlayers; l++) {
            struct bloom_layer_view view;

            bloom_filter_layer(filter, l, &view);
            cr_assert_eq(plan.layers[l].nwords, view.shape.nwords);
            cr_assert_eq(plan.layers[l].k, view.shape.k);
            cr_assert_eq(plan.layers[l].capacity, view.capacity);
            cr_assert_eq(plan.layers[l].error_rate, view.error_rate);
        }
        filter_free(filter);
    }
}

/* Impossible filters are refused with a reason; filters of terabytes can be planned. */
Test(bloom_plan, limits)
{
    struct bloom_plan plan;
    struct errbuf err = {""};

    cr_assert_eq(bloom_plan(&(struct bloom_params){100, 0.01, 0}, 101, &plan, &err), BLOOM_REFUSED);
    cr_assert(strstr(err.text, "100"), "%s", err.text);
    cr_assert_eq(bloom_plan(&(struct bloom_params){10, 0.1, 1}, 10 * BLOOM_MAX_LAYERS + 1, &plan, &err), BLOOM_REFUSED);
    cr_assert(strstr(err.text, "1024 layers"), "%s", err.text);
    cr_assert_eq(bloom_plan(&(struct bloom_params){100, 1e-300, 2}, 0, &plan, &err), BLOOM_REFUSED);
    cr_assert_eq(bloom_plan(&(struct bloom_params){UINT64_MAX, 0.01, 2}, 0, &plan, &err), BLOOM_REFUSED);
    cr_assert_eq(bloom_plan(&(struct bloom_params){1000000000, 1e-7, 2}, 0, &plan, &err), BLOOM_OK, "%s", err.text);
    cr_assert_gt(plan.memory, UINT64_C(4) << 30);
    cr_assert_eq(bloom_pool_bytes(pool), 0);
}
