/* BF.PLAN: what a filter would cost and give, with nothing allocated. */
#include <stdlib.h>

#include "bf_host.h"
#include "bf_info.h"
#include "command.h"
#include "handlers.h"

#define INLINE_LAYERS 32

static void answer(struct reply *reply, const struct bf_plan *asked)
{
    struct bloom_plan plan;
    struct bf_out out = bf_out_of(reply);
    struct errbuf err = {""};
    if (bloom_plan(&asked->params, asked->items, &plan, &err) != BLOOM_OK)
        reply_errorf(reply, "ERR %s", err.text);
    else
        bf_reply_plan(&out, &asked->params, &plan);
}

/* Some microseconds for each: not on a loop. Larger expansions have no more than fit a file, some thirty. */
static bool has_many_layers(const struct bf_plan *asked)
{
    return asked->params.expansion == 1 && asked->items / asked->params.capacity > INLINE_LAYERS;
}

static void run_job(struct command_job *job)
{
    answer(&job->reply, job->data);
}

static void defer_plan(struct command_ctx *ctx, const struct bf_plan *asked)
{
    struct bf_plan *data = malloc(sizeof(*data));
    if (!data) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    *data = *asked;
    command_defer(ctx, run_job, data);
}

void cmd_bf_plan(struct command_ctx *ctx)
{
    struct bf_args args = bf_args_of(ctx);
    struct bf_defaults defaults = bf_defaults_of(ctx->server);
    struct bf_plan asked;
    struct errbuf err;
    if (!bf_read_plan(&args, &defaults, &asked, &err))
        reply_error(ctx->reply, err.text);
    else if (has_many_layers(&asked))
        defer_plan(ctx, &asked);
    else
        answer(ctx->reply, &asked);
}
