/* Evicted and restored words: counts, kept contents, refusals. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_filter.h"
#include "bloom_resident.h"
#include "rng.h"
#include "pool_rig.h"

#define FILTERS 8
#define STEPS   1500

static struct errbuf err;

TestSuite(bloom_resident, .init = setup, .fini = teardown);

static struct bloom_hash hash_of(unsigned filter, uint64_t item)
{
    struct rng rng;
    rng_init(&rng, filter * UINT64_C(1000003) + item);
    return (struct bloom_hash){rng_next(&rng), rng_next(&rng)};
}

/* ---- against a model ---- */

struct held {
    struct bloom_filter *filter;
    uint64_t items;
    uint64_t *saved; /* all words, layer by layer; NULL: in memory */
    uint64_t bytes;  /* of the evicted words */
};

static uint64_t nwords_of(const struct bloom_filter *filter)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < bloom_filter_nlayers(filter); i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        n += view.shape.nwords;
    }
    return n;
}

static void leave(struct held *held)
{
    uint64_t *to = held->saved = malloc(nwords_of(held->filter) * 8);
    for (unsigned i = 0; i < bloom_filter_nlayers(held->filter); i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(held->filter, i, &view);
        memcpy(to, (const void *)view.words, view.shape.nwords * 8);
        to += view.shape.nwords;
    }
    held->bytes = bloom_filter_droppable(held->filter);
    bloom_filter_drop(held->filter);
    cr_assert(bloom_filter_is_dropped(held->filter));
}

/* Fills the zero words; words in the filter's own memory have stayed. */
static void fill(struct held *held)
{
    const uint64_t *from = held->saved;
    for (unsigned i = 0; i < bloom_filter_nlayers(held->filter); i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(held->filter, i, &view);
        for (uint64_t w = 0; w < view.shape.nwords; w++, from++) {
            uint64_t now = atomic_load(&view.words[w]);
            cr_assert(now == 0 || now == *from);
            atomic_store(&view.words[w], *from);
        }
    }
}

static void come_back(struct held *held, bool filled)
{
    cr_assert_eq(bloom_filter_undrop_begin(held->filter, &err), 0, "%s", err.text);
    if (filled)
        fill(held);
    bloom_filter_undrop_end(held->filter, filled);
    cr_assert_eq(bloom_filter_is_dropped(held->filter), !filled);
    if (!filled)
        return;
    free(held->saved);
    held->saved = NULL;
}

static void add(struct held *held, unsigned i)
{
    for (int n = 0; n < 200; n++)
        held->items += bloom_filter_add(held->filter, hash_of(i, held->items), &err) == BLOOM_ADDED ||
                       bloom_filter_query(held->filter, hash_of(i, held->items));
}

static void check(const struct held *held, unsigned i)
{
    cr_assert_geq(held->items, bloom_filter_items(held->filter), "what was found to be there is not counted");
    for (uint64_t n = 0; n < held->items && !held->saved; n += 7)
        cr_assert(bloom_filter_query(held->filter, hash_of(i, n)), "filter %u, item %llu", i, (unsigned long long)n);
}

static void check_account(const struct held *held)
{
    uint64_t bytes = 0, away = 0, away_bytes = 0;
    for (unsigned i = 0; i < FILTERS; i++) {
        bytes += nwords_of(held[i].filter) * 8;
        if (held[i].saved) {
            away++;
            away_bytes += held[i].bytes;
            bytes -= held[i].bytes;
        }
    }
    cr_assert_eq(bloom_pool_bytes(pool), bytes);
    cr_assert_eq(bloom_pool_dropped(pool), away);
    cr_assert_eq(bloom_pool_dropped_bytes(pool), away_bytes);
}

static struct bloom_filter *begin(unsigned i)
{
    static const struct bloom_params params[] = {
        {.capacity = 5000, .error_rate = 0.01},                   /* on the heap */
        {.capacity = 300, .error_rate = 0.01, .expansion = 4},    /* in the filter, then layers on the heap */
        {.capacity = 3000000, .error_rate = 0.01},                /* mapped */
        {.capacity = 1000, .error_rate = 0.0001, .expansion = 1}, /* many layers, in their headers */
    };
    return filter_make(pool, &params[i % 4], NULL);
}

static void take_step(struct held *held, unsigned i, unsigned what)
{
    if (what < 30 && !held->saved && bloom_filter_droppable(held->filter)) {
        leave(held);
    } else if (what < 50 && held->saved) {
        come_back(held, what < 45);
    } else if (what < 52) {
        filter_free(held->filter); /* evicted or not */
        free(held->saved);
        *held = (struct held){.filter = begin(i)};
    } else if (!held->saved && held->items < 4000) {
        add(held, i);
    }
    check(held, i);
}

Test(bloom_resident, the_account_and_the_answers_are_those_of_a_model)
{
    struct held held[FILTERS] = {{0}};
    struct rng rng;
    rng_init(&rng, 7);
    for (unsigned i = 0; i < FILTERS; i++)
        held[i].filter = begin(i);
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned i = (unsigned)rng_below(&rng, FILTERS);
        take_step(&held[i], i, (unsigned)rng_below(&rng, 100));
        check_account(held);
    }
    for (unsigned i = 0; i < FILTERS; i++) {
        filter_free(held[i].filter);
        free(held[i].saved);
    }
    cr_assert_eq(bloom_pool_dropped(pool) + bloom_pool_dropped_bytes(pool) + bloom_pool_bytes(pool), 0);
}

/* ---- contents without words ---- */

Test(bloom_resident, words_in_the_filter_and_windows_stay)
{
    struct bloom_filter *small = filter_make(pool, &(struct bloom_params){.capacity = 100, .error_rate = 0.01}, NULL);
    struct bloom_filter *window = filter_make(
        pool, &(struct bloom_params){.capacity = 50000, .error_rate = 0.01, .window = 60000000, .window_parts = 2},
        NULL);
    cr_assert_eq(bloom_filter_droppable(small), 0);
    cr_assert_eq(bloom_filter_droppable(window), 0);
    cr_assert_not(bloom_filter_is_dropped(small));
    cr_assert_not(bloom_filter_is_dropped(window));
    filter_free(small);
    filter_free(window);
}

/* Shape, counts and memory are available without the words. */
Test(bloom_resident, what_needs_no_words_is_answered_without_them)
{
    struct bloom_filter *filter =
        filter_make(pool, &(struct bloom_params){.capacity = 300, .error_rate = 0.01, .expansion = 4}, NULL);
    struct held held = {.filter = filter};
    for (int i = 0; i < 10; i++)
        add(&held, 0);
    uint64_t items = bloom_filter_items(filter), capacity = bloom_filter_capacity(filter);
    unsigned nlayers = bloom_filter_nlayers(filter);
    cr_assert_gt(nlayers, 1u);
    bloom_filter_drop(filter);
    cr_expect_eq(bloom_filter_items(filter), items);
    cr_expect_eq(bloom_filter_capacity(filter), capacity);
    cr_expect_eq(bloom_filter_nlayers(filter), nlayers);
    cr_expect_eq(bloom_filter_params(filter)->capacity, 300);
    filter_free(filter);
}

/* ---- limits ---- */

Test(bloom_resident, words_come_back_within_the_limit_of_the_pool)
{
    const struct bloom_params params = {.capacity = 50000, .error_rate = 0.01};
    struct bloom_filter *first = filter_make(pool, &params, NULL), *second;
    uint64_t bytes = bloom_pool_bytes(pool);
    bloom_filter_drop(first);
    second = filter_make(pool, &params, NULL);
    bloom_pool_set_limits(pool, 1, bytes); /* no check of the limit per filter: the filter existed before */
    cr_assert_eq(bloom_filter_undrop_begin(first, &err), BLOOM_LIMIT);
    cr_assert_not_null(strstr(err.text, "limit for all filters"), "%s", err.text);
    cr_assert(bloom_filter_is_dropped(first));
    cr_assert_eq(bloom_pool_bytes(pool), bytes);
    cr_assert_eq(bloom_pool_dropped_bytes(pool), bytes);
    bloom_filter_drop(second);
    cr_assert_eq(bloom_filter_undrop_begin(first, &err), 0, "%s", err.text);
    cr_assert_eq(bloom_pool_dropped(pool), 2, "nobody can ask it yet");
    bloom_filter_undrop_end(first, true);
    cr_assert_eq(bloom_pool_dropped(pool), 1);
    cr_assert_eq(bloom_filter_undrop_begin(second, &err), BLOOM_LIMIT);
    filter_free(first);
    filter_free(second);
}

/* While they are being read, which may take seconds: a creation would be refused. */
Test(bloom_resident, words_that_come_back_count_once)
{
    const struct bloom_params params = {.capacity = 50000, .error_rate = 0.01};
    struct bloom_filter *first = filter_make(pool, &params, NULL);
    uint64_t bytes = bloom_pool_bytes(pool);
    bloom_filter_drop(first);
    bloom_pool_set_limits(pool, 0, 2 * bytes);
    for (int filled = 0; filled <= 1; filled++) {
        cr_assert_eq(bloom_filter_undrop_begin(first, &err), 0, "%s", err.text);
        cr_expect_eq(bloom_pool_room(pool, bytes, &err), BLOOM_OK, "%s", err.text);
        cr_expect_eq(bloom_pool_room(pool, bytes + 1, &err), BLOOM_LIMIT);
        bloom_filter_undrop_end(first, filled);
        cr_expect_eq(bloom_pool_room(pool, bytes, &err), BLOOM_OK, "%s", err.text);
        cr_expect_eq(bloom_pool_room(pool, bytes + 1, &err), BLOOM_LIMIT, "it comes back later");
    }
    filter_free(first);
}

/* A caller that makes room afterwards: one filter may pass the limit, the next one only within an eighth. */
Test(bloom_resident, the_limit_may_be_passed_once_where_that_was_asked_for)
{
    const struct bloom_params params = {.capacity = 50000, .error_rate = 0.01};
    struct bloom_filter *filters[3];
    for (int i = 0; i < 3; i++)
        filters[i] = filter_make(pool, &params, NULL);
    uint64_t bytes = bloom_pool_bytes(pool) / 3;
    for (int i = 0; i < 3; i++)
        bloom_filter_drop(filters[i]);
    bloom_pool_set_limits(pool, 0, bytes + bytes / 2);
    bloom_pool_set_evicts(pool, true);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(bloom_filter_undrop_begin(filters[i], &err), 0, "%d: %s", i, err.text);
        bloom_filter_undrop_end(filters[i], true);
    }
    cr_assert_eq(bloom_filter_undrop_begin(filters[2], &err), BLOOM_LIMIT);
    bloom_filter_drop(filters[0]);
    cr_assert_eq(bloom_filter_undrop_begin(filters[2], &err), 0, "%s", err.text);
    bloom_filter_undrop_end(filters[2], true);
    bloom_pool_set_limits(pool, 0, bytes - 1);
    bloom_filter_drop(filters[1]);
    bloom_filter_drop(filters[2]);
    cr_assert_eq(bloom_filter_undrop_begin(filters[0], &err), BLOOM_LIMIT, "it is larger than the limit by itself");
    for (int i = 0; i < 3; i++)
        filter_free(filters[i]);
}
