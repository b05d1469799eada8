/* BF.APPLY: a change from a primary, or from the engine's log (effects.h). */
#include <string.h>

#include "bloom_window.h"
#include "bytes.h"
#include "effects.h"
#include "handlers.h"
#include "value.h"

/* Reads words `from` on as numbers of at least 0. */
static bool read_numbers(const struct call *call, size_t from, uint64_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t number;
        if (!slice_to_int64(call_arg(call, from + i), &number) || number < 0)
            return false;
        out[i] = (uint64_t)number;
    }
    return true;
}

/* Reads the header of a filter with one layer. */
static bool read_header(struct slice bytes, struct dump_load *load, struct errbuf *err)
{
    if (dump_load_begin(load, NULL, bytes.ptr, bytes.len, err) != DUMP_OK)
        return false;
    if (load->plan.nlayers == 1)
        return true;
    return errbuf_fail(err, false, "a header of %u layers", load->plan.nlayers);
}

/* key MAKE header. A filter under that name is replaced: the primary has none. */
static bool apply_make(struct call *call, struct errbuf *err)
{
    struct dump_load load;
    int status;
    if (!read_header(call_arg(call, 3), &load, err))
        return false;
    struct errbuf text;
    struct value *value = value_create_shaped(&load.plan.params, load.plan.shapes, 1, false, &status, err);
    if (!value)
        return false;
    if (call->value) {
        engine.DeleteKey(call->key);
        call->value = NULL;
    }
    call_put(call, value);
    if (value_key_is_new(value, &text))
        engine.Log(call->ctx, "warning", "bloomery: %s", text.text);
    effect_changed(call, "bloom.reserve");
    return true;
}

/* key LAYER index header. An existing layer is not made again. */
static bool apply_layer(struct call *call, struct errbuf *err)
{
    struct bloom_filter *filter = value_filter(call->value);
    unsigned nlayers = bloom_filter_nlayers(filter);
    struct dump_load load;
    uint64_t index;
    if (call->argc != 5 || !read_numbers(call, 3, &index, 1))
        return errbuf_fail(err, false, "it takes LAYER index header");
    if (index < nlayers)
        return true;
    if (index != nlayers)
        return errbuf_fail(err, false, "layer %llu of a filter with %u", (unsigned long long)index, nlayers);
    if (!read_header(call_arg(call, 4), &load, err) ||
        bloom_filter_append_layer(filter, &load.plan.shapes[0], err) != 0)
        return false;
    effect_changed(call, "bloom.grow");
    return true;
}

/* key ITEMS count ... */
static bool apply_items(struct call *call, struct errbuf *err)
{
    struct bloom_filter *filter = value_filter(call->value);
    uint64_t counts[BLOOM_MAX_LAYERS];
    unsigned nlayers = bloom_filter_nlayers(filter);
    if ((size_t)call->argc != 3 + (size_t)nlayers || !read_numbers(call, 3, counts, nlayers))
        return errbuf_fail(err, false, "it takes ITEMS and a count for each of %u layers", nlayers);
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        bloom_filter_set_items(filter, i, counts[i] < view.capacity ? counts[i] : view.capacity);
    }
    effect_changed(call, NULL);
    return true;
}

/* key ADD hash ... : to the newest part of a window without a test, as all adds that another node has placed. */
static bool apply_adds(struct call *call, struct errbuf *err)
{
    struct bloom_filter *filter = value_filter(call->value);
    for (int i = 3; i < call->argc; i++) {
        struct slice bytes = call_arg(call, (size_t)i);
        if (bytes.len != 16)
            return errbuf_fail(err, false, "a hash has 16 bytes, not %zu", bytes.len);
        const unsigned char *at = (const unsigned char *)bytes.ptr;
        struct bloom_hash hash = {le64_get(at), le64_get(at + 8)};
        if (bloom_filter_forgets(filter) && bloom_window_place(filter, hash))
            continue;
        if (bloom_filter_add(filter, hash, err) == BLOOM_NO_ROOM)
            return false;
    }
    effect_changed(call, NULL);
    return true;
}

/* key TURN layer number unix-us header */
static bool apply_turn(struct call *call, struct errbuf *err)
{
    struct bloom_filter *filter = value_filter(call->value);
    uint64_t numbers[3]; /* layer, number, unix-us */
    struct dump_load load;
    if (call->argc != 7 || !read_numbers(call, 3, numbers, 3) || numbers[0] >= BLOOM_MAX_LAYERS || numbers[1] == 0)
        return errbuf_fail(err, false, "it takes TURN layer number unix-us header");
    if (!bloom_filter_forgets(filter))
        return errbuf_fail(err, false, "the filter is not a window");
    if (!read_header(call_arg(call, 6), &load, err))
        return false;
    const struct bloom_turn turn = {.number = numbers[1],
                                    .started_us = window_started_here(filter, numbers[1], numbers[2])};
    if (!bloom_turn_valid(&turn))
        return errbuf_fail(err, false, "invalid turn of a window");
    if (bloom_window_replay(filter, (unsigned)numbers[0], &load.plan.shapes[0], &turn, err) != 0)
        return false;
    effect_turn(call, (unsigned)numbers[0], &load.plan.shapes[0], &turn);
    effect_changed(call, NULL);
    return true;
}

/* key DROP number */
static bool apply_drop(struct call *call, struct errbuf *err)
{
    uint64_t below;
    if (call->argc != 4 || !read_numbers(call, 3, &below, 1))
        return errbuf_fail(err, false, "it takes DROP number");
    if (!bloom_filter_forgets(value_filter(call->value)))
        return errbuf_fail(err, false, "the filter is not a window");
    effect_dropped(call, below);
    effect_changed(call, NULL);
    return true;
}

/* ---- unions of windows ---- */

/* ORs the layers of a window into the union's, and notes the time when the youngest that goes into each began here. */
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

/* The window of that name, which may be the filter to replace. False: none. */
static bool apply_named(struct call *call, struct engine_string *name, struct slice places, struct bloom_filter *into,
                        int64_t *started_us, struct errbuf *err)
{
    struct engine_key *key = engine.OpenKey(call->ctx, name, ENGINE_READ);
    const struct value *value =
        key && engine.ModuleTypeGetType(key) == value_type ? engine.ModuleTypeGetValue(key) : NULL;
    bool is_window = value && !value->load && bloom_filter_forgets(value_filter(value));
    bool applied = is_window && apply_source(value_filter(value), places, into, started_us, err);
    if (!is_window)
        errbuf_set(err, "a source of the union is not a window");
    if (key)
        engine.CloseKey(key);
    return applied;
}

/* The time when the part with the layer began here: all of its layers began together, because adds continue in the
 * newest one. 0, an expired part: nothing went into it, as its time ended on the primary while the union was made. */
static int64_t part_started(const struct dump_plan *plan, const int64_t *started_us, unsigned layer)
{
    int64_t latest = 0;
    for (unsigned i = 0; i < plan->nlayers; i++)
        if (plan->turns[i].number == plan->turns[layer].number && started_us[i] > latest)
            latest = started_us[i];
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
        if (!bloom_turn_valid(&turn))
            return errbuf_fail(err, false, "invalid turn of a window");
        bloom_window_set_turn(filter, i, &turn);
    }
    return true;
}

/* key UNION header name places ... */
static bool apply_union(struct call *call, struct errbuf *err)
{
    int64_t started_us[BLOOM_MAX_LAYERS] = {0};
    struct dump_load load;
    int status;
    struct slice header = call->argc >= 4 ? call_arg(call, 3) : (struct slice){"", 0};
    if (dump_load_begin(&load, NULL, header.ptr, header.len, err) != DUMP_OK)
        return false;
    if (!bloom_params_is_window(&load.plan.params))
        return errbuf_fail(err, false, "the header is not of a window");
    struct value *made =
        value_create_shaped(&load.plan.params, load.plan.shapes, load.plan.nlayers, false, &status, err);
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
    engine.ReplicateVerbatim(call->ctx);
    effect_changed(call, "bloom.merge");
    return true;
}

/* ---- BF.APPLY ---- */

static bool apply(struct call *call, struct errbuf *err)
{
    struct slice what = call_arg(call, 2);
    if (slice_is(what, "MAKE")) {
        if (!apply_make(call, err))
            return false;
        effect_applied(call, true);
        return true;
    }
    if (slice_is(what, "UNION"))
        return apply_union(call, err);
    if (!call->value || call->value->load)
        return errbuf_fail(err, false, "no such filter");
    if (slice_is(what, "LAYER") && apply_layer(call, err)) {
        effect_applied(call, false);
        return true;
    }
    if (slice_is(what, "TURN"))
        return apply_turn(call, err);
    if (slice_is(what, "DROP"))
        return apply_drop(call, err);
    if ((slice_is(what, "ITEMS") && apply_items(call, err)) || (slice_is(what, "ADD") && apply_adds(call, err))) {
        engine.ReplicateVerbatim(call->ctx);
        return true;
    }
    if (!err->text[0])
        errbuf_set(err, "unknown word '%.*s'", slice_shown(what), what.ptr);
    return false;
}

HANDLER(cmd_bf_apply)
{
    struct errbuf err = {""};
    if (!call_must_obey(call)) {
        engine.ReplyWithError(call->ctx, "ERR this command is for replication only");
        return;
    }
    bool cuckoo = slice_is(call_arg(call, 2), "CFADD") || slice_is(call_arg(call, 2), "CFDEL");
    if (cuckoo || call_open_any(call)) {
        if (cuckoo ? cf_apply(call, &err) : apply(call, &err)) {
            engine.ReplyWithSimpleString(call->ctx, "OK");
        } else {
            engine.Log(call->ctx, "warning", "bloomery: %s cannot be applied: %s", call->name, err.text);
            call_error(call, "ERR %s", err.text);
        }
    }
}
