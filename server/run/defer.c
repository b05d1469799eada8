/* command_defer(), command_do_first() and command_keep_arguments(), apart, because tests of handlers replace them. */
#include <stdlib.h>

#include "conn.h"
#include "host.h"
#include "runner.h"

static struct runner *runner_of_ctx(const struct command_ctx *ctx)
{
    return runner_of(conn_of_session(ctx->session)->io);
}

void command_defer(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data)
{
    if (ctx->session->multi.in_exec) {
        reply_errorf(ctx->reply, "ERR this call of '%s' may take long: it cannot run in a transaction",
                     ctx->command->full_name);
        free(data);
    } else if (job_post(&runner_of_ctx(ctx)->jobs, ctx, run, data, false) != 0) {
        reply_error(ctx->reply, "ERR out of memory");
        free(data);
    }
}

bool command_do_first(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data)
{
    if (ctx->session->multi.in_exec)
        reply_errorf(ctx->reply, "ERR '%s' must read a file first: it cannot run in a transaction",
                     ctx->command->full_name);
    else if (job_post(&runner_of_ctx(ctx)->jobs, ctx, run, data, true) != 0)
        reply_error(ctx->reply, "ERR out of memory");
    else
        return ctx->later = true;
    free(data);
    return false;
}

bool command_keep_arguments(struct command_ctx *ctx)
{
    ctx->keeps_arguments = conn_has_input(conn_of_session(ctx->session), ctx->args->base);
    return ctx->keeps_arguments;
}
