/* BF.PLAN: the cost and the properties of a filter, without an allocation. */
#include "bf_host.h"
#include "bf_info.h"
#include "command.h"
#include "content.h"
#include "handlers.h"

#define INLINE_LAYERS 32
#define LONGEST_WORD  1024

static void answer(struct reply *reply, const struct bf_plan *requested)
{
    struct bf_out out = bf_out_of(reply);
    bf_reply_plan(&out, requested);
}

/* Some microseconds for each: not on a loop. Larger expansions have no more than fit a file, some thirty. */
static bool has_many_layers(const struct bf_plan *requested)
{
    return requested->params.expansion == 1 && requested->items / requested->params.capacity > INLINE_LAYERS;
}

static void run_job(struct command_job *job)
{
    struct bf_args args = bf_args_of_job(job->data, "bf.plan");
    struct bf_defaults defaults = bf_defaults_of(job->server);
    struct bf_plan requested;
    struct errbuf err;
    if (bf_read_plan(&args, &defaults, &requested, &err))
        answer(&job->reply, &requested);
    else
        reply_error(&job->reply, err.text);
}

void cmd_bf_plan(struct command_ctx *ctx)
{
    struct bf_args args = bf_args_of(ctx);
    struct bf_defaults defaults = bf_defaults_of(ctx->server);
    struct bf_plan requested;
    struct errbuf err;
    if (!bf_read_plan(&args, &defaults, &requested, &err))
        reply_error(ctx->reply, err.text);
    else if (has_many_layers(&requested))
        content_defer(ctx, LONGEST_WORD, run_job);
    else
        answer(ctx->reply, &requested);
}
