#include "bloom_merge.h"

#include <math.h>

#include "bloom_layer.h"
#include "bloom_part.h"
#include "bloom_state.h"
#include "check.h"

/* Of two windows. */
static int windows_differ(const struct bloom_params *a, const struct bloom_params *b, struct errbuf *err)
{
    if (a->window_flags & b->window_flags & BLOOM_WINDOW_ITEMS)
        errbuf_set(err, "windows of a number of items cannot be merged: the adds of two filters have no common order");
    else if ((a->window_flags ^ b->window_flags) & BLOOM_WINDOW_ITEMS)
        errbuf_set(err, "one window is a time, the other one a number of items");
    else if (a->window != b->window)
        errbuf_set(err, "the windows differ: %.15g and %.15g seconds", (double)a->window / 1e6,
                   (double)b->window / 1e6);
    else if (a->window_parts != b->window_parts)
        errbuf_set(err, "the PARTS of the windows differ: %u and %u", a->window_parts, b->window_parts);
    else if (a->window_flags != b->window_flags)
        errbuf_set(err, "only one window has REFRESH");
    else
        return BLOOM_OK;
    return BLOOM_REFUSED;
}

int bloom_params_equal(const struct bloom_params *a, const struct bloom_params *b, struct errbuf *err)
{
    if (!a->window != !b->window)
        errbuf_set(err, "only one has a WINDOW: the items of the other have no age");
    else if (a->capacity != b->capacity)
        errbuf_set(err, "the capacities differ: %llu and %llu", (unsigned long long)a->capacity,
                   (unsigned long long)b->capacity);
    else if (a->error_rate != b->error_rate)
        errbuf_set(err, "the error rates differ: %.15g and %.15g", a->error_rate, b->error_rate);
    else if (a->expansion != b->expansion)
        errbuf_set(err, "the expansion rates differ: %u and %u (0 is a filter of fixed size)", a->expansion,
                   b->expansion);
    else if (a->redisbloom != b->redisbloom)
        errbuf_set(err, "the layouts differ: %s (options %u) and %s (options %u)",
                   bloom_variant_name(bloom_params_variant(a)), a->redisbloom,
                   bloom_variant_name(bloom_params_variant(b)), b->redisbloom);
    else if (a->key != b->key)
        errbuf_set(err, "their keys differ: %016llx and %016llx (0: not KEYED)", (unsigned long long)a->key,
                   (unsigned long long)b->key);
    else if (a->tightening != b->tightening)
        errbuf_set(err, "the tightening ratios differ: %.15g and %.15g", a->tightening, b->tightening);
    else if (!bloom_seed_equal(&a->seed, &b->seed))
        errbuf_set(err, "their seeds differ: filters of LAYOUT valkey have a random one each, unless BF.INSERT SEED "
                        "gives it");
    else
        return a->window ? windows_differ(a, b, err) : BLOOM_OK;
    return BLOOM_REFUSED;
}

int bloom_shapes_equal(const struct bloom_shape *a, const struct bloom_shape *b, unsigned layer, struct errbuf *err)
{
    if (a->k != b->k)
        errbuf_set(err, "the hash counts of layer %u differ: %u and %u", layer, a->k, b->k);
    else if (a->nwords != b->nwords)
        errbuf_set(err, "the sizes of layer %u differ: %llu and %llu bits", layer, (unsigned long long)a->nwords * 64,
                   (unsigned long long)b->nwords * 64);
    else if (a->variant != b->variant)
        errbuf_set(err, "the layouts differ: %s and %s", bloom_variant_name(a->variant),
                   bloom_variant_name(b->variant));
    else if (!bloom_shape_equal(a, b))
        errbuf_set(err, "layer %u differs: capacity %llu at rate %.15g and %llu at %.15g, or other bits", layer,
                   (unsigned long long)a->capacity, a->error_rate, (unsigned long long)b->capacity, b->error_rate);
    else
        return BLOOM_OK;
    return BLOOM_REFUSED;
}

int bloom_filter_same_layout(const struct bloom_filter *a, const struct bloom_filter *b, struct errbuf *err)
{
    unsigned na = bloom_filter_nlayers(a), nb = bloom_filter_nlayers(b);

    if (bloom_params_equal(bloom_filter_params(a), bloom_filter_params(b), err) != BLOOM_OK)
        return BLOOM_REFUSED;
    if (bloom_filter_is_window(a)) {
        errbuf_set(err, "filters with a window are merged part by part"); /* the caller does not do that */
        return BLOOM_REFUSED;
    }
    for (unsigned i = 0; i < na && i < nb; i++) {
        struct bloom_layer_view in_a, in_b;

        bloom_filter_layer(a, i, &in_a);
        bloom_filter_layer(b, i, &in_b);
        if (bloom_shapes_equal(&in_a.shape, &in_b.shape, i, err) != BLOOM_OK)
            return BLOOM_REFUSED;
    }
    return BLOOM_OK;
}

int bloom_filter_append_like(struct bloom_filter *filter, const struct bloom_filter *like, unsigned nlayers,
                             struct errbuf *err)
{
    for (unsigned i = bloom_filter_nlayers(filter); i < nlayers; i++) {
        struct bloom_layer_view view;
        int rc;

        bloom_filter_layer(like, i, &view);
        rc = bloom_filter_append_at(filter, i, &view.shape, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

void bloom_or_words(_Atomic uint64_t *dst, const _Atomic uint64_t *src, uint64_t nwords)
{
    for (uint64_t i = 0; i < nwords; i++) {
        uint64_t word = atomic_load_explicit(&src[i], memory_order_relaxed);

        if (word & ~atomic_load_explicit(&dst[i], memory_order_relaxed))
            atomic_fetch_or_explicit(&dst[i], word, memory_order_relaxed);
    }
}

void bloom_filter_or(struct bloom_filter *dst, const struct bloom_filter *src, unsigned nlayers,
                     struct bloom_union *counts)
{
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view from, to;

        bloom_filter_layer(dst, i, &to);
        bloom_filter_layer(src, i, &from);
        CHECK(from.shape.nwords == to.shape.nwords && from.shape.k == to.shape.k);
        bloom_or_words(to.words, from.words, from.shape.nwords);
        if (!counts)
            continue;
        atomic_thread_fence(memory_order_acquire); /* an add takes its place, then sets its bits */
        bloom_filter_layer(src, i, &from);         /* the count again, after the bits: it covers every item in them */
        counts->sum[i] += from.items;
        if (from.items > counts->most[i])
            counts->most[i] = from.items;
    }
}

/* Raises the count of a layer from `seen` to `items`, plus those that others added since; never above its capacity. */
static void raise_items(struct bloom_filter *filter, unsigned index, uint64_t seen, uint64_t items)
{
    struct bloom_layer *layer = bloom_filter_layer_at(filter, index);
    uint64_t base = bloom_filter_is_window(filter) ? atomic_load(&bloom_layer_part(layer)->base) : 0;
    uint64_t capacity = base + layer->geometry->capacity,
             now = atomic_load_explicit(&layer->items, memory_order_relaxed), to;

    do {
        to = now + (items > seen ? items - seen : 0);
        if (to > capacity)
            to = capacity;
    } while (now < to && !atomic_compare_exchange_weak_explicit(&layer->items, &now, to, memory_order_relaxed,
                                                                memory_order_relaxed));
}

/* The estimated items of a layer of the union. */
static uint64_t union_items(const struct bloom_layer_view *layer, const struct bloom_state *state,
                            const struct bloom_union *counts, unsigned i)
{
    uint64_t most = counts->sum[i] + layer->items;
    uint64_t least = counts->most[i] > layer->items ? counts->most[i] : layer->items;
    uint64_t items = state->estimated_items < (double)most ? (uint64_t)(state->estimated_items + 0.5) : most;

    return items < least ? least : items;
}

/* Whether a layer holds clearly more than its capacity: at that fill the estimate of n items with k bits each scatters
 * by 0.7 sqrt(n / k). A layer that was as full in `before` does not count. */
static bool overfull(const struct bloom_layer_view *layer, uint64_t items, const struct bloom_filter *before,
                     unsigned i)
{
    double made_for = (double)layer->capacity;
    double slack = 2 + 2 * sqrt(made_for / layer->shape.k);

    if ((double)items <= made_for + slack)
        return false;
    if (before && i < bloom_filter_nlayers(before)) {
        struct bloom_layer_view view;
        struct bloom_state state;

        bloom_filter_layer(before, i, &view);
        bloom_layer_state(&view, &state);
        if (state.estimated_items > made_for)
            made_for = state.estimated_items;
    }
    return (double)items > made_for + slack;
}

int bloom_filter_count_union(struct bloom_filter *dst, const struct bloom_union *counts,
                             const struct bloom_filter *before, bool any_rate, struct errbuf *err)
{
    unsigned nlayers = bloom_filter_nlayers(dst), worst = nlayers;
    uint64_t seen[BLOOM_MAX_LAYERS], items[BLOOM_MAX_LAYERS];
    struct bloom_state states[BLOOM_MAX_LAYERS], whole;
    double error_rate = bloom_filter_params(dst)->error_rate;

    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view view;

        bloom_filter_layer(dst, i, &view);
        bloom_layer_state(&view, &states[i]);
        seen[i] = view.items;
        items[i] = union_items(&view, &states[i], counts, i);
        if (!any_rate && overfull(&view, items[i], before, i))
            worst = i;
    }
    bloom_chain_state(states, nlayers, &whole);
    if (worst < nlayers && whole.rate > error_rate)
        return errbuf_fail(
            err, BLOOM_REFUSED,
            "layer %u would have about %llu items, but its capacity is %llu; the error rate would be about "
            "%.2g instead of %.15g",
            worst, (unsigned long long)items[worst],
            (unsigned long long)bloom_filter_layer_at(dst, worst)->geometry->capacity, whole.rate, error_rate);
    for (unsigned i = 0; i < nlayers; i++)
        raise_items(dst, i, seen[i], items[i]);
    return BLOOM_OK;
}

static bool words_equal(const _Atomic uint64_t *a, const _Atomic uint64_t *b, uint64_t nwords)
{
    uint64_t i = 0;

    while (i < nwords &&
           atomic_load_explicit(&a[i], memory_order_relaxed) == atomic_load_explicit(&b[i], memory_order_relaxed))
        i++;
    return i == nwords;
}

static bool layers_agree(const struct bloom_layer_view *a, const struct bloom_layer_view *b)
{
    return a->items == b->items && a->turn == b->turn && a->started_us == b->started_us &&
           bloom_shape_equal(&a->shape, &b->shape);
}

bool bloom_filter_union_is(const struct bloom_filter *made, const struct bloom_filter *before)
{
    unsigned nlayers = bloom_filter_nlayers(made);

    if (bloom_filter_nlayers(before) != nlayers)
        return false;
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view a, b;

        bloom_filter_layer(made, i, &a);
        bloom_filter_layer(before, i, &b);
        if (!layers_agree(&a, &b) || !words_equal(a.words, b.words, a.shape.nwords))
            return false;
        bloom_filter_layer(before, i, &b); /* a window may have emptied it for another part meanwhile */
        if (!layers_agree(&a, &b))
            return false;
    }
    return true;
}
