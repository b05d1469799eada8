/* BF.SCANDUMP and BF.LOADCHUNK: a filter of any size from one server to another, a piece at a time; and how the
 * engine's log and its migrations of slots move one. docs/DUMP.md has the bytes. */
#include <stdlib.h>

#include "bf_texts.h"
#include "effects.h"
#include "handlers.h"
#include "memory.h"

/* ---- BF.SCANDUMP ---- */

static void reply_chunk(struct call *call, const struct dump_plan *plan, struct dump_place *place)
{
    size_t len = dump_chunk_bytes(plan, place->next);
    unsigned char *chunk = malloc(len);
    if (!chunk) {
        engine.ReplyWithError(call->ctx, "ERR out of memory");
        return;
    }
    dump_write_chunk(plan, value_filter(call->value), value_dump_identity(call->value, plan->nlayers), value_random(),
                     place, chunk);
    engine.ReplyWithArray(call->ctx, 2);
    engine.ReplyWithLongLong(call->ctx, dump_iterator(place));
    engine.ReplyWithStringBuffer(call->ctx, (const char *)chunk, len);
    free(chunk);
}

static void scandump(struct call *call, int64_t iterator)
{
    unsigned nlayers = bloom_filter_nlayers(value_filter(call->value));
    struct dump_place place = {.nlayers = nlayers};
    struct dump_plan plan;
    if (iterator != 0 && (!dump_place_from(iterator, &place) || place.nlayers > nlayers)) {
        engine.ReplyWithError(call->ctx, BF_NO_ITERATOR);
        return;
    }
    dump_plan_of(value_filter(call->value), place.nlayers, &plan);
    if (dump_chunks(&plan) >= DUMP_MAX_CHUNKS) {
        engine.ReplyWithError(call->ctx, "ERR the filter is too large for a dump: more than 2 TB");
    } else if (place.next < dump_chunks(&plan)) {
        reply_chunk(call, &plan, &place);
    } else if (place.next == dump_chunks(&plan)) {
        engine.ReplyWithArray(call->ctx, 2);
        engine.ReplyWithLongLong(call->ctx, 0);
        engine.ReplyWithStringBuffer(call->ctx, "", 0);
    } else {
        engine.ReplyWithError(call->ctx, BF_NO_ITERATOR);
    }
}

HANDLER(cmd_bf_scandump)
{
    struct call call = {ctx, argv, argc, "bf.scandump", NULL, NULL};
    int64_t iterator;
    if (argc != 3)
        return engine.WrongArity(ctx);
    if (call_open_existing(&call, CALL_READ)) {
        if (slice_to_int64(call_arg(&call, 2), &iterator))
            scandump(&call, iterator);
        else
            engine.ReplyWithError(ctx, BF_NOT_NUMERIC);
    }
    call_close(&call);
    return ENGINE_OK;
}

/* ---- BF.LOADCHUNK ---- */

/* The first chunk: the key holds a filter from here on, which answers errors until the last one has come. */
static void begin_load(struct call *call, int64_t iterator, struct slice data, bool obeys)
{
    struct errbuf err = {""};
    struct dump_load load;
    int status;
    if (dump_load_begin(&load, iterator, data.ptr, data.len, &err) != DUMP_OK ||
        !memory_possible(load.plan.bytes, &err)) {
        call_error(call, BF_BAD_DATA, err.text);
        return;
    }
    if (obeys)
        bloom_pool_set_limits(values_pool(), 0, 0);
    struct value *value = value_begin_load(&load, &status, &err);
    if (!value) {
        call_not_made(call, status, &err);
        return;
    }
    if (!obeys &&
        (engine.GetContextFlags(call->ctx) & ENGINE_CTX_OOM || !memory_within(call->ctx, load.plan.bytes, &err))) {
        value_free(value);
        call_error(call, "OOM command not allowed when used memory > 'maxmemory'.");
        return;
    }
    if (call->value) {
        engine.DeleteKey(call->key);
        call->value = NULL;
    }
    call_put(call, value);
    effect_verbatim(call);
    effect_changed(call, NULL);
    engine.ReplyWithSimpleString(call->ctx, "OK");
}

static void go_on(struct call *call, int64_t iterator, struct slice data)
{
    struct value *value = call->value;
    struct errbuf err = {""};
    bool complete = false;
    if (dump_load_chunk(value->load, value_filter(value), iterator, data.ptr, data.len, &complete, &err) != DUMP_OK) {
        engine.DeleteKey(call->key);
        call->value = NULL;
        effect_deleted(call);
        effect_changed(call, NULL);
        call_error(call, BF_BAD_DATA BF_DROPPED, err.text);
        return;
    }
    if (complete) {
        memory_release(value->load);
        value->load = NULL;
    }
    effect_verbatim(call);
    effect_changed(call, complete ? "bloom.load" : NULL);
    engine.ReplyWithSimpleString(call->ctx, "OK");
}

/* A header from a primary, a log or a migration replaces what is there: it has been accepted where nothing was. */
HANDLER(cmd_bf_loadchunk)
{
    struct call call = {ctx, argv, argc, "bf.loadchunk", NULL, NULL};
    int64_t iterator;
    if (argc != 4)
        return engine.WrongArity(ctx);
    struct slice data = call_arg(&call, 3);
    if (!slice_to_int64(call_arg(&call, 2), &iterator)) {
        engine.ReplyWithError(ctx, "ERR " BF_NOT_NUMERIC);
        return ENGINE_OK;
    }
    if (call_open_any(&call, CALL_WRITE)) {
        bool obeys = call_must_obey(&call);
        if (!call.value || (obeys && dump_is_header(data.ptr, data.len)))
            begin_load(&call, iterator, data, obeys);
        else if (call.value->load)
            go_on(&call, iterator, data);
        else
            call_error(&call, BF_BAD_DATA, "the key exists");
    }
    call_close(&call);
    return ENGINE_OK;
}
