/* Commands on a filter as a whole: reports, emptying; and BF.APPLY, by which a primary tells of one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bf_info.h"
#include "effects.h"
#include "handlers.h"
#include "merge.h"
#include "settings.h"
#include "value_window.h"

/* ---- reports ---- */

HANDLER(cmd_bf_info)
{
    struct call call = {ctx, argv, argc, "bf.info", NULL, NULL};
    struct bf_args args = call_args(&call);
    struct bf_choice choice;
    struct errbuf error;
    bool understood = bf_read_info(&args, &choice, &error);
    if (argc < 2 || argc > 3) /* the number of words is checked before the filter, the word after it */
        return engine.WrongArity(ctx);
    if (call_open_existing(&call, CALL_READ)) {
        struct bf_out out = call_out(&call);
        if (!understood)
            engine.ReplyWithError(ctx, error.text);
        else if (bf_reply_info(&out, value_filter(call.value), &call.value->usage, &choice) != 0)
            engine.ReplyWithError(ctx, "ERR out of memory");
    }
    call_close(&call);
    return ENGINE_OK;
}

HANDLER(cmd_bf_card)
{
    struct call call = {ctx, argv, argc, "bf.card", NULL, NULL};
    if (argc != 2)
        return engine.WrongArity(ctx);
    if (call_open(&call, CALL_READ))
        engine.ReplyWithLongLong(ctx, call.value ? (long long)bloom_filter_items(value_filter(call.value)) : 0);
    call_close(&call);
    return ENGINE_OK;
}

HANDLER(cmd_bf_debug)
{
    struct call call = {ctx, argv, argc, "bf.debug", NULL, NULL};
    if (argc != 2)
        return engine.WrongArity(ctx);
    if (call_open_existing(&call, CALL_READ)) {
        struct bf_out out = call_out(&call);
        bf_reply_debug(&out, value_filter(call.value));
    }
    call_close(&call);
    return ENGINE_OK;
}

/* A plan has up to 1024 layers: not on the stack. */
HANDLER(cmd_bf_plan)
{
    struct call call = {ctx, argv, argc, "bf.plan", NULL, NULL};
    struct bf_args args = call_args(&call);
    struct bf_defaults defaults = settings_defaults();
    struct bf_out out = call_out(&call);
    struct bf_plan asked;
    struct errbuf err = {""};
    if (!bf_read_plan(&args, &defaults, &asked, &err)) {
        engine.ReplyWithError(ctx, err.text);
        return ENGINE_OK;
    }
    struct bloom_plan *plan = malloc(sizeof(*plan));
    if (!plan)
        engine.ReplyWithError(ctx, "ERR out of memory");
    else if (bloom_plan(&asked.params, asked.items, plan, &err) != BLOOM_OK)
        call_error(&call, "ERR %s", err.text);
    else
        bf_reply_plan(&out, &asked.params, plan);
    free(plan);
    return ENGINE_OK;
}

/* Counts belong to the process that has counted them: replicas have their own. */
HANDLER(cmd_bf_falsepositive)
{
    struct call call = {ctx, argv, argc, "bf.falsepositive", NULL, NULL};
    struct bf_args args = call_args(&call);
    struct errbuf error;
    uint32_t count;
    if (argc < 2)
        return engine.WrongArity(ctx);
    if (!bf_read_false_positives(&args, &count, &error)) {
        engine.ReplyWithError(ctx, error.text);
        return ENGINE_OK;
    }
    if (call_open_existing(&call, CALL_READ)) {
        call.value->usage.wrong += count;
        engine.ReplyWithLongLong(ctx, (long long)call.value->usage.wrong);
    }
    call_close(&call);
    return ENGINE_OK;
}

/* ---- BF.CLEAR ---- */

static void clear_filter(struct call *call)
{
    struct errbuf err = {""};
    int status;
    bloom_pool_set_limits(values_pool(), 0, 0); /* it is no larger than the one that it replaces */
    struct value *empty = value_create(bloom_filter_class_of(value_filter(call->value)), &status, &err);
    if (!empty) {
        call_not_made(call, status, &err);
        return;
    }
    call_put(call, empty);
    effect_verbatim(call);
    effect_changed(call, "bloom.clear");
    engine.ReplyWithSimpleString(call->ctx, "OK");
}

HANDLER(cmd_bf_clear)
{
    struct call call = {ctx, argv, argc, "bf.clear", NULL, NULL};
    if (argc != 2)
        return engine.WrongArity(ctx);
    if (call_open_existing(&call, CALL_WRITE)) {
        if (value_is_blank(call.value)) {
            call.value->usage = (struct bf_usage){.since_s = (int64_t)time(NULL)}; /* of this process alone */
            engine.ReplyWithSimpleString(ctx, "OK");
        } else {
            clear_filter(&call);
        }
    }
    call_close(&call);
    return ENGINE_OK;
}

/* ---- BF.APPLY ---- */

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
    if (dump_replay_begin(load, bytes.ptr, bytes.len, err) != DUMP_OK)
        return false;
    if (load->plan.nlayers == 1)
        return true;
    errbuf_set(err, "a header of %u layers", load->plan.nlayers);
    return false;
}

/* key MAKE header. A filter under that name is replaced: the primary has none. */
static bool apply_make(struct call *call, struct errbuf *err)
{
    struct dump_load load;
    int status;
    if (!read_header(call_arg(call, 3), &load, err))
        return false;
    struct value *value = value_create_shaped(&load.plan.params, load.plan.shapes, 1, &status, err);
    if (!value)
        return false;
    if (call->value) {
        engine.DeleteKey(call->key);
        call->value = NULL;
    }
    call_put(call, value);
    effect_changed(call, "bloom.reserve");
    return true;
}

/* key LAYER index header. One that is there already is not made again. */
static bool apply_layer(struct call *call, struct errbuf *err)
{
    struct bloom_filter *filter = value_filter(call->value);
    unsigned nlayers = bloom_filter_nlayers(filter);
    struct dump_load load;
    uint64_t index;
    if (call->argc != 5 || !read_numbers(call, 3, &index, 1)) {
        errbuf_set(err, "it takes LAYER index header");
        return false;
    }
    if (index < nlayers)
        return true;
    if (index != nlayers) {
        errbuf_set(err, "layer %llu of a filter with %u", (unsigned long long)index, nlayers);
        return false;
    }
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
    if ((size_t)call->argc != 3 + (size_t)nlayers || !read_numbers(call, 3, counts, nlayers)) {
        errbuf_set(err, "it takes ITEMS and a count for each of %u layers", nlayers);
        return false;
    }
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        bloom_filter_set_items(filter, i, counts[i] < view.capacity ? counts[i] : view.capacity);
    }
    effect_changed(call, NULL);
    return true;
}

/* key TURN layer number unix-us header */
static bool apply_turn(struct call *call, struct errbuf *err)
{
    struct dump_load load;
    return (call->argc != 7 || read_header(call_arg(call, 6), &load, err)) &&
           window_apply_turn(call, &load.plan.shapes[0], err);
}

static bool apply(struct call *call, struct errbuf *err)
{
    struct slice what = call_arg(call, 2);
    bloom_pool_set_limits(values_pool(), 0, 0);
    if (slice_is(what, "MAKE")) {
        if (!apply_make(call, err))
            return false;
        effect_applied(call, true);
        return true;
    }
    if (slice_is(what, "UNION"))
        return merge_apply_union(call, err);
    if (!call->value || value_is_half(call->value)) {
        errbuf_set(err, "there is no such filter");
        return false;
    }
    if (slice_is(what, "LAYER") && apply_layer(call, err)) {
        effect_applied(call, false);
        return true;
    }
    if (slice_is(what, "TURN"))
        return apply_turn(call, err);
    if (slice_is(what, "DROP"))
        return window_apply_drop(call, err);
    if (slice_is(what, "ITEMS") && apply_items(call, err)) {
        effect_verbatim(call);
        return true;
    }
    if (!err->text[0])
        errbuf_set(err, "'%.*s' is not known here", slice_shown(what), what.ptr);
    return false;
}

HANDLER(cmd_bf_apply)
{
    struct call call = {ctx, argv, argc, "bf.apply", NULL, NULL};
    struct errbuf err = {""};
    if (argc < 4)
        return engine.WrongArity(ctx);
    if (!call_must_obey(&call)) {
        engine.ReplyWithError(ctx, "ERR this command is for replication only");
        return ENGINE_OK;
    }
    if (call_open_any(&call, CALL_WRITE)) {
        if (apply(&call, &err)) {
            engine.ReplyWithSimpleString(ctx, "OK");
        } else {
            engine.Log(ctx, "warning", "bloomery: %s cannot be applied: %s", call.name, err.text);
            call_error(&call, "ERR %s", err.text);
        }
    }
    call_close(&call);
    return ENGINE_OK;
}
