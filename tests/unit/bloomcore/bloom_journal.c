/* Reports of adds to a log, and the recovery of a filter from the log, with any part of it in a saved state already. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_batch.h"
#include "bloom_filter.h"
#include "bloom_merge.h"
#include "pool_rig.h"
#include "rng.h"

#define CALLS_MAX 20000

struct call {
    uint64_t id;
    unsigned layer;
    bool grows;
    struct bloom_shape shape;
    struct bloom_replay_item item;
};

static struct call calls[CALLS_MAX];
static size_t ncalls;
static struct bloom_filter *watched; /* must not have the item yet when its add is reported */
static int grow_status;

static void begin(void)
{
    setup();
    ncalls = 0;
    watched = NULL;
    grow_status = 0;
}

TestSuite(bloom_journal, .init = begin, .fini = teardown);

static void on_add(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    cr_assert_eq(ctx, (void *)calls);
    cr_assert_lt(ncalls, CALLS_MAX);
    cr_assert(!watched || !bloom_filter_query(watched, hash), "its bits are visible before the journal has it");
    calls[ncalls++] = (struct call){.id = id, .layer = layer, .item = {hash, ordinal}};
}

static int on_grow(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, struct errbuf *err)
{
    cr_assert_eq(ctx, (void *)calls);
    cr_assert(!watched || bloom_filter_nlayers(watched) == layer, "the layer is visible before the journal has it");
    if (grow_status) {
        errbuf_set(err, "the log is full");
        return grow_status;
    }
    calls[ncalls++] = (struct call){.id = id, .layer = layer, .grows = true, .shape = *shape};
    return 0;
}

static const struct bloom_journal_ops ops = {.add = on_add, .grow = on_grow};

static struct bloom_filter *filter_new(uint64_t capacity, uint32_t expansion)
{
    return filter_make(pool, &(struct bloom_params){capacity, 0.01, expansion}, NULL);
}

/* Every other item goes through a batch. Returns the number of items added. */
static size_t add_some(struct bloom_filter *filter, struct rng *rng, size_t n)
{
    struct bloom_journal journal = {&ops, calls, 7};
    size_t added = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t key = rng_next(rng);
        struct bloom_hash hash = murmur3_hash(&key, sizeof(key));
        struct bloom_batch batch;
        struct errbuf err = {""};

        bloom_batch_start(&batch, filter, &(struct bloom_item){(const char *)&key, sizeof(key)}, 1);
        added += (i % 2 ? bloom_batch_add(&batch, 0, filter, &journal, &err)
                        : bloom_filter_add_journaled(filter, hash, &journal, &err)) == BLOOM_ADDED;
        size_t before = ncalls;
        cr_assert_eq(bloom_filter_add_journaled(filter, hash, &journal, &err), BLOOM_PRESENT);
        cr_assert_eq(ncalls, before, "an add that sets no bit writes nothing");
    }
    return added;
}

static void expect_equal(const struct bloom_filter *a, const struct bloom_filter *b)
{
    cr_assert_eq(bloom_filter_nlayers(a), bloom_filter_nlayers(b));
    for (unsigned i = 0; i < bloom_filter_nlayers(a); i++) {
        struct bloom_layer_view in_a, in_b;

        bloom_filter_layer(a, i, &in_a);
        bloom_filter_layer(b, i, &in_b);
        cr_assert_eq(in_a.items, in_b.items, "layer %u", i);
        cr_assert_eq(in_a.shape.nwords, in_b.shape.nwords);
        cr_assert(memcmp((void *)in_a.words, (void *)in_b.words, in_a.shape.nwords * 8) == 0, "layer %u", i);
    }
}

static void replay(struct bloom_filter *filter, const uint64_t *counted, const struct call *from, size_t n)
{
    struct errbuf err = {""};

    for (size_t i = 0; i < n; i++) {
        if (!from[i].grows)
            bloom_filter_replay(filter, from[i].layer, counted[from[i].layer], &from[i].item, 1);
        else if (from[i].layer >= bloom_filter_nlayers(filter))
            cr_assert_eq(bloom_filter_append_layer(filter, &from[i].shape, &err), 0, "%s", err.text);
    }
}

/* Each added item is reported once, with its place; the places of a layer are 1, 2, 3, ... */
Test(bloom_journal, every_add_has_its_own_place)
{
    struct bloom_filter *filter = watched = filter_new(50, 2);
    struct rng rng = {.state = {1, 1, 1, 1}};
    size_t added = add_some(filter, &rng, 3000), adds = 0;
    uint64_t last[BLOOM_MAX_LAYERS] = {0};

    for (size_t i = 0; i < ncalls; i++) {
        cr_assert_eq(calls[i].id, 7u);
        if (calls[i].grows)
            continue;
        adds++;
        cr_assert_eq(calls[i].item.ordinal, ++last[calls[i].layer]);
    }
    cr_assert_eq(adds, added);
    cr_assert_eq(bloom_filter_items(filter), added);
    cr_assert_gt(bloom_filter_nlayers(filter), 4u);
    filter_free(filter);
}

/* The reports alone restore the same filter, in one batch per layer as well as item by item. */
Test(bloom_journal, a_replay_of_everything_is_the_same_filter)
{
    struct bloom_filter *filter = filter_new(100, 2), *again = filter_new(100, 2), *batched = filter_new(100, 2);
    struct rng rng = {.state = {2, 1, 1, 1}};
    uint64_t nothing[BLOOM_MAX_LAYERS] = {0};

    add_some(filter, &rng, 5000);
    replay(again, nothing, calls, ncalls);
    expect_equal(filter, again);

    struct bloom_replay_item *items = calloc(ncalls, sizeof(*items));
    for (unsigned layer = 0; layer < bloom_filter_nlayers(filter); layer++) {
        size_t n = 0;
        for (size_t i = 0; i < ncalls; i++) {
            if (calls[i].layer == layer && calls[i].grows)
                replay(batched, nothing, &calls[i], 1);
            else if (calls[i].layer == layer)
                items[n++] = calls[i].item;
        }
        cr_assert_eq(bloom_filter_replay(batched, layer, 0, items, n), n);
    }
    expect_equal(filter, batched);
    free(items);
    filter_free(filter);
    filter_free(again);
    filter_free(batched);
}

/* A saved state has counted the items up to some place. A replay of any part of the log that reaches back far enough
 * counts only the others; setting the same bits twice changes nothing. */
Test(bloom_journal, what_a_saved_state_has_counted_is_not_counted_again)
{
    struct bloom_filter *filter = filter_new(100000, 0), *saved = filter_new(100000, 0);
    struct rng rng = {.state = {3, 1, 1, 1}};
    uint64_t nothing[BLOOM_MAX_LAYERS] = {0}, counted[BLOOM_MAX_LAYERS] = {0};

    add_some(filter, &rng, 1000);
    replay(saved, nothing, calls, ncalls);
    counted[0] = bloom_filter_items(saved);
    add_some(filter, &rng, 1000);
    cr_assert_gt(ncalls, counted[0]);
    replay(saved, counted, calls + 300, ncalls - 300);
    expect_equal(filter, saved);
    filter_free(filter);
    filter_free(saved);
}

/* An ordinal of 0 sets bits without a count. */
Test(bloom_journal, a_note_without_a_place_is_not_counted)
{
    struct bloom_filter *filter = filter_new(100, 0);
    struct bloom_replay_item item = {{1, 2}, 0};

    cr_assert(bloom_filter_is_blank(filter));
    cr_assert_eq(bloom_filter_replay(filter, 0, 0, &item, 1), 0u);
    cr_assert(bloom_filter_query(filter, item.hash));
    cr_assert_eq(bloom_filter_items(filter), 0u);
    cr_assert_not(bloom_filter_is_blank(filter));
    filter_free(filter);
}

/* A growth that the log cannot record is refused; the filter grows once the log can. */
Test(bloom_journal, growth_that_cannot_be_noted_is_refused)
{
    struct bloom_filter *filter = filter_new(10, 2);
    struct bloom_journal journal = {&ops, calls, 7};
    struct rng rng = {.state = {4, 1, 1, 1}};
    struct errbuf err = {""};
    enum bloom_add answer;

    grow_status = -ENOMEM;
    do
        answer = bloom_filter_add_journaled(filter, (struct bloom_hash){rng_next(&rng), 3}, &journal, &err);
    while (answer == BLOOM_ADDED || answer == BLOOM_PRESENT);
    cr_assert_eq(answer, BLOOM_NO_ROOM);
    cr_assert(strstr(err.text, "the log is full") != NULL, "%s", err.text);
    cr_assert_eq(bloom_filter_nlayers(filter), 1u);
    grow_status = 0;
    answer = bloom_filter_add_journaled(filter, (struct bloom_hash){rng_next(&rng), 3}, &journal, &err);
    cr_assert_eq(answer, BLOOM_ADDED);
    cr_assert_eq(bloom_filter_nlayers(filter), 2u);
    filter_free(filter);
}

/* Otherwise each refused add would be in the log, and the next start would let the filter grow past the limit. */
Test(bloom_journal, growth_that_a_limit_refuses_is_not_noted)
{
    struct bloom_filter *filter = filter_new(10, 2);
    struct bloom_journal journal = {&ops, calls, 7};
    struct rng rng = {.state = {4, 1, 1, 1}};
    unsigned refused = 0;

    bloom_pool_set_limits(pool, bloom_pool_bytes(pool), 0);
    for (int i = 0; i < 100; i++)
        refused +=
            bloom_filter_add_journaled(filter, (struct bloom_hash){rng_next(&rng), 3}, &journal, NULL) == BLOOM_NO_ROOM;
    cr_assert_gt(refused, 0u);
    cr_assert_eq(bloom_filter_nlayers(filter), 1u);
    cr_assert_eq(ncalls, bloom_filter_items(filter));
    filter_free(filter);
}

/* While a younger filter replaces an older one, adds to the older one are reported for both. */
Test(bloom_journal, adds_to_a_twin_are_told_for_both)
{
    struct bloom_filter *older = filter_new(100, 2), *younger = filter_new(100, 2), *again = filter_new(100, 2);
    struct bloom_twins twins = {.older = older, .younger = younger, .younger_id = 8};
    struct bloom_journal journal = {&ops, calls, 7};
    struct rng rng = {.state = {5, 1, 1, 1}};
    struct errbuf err = {""};
    uint64_t nothing[BLOOM_MAX_LAYERS] = {0};
    size_t told_younger = 0;

    cr_assert(bloom_twins_begin(pool, &twins));
    for (int i = 0; i < 2000; i++)
        bloom_filter_add_journaled(older, (struct bloom_hash){rng_next(&rng), rng_next(&rng)}, &journal, &err);
    bloom_twins_end(pool, older);
    for (size_t i = 0; i < ncalls; i++) {
        if (calls[i].id != 8)
            continue;
        replay(again, nothing, &calls[i], 1);
        told_younger++;
    }
    cr_assert_gt(told_younger, 1900u);
    expect_equal(younger, again);
    filter_free(older);
    filter_free(younger);
    filter_free(again);
}
