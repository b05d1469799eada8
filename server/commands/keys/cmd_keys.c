/* Commands on names: those that Redis has for keys of any type. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "all_names.h"
#include "command.h"
#include "cuckoo_dump.h"
#include "handlers.h"
#include "server.h"

/* The keys given as arguments from 1 on, for commands that count something over them. */
static void count_keys(struct command_ctx *ctx, bool (*counts)(struct command_ctx *ctx, struct slice name))
{
    size_t first, names = command_slice(ctx, command_argc(ctx) - 1, &first);
    int64_t n = ctx->slice ? ctx->slice->count : 0;
    for (size_t i = 0; i < names; i++)
        n += counts(ctx, command_arg(ctx, 1 + first + i));
    if (ctx->slice && ctx->later)
        ctx->slice->count = n;
    else
        reply_integer(ctx->reply, n);
}

static bool is_there(struct command_ctx *ctx, struct slice name)
{
    return registry_lookup(ctx->server->registry, name) || sstables_find(ctx->server->sstables, name);
}

static bool delete_one(struct command_ctx *ctx, struct slice name)
{
    return registry_delete(ctx->server->registry, name) == REGISTRY_OK;
}

void cmd_exists(struct command_ctx *ctx)
{
    count_keys(ctx, is_there);
}

static bool touch_one(struct command_ctx *ctx, struct slice name)
{
    struct entry *entry = registry_lookup(ctx->server->registry, name);
    if (entry)
        entry_note_use(entry, atomic_load_explicit(&ctx->server->memory.use_stamp, memory_order_relaxed));
    return entry != NULL;
}

void cmd_touch(struct command_ctx *ctx)
{
    count_keys(ctx, touch_one);
}

/* UNLINK, too: the memory is given back by the reclaimer's thread in any case. */
void cmd_del(struct command_ctx *ctx)
{
    count_keys(ctx, delete_one);
}

void cmd_type(struct command_ctx *ctx)
{
    struct entry *entry = registry_lookup(ctx->server->registry, command_arg(ctx, 1));
    if (entry && entry_is_cuckoo(entry))
        reply_status(ctx->reply, CUCKOO_TYPE_NAME);
    else
        reply_status(ctx->reply, is_there(ctx, command_arg(ctx, 1)) ? FILTER_TYPE_NAME : "none");
}

#define DBSIZE_REMOVES 64
#define DBSIZE_NAMES   4096 /* with SSTables, the loop counts at most this many; in a transaction, all */

static void count_names(const struct server *server, unsigned database, struct reply *reply)
{
    reply_integer(reply, (int64_t)all_names_count(server->registry, server->sstables, database));
}

static void count_job(struct command_job *job)
{
    count_names(job->server, job->database, &job->reply);
}

/* Filters that have expired are counted until they are removed. Unless many have at the same time, none is left here.
 */
void cmd_dbsize(struct command_ctx *ctx)
{
    registry_expire_due(ctx->server->registry, DBSIZE_REMOVES, NULL);
    if (!ctx->server->sstables || ctx->session->multi.in_exec ||
        all_names_most(ctx->server->registry, ctx->server->sstables, ctx->database) <= DBSIZE_NAMES)
        count_names(ctx->server, ctx->database, ctx->reply);
    else
        command_defer(ctx, count_job, NULL);
}

/* ---- FLUSHALL, FLUSHDB ---- */

static void flushed(struct command_job *job, int status)
{
    if (status != 0)
        reply_error(&job->reply, "ERR out of memory");
    else
        reply_status(&job->reply, "OK");
}

static void flush_all(struct command_job *job)
{
    size_t removed;
    flushed(job, registry_clear(job->server->registry, &removed));
}

static void flush_one(struct command_job *job)
{
    size_t removed;
    flushed(job, registry_database_clear(job->server->registry, job->database, &removed));
}

static void flush(struct command_ctx *ctx, void (*run)(struct command_job *job))
{
    struct slice mode = command_argc(ctx) > 1 ? command_arg(ctx, 1) : (struct slice){"SYNC", 4};
    if (command_argc(ctx) > 2 || (!slice_is(mode, "SYNC") && !slice_is(mode, "ASYNC"))) {
        reply_error(ctx->reply, "ERR syntax error");
        return;
    }
    command_defer(ctx, run, NULL);
}

void cmd_flushall(struct command_ctx *ctx)
{
    flush(ctx, flush_all);
}

void cmd_flushdb(struct command_ctx *ctx)
{
    flush(ctx, flush_one);
}
