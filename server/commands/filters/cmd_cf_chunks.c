/* CF.SCANDUMP and CF.LOADCHUNK. As in RedisBloom the filter exists from its header on, and chunks are written into it
 * as they come. A save or a transaction between two chunks of a dump is not noticed: DUMP is of one moment. */
#include <stdlib.h>

#include "bf_host.h"
#include "bloom_size.h"
#include "cf.h"
#include "cuckoo_dump.h"
#include "handlers.h"
#include "journal.h"
#include "sstables.h"

/* ---- CF.SCANDUMP ---- */

static void reply_end(struct reply *reply)
{
    reply_array(reply, 2);
    reply_integer(reply, 0);
    reply_null(reply);
}

static void reply_header(struct reply *reply, const struct bloom_filter *filter)
{
    unsigned char bytes[CUCKOO_HEADER_BYTES];
    struct cuckoo_head head;
    cuckoo_head_of(filter, &head);
    cuckoo_head_put(&head, bytes);
    reply_array(reply, 2);
    reply_integer(reply, CF_FIRST_ITERATOR);
    reply_bulk(reply, bytes, sizeof(bytes));
}

/* The bytes from `at` to the end of their sub-filter, at most CF_CHUNK_BYTES. */
static uint64_t chunk_at(const struct bloom_filter *filter, uint64_t at)
{
    for (unsigned i = 0, n = bloom_filter_nlayers(filter); i < n; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        if (at < view.capacity)
            return view.capacity - at < CF_CHUNK_BYTES ? view.capacity - at : CF_CHUNK_BYTES;
        at -= view.capacity;
    }
    return 0;
}

static void reply_chunk(struct reply *reply, const struct bloom_filter *filter, int64_t iterator)
{
    uint64_t at = (uint64_t)iterator - CF_FIRST_ITERATOR, len = chunk_at(filter, at);
    if (len == 0) {
        reply_end(reply);
        return;
    }
    unsigned char *bytes = malloc((size_t)len);
    if (!bytes) {
        reply_error(reply, "ERR out of memory");
        return;
    }
    cuckoo_read(filter, at, bytes, (size_t)len);
    reply_array(reply, 2);
    reply_integer(reply, iterator + (int64_t)len);
    reply_bulk(reply, bytes, (size_t)len);
    free(bytes);
}

void cmd_cf_scandump(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    int64_t iterator;
    if (!cf_read_position(command_arg(ctx, 2), &iterator) || iterator < 0) {
        reply_error(ctx->reply, CF_BAD_POSITION);
        return;
    }
    const struct bloom_filter *filter = cf_existing(&call);
    if (!filter)
        return;
    if (iterator == 0)
        reply_header(ctx->reply, filter);
    else
        reply_chunk(ctx->reply, filter, iterator);
}

/* ---- CF.LOADCHUNK ---- */

/* A header of 38 bytes costs no memory, but a save writes all that it promises. */
#define HEADER_MAX_BYTES (BLOOM_MAX_WORDS * 8)

static void load_header(struct command_ctx *ctx, struct bf_call *call, struct slice data)
{
    struct cuckoo_head head;
    struct dump_plan plan;
    struct bloom_journal space;
    struct errbuf err = {""};
    bool existed;
    if (data.len != CUCKOO_HEADER_BYTES) {
        reply_error(ctx->reply, CF_BAD_HEADER);
        return;
    }
    cuckoo_head_get((const unsigned char *)data.ptr, &head);
    if (cuckoo_head_plan(&head, &plan, &err) != DUMP_OK) {
        reply_error(ctx->reply, CF_NOT_MADE);
        return;
    }
    if (plan.bytes > HEADER_MAX_BYTES) {
        reply_errorf(ctx->reply, CF_NO_MEMORY, "a header may promise 16 GB of slots, the most that one sub-filter has");
        return;
    }
    if (!bf_create_shaped(call, &plan.params, &plan.shapes[0], &existed))
        return;
    if (existed) {
        reply_error(ctx->reply, CF_EXISTS);
        return;
    }
    struct bloom_filter *filter = entry_filter(call->entry);
    if (cuckoo_extend(filter, plan.nlayers, head.deletes, cf_journal(call, &space), &err) == BLOOM_OK) {
        cf_changed(call, 1);
        reply_status(ctx->reply, "OK");
        return;
    }
    registry_delete(ctx->server->registry, call->name);
    reply_errorf(ctx->reply, CF_NO_MEMORY, err.text);
}

/* The part of the chunk that this slice of the command loads; every unit is eight slots. */
static void load_slots(struct command_ctx *ctx, struct bf_call *call, struct bloom_filter *filter, uint64_t at,
                       struct slice data)
{
    struct bloom_journal space;
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
    int64_t iterator;
    enum cf_found found;
    if (!cf_read_position(command_arg(ctx, 2), &iterator) || iterator == 0) {
        reply_error(ctx->reply, CF_BAD_POSITION);
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
    uint64_t end = (uint64_t)iterator - CF_FIRST_ITERATOR;
    if (iterator < 0 || data.len == 0 || end < data.len || !cuckoo_has_slots(filter, end - data.len, data.len))
        reply_error(ctx->reply, CF_NOT_LOADED);
    else
        load_slots(ctx, &call, filter, end - data.len, data);
}
