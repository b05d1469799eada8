/* BF.SCANDUMP and BF.LOADCHUNK: a filter of any size from one server to another, a piece at a time; and how the
 * engine's log and its migrations of slots move one. docs/DUMP.md has the bytes. */
#include <stdlib.h>

#include "bf_texts.h"
#include "effects.h"
#include "handlers.h"
#include "memory.h"
#include "redisbloom_half.h"

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

/* The iterator is the number of bytes handed out, and one for the header: any number is at the end, if not before. */
static void scan_redisbloom(struct call *call, int64_t iterator)
{
    unsigned char *chunk;
    uint64_t next;
    size_t len;
    if (iterator < 0) {
        engine.ReplyWithError(call->ctx, BF_NO_ITERATOR);
    } else if (redisbloom_scan(value_filter(call->value), (uint64_t)iterator, DUMP_DATA_BYTES, &next, &chunk, &len) !=
               DUMP_OK) {
        engine.ReplyWithError(call->ctx, "ERR out of memory");
    } else {
        engine.ReplyWithArray(call->ctx, 2);
        engine.ReplyWithLongLong(call->ctx, (long long)next);
        engine.ReplyWithStringBuffer(call->ctx, chunk ? (const char *)chunk : "", len);
        free(chunk);
    }
}

static void scandump(struct call *call, int64_t iterator)
{
    unsigned nlayers = bloom_filter_nlayers(value_filter(call->value));
    struct dump_place place = {.nlayers = nlayers};
    struct dump_plan plan;
    if (redisbloom_is_layout(value_filter(call->value))) {
        scan_redisbloom(call, iterator);
        return;
    }
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

/* The key holds this filter from here on, which answers errors until the last chunk has come. `value` NULL: it could
 * not be made. */
static void keep_begun(struct call *call, struct value *value, int status, uint64_t bytes, bool obeys,
                       struct errbuf *err)
{
    if (!value) {
        call_not_made(call, status, err);
        return;
    }
    if (!obeys && (engine.GetContextFlags(call->ctx) & ENGINE_CTX_OOM || !memory_within(call->ctx, bytes, err))) {
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

/* The first chunk of a dump of ours. */
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
    keep_begun(call, value, status, load.plan.bytes, obeys, &err);
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

/* ---- BF.LOADCHUNK of RedisBloom's chunks ---- */

static void begin_redisbloom(struct call *call, struct slice data, bool obeys)
{
    struct errbuf err = {""};
    struct redisbloom_half *half;
    int status = half_make(data.ptr, data.len, &half, &err);
    if (status != DUMP_OK) {
        if (status == DUMP_BAD)
            call_error(call, BF_BAD_DATA, err.text);
        else
            engine.ReplyWithError(call->ctx, BF_NO_MEMORY);
        return;
    }
    uint64_t bytes = half->load.plan.bytes;
    if (!memory_possible(bytes, &err)) {
        half_release(half);
        call_error(call, BF_BAD_DATA, err.text);
        return;
    }
    if (obeys)
        bloom_pool_set_limits(values_pool(), 0, 0);
    struct value *value = value_begin_redisbloom(half, &status, &err);
    keep_begun(call, value, status, bytes, obeys, &err);
}

/* A chunk that is wrong changes nothing: the load goes on. */
static void take_redisbloom(struct call *call, int64_t iterator, struct slice data)
{
    struct value *value = call->value;
    struct errbuf err = {""};
    bool complete = false;
    int status = redisbloom_load_chunk(&value->half->load, value_filter(value), (uint64_t)iterator, data.ptr, data.len,
                                       &complete, &err);
    if (status == DUMP_BAD) {
        call_error(call, BF_BAD_DATA, err.text);
        return;
    }
    if (status != DUMP_OK) {
        engine.ReplyWithError(call->ctx, "ERR out of memory");
        return;
    }
    if (complete) {
        half_release(value->half);
        value->half = NULL;
        call_put(call, value);
    }
    effect_verbatim(call);
    effect_changed(call, complete ? "bloom.load" : NULL);
    engine.ReplyWithSimpleString(call->ctx, "OK");
}

/* Whether the chunk is one of RedisBloom's, for what is there. The header of the load once more, and a chunk that a
 * filter has already, change nothing: clients send them again after an error of the connection. */
static bool load_redisbloom(struct call *call, int64_t iterator, struct slice data, bool obeys)
{
    bool half = call->value && call->value->half;
    bool header = iterator == REDISBLOOM_HEADER_ITERATOR || (iterator == 0 && obeys); /* so old versions logged it */
    if (half && header && redisbloom_load_began_with(&call->value->half->load, data.ptr, data.len))
        engine.ReplyWithSimpleString(call->ctx, "OK");
    else if (header && (half || !call->value || obeys))
        begin_redisbloom(call, data, obeys);
    else if (half && !(obeys && dump_is_header(data.ptr, data.len)))
        take_redisbloom(call, iterator, data);
    else if (call->value && !value_is_half(call->value) && iterator > 0 &&
             redisbloom_has_chunk(value_filter(call->value), (uint64_t)iterator, data.ptr, data.len))
        engine.ReplyWithSimpleString(call->ctx, "OK");
    else
        return false;
    return true;
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
        if (load_redisbloom(&call, iterator, data, obeys))
            ; /* it has been answered */
        else if (!call.value || (obeys && dump_is_header(data.ptr, data.len)))
            begin_load(&call, iterator, data, obeys);
        else if (call.value->load)
            go_on(&call, iterator, data);
        else
            call_error(&call, BF_BAD_DATA, "the key exists");
    }
    call_close(&call);
    return ENGINE_OK;
}
