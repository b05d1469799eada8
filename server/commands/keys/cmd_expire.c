/* Commands about when filters expire, with the conditions, ranges and texts of Redis 7. */
#include <errno.h>

#include "clock.h"
#include "command.h"
#include "handlers.h"
#include "server.h"
#include "sstables.h"

/* ---- setting a time ---- */

static bool read_conditions(struct command_ctx *ctx, unsigned *conditions_out)
{
    unsigned conditions = 0;
    for (size_t i = 3; i < command_argc(ctx); i++) {
        struct slice word = command_arg(ctx, i);
        if (slice_is(word, "NX")) {
            conditions |= REGISTRY_EXPIRE_NX;
        } else if (slice_is(word, "XX")) {
            conditions |= REGISTRY_EXPIRE_XX;
        } else if (slice_is(word, "GT")) {
            conditions |= REGISTRY_EXPIRE_GT;
        } else if (slice_is(word, "LT")) {
            conditions |= REGISTRY_EXPIRE_LT;
        } else {
            reply_errorf(ctx->reply, "ERR Unsupported option %.*s", slice_shown(word), word.ptr);
            return false;
        }
    }
    if ((conditions & REGISTRY_EXPIRE_NX) && conditions != REGISTRY_EXPIRE_NX) {
        reply_error(ctx->reply, "ERR NX and XX, GT or LT options at the same time are not compatible");
        return false;
    }
    if ((conditions & REGISTRY_EXPIRE_GT) && (conditions & REGISTRY_EXPIRE_LT)) {
        reply_error(ctx->reply, "ERR GT and LT options at the same time are not compatible");
        return false;
    }
    *conditions_out = conditions;
    return true;
}

/* The time in `value`, times `unit_ms` and counted from `base_ms`. false: beyond what 64 bits hold. */
static bool to_time(int64_t value, int64_t unit_ms, int64_t base_ms, int64_t *expires_ms_out)
{
    if (value > INT64_MAX / unit_ms || value < INT64_MIN / unit_ms)
        return false;
    value *= unit_ms;
    if (value > INT64_MAX - base_ms)
        return false;
    *expires_ms_out = value + base_ms;
    return true;
}

static void expire(struct command_ctx *ctx, int64_t unit_ms, int64_t base_ms)
{
    unsigned conditions;
    int64_t value, expires_ms;
    if (!read_conditions(ctx, &conditions))
        return;
    if (!slice_to_int64(command_arg(ctx, 2), &value)) {
        reply_error(ctx->reply, "ERR value is not an integer or out of range");
        return;
    }
    if (!to_time(value, unit_ms, base_ms, &expires_ms)) {
        reply_errorf(ctx->reply, "ERR invalid expire time in '%s' command", ctx->command->name);
        return;
    }
    if (base_ms != 0 && value > 0)
        conditions |= REGISTRY_EXPIRE_LATER;
    int status = registry_expire(ctx->server->registry, command_arg(ctx, 1), expires_ms, conditions);
    if (status == -ENOMEM)
        reply_error(ctx->reply, "ERR out of memory");
    else if (status == REGISTRY_LIMIT)
        reply_error(ctx->reply, COMMAND_OOM);
    else
        reply_integer(ctx->reply, status == REGISTRY_OK);
}

void cmd_expire(struct command_ctx *ctx)
{
    expire(ctx, 1000, clock_unix_ms());
}

void cmd_pexpire(struct command_ctx *ctx)
{
    expire(ctx, 1, clock_unix_ms());
}

void cmd_expireat(struct command_ctx *ctx)
{
    expire(ctx, 1000, 0);
}

void cmd_pexpireat(struct command_ctx *ctx)
{
    expire(ctx, 1, 0);
}

void cmd_persist(struct command_ctx *ctx)
{
    reply_integer(ctx->reply, registry_persist(ctx->server->registry, command_arg(ctx, 1)) == REGISTRY_OK);
}

/* ---- asking for it ---- */

/* The nearest second, as Redis rounds. */
static int64_t to_seconds(int64_t ms)
{
    return ms / 1000 + (ms % 1000 >= 500);
}

/* Replies to TTL and the like: -2 without a filter, -1 if it never expires. */
static void reply_time(struct command_ctx *ctx, int64_t base_ms, bool seconds)
{
    const struct registry *registry = ctx->server->registry;
    struct slice name = command_arg(ctx, 1);
    int64_t expires_ms;
    if (!registry_find_expiry(registry, registry_hash(registry, name), name, &expires_ms)) {
        reply_integer(ctx->reply, sstables_find(ctx->server->sstables, name) ? -1 : -2);
        return;
    }
    if (expires_ms == 0) {
        reply_integer(ctx->reply, -1);
        return;
    }
    int64_t ms = expires_ms > base_ms ? expires_ms - base_ms : 0;
    reply_integer(ctx->reply, seconds ? to_seconds(ms) : ms);
}

void cmd_ttl(struct command_ctx *ctx)
{
    reply_time(ctx, clock_unix_ms(), true);
}

void cmd_pttl(struct command_ctx *ctx)
{
    reply_time(ctx, clock_unix_ms(), false);
}

void cmd_expiretime(struct command_ctx *ctx)
{
    reply_time(ctx, 0, true);
}

void cmd_pexpiretime(struct command_ctx *ctx)
{
    reply_time(ctx, 0, false);
}
