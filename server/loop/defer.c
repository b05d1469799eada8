/* command_defer(), apart from the jobs themselves: tests of handlers put another in its place. */
#include <stdlib.h>

#include "conn.h"
#include "job.h"

/* Inside a transaction nothing is deferred: the commands behind it would have to wait, and everybody else for them. */
static void run_at_once(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data)
{
    struct command_job job = {.server = ctx->server, .reply = *ctx->reply, .data = data, .alone = true, .run = run};
    do {
        job.again = false;
        run(&job);
    } while (job.again);
    free(data);
}

void command_defer(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data)
{
    if (conn_of_session(ctx->session)->in_exec) {
        run_at_once(ctx, run, data);
    } else if (job_post(ctx, run, data) != 0) {
        reply_error(ctx->reply, "ERR out of memory");
        free(data);
    }
}
