/* BF.INFO, BF.CARD, BF.DEBUG, BF.FALSEPOSITIVE. Counting bits takes a millisecond per 10 MB: for large filters a thread
 * of the pool does it. */
#include <stdlib.h>
#include <string.h>

#include "bf.h"
#include "bf_host.h"
#include "bf_info.h"
#include "bf_texts.h"
#include "command.h"
#include "handlers.h"
#include "sstables.h"

/* Filters up to this size are counted on the loop: some tens of microseconds. */
#define COUNT_INLINE_BYTES  (256 * 1024)
#define COUNT_INLINE_LAYERS 32 /* a layer is a map of nine fields in the reply */

struct info_job {
    struct bf_choice choice;
    size_t name_len;
    char name[];
};

static void reply_info(struct reply *reply, struct server *server, struct entry *entry, const struct bf_choice *choice)
{
    struct bf_out out = bf_out_of(reply);
    struct usage_counts counts;
    counters_usage(server->counters, entry->id, &counts);
    struct bf_usage usage = {counts.hits, counts.misses, counts.wrong, counts.since_s};
    struct bf_choice present = *choice;
    present.away = !entry_filter(entry);
    if (bf_reply_info(&out, entry_shape(entry), &usage, &present) != 0)
        reply_error(reply, "ERR out of memory");
}

static void run_info_job(struct command_job *job)
{
    const struct info_job *info = job->data;
    struct slice name = {info->name, info->name_len};
    struct entry *entry = registry_pin(job->server->registry, name);
    if (!entry)
        entry = sstables_pin(job->server->sstables, name);
    if (!entry || !entry_shape(entry)) {
        reply_error(&job->reply, BF_NOT_FOUND); /* deleted a moment ago */
    } else {
        rcu_reader_offline(); /* the pin keeps the filter alive, and removed filters can be freed meanwhile */
        reply_info(&job->reply, job->server, entry, &info->choice);
        rcu_reader_online();
    }
    if (entry)
        registry_unpin(entry);
}

static void defer_info(struct command_ctx *ctx, const struct bf_choice *choice)
{
    struct slice name = command_arg(ctx, 1);
    struct info_job *info = malloc(sizeof(*info) + name.len);
    if (!info) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    info->choice = *choice;
    info->name_len = name.len;
    if (name.len)
        memcpy(info->name, name.ptr, name.len);
    command_defer(ctx, run_info_job, info);
}

/* ---- BF.INFO key FILE: the path of an SSTable's filter ---- */

struct file_job {
    size_t name_len;
    char name[];
};

/* In the pool, because the paths are locked while directories are looked at. */
static void run_file_job(struct command_job *job)
{
    const struct file_job *data = job->data;
    char *path = sstables_path(job->server->sstables, (struct slice){data->name, data->name_len});
    if (!path) {
        reply_error(&job->reply, "ERR not found");
        return;
    }
    if (job->reply.version == 3) {
        reply_map(&job->reply, 1);
        reply_status(&job->reply, "File");
    } else {
        reply_array(&job->reply, 1);
    }
    reply_bulk_str(&job->reply, path);
    free(path);
}

static bool asks_for_file(const struct command_ctx *ctx)
{
    const struct server *server = ctx->server;
    return server->sstables && command_argc(ctx) == 3 && slice_is(command_arg(ctx, 2), "FILE") &&
           !registry_lookup(server->registry, command_arg(ctx, 1)) &&
           sstables_find(server->sstables, command_arg(ctx, 1));
}

static void defer_file(struct command_ctx *ctx)
{
    struct slice name = command_arg(ctx, 1);
    struct file_job *data = malloc(sizeof(*data) + name.len);
    if (!data) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    data->name_len = name.len;
    if (name.len)
        memcpy(data->name, name.ptr, name.len);
    command_defer(ctx, run_file_job, data);
}

void cmd_bf_info(struct command_ctx *ctx)
{
    if (asks_for_file(ctx)) {
        defer_file(ctx);
        return;
    }
    struct bf_args args = bf_args_of(ctx);
    struct bf_call call = bf_call_of(ctx);
    struct bf_choice choice;
    struct errbuf error;
    bool replied, understood = bf_read_info(&args, &choice, &error);
    if (command_argc(ctx) > 3) { /* the number of words is checked before the filter, the word after it */
        reply_error(ctx->reply, error.text);
        return;
    }
    struct bloom_filter *filter = bf_filter_shape(&call, &replied);
    if (!filter) {
        if (!replied)
            reply_error(ctx->reply, BF_NOT_FOUND);
    } else if (!understood) {
        reply_error(ctx->reply, error.text);
    } else if (choice.needs_bits && (bloom_filter_memory(filter) > COUNT_INLINE_BYTES ||
                                     bloom_filter_nlayers(filter) > COUNT_INLINE_LAYERS)) {
        defer_info(ctx, &choice);
    } else {
        reply_info(ctx->reply, ctx->server, call.entry, &choice);
    }
}

void cmd_bf_card(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    bool replied;
    struct bloom_filter *filter = bf_filter_shape(&call, &replied);
    if (!replied)
        reply_integer(ctx->reply, filter ? (int64_t)bloom_filter_items(filter) : 0);
}

void cmd_bf_debug(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    struct bf_out out = bf_out_of(ctx->reply);
    bool replied;
    struct bloom_filter *filter = bf_filter_shape(&call, &replied);
    if (filter)
        bf_reply_debug(&out, filter);
    else if (!replied)
        reply_error(ctx->reply, BF_NOT_FOUND);
}

/* ---- BF.FALSEPOSITIVE ---- */

void cmd_bf_falsepositive(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    struct bf_args args = bf_args_of(ctx);
    struct usage_counts usage;
    struct errbuf error;
    bool replied;
    uint32_t count;
    if (!bf_read_false_positives(&args, &count, &error)) {
        reply_error(ctx->reply, error.text);
        return;
    }
    if (!bf_filter_shape(&call, &replied)) {
        if (!replied)
            reply_error(ctx->reply, BF_NOT_FOUND);
        return;
    }
    stats_add(&ctx->stats->false_positives, count);
    usage_count(ctx->stats->usage, call.entry->id, 0, 0, count);
    counters_usage(ctx->server->counters, call.entry->id, &usage);
    reply_integer(ctx->reply, (int64_t)usage.wrong);
}
