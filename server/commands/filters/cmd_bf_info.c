/* BF.INFO, BF.CARD, BF.DEBUG, BF.FALSEPOSITIVE, BF.PLAN. Counting bits takes a millisecond per 10 MB: for large filters
 * a thread of the pool does it. */
#include <stdlib.h>

#include "bf.h"
#include "bf_host.h"
#include "bf_info.h"
#include "bf_out.h"
#include "command.h"
#include "content.h"
#include "handlers.h"
#include "sstables.h"
#include "work.h"

static void reply_info(struct reply *reply, struct server *server, struct entry *entry, const struct bf_choice *choice)
{
    struct bf_out out = bf_out_of(reply);
    struct usage_counts counts;
    counters_usage(server->stats.counters, entry->id, &counts);
    struct bf_usage usage = {counts.hits, counts.misses, counts.wrong, counts.since_s};
    struct bf_choice present = *choice;
    present.evicted = !entry_filter(entry);
    present.limit = server_config(server)->filters.max_filter_bytes;
    if (bf_reply_info(&out, entry_shape(entry), &usage, &present) != 0)
        reply_error(reply, "ERR out of memory");
}

static void run_info_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    struct bf_args words = bf_args_of_job(args, "bf.info");
    words.valkey = bf_is_valkey(job->server);
    struct slice name = args->argv[1];
    struct bf_choice choice;
    struct errbuf error;
    struct entry *entry = registry_pin(job->server->registry, name);
    if (!entry)
        entry = sstables_pin(job->server->sstables, name);
    if (!entry || !entry_shape(entry) || !bf_read_info(&words, &choice, &error)) {
        reply_error(&job->reply, BF_NOT_FOUND); /* deleted a moment ago */
    } else {
        rcu_reader_offline(); /* the pin keeps the filter alive, and removed filters can be freed meanwhile */
        reply_info(&job->reply, job->server, entry, &choice);
        rcu_reader_online();
    }
    if (entry)
        entry_unpin(entry);
}

/* ---- BF.INFO key FILE: the path of an SSTable's filter ---- */

/* In the pool, because the paths are locked while directories are checked. */
static void run_file_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    char *path = sstables_path(job->server->sstables, args->argv[1]);
    if (!path) {
        reply_error(&job->reply, BF_NOT_FOUND);
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

void cmd_bf_info(struct command_ctx *ctx)
{
    if (asks_for_file(ctx)) {
        command_defer_arguments(ctx, REGISTRY_MAX_NAME, run_file_job);
        return;
    }
    struct bf_args args = bf_args_of(ctx);
    struct bf_call call = bf_call_of(ctx);
    struct bf_choice choice;
    struct errbuf error;
    bool understood = bf_read_info(&args, &choice, &error);
    if (command_argc(ctx) > 3) { /* the number of words is checked before the filter, the word after it */
        reply_error(ctx->reply, error.text);
        return;
    }
    struct bloom_filter *filter = bf_existing_shape(&call);
    if (!filter)
        return;
    if (!understood || !bf_info_has(filter, &choice, &error)) {
        reply_error(ctx->reply, error.text);
    } else if (choice.needs_bits && work_of_bits(filter) > WORK_INLINE) {
        command_defer_arguments(ctx, REGISTRY_MAX_NAME, run_info_job);
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
    struct bloom_filter *filter = bf_existing_shape(&call);
    if (filter)
        bf_reply_debug(&out, filter);
}

/* ---- BF.FALSEPOSITIVE ---- */

void cmd_bf_falsepositive(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    struct bf_args args = bf_args_of(ctx);
    struct usage_counts usage;
    struct errbuf error;
    uint32_t count;
    if (!bf_read_false_positives(&args, &count, &error)) {
        reply_error(ctx->reply, error.text);
        return;
    }
    if (!bf_existing_shape(&call))
        return;
    stats_add(&ctx->stats->false_positives, count);
    usage_count(ctx->stats->usage, call.entry->id, 0, 0, count);
    counters_usage(ctx->server->stats.counters, call.entry->id, &usage);
    reply_integer(ctx->reply, (int64_t)usage.wrong);
}

/* ---- BF.PLAN ---- */

#define LONGEST_WORD 1024

static void run_job(struct command_job *job)
{
    struct bf_args args = bf_args_of_job(job->data, "bf.plan");
    struct bf_defaults defaults = bf_defaults_of(job->server);
    struct bf_out out = bf_out_of(&job->reply);
    struct bf_plan requested;
    struct errbuf err;
    if (bf_read_plan(&args, &defaults, &requested, &err))
        bf_reply_plan(&out, &requested);
    else
        reply_error(&job->reply, err.text);
}

/* A layer takes some microseconds, of LAYOUT blocked a tenth of a millisecond: not on a loop. */
void cmd_bf_plan(struct command_ctx *ctx)
{
    command_defer_arguments(ctx, LONGEST_WORD, run_job);
}
