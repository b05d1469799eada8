/* BF.SCANDUMP and BF.LOADCHUNK(bf_chunks.h): loads wait under their names, and the last chunk publishes the filter. */
#include <string.h>
#include <xxhash.h>

#include "bf_chunks.h"
#include "bf_host.h"
#include "bf_out.h"
#include "bloom_keyring.h"
#include "bf.h"
#include "clock.h"
#include "content.h"
#include "half_loads.h"
#include "handlers.h"
#include "residency.h"

#define TWO_AT_A_TIME "two chunks at a time"

/* ---- BF.SCANDUMP ---- */

static void scandump_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    struct bf_args words = bf_args_of_job(args, "bf.scandump");
    struct bf_out out = bf_out_of(&job->reply);
    struct entry *entry = content_pin_bloom(job, args->argv[1]);
    if (!entry)
        return;
    const char *run_id = job->server->process.run_id;
    uint64_t identity = XXH3_64bits_withSeed(&entry->id, sizeof(entry->id), XXH3_64bits(run_id, strlen(run_id)));
    bf_scandump(&out, &words, entry_filter(entry), identity);
    entry_unpin(entry);
}

void cmd_bf_scandump(struct command_ctx *ctx)
{
    if (!sstable_has_no_dump(ctx))
        command_defer_arguments(ctx, REGISTRY_MAX_NAME, scandump_job);
}

/* ---- BF.LOADCHUNK ---- */

/* One BF.LOADCHUNK. */
struct loading {
    struct command_job *job;
    struct half_loads *loads;
    struct slice name;
    struct bf_chunk chunk;
    struct bf_out out;
    struct half_load *half; /* taken; NULL: none under the name */
};

/* Answers that another thread works on this load, which is therefore dropped. */
static void reply_two(struct loading *it)
{
    bf_reply_bad_chunk(&it->out, TWO_AT_A_TIME, true);
}

static void keep(struct loading *it)
{
    struct entry *entry = it->half->entry;
    if (half_loads_keep(it->loads, it->half, clock_ms())) {
        reply_status(&it->job->reply, "OK");
        return;
    }
    (void)half_loads_drop(it->loads, it->half);
    registry_abandon(it->job->server->registry, entry);
    reply_two(it);
}

static void give_up(struct loading *it)
{
    struct entry *entry = it->half->entry;
    (void)half_loads_drop(it->loads, it->half);
    registry_abandon(it->job->server->registry, entry);
}

/* Prepares the filter of a header. The load passes on. False: RedisBloom's header, and another client was first. */
static bool keep_begun(struct loading *it, struct bf_load *load)
{
    const struct dump_plan *plan = bf_load_plan(load);
    bool theirs = load->theirs;
    unsigned long long bytes = plan->bytes;
    switch (half_loads_add(it->loads, it->name, load, &it->half)) {
    case HALF_LOADS_OK:
        break;
    case HALF_LOADS_BUSY:
        if (!theirs)
            reply_two(it);
        return !theirs;
    case HALF_LOADS_FULL:
        bf_out_errorf(&it->out, "ERR %d filters are being loaded already", HALF_LOADS_MAX);
        return true;
    case HALF_LOADS_LARGE:
        bf_out_errorf(&it->out, "OOM %llu bytes for this filter and other loads exceed the machine's memory", bytes);
        return true;
    default:
        reply_error(&it->job->reply, "ERR out of memory");
        return true;
    }
    if (content_prepare(it->job, it->name, &plan->params, plan->shapes, plan->nlayers, &it->half->entry)) {
        bloom_filter_expect_fill(entry_filter(it->half->entry));
        keep(it);
    } else {
        (void)half_loads_drop(it->loads, it->half);
    }
    return true;
}

static bool begin(struct loading *it)
{
    struct errbuf err = {""};
    struct bf_load *load;
    if (it->half)
        give_up(it);
    int status = bf_load_begin(&it->chunk, NULL, &load, &err);
    if (status == DUMP_OK)
        return keep_begun(it, load);
    bf_reply_bad_chunk(&it->out, status < 0 ? NULL : err.text, false);
    return true;
}

/* All chunks have come. False if another client has got the reply that the load is dropped. */
static void complete(struct loading *it)
{
    struct content_publication publication = {.how = {.only_new = true, .event = "bloom.load"}};
    struct entry *entry = it->half->entry;
    if (!half_loads_drop(it->loads, it->half)) {
        content_finish(it->job, entry, &publication, BF_KEY_EXISTS BF_DROPPED);
        return;
    }
    registry_abandon(it->job->server->registry, entry);
    reply_two(it);
}

static void go_on(struct loading *it)
{
    struct errbuf err = {""};
    rcu_reader_offline(); /* no other thread has this filter, and removed filters can be freed meanwhile */
    enum bf_load_state state = bf_load_take(it->half->load, entry_filter(it->half->entry), &it->chunk, &err);
    rcu_reader_online();
    switch (state) {
    case BF_LOAD_GOES_ON:
        keep(it);
        break;
    case BF_LOAD_COMPLETE:
        complete(it);
        break;
    case BF_LOAD_REFUSED:
    case BF_LOAD_NO_MEMORY:
        (void)half_loads_keep(it->loads, it->half, clock_ms());
        bf_reply_bad_chunk(&it->out, state == BF_LOAD_NO_MEMORY ? NULL : err.text, false);
        break;
    case BF_LOAD_SPOILT:
        give_up(it);
        bf_reply_bad_chunk(&it->out, err.text, true);
    }
}

/* False: it must be tried again, because another client has just begun a load. */
static bool load_chunk(struct loading *it)
{
    it->half = NULL;
    if (half_loads_take(it->loads, it->name, &it->half) == HALF_LOADS_BUSY) {
        reply_two(it);
        return true;
    }
    struct half_load *half = it->half;
    switch (bf_chunk_kind(&it->chunk, half ? entry_filter(half->entry) : NULL, half ? half->load : NULL)) {
    case BF_CHUNK_KNOWN:
        keep(it);
        return true;
    case BF_CHUNK_BEGINS:
        return begin(it);
    default:
        go_on(it);
        return true;
    }
}

/* A chunk for a filter that exists may have come again, after the last one has made the filter. */
static void reply_existing(struct loading *it)
{
    struct errbuf why;
    struct entry *entry = it->chunk.iterator > 0 ? residency_pin(it->job->server, it->name, &why) : NULL;
    struct bloom_filter *filter = entry ? entry_filter(entry) : NULL;
    if (filter && entry_is_cuckoo(entry))
        reply_error(&it->job->reply, BF_WRONG_TYPE);
    else if (filter && bf_chunk_kind(&it->chunk, filter, NULL) == BF_CHUNK_KNOWN)
        reply_status(&it->job->reply, "OK");
    else
        reply_error(&it->job->reply, BF_KEY_EXISTS);
    if (entry)
        entry_unpin(entry);
}

static void loadchunk_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    struct bf_args words = bf_args_of_job(args, "bf.loadchunk");
    struct loading it = {
        .job = job, .loads = job->server->clients.half_loads, .name = args->argv[1], .out = bf_out_of(&job->reply)};
    struct errbuf error;
    if (!bf_read_chunk(&words, false, &it.chunk, &error))
        reply_error(&job->reply, error.text);
    else if (registry_lookup(job->server->registry, it.name))
        reply_existing(&it);
    else
        while (!load_chunk(&it)) {
        }
}

void cmd_bf_loadchunk(struct command_ctx *ctx)
{
    command_defer_arguments(ctx, REDISBLOOM_CHUNK_MAX, loadchunk_job);
}

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
    if (iterator == REDISBLOOM_HEADER_ITERATOR) {
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
