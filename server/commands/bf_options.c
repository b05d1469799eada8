/* The options that say what a filter is to be like, and numbers as RedisBloom reads them. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bf.h"
#include "command.h"

bool slice_to_double(struct slice arg, double *value_out)
{
    char text[128], *end;
    if (arg.len == 0 || arg.len >= sizeof(text) || strchr(" \t\n\v\f\r", arg.ptr[0]) || memchr(arg.ptr, '\0', arg.len))
        return false;
    memcpy(text, arg.ptr, arg.len);
    text[arg.len] = '\0';
    errno = 0;
    double value = strtod(text, &end);
    if (*end != '\0' || isnan(value) || (errno == ERANGE && (value == 0 || isinf(value))))
        return false;
    *value_out = value;
    return true;
}

uint64_t bf_max_capacity(const struct bloom_params *params)
{
    return bloom_size_max_items(params->expansion ? params->error_rate / 2 : params->error_rate);
}

bool bf_read_ttl(struct command_ctx *ctx, struct slice value, int64_t *expires_ms_out)
{
    int64_t seconds, now = server_unix_ms();
    if (!slice_to_int64(value, &seconds)) {
        reply_error(ctx->reply, "ERR value is not an integer or out of range");
        return false;
    }
    if (seconds < 1 || seconds > (INT64_MAX - now) / 1000) {
        reply_errorf(ctx->reply, "ERR invalid expire time in '%s' command", ctx->command->full_name);
        return false;
    }
    *expires_ms_out = now + seconds * 1000;
    return true;
}

bool bf_read_expansion(struct command_ctx *ctx, size_t i, uint32_t *expansion_out)
{
    int64_t expansion;
    if (i >= command_argc(ctx)) {
        reply_error(ctx->reply, "ERR no expansion");
        return false;
    }
    if (!slice_to_int64(command_arg(ctx, i), &expansion)) {
        reply_error(ctx->reply, "ERR bad expansion");
        return false;
    }
    if (expansion < 0 || expansion > BLOOM_MAX_EXPANSION) {
        reply_errorf(ctx->reply, "ERR expansion must be in the range [0, %d]", BLOOM_MAX_EXPANSION);
        return false;
    }
    *expansion_out = (uint32_t)expansion;
    return true;
}

bool bf_read_capacity(struct command_ctx *ctx, size_t i, int64_t *capacity_out)
{
    if (slice_to_int64(command_arg(ctx, i), capacity_out))
        return true;
    reply_error(ctx->reply, "ERR bad capacity");
    return false;
}

bool bf_take_capacity(struct command_ctx *ctx, int64_t capacity, struct bloom_params *params)
{
    if (capacity < 1) {
        reply_errorf(ctx->reply, "ERR capacity must be in the range [1, %llu]",
                     (unsigned long long)bf_max_capacity(params));
        return false;
    }
    params->capacity = (uint64_t)capacity;
    return true;
}

bool bf_read_rate(struct command_ctx *ctx, size_t i, double *rate_out)
{
    if (!slice_to_double(command_arg(ctx, i), rate_out)) {
        reply_error(ctx->reply, "ERR bad error rate");
        return false;
    }
    if (!(*rate_out > 0 && *rate_out < 1)) {
        reply_error(ctx->reply, "ERR error rate must be in the range (0.000000, 1.000000)");
        return false;
    }
    return true;
}

bool bf_read_scaling(struct command_ctx *ctx, size_t first, const char *takes, struct bloom_params *params,
                     bool (*other)(struct command_ctx *ctx, size_t *i, void *more), void *more)
{
    bool fixed = false, expansion_given = false;
    for (size_t i = first; i < command_argc(ctx); i++) {
        struct slice word = command_arg(ctx, i);
        if (slice_is(word, "NONSCALING")) {
            fixed = true;
        } else if (slice_is(word, "EXPANSION")) {
            if (!bf_read_expansion(ctx, ++i, &params->expansion))
                return false;
            expansion_given = true;
        } else {
            size_t before = buf_len(ctx->reply->buf);
            if (other(ctx, &i, more))
                continue;
            if (buf_len(ctx->reply->buf) == before)
                reply_errorf(ctx->reply, "ERR unknown option '%.*s': %s", (int)(word.len < 64 ? word.len : 64),
                             word.ptr, takes);
            return false;
        }
    }
    if (fixed && expansion_given && params->expansion) {
        reply_error(ctx->reply, "Nonscaling filters cannot expand");
        return false;
    }
    if (fixed)
        params->expansion = 0;
    return true;
}
