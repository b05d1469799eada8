/* Connects the library bf/ to this daemon's arguments, defaults and replies. */
#include "bf_host.h"

#include "bloom_keyring.h"
#include "clock.h"
#include "content.h"
#include "server.h"

static struct slice arg_at(const void *ctx, size_t i)
{
    return command_arg(ctx, i);
}

struct bf_args bf_args_of(const struct command_ctx *ctx)
{
    return (struct bf_args){command_argc(ctx), arg_at, ctx, ctx->command->full_name};
}

static struct slice job_arg_at(const void *ctx, size_t i)
{
    const struct job_args *args = ctx;
    return args->argv[i];
}

struct bf_args bf_args_of_job(const struct job_args *args, const char *name)
{
    return (struct bf_args){args->argc, job_arg_at, args, name};
}

struct bf_defaults bf_defaults_of(const struct server *server)
{
    const struct config *config = server_config(server);
    struct bf_defaults defaults = {
        .params = {.capacity = (uint64_t)config->filters.initial_size,
                   .error_rate = config->filters.error_rate,
                   .expansion = (uint32_t)config->filters.expansion_factor},
        .keyed = config->filters.keyed,
        .key = bloom_keyring_first(server->pool),
        .now_ms = clock_unix_ms(),
    };
    defaults.params.key = defaults.keyed ? defaults.key : 0;
    bf_set_layout(&defaults.params, config->filters.layout == BF_LAYOUT_REDISBLOOM);
    return defaults;
}

static void out_status(void *ctx, const char *text)
{
    reply_status(ctx, text);
}

static void out_error(void *ctx, const char *text)
{
    reply_error(ctx, text);
}

static void out_integer(void *ctx, int64_t value)
{
    reply_integer(ctx, value);
}

static void out_real(void *ctx, double value)
{
    reply_double(ctx, value);
}

static void out_boolean(void *ctx, bool value)
{
    reply_bool(ctx, value);
}

static void out_null(void *ctx)
{
    reply_null(ctx);
}

static void out_bytes(void *ctx, const void *bytes, size_t n)
{
    reply_bulk(ctx, bytes, n);
}

static void out_array(void *ctx, size_t n)
{
    reply_array(ctx, n);
}

static void out_map(void *ctx, size_t pairs)
{
    reply_map(ctx, pairs);
}

struct bf_out bf_out_of(struct reply *reply)
{
    static const struct bf_out_ops ops = {
        .status = out_status,
        .error = out_error,
        .integer = out_integer,
        .real = out_real,
        .boolean = out_boolean,
        .null = out_null,
        .bytes = out_bytes,
        .array = out_array,
        .map = out_map,
    };
    return (struct bf_out){&ops, reply, "maxmemory, bf-max-filter-bytes", reply->version >= 3};
}
