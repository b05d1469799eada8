/* CF.SCANDUMP and CF.LOADCHUNK. As in RedisBloom the filter exists from its header on, and chunks are written into it
 * as they come. A save or a transaction between two chunks of a dump is not noticed: DUMP is of one moment. */
#include "bf_host.h"
#include "bloom_keyring.h"
#include "cf.h"
#include "cf_chunks.h"
#include "content.h"
#include "handlers.h"

/* ---- CF.SCANDUMP ---- */

void cmd_cf_scandump(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    struct bf_out out = bf_out_of(ctx->reply);
    struct errbuf error;
    int64_t iterator;
    if (!cf_read_position(command_arg(ctx, 2), false, &iterator, &error)) {
        reply_error(ctx->reply, error.text);
        return;
    }
    const struct bloom_filter *filter = cf_existing(&call);
    if (filter)
        cf_reply_chunk(&out, filter, iterator);
}

/* ---- CF.LOADCHUNK ---- */

static void load_header(struct command_ctx *ctx, struct bf_call *call, struct slice data)
{
    struct dump_plan plan;
    struct bloom_journal space;
    struct errbuf err = {""};
    uint64_t deletes;
    bool existed;
    if (!cf_read_header(data, &plan, &deletes, &err)) {
        reply_error(ctx->reply, err.text);
        return;
    }
    if (!bf_create_shaped(call, &plan.params, &plan.shapes[0], &existed))
        return;
    if (existed) {
        reply_error(ctx->reply, CF_EXISTS);
        return;
    }
    struct bloom_filter *filter = entry_filter(call->entry);
    if (cuckoo_extend(filter, plan.nlayers, deletes, cf_journal(call, &space), &err) == BLOOM_OK) {
        content_note_key(ctx->server, bloom_filter_missing_key(filter));
        cf_changed(call, 1);
        reply_status(ctx->reply, "OK");
        return;
    }
    if (registry_find(ctx->server->registry, call->name_hash, call->name) == call->entry)
        registry_delete(ctx->server->registry, call->name);
    reply_errorf(ctx->reply, CF_NO_MEMORY, err.text);
}

/* The part of the chunk that this slice of the command loads; every unit is eight slots. */
static void load_slots(struct command_ctx *ctx, struct bf_call *call, struct bloom_filter *filter, uint64_t at,
                       struct slice data)
{
    struct bloom_journal space;
    if (ctx->slice && ctx->slice->done > 0 && ctx->slice->id != call->entry->id) { /* another one has the name now */
        reply_error(ctx->reply, CF_NOT_LOADED);
        return;
    }
    if (ctx->slice)
        ctx->slice->id = call->entry->id;
    size_t units = (data.len + 7) / 8, first, count = command_slice(ctx, units, &first);
    size_t from = first * 8, to = first + count == units ? data.len : (first + count) * 8;
    if (call->ring && ring_reserve(call->ring, 2 * count) != 0) {
        ctx->later = false;
        reply_errorf(ctx->reply, CF_NO_MEMORY, "the log cannot take the chunk");
        return;
    }
    cuckoo_set_slots(filter, at + from, data.ptr + from, to - from, cf_journal(call, &space));
    cf_changed(call, 1);
    if (!ctx->later)
        reply_status(ctx->reply, "OK");
}

void cmd_cf_loadchunk(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    struct slice data = command_arg(ctx, 3);
    struct errbuf error;
    int64_t iterator;
    uint64_t at;
    enum cf_found found;
    if (!cf_read_position(command_arg(ctx, 2), true, &iterator, &error)) {
        reply_error(ctx->reply, error.text);
        return;
    }
    struct bloom_filter *filter = cf_look(&call, &found);
    if (!cf_reply_unless(&call, found))
        return;
    if (iterator == CF_FIRST_ITERATOR) {
        if (filter)
            reply_error(ctx->reply, CF_EXISTS);
        else
            load_header(ctx, &call, data);
        return;
    }
    if (!filter) {
        reply_error(ctx->reply, CF_NOT_FOUND);
        return;
    }
    if (!cf_chunk_place(filter, iterator, data, &at))
        reply_error(ctx->reply, CF_NOT_LOADED);
    else
        load_slots(ctx, &call, filter, at, data);
}
