/* window_model: a model of the promises of windows, for their tests; any failure fails the test. */
#pragma once

#include "window_log.h"

#define ITEMS 4096

struct model {
    bool merged;           /* items may stay one part longer */
    int64_t put_us[ITEMS]; /* time of the add that put the item there; 0: never */
    uint64_t put[ITEMS];   /* by items: its number */
    uint64_t nput;
};

static inline void expect_promises(struct bloom_filter *filter, const struct bloom_params *params,
                                   const struct model *model)
{
    int64_t window = (int64_t)params->window, part = window / params->window_parts;
    int64_t longest = window + part * (1 + model->merged);
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
            wrong += present && age >= longest;
        }
    }
    cr_assert_leq(wrong, 8, "%u items are kept for too long", wrong);
}

static inline void step(struct bloom_filter *filter, struct model *model, const struct bloom_params *params,
                        struct rng *rng)
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

/* ---- a life: begin_life(), live() again and again, end_life() ---- */

static inline struct bloom_filter *begin_life(const struct bloom_params *params, struct model *model,
                                              struct saved *saved)
{
    struct bloom_filter *filter = filter_make(pool, params, NULL);

    memset(model, 0, sizeof(*model));
    nrecords = 0;
    journal.id = 1;
    save(filter, saved);
    return filter;
}

/* Time advances, sometimes by a lot; the filter is saved, restored after a crash, cleaned; one step. Returns the dice
 * thrown for it. */
static inline uint64_t live(struct bloom_filter **filter, struct model *model, const struct bloom_params *params,
                            struct saved *saved, struct rng *rng)
{
    bool by_items = params->window_flags & BLOOM_WINDOW_ITEMS;
    int64_t pace = by_items ? 1000 : (int64_t)params->window / 400;
    uint64_t dice = rng_next(rng);

    now_us += (int64_t)(rng_next(rng) % (uint64_t)(2 * pace));
    if (dice % 997 == 0) /* a while without any operation */
        now_us += (int64_t)(rng_next(rng) % (by_items ? 1000 : 2 * params->window));
    if (dice % 211 == 0)
        save(*filter, saved);
    if (dice % 307 == 0)
        *filter = restart(*filter, params, saved, rng);
    if (dice % 101 == 0)
        bloom_window_clean(*filter);
    step(*filter, model, params, rng);
    return dice;
}

static inline void end_life(struct bloom_filter *filter, const struct bloom_params *params, struct saved *saved)
{
    cr_assert_leq(bloom_filter_nlayers(filter), 6 * (params->window_parts + 3u));
    filter_free(filter);
    for (unsigned i = 0; i < saved->nlayers; i++)
        free(saved->words[i]);
    saved->nlayers = 0;
}
