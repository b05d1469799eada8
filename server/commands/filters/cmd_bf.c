/* The BF.* commands outside of the pipeline. Replies and their texts are RedisBloom's (tests/golden/corpus);
 * docs/COMPATIBILITY.md has the intended differences. */
#include <string.h>

#include "bf.h"
#include "bf_host.h"
#include "bf_info.h"
#include "bf_out.h"
#include "clock.h"
#include "command.h"
#include "content.h"
#include "handlers.h"
#include "host.h"
#include "persistence.h"
#include "rcu.h"
#include "server_files.h"

struct bf_call bf_call_of(struct command_ctx *ctx)
{
    struct slice name = command_arg(ctx, 1);
    return (struct bf_call){
        .server = ctx->server,
        .stats = ctx->stats,
        .reply = ctx->reply,
        .ring = ctx->ring,
        .ctx = ctx,
        .name = name,
        .name_hash = registry_hash(ctx->server->registry, name),
        .missing = BF_MISSING_DEFAULT,
        .no_touch = session_no_touch(ctx->session),
    };
}

/* Like registry_create_filter(), but the filter has its expiry from the beginning. */
static int create_expiring(struct bf_call *call, struct bloom_class *class, int64_t expires_ms, struct errbuf *err)
{
    struct registry_publication how = {.only_new = true, .empty = true, .expires_ms = expires_ms};
    struct entry *made;
    int status = registry_prepare(call->server->registry, call->name, class, false, &made, err);
    if (status != REGISTRY_OK)
        return status;
    do {
        status = registry_publish(call->server->registry, made, &how);
        call->entry = status == REGISTRY_OK ? made : registry_find(call->server->registry, call->name_hash, call->name);
    } while (status == REGISTRY_EXISTS && !call->entry); /* the filter of that name is gone again */
    if (status != REGISTRY_OK)
        registry_abandon(call->server->registry, made);
    return status;
}

static void warn_of_rate(const struct bf_call *call)
{
    struct errbuf text;
    if (bf_rate_is_off(entry_shape(call->entry), &text))
        log_limited(&call->server->log, &call->server->log.limits.rate, clock_ms(), LOG_LEVEL_WARNING, "%s", text.text);
}

/* `shape` NULL: by the parameters. */
static bool create(struct bf_call *call, const struct bloom_params *params, const struct bloom_shape *shape,
                   int64_t expires_ms, bool *existed_out)
{
    struct errbuf err = {""};
    struct bloom_class *class;
    int status = registry_status(bloom_class_get(call->server->pool, params, shape, &class, &err));
    if (status == 0) {
        status = expires_ms == 0
                     ? registry_create_filter(call->server->registry, call->name, 0, class, &call->entry, &err)
                     : create_expiring(call, class, expires_ms, &err);
        bloom_class_release(class);
    }
    if (status == REGISTRY_OK && !shape)
        warn_of_rate(call);
    *existed_out = status == REGISTRY_EXISTS;
    if (status == REGISTRY_OK || *existed_out)
        return true;
    if (status == REGISTRY_LIMIT && call->waits && reclaimer_bytes(call->server->reclaimer) > 0)
        command_do_first(call->ctx, content_wait_for_memory, NULL);
    else
        reply_not_made(call->reply, status, &err);
    return false;
}

bool bf_create(struct bf_call *call, const struct bloom_params *params, int64_t expires_ms, bool *existed_out)
{
    return create(call, params, NULL, expires_ms, existed_out);
}

bool bf_create_shaped(struct bf_call *call, const struct bloom_params *params, const struct bloom_shape *shape,
                      bool *existed_out)
{
    return create(call, params, shape, 0, existed_out);
}

/* ---- the first key ---- */

static void make_first_key(struct command_job *job)
{
    rcu_reader_offline();
    server_keys_make(job->server);
    rcu_reader_online();
}

void bf_wait_for_first_key(struct command_ctx *ctx)
{
    int trouble = atomic_exchange(&ctx->server->settings.key_trouble, 0);
    if (trouble)
        reply_errorf(ctx->reply, "ERR cannot create the first key: %s", strerror(-trouble));
    else
        (void)command_do_first(ctx, make_first_key, NULL);
}

void cmd_bf_reserve(struct command_ctx *ctx)
{
    struct bf_args args = bf_args_of(ctx);
    struct bf_defaults defaults = bf_defaults_of(ctx->server);
    struct bf_call call = bf_call_of(ctx);
    struct bf_reserve reserve;
    struct errbuf error;
    call.waits = !ctx->session->multi.in_exec;
    registry_prefetch(ctx->server->registry, call.name_hash);
    if (!bf_read_reserve(&args, &defaults, &reserve, &error)) {
        reply_error(ctx->reply, error.text);
        return;
    }
    struct entry *before = registry_find(ctx->server->registry, call.name_hash, call.name);
    bool existed = before != NULL;
    if (before && entry_is_cuckoo(before)) {
        reply_error(ctx->reply, BF_WRONG_TYPE);
        return;
    }
    if (!existed && reserve.keyed && !reserve.params.key) {
        bf_wait_for_first_key(ctx);
        return;
    }
    if (!existed && reserve.refused) {
        reply_error(ctx->reply, reserve.refused);
        return;
    }
    bf_draw_seed(&reserve.params, !existed && reserve.fresh_seed);
    if (!existed && !bf_create(&call, &reserve.params, reserve.expires_ms, &existed))
        return;
    if (existed)
        reply_error(ctx->reply, BF_EXISTS);
    else
        reply_status(ctx->reply, "OK");
}

/* ---- items ---- */

/* The items of a command: its arguments from `first` on. */
struct item_args {
    const struct command_ctx *ctx;
    size_t first;
};

static struct bloom_item item_arg(const void *items, size_t i)
{
    const struct item_args *args = items;
    struct slice item = command_arg(args->ctx, args->first + i);
    return (struct bloom_item){item.ptr, item.len};
}

void cmd_bf_mexists(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    bf_query_many(&call, command_argc(ctx) - 2, item_arg, &(struct item_args){ctx, 2});
}

void cmd_bf_madd(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    bf_add_many(&call, command_argc(ctx) - 2, item_arg, &(struct item_args){ctx, 2});
}

/* The plain definition of the single forms. The pipeline takes nearly all of them; the rest comes here. */
void cmd_bf_exists(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    bf_query_one(&call, command_arg(ctx, 2));
}

void cmd_bf_add(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    bf_add_one(&call, command_arg(ctx, 2));
}

/* ---- BF.INSERT ---- */

/* BF.INSERT before its items: reads the options and creates a missing filter. False: it has been answered. */
static bool begin_insert(struct command_ctx *ctx, const struct bf_args *args, struct bf_call *call)
{
    struct bf_defaults defaults = bf_defaults_of(ctx->server);
    struct bf_insert insert;
    struct errbuf error;
    bool existed;
    if (!bf_read_insert(args, &defaults, &insert, &error))
        return reply_error(ctx->reply, error.text);
    call->waits = !ctx->session->multi.in_exec;
    if (call->entry)
        return true;
    if (insert.no_create || (!insert.sized && !server_config(ctx->server)->filters.auto_create))
        return reply_error(ctx->reply, BF_NOT_FOUND);
    if (insert.refused)
        return reply_error(ctx->reply, insert.refused);
    if (insert.keyed && !insert.params.key) {
        bf_wait_for_first_key(ctx);
        return false;
    }
    bf_draw_seed(&insert.params, insert.fresh_seed);
    return bf_create(call, &insert.params, insert.expires_ms, &existed);
}

void cmd_bf_insert(struct command_ctx *ctx)
{
    struct bf_args args = bf_args_of(ctx);
    struct bf_call call = bf_call_of(ctx);
    struct slice owner;
    size_t first = bf_first_item(&args, &owner);
    bool first_slice = !ctx->slice || ctx->slice->done == 0; /* later slices have begun their reply */
    call.entry = registry_find(ctx->server->registry, call.name_hash, call.name);
    if (!first_slice || begin_insert(ctx, &args, &call)) /* to this filter, even if a client deletes it now */
        bf_insert_many(&call, command_argc(ctx) - first, owner, item_arg, &(struct item_args){ctx, first});
}

/* ---- BF.QUERY ---- */

/* ITEMS ends the options, so no item is mistaken for an option. */
void cmd_bf_query(struct command_ctx *ctx)
{
    struct bf_args args = bf_args_of(ctx);
    struct bf_call call = bf_call_of(ctx);
    struct bf_query query;
    struct errbuf error;
    if (!bf_read_query(&args, &query, &error)) {
        reply_error(ctx->reply, error.text);
        return;
    }
    call.missing = query.missing;
    bf_query_many(&call, command_argc(ctx) - query.first_item, item_arg, &(struct item_args){ctx, query.first_item});
}
