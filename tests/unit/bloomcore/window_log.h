/* window_log: windows with a clock that the test sets, and a log that restores a window. For the tests of windows; any
 * failure fails the test. */
#pragma once

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_batch.h"
#include "bloom_window.h"
#include "pool_rig.h"
#include "rng.h"

#define SECOND INT64_C(1000000)

static _Atomic int64_t now_us;

static inline int64_t driven_clock(void)
{
    return now_us;
}

static inline void window_setup(void)
{
    setup();
    bloom_pool_set_clock(pool, driven_clock);
    now_us = 1000 * SECOND;
}

static inline struct bloom_params window_of(uint64_t capacity, uint64_t window, unsigned parts, unsigned flags)
{
    return (struct bloom_params){.capacity = capacity,
                                 .error_rate = 0.0001,
                                 .expansion = 2,
                                 .window = window,
                                 .window_parts = (uint16_t)parts,
                                 .window_flags = (uint8_t)flags};
}

static inline struct bloom_hash hash_of(const struct bloom_filter *filter, uint64_t item)
{
    return bloom_filter_hash(filter, &item, sizeof(item));
}

static inline bool has(struct bloom_filter *filter, uint64_t item)
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
    uint64_t id;
    bool turns;
    unsigned layer;
    struct bloom_shape shape;
    struct bloom_turn turn;
    struct bloom_replay_item item;
};

static struct record *records;
static size_t nrecords, room;

static inline void note(const struct record *record)
{
    if (nrecords == room) {
        room = room ? room * 2 : 1024;
        records = realloc(records, room * sizeof(*records));
        cr_assert_not_null(records);
    }
    records[nrecords++] = *record;
}

static inline void on_add(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    (void)ctx;
    note(&(struct record){.id = id, .layer = layer, .item = {hash, ordinal}});
}

static inline int on_turn(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape,
                          const struct bloom_turn *turn, struct errbuf *err)
{
    (void)ctx, (void)err;
    note(&(struct record){.id = id, .turns = true, .layer = layer, .shape = *shape, .turn = *turn});
    return 0;
}

static const struct bloom_journal_ops ops = {.add = on_add, .turn = on_turn};
static struct bloom_journal journal = {.ops = &ops, .id = 1};

/* Layers as a save has them. */
struct saved {
    unsigned nlayers;
    size_t from; /* the first record of the log that is needed */
    struct bloom_shape shapes[BLOOM_MAX_LAYERS];
    struct bloom_turn turns[BLOOM_MAX_LAYERS];
    uint64_t ordinals[BLOOM_MAX_LAYERS];
    uint64_t *words[BLOOM_MAX_LAYERS];
};

static inline void save(const struct bloom_filter *filter, struct saved *saved)
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

static inline void load_saved(struct bloom_filter *filter, const struct saved *saved)
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
static inline void replay(struct bloom_filter *filter, const struct saved *saved, size_t from)
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

/* The filter after a crash and a start. A log may begin before the save. */
static inline struct bloom_filter *restart(struct bloom_filter *filter, const struct bloom_params *params,
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
