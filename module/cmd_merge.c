/* BF.MERGE, and how replicas follow it. The union of ordinary filters is the same everywhere, so they are told the
 * command; that of windows depends on how old their parts are on this node, so they are told which layer has gone into
 * which one (merge_apply_union()). */
#include "merge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_window_merge.h"
#include "effects.h"
#include "handlers.h"
#include "memory.h"
#include "settings.h"

#define MERGE_MAX_SOURCES 1000

/* The sources, each opened as a call of its own whose argument 1 it is. */
struct merge {
    struct call call; /* of the destination */
    struct call *sources;
    size_t nsources;
    struct bloom_places *places; /* of a window: where its bits went, of each source and then of the destination */
};

static bool open_sources(struct merge *merge)
{
    struct call *call = &merge->call;
    merge->sources = calloc((size_t)call->argc, sizeof(*merge->sources));
    if (!merge->sources) {
        engine.ReplyWithError(call->ctx, "ERR out of memory");
        return false;
    }
    for (int i = 2; i < call->argc; i++) {
        struct call *source = &merge->sources[merge->nsources++];
        *source = (struct call){call->ctx, call->argv + i - 1, 2, call->name, NULL, NULL};
        if (!call_open(source, CALL_READ))
            return false;
        if (!source->value) {
            struct slice name = call_arg(call, (size_t)i);
            call_error(call, "ERR not found: '%.*s'", slice_shown(name), name.ptr);
            return false;
        }
    }
    return true;
}

static void reply_different(struct merge *merge, size_t source, const struct errbuf *err)
{
    struct slice to = call_arg(&merge->call, 1), from = call_arg(&merge->call, source + 2);
    call_error(&merge->call, "ERR '%.*s' and '%.*s' cannot be merged: %s", slice_shown(to), to.ptr, slice_shown(from),
               from.ptr, err->text);
}

/* Gives the empty union as many layers as the largest filter has. False after an error reply. */
static bool make_layers(struct merge *merge, const struct bloom_filter *model, struct bloom_filter *made)
{
    struct errbuf err = {""};
    int status = merge->call.value ? bloom_filter_append_like(made, model, bloom_filter_nlayers(model), &err) : 0;
    for (size_t i = 0; status == 0 && i < merge->nsources; i++) {
        const struct bloom_filter *source = value_filter(merge->sources[i].value);
        status = bloom_filter_same_layout(model, source, &err);
        if (status == 0)
            status = bloom_filter_append_like(made, source, bloom_filter_nlayers(source), &err);
        if (status == 0)
            status = bloom_filter_same_layout(made, source, &err);
        if (status == BLOOM_REFUSED) {
            reply_different(merge, i, &err);
            return false;
        }
    }
    if (status != 0)
        call_not_made(&merge->call, status, &err);
    return status == 0;
}

/* Gives the empty union of windows its parts. False after an error reply. */
static bool make_ring(struct merge *merge, const struct bloom_filter *model, struct bloom_filter *made)
{
    struct bloom_ring ring = {0};
    struct errbuf err = {""};
    for (size_t i = 0; i < merge->nsources; i++) {
        struct bloom_filter *source = value_filter(merge->sources[i].value);
        if (bloom_window_same(model, source, &err) != BLOOM_OK) {
            reply_different(merge, i, &err);
            return false;
        }
        bloom_ring_take(&ring, source);
    }
    if (merge->call.value)
        bloom_ring_take(&ring, value_filter(merge->call.value));
    merge->places = calloc(merge->nsources + 1, sizeof(*merge->places));
    int status = merge->places ? bloom_ring_make(&ring, made, &err) : -ENOMEM;
    if (status != 0)
        call_not_made(&merge->call, status, &err);
    return status == 0;
}

/* A new filter of the destination's layout, or the first source's. NULL after an error reply. */
static struct value *make_union(struct merge *merge)
{
    struct call *call = &merge->call;
    const struct bloom_filter *model = value_filter(call->value ? call->value : merge->sources[0].value);
    struct errbuf err = {""};
    int status = 0;
    struct value *made = value_create(bloom_filter_class_of(model), &status, &err);
    if (!made) {
        call_not_made(call, status, &err);
        return NULL;
    }
    if (bloom_filter_forgets(model) ? make_ring(merge, model, value_filter(made))
                                    : make_layers(merge, model, value_filter(made)))
        return made;
    value_free(made);
    return NULL;
}

/* Sets the bits of the destination that there has been, with its counts. */
static void take_over(const struct value *old, struct bloom_filter *into)
{
    const struct bloom_filter *filter = value_filter(old);
    unsigned nlayers = bloom_filter_nlayers(filter);
    bloom_filter_or(into, filter, nlayers, NULL);
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        bloom_filter_set_items(into, i, view.items);
    }
}

static int unite_windows(struct merge *merge, struct bloom_filter *into, struct bloom_union *counts, struct errbuf *err)
{
    const struct value *old = merge->call.value;
    int status = 0;
    if (old)
        status = bloom_window_or(into, value_filter(old), UINT64_MAX, counts, &merge->places[merge->nsources], err);
    for (size_t i = 0; status == 0 && i < merge->nsources; i++) {
        const struct value *source = merge->sources[i].value;
        if (source != old)
            status = bloom_window_or(into, value_filter(source), UINT64_MAX, counts, &merge->places[i], err);
    }
    return status;
}

/* Whether the union may be: its bits are set and its items counted. False after an error reply. */
static bool unite(struct merge *merge, struct value *made, bool any_rate)
{
    const struct value *old = merge->call.value;
    struct bloom_filter *into = value_filter(made);
    struct bloom_union counts = {{0}, {0}};
    struct errbuf err = {""};
    int status = 0;
    if (merge->places) {
        status = unite_windows(merge, into, &counts, &err);
    } else {
        if (old)
            take_over(old, into);
        for (size_t i = 0; i < merge->nsources; i++) {
            const struct value *source = merge->sources[i].value;
            if (source != old)
                bloom_filter_or(into, value_filter(source), bloom_filter_nlayers(value_filter(source)), &counts);
        }
    }
    if (status != 0) {
        call_not_made(&merge->call, status, &err);
        return false;
    }
    const struct bloom_filter *before = old && !merge->places ? value_filter(old) : NULL;
    if (bloom_filter_count_union(into, &counts, before, any_rate, &err) == BLOOM_OK)
        return true;
    call_error(&merge->call, "ERR the union would be too full (bf-merge-overfull): %s", err.text);
    return false;
}

/* Whether a union is what its destination has been already: then nothing has changed, for anybody. */
static bool adds_nothing(const struct value *old, const struct value *made)
{
    const struct bloom_filter *before = value_filter(old), *after = value_filter(made);
    unsigned nlayers = bloom_filter_nlayers(before);
    if (bloom_filter_nlayers(after) != nlayers)
        return false;
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view a, b;
        bloom_filter_layer(before, i, &a);
        bloom_filter_layer(after, i, &b);
        if (a.items != b.items || a.turn != b.turn || a.started_us != b.started_us ||
            !bloom_shape_equal(&a.shape, &b.shape) ||
            memcmp((const void *)a.words, (const void *)b.words, (size_t)a.shape.nwords * 8) != 0)
            return false;
    }
    return true;
}

/* ---- what replicas are told of a union of windows ---- */

static void free_words(struct engine_string **words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        engine.FreeString(NULL, words[i]);
    free(words);
}

/* Pairs of 2 bytes each, least significant first: the layer, and that of the union. */
static size_t write_places(const struct bloom_places *places, unsigned char *out)
{
    size_t len = 0;
    for (unsigned i = 0; i < BLOOM_MAX_LAYERS; i++) {
        if (places->to[i] == 0)
            continue;
        unsigned to = places->to[i] - 1u;
        const unsigned char pair[] = {(unsigned char)i, (unsigned char)(i >> 8), (unsigned char)to,
                                      (unsigned char)(to >> 8)};
        memcpy(out + len, pair, sizeof(pair));
        len += sizeof(pair);
    }
    return len;
}

/* Of each filter the name and its places. False without memory. */
static bool union_words(const struct merge *merge, struct engine_string ***words_out, size_t *nwords_out)
{
    unsigned char places[4 * BLOOM_MAX_LAYERS];
    struct engine_string **words = malloc((merge->nsources + 1) * 2 * sizeof(*words));
    size_t n = 0;
    for (size_t i = 0; words && i <= merge->nsources; i++) {
        size_t len = write_places(&merge->places[i], places);
        if (len == 0)
            continue;
        struct slice name = call_arg(&merge->call, i < merge->nsources ? i + 2 : 1);
        words[n++] = engine.CreateString(NULL, name.ptr, name.len);
        words[n++] = engine.CreateString(NULL, (const char *)places, len);
    }
    *words_out = words;
    *nwords_out = n;
    return words != NULL;
}

static void merge_filters(struct merge *merge)
{
    struct call *call = &merge->call;
    struct errbuf err = {""};
    bool obeys = call_must_obey(call);
    if (obeys)
        bloom_pool_set_limits(values_pool(), 0, 0);
    struct value *made = make_union(merge);
    if (!made)
        return;
    bool fits = obeys || memory_within(call->ctx, bloom_filter_memory(value_filter(made)), &err);
    if (!fits)
        call_error(call, "OOM %s", err.text);
    if (!fits || !unite(merge, made, obeys || settings.merge_overfull)) {
        value_free(made);
        return;
    }
    if (call->value && adds_nothing(call->value, made)) {
        value_free(made);
        engine.ReplyWithSimpleString(call->ctx, "OK");
        return;
    }
    struct engine_string **words = NULL;
    size_t nwords = 0;
    if (merge->places && !union_words(merge, &words, &nwords)) {
        value_free(made);
        engine.ReplyWithError(call->ctx, "ERR out of memory");
        return;
    }
    call_put(call, made);
    if (merge->places)
        effect_united(call, words, nwords);
    else
        effect_verbatim(call);
    free_words(words, nwords);
    effect_counts(call); /* they are estimates: not every machine's logarithm has the same last digit */
    effect_changed(call, "bloom.merge");
    engine.ReplyWithSimpleString(call->ctx, "OK");
}

HANDLER(cmd_bf_merge)
{
    struct merge merge = {.call = {ctx, argv, argc, "bf.merge", NULL, NULL}};
    if (argc < 3)
        return engine.WrongArity(ctx);
    if (argc > 2 + MERGE_MAX_SOURCES) {
        call_error(&merge.call, "ERR at most %d filters can be merged at a time", MERGE_MAX_SOURCES);
        return ENGINE_OK;
    }
    if (call_open(&merge.call, CALL_WRITE) && open_sources(&merge))
        merge_filters(&merge);
    for (size_t i = 0; i < merge.nsources; i++)
        call_close(&merge.sources[i]);
    free(merge.sources);
    free(merge.places);
    call_close(&merge.call);
    return ENGINE_OK;
}

/* ---- BF.APPLY key UNION header name places ... ---- */

/* ORs the layers of a window into the union's, and notes when the youngest that goes into each began here. */
static bool apply_source(const struct bloom_filter *from, struct slice places, struct bloom_filter *into,
                         int64_t *started_us, struct errbuf *err)
{
    const unsigned char *pair = (const unsigned char *)places.ptr, *end = pair + places.len / 4 * 4;
    for (; pair < end; pair += 4) {
        unsigned layer = pair[0] | (unsigned)pair[1] << 8, to = pair[2] | (unsigned)pair[3] << 8;
        struct bloom_layer_view view;
        if (bloom_window_or_layer(into, to, from, layer, err) != BLOOM_OK)
            return false;
        bloom_filter_layer(from, layer, &view);
        if (view.started_us > started_us[to])
            started_us[to] = view.started_us;
    }
    return true;
}

/* The window of that name, which may be the filter that is replaced. False: there is none. */
static bool apply_named(struct call *call, struct engine_string *name, struct slice places, struct bloom_filter *into,
                        int64_t *started_us, struct errbuf *err)
{
    struct engine_key *key = engine.OpenKey(call->ctx, name, ENGINE_READ);
    const struct value *value =
        key && engine.ModuleTypeGetType(key) == value_type ? engine.ModuleTypeGetValue(key) : NULL;
    bool is_window = value && !value_is_half(value) && bloom_filter_forgets(value_filter(value));
    bool applied = is_window && apply_source(value_filter(value), places, into, started_us, err);
    if (!is_window)
        errbuf_set(err, "a source of the union is not a window");
    if (key)
        engine.CloseKey(key);
    return applied;
}

/* When the part with the layer began here: all of its layers did at once, because adds go on in the newest one. 0, and
 * so it is over: nothing went into it, as its time ended on the primary while the union was made. */
static int64_t part_started(const struct dump_plan *plan, const int64_t *started_us, unsigned layer)
{
    int64_t latest = 0;
    for (unsigned i = 0; i < plan->nlayers; i++) {
        if (plan->turns[i].number == plan->turns[layer].number && started_us[i] > latest)
            latest = started_us[i];
    }
    return latest;
}

static bool set_turns(struct bloom_filter *filter, const struct dump_plan *plan, const int64_t *started_us,
                      struct errbuf *err)
{
    for (unsigned i = 0; i < plan->nlayers; i++) {
        const struct bloom_turn turn = {.number = plan->turns[i].number,
                                        .started_us = part_started(plan, started_us, i)};
        if (turn.number == 0)
            continue;
        if (!bloom_turn_valid(&turn)) {
            errbuf_set(err, "a turn is not one that a window can have");
            return false;
        }
        bloom_window_set_turn(filter, i, &turn);
    }
    return true;
}

bool merge_apply_union(struct call *call, struct errbuf *err)
{
    int64_t started_us[BLOOM_MAX_LAYERS] = {0};
    struct dump_load load;
    int status;
    struct slice header = call->argc >= 4 ? call_arg(call, 3) : (struct slice){"", 0};
    if (dump_replay_begin(&load, header.ptr, header.len, err) != DUMP_OK)
        return false;
    if (!bloom_params_is_window(&load.plan.params)) {
        errbuf_set(err, "the header is not of a window");
        return false;
    }
    struct value *made = value_create_shaped(&load.plan.params, load.plan.shapes, load.plan.nlayers, &status, err);
    if (!made)
        return false;
    bool applied = true; /* so far */
    for (int i = 4; i + 1 < call->argc && applied; i += 2)
        applied = apply_named(call, call->argv[i], call_arg(call, (size_t)i + 1), value_filter(made), started_us, err);
    if (!applied || !set_turns(value_filter(made), &load.plan, started_us, err)) {
        value_free(made);
        return false;
    }
    call_put(call, made);
    effect_verbatim(call);
    effect_changed(call, "bloom.merge");
    return true;
}
