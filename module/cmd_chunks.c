/* BF.SCANDUMP and BF.LOADCHUNK, CF.SCANDUMP and CF.LOADCHUNK; the engine's log and migrations use them, too. */
#include "bf_chunks.h"
#include "bf_out.h"
#include "effects.h"
#include "handlers.h"
#include "memory.h"
#include "valkey_dump.h"

HANDLER(cmd_bf_scandump)
{
    if (call_open_existing(call)) {
        struct bf_args args = call_args(call);
        struct bf_out out = call_out(call);
        bf_scandump(&out, &args, value_filter(call->value), value_dump_identity(call->value));
    }
}

/* The filter now has the chunk. */
static void tell(struct call *call, const char *event)
{
    engine.ReplicateVerbatim(call->ctx);
    effect_changed(call, event);
    engine.ReplyWithSimpleString(call->ctx, "OK");
}

static void remove_value(struct call *call)
{
    if (call->value)
        engine.DeleteKey(call->key);
    call->value = NULL;
}

/* From here on the key holds a filter that replies with errors until the last chunk has come. */
static void begin_load(struct call *call, const struct bf_chunk *chunk)
{
    struct bf_out out = call_out(call);
    struct errbuf err = {""};
    struct bf_load *load = NULL;
    int status = bf_load_begin(chunk, &engine_memory, &load, &err);
    if (status != DUMP_OK || !memory_possible(bf_load_plan(load)->bytes, &err)) {
        bf_load_end(load);
        bf_reply_bad_chunk(&out, status < 0 ? NULL : err.text, false);
        return;
    }
    struct value *value = value_begin_load(load, !chunk->obeys, &status, &err);
    if (!value) {
        call_not_made(call, status, &err);
        return;
    }
    remove_value(call);
    call_put(call, value);
    tell(call, NULL);
}

static void continue_load(struct call *call, const struct bf_chunk *chunk)
{
    struct value *value = call->value;
    struct errbuf err = {""};
    enum bf_load_state state = bf_load_take(value->load, value_filter(value), chunk, &err);
    if (state == BF_LOAD_COMPLETE) {
        value_end_load(value);
        call_put(call, value);
    }
    if (state == BF_LOAD_COMPLETE || state == BF_LOAD_GOES_ON) {
        tell(call, state == BF_LOAD_COMPLETE ? "bloom.load" : NULL);
        return;
    }
    if (state == BF_LOAD_SPOILT) {
        remove_value(call);
        effect_deleted(call);
        effect_changed(call, NULL);
    }
    struct bf_out out = call_out(call);
    bf_reply_bad_chunk(&out, state == BF_LOAD_NO_MEMORY ? NULL : err.text, state == BF_LOAD_SPOILT);
}

HANDLER(cmd_bf_loadchunk)
{
    struct bf_args args = call_args(call);
    struct bf_chunk chunk;
    struct errbuf err;
    if (!bf_read_chunk(&args, call_must_obey(call), &chunk, &err)) {
        call_error(call, "%s", err.text);
        return;
    }
    if (call_open_any(call)) {
        struct value *value = call->value;
        switch (bf_chunk_kind(&chunk, value ? value_filter(value) : NULL, value ? value->load : NULL)) {
        case BF_CHUNK_KNOWN:
            engine.ReplyWithSimpleString(call->ctx, "OK");
            break;
        case BF_CHUNK_BEGINS:
            if (call_has_memory(call))
                begin_load(call, &chunk);
            break;
        case BF_CHUNK_CONTINUES:
            continue_load(call, &chunk);
            break;
        case BF_CHUNK_UNEXPECTED:
            engine.ReplyWithError(call->ctx, BF_KEY_EXISTS);
        }
    }
}

/* ---- BF.LOAD ---- */

static void load_value(struct call *call, const struct dump_plan *plan, struct slice payload)
{
    struct value *value = call_make(call, &plan->params, plan->shapes, plan->nlayers);
    if (value) {
        valkey_restore(VALKEY_LOAD, payload.ptr, payload.len, value_filter(value));
        call_put(call, value);
        tell(call, "bloom.load");
    }
}

HANDLER(cmd_bf_load)
{
    static struct dump_plan plan; /* 100 KB */
    struct slice payload = call_arg(call, 2);
    struct errbuf error = {""};
    if (!call_open(call))
        return;
    if (call->value)
        engine.ReplyWithError(call->ctx, "BUSYKEY Target key name already exists.");
    else if (bf_read_load(payload, &plan, &error))
        load_value(call, &plan, payload);
    else
        call_error(call, "%s", error.text);
}

/* ---- cuckoo filters ---- */

HANDLER(cmd_cf_scandump)
{
    struct bf_out out = call_out(call);
    struct errbuf error;
    int64_t iterator;
    if (!cf_read_position(call_arg(call, 2), false, &iterator, &error))
        call_error(call, "%s", error.text);
    else if (call_open_existing_cuckoo(call))
        cf_reply_chunk(&out, value_filter(call->value), iterator);
}

static void load_header(struct call *call, struct slice data)
{
    struct errbuf err = {""};
    struct dump_plan plan;
    uint64_t deletes;
    if (!cf_read_header(data, &plan, &deletes, &err)) {
        call_error(call, "%s", err.text);
        return;
    }
    if (!memory_possible(plan.bytes, &err)) {
        call_error(call, CF_NO_MEMORY, err.text);
        return;
    }
    struct value *value = call_make(call, &plan.params, plan.shapes, plan.nlayers);
    if (!value)
        return;
    cuckoo_set_counts(value_filter(value), 0, deletes);
    call_put(call, value);
    if (value_key_is_new(value, &err))
        engine.Log(call->ctx, "warning", "bloomery: %s", err.text);
    tell(call, "bloom.reserve");
}

/* Slots that are equal already are no change. */
static void load_slots(struct call *call, uint64_t at, struct slice data)
{
    struct bloom_filter *filter = value_filter(call->value);
    uint64_t before = bloom_filter_changes(filter);
    cuckoo_set_slots(filter, at, data.ptr, data.len, NULL);
    if (bloom_filter_changes(filter) != before)
        tell(call, NULL);
    else
        engine.ReplyWithSimpleString(call->ctx, "OK");
}

HANDLER(cmd_cf_loadchunk)
{
    struct slice data = call_arg(call, 3);
    struct errbuf error;
    int64_t iterator;
    uint64_t at;
    if (!cf_read_position(call_arg(call, 2), true, &iterator, &error)) {
        call_error(call, "%s", error.text);
        return;
    }
    if (!call_open_cuckoo(call))
        return;
    if (iterator == REDISBLOOM_HEADER_ITERATOR && call->value)
        engine.ReplyWithError(call->ctx, CF_EXISTS);
    else if (iterator == REDISBLOOM_HEADER_ITERATOR) {
        if (call_has_memory(call))
            load_header(call, data);
    } else if (!call->value)
        engine.ReplyWithError(call->ctx, CF_NOT_FOUND);
    else if (!cf_chunk_place(value_filter(call->value), iterator, data, &at))
        engine.ReplyWithError(call->ctx, CF_NOT_LOADED);
    else
        load_slots(call, at, data);
}
