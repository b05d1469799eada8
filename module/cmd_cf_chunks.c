/* CF.SCANDUMP and CF.LOADCHUNK; also how the engine's log and its migrations of slots move a cuckoo filter. */
#include "cf_chunks.h"
#include "effects.h"
#include "handlers.h"
#include "memory.h"

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

static void tell(struct call *call, const char *event)
{
    effect_verbatim(call);
    effect_changed(call, event);
}

static void load_header(struct call *call, struct slice data)
{
    struct errbuf err = {""};
    struct dump_plan plan;
    uint64_t deletes;
    int status;
    if (!cf_read_header(data, &plan, &deletes, &err)) {
        call_error(call, "%s", err.text);
        return;
    }
    if (!memory_possible(plan.bytes, &err)) {
        call_error(call, CF_NO_MEMORY, err.text);
        return;
    }
    struct value *value =
        value_create_shaped(&plan.params, plan.shapes, plan.nlayers, !call_must_obey(call), &status, &err);
    if (!value) {
        call_not_made(call, status, &err);
        return;
    }
    cuckoo_set_counts(value_filter(value), 0, deletes);
    call_put(call, value);
    if (value_key_is_new(value, &err))
        engine.Log(call->ctx, "warning", "bloomery: %s", err.text);
    tell(call, "bloom.reserve");
    engine.ReplyWithSimpleString(call->ctx, "OK");
}

/* Slots that are equal already are no change. */
static void load_slots(struct call *call, uint64_t at, struct slice data)
{
    struct bloom_filter *filter = value_filter(call->value);
    uint64_t before = bloom_filter_changes(filter);
    cuckoo_set_slots(filter, at, data.ptr, data.len, NULL);
    if (bloom_filter_changes(filter) != before)
        tell(call, NULL);
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
    if (iterator == CF_FIRST_ITERATOR && call->value)
        engine.ReplyWithError(call->ctx, CF_EXISTS);
    else if (iterator == CF_FIRST_ITERATOR) {
        if (call_has_memory(call))
            load_header(call, data);
    } else if (!call->value)
        engine.ReplyWithError(call->ctx, CF_NOT_FOUND);
    else if (!cf_chunk_place(value_filter(call->value), iterator, data, &at))
        engine.ReplyWithError(call->ctx, CF_NOT_LOADED);
    else
        load_slots(call, at, data);
}
