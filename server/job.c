/* Deferred commands: libuv's thread pool runs them and brings them back to the loop that sent them. */
#include <errno.h>
#include <stdlib.h>

#include "command.h"
#include "conn.h"
#include "rcu.h"
#include "timing.h"
#include "worker.h"

struct job {
    uv_work_t work;
    struct conn *conn;
    struct buf out;
    const struct command *row;
    struct timing_deferred timing;
    struct command_job command;
};

static void job_run(uv_work_t *work)
{
    struct job *job = work->data;
    rcu_reader_begin();
    job->command.run(&job->command);
    rcu_reader_end();
}

static void job_done(uv_work_t *work, int status)
{
    struct job *job = work->data;
    struct conn *conn = job->conn;
    (void)status;
    worker_enter(conn->worker);
    timing_deferred_done(&job->timing, conn->worker);
    conn_deferred_done(conn, &job->out, command_index(job->row), job->row->flags & CMD_WRITE);
    free(job->command.data);
    free(job);
}

void command_defer(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data)
{
    struct conn *conn = conn_of_session(ctx->session);
    struct job *job = calloc(1, sizeof(*job));
    int err = -ENOMEM;
    if (job) {
        job->work.data = job;
        job->conn = conn;
        job->row = ctx->command;
        buf_init(&job->out, conn->out.cap);
        job->command = (struct command_job){
            .server = ctx->server,
            .reply = {.buf = &job->out, .version = ctx->reply->version},
            .data = data,
            .run = run,
        };
        timing_defer(&job->timing, conn->worker, ctx->command, ctx->args, ctx->session);
        err = uv_queue_work(&conn->worker->loop, &job->work, job_run, job_done);
    }
    if (err) {
        reply_error(ctx->reply, "ERR out of memory");
        free(data);
        if (job)
            timing_deferred_cancel(&job->timing);
        free(job);
        return;
    }
    conn_wait(conn, CONN_WAITS_JOB);
}
