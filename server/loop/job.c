/* Deferred commands: libuv's thread pool runs them and brings them back to the loop that sent them. */
#include "job.h"

#include <errno.h>
#include <stdlib.h>

#include "command.h"
#include "conn.h"
#include "exclusive.h"
#include "push.h"
#include "rcu.h"
#include "thread.h"
#include "timing.h"
#include "worker.h"

struct job {
    uv_work_t work;
    struct job *next; /* in worker->jobs_held */
    struct conn *conn;
    struct buf out;
    const struct command *row;
    struct timing_deferred timing;
    bool on_filters;  /* a transaction must not run at the same time */
    bool no_reply;    /* CLIENT REPLY OFF or SKIP was in force */
    struct command_job command;
};

static void job_run(uv_work_t *work)
{
    static _Thread_local bool begun;
    struct job *job = work->data;
    if (!begun) /* libuv starts its threads from a worker, whose name they would bear */
        thread_begin(THREAD_BACKGROUND, "pool");
    begun = true;
    rcu_reader_begin();
    job->command.again = false;
    job->command.run(&job->command);
    rcu_reader_end();
    if (job->on_filters)
        exclusive_job_end(job->command.server);
}

static void job_enqueue(struct worker *worker, struct job *job);

static void job_done(uv_work_t *work, int status)
{
    struct job *job = work->data;
    struct conn *conn = job->conn;
    (void)status;
    worker_enter(conn->worker);
    if (job->command.again && !conn->closing) {
        job_enqueue(conn->worker, job);
        return;
    }
    timing_deferred_done(&job->timing, conn->worker);
    struct worker *worker = conn->worker; /* the connection may go now */
    if (job->command.slow_down)
        push_slow_down(worker, &conn->session);
    conn_deferred_done(conn, &job->out, job->row, job->no_reply);
    free(job->command.data);
    free(job);
    if (worker->stopping) /* no end of an iteration does it any more, and other jobs may wait for all readers */
        worker_pause_reading(worker);
}

/* Cannot fail: uv_queue_work() refuses nothing but a missing function. */
static void job_start(struct worker *worker, struct job *job)
{
    uv_queue_work(&worker->loop, &job->work, job_run, job_done);
}

void job_start_held(struct worker *worker)
{
    while (worker->jobs_held) {
        struct job *job = worker->jobs_held;
        if (!exclusive_job_begin(worker))
            return; /* another section: after that one */
        worker->jobs_held = job->next;
        job_start(worker, job);
    }
    worker->jobs_held_end = &worker->jobs_held;
}

static void job_enqueue(struct worker *worker, struct job *job)
{
    if (!job->on_filters || exclusive_job_begin(worker)) {
        job_start(worker, job);
    } else {
        job->next = NULL;
        *worker->jobs_held_end = job;
        worker->jobs_held_end = &job->next;
    }
}

int job_post(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data)
{
    struct conn *conn = conn_of_session(ctx->session);
    struct worker *worker = conn->worker;
    struct job *job = calloc(1, sizeof(*job));
    if (!job)
        return -ENOMEM;
    job->work.data = job;
    job->conn = conn;
    job->row = ctx->command;
    job->on_filters = ctx->command->flags & (CMD_WRITE | CMD_READONLY);
    job->no_reply = conn->modes & CONN_NO_REPLY;
    buf_init(&job->out, conn->out.cap);
    job->command = (struct command_job){
        .server = ctx->server,
        .reply = {.buf = &job->out, .version = ctx->reply->version},
        .data = data,
        .run = run,
    };
    timing_defer(&job->timing, worker, ctx->command, ctx->args, ctx->session);
    conn_wait(conn, CONN_WAITS_JOB);
    job_enqueue(worker, job);
    return 0;
}
