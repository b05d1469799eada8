/* Deferred commands: libuv's thread pool runs them and brings them back to the loop that sent them. */
#include "job.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "broadcast.h"
#include "command.h"
#include "conn.h"
#include "exclusive.h"
#include "push.h"
#include "rcu.h"
#include "registry_databases.h"
#include "command_timing.h"
#include "worker.h"

struct job {
    uv_work_t work;
    struct job *next; /* in worker->jobs_held.first */
    struct conn *conn;
    struct buf out;
    const struct command *row;
    struct timing_deferred timing;
    uint64_t author;   /* broadcast_author() while it runs */
    size_t data_bytes; /* counted in server->memory.of_clients while the job runs */
    bool on_filters;   /* must not run during a transaction */
    bool begun;
    bool before;   /* the command runs again afterwards: no reply, no time of its own */
    bool no_reply; /* CLIENT REPLY OFF or SKIP was in force */
    struct command_job command;
};

static void job_run(uv_work_t *work)
{
    struct job *job = work->data;
    rcu_reader_begin();
    job->command.again = false;
    broadcast_set_author(job->author);
    job->command.run(&job->command);
    broadcast_set_author(0);
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
    if (job->command.again && !conn_is_closing(conn)) {
        job_enqueue(conn->worker, job);
        return;
    }
    if (!job->before)
        timing_deferred_done(&job->timing, &conn->worker->timing);
    stats_add(&conn->worker->stats.maybe_answers, job->command.maybe_answers);
    struct worker *worker = conn->worker; /* the connection may go now */
    if (job->command.slow_down)
        push_slow_down(worker, &conn->session);
    if (job->before) {
        buf_deinit(&job->out);
        conn_ready(conn, CONN_WAITS_JOB);
    } else {
        conn_deferred_done(conn, &job->out, job->row, job->no_reply);
    }
    worker_count_memory(worker, -(int64_t)job->data_bytes);
    if (job->command.discard)
        job->command.discard(job->command.data);
    else
        free(job->command.data);
    free(job->command.arguments);
    free(job);
    if (worker->stopping) /* no iteration ends any more to do it, and other jobs may wait for all readers */
        worker_pause_reading(worker);
}

/* Cannot fail: uv_queue_work() refuses nothing but a missing function. */
static void job_start(struct worker *worker, struct job *job)
{
    job->begun = true;
    uv_queue_work(&worker->loop, &job->work, job_run, job_done);
}

static void say_exchanged(struct command_job *command)
{
    reply_error(&command->reply,
                "TRYAGAIN SWAPDB has exchanged the databases while the command waited; nothing has been changed");
}

/* SWAPDB may have come before the job, which then must not change the filters that the number stood for. A command
 * without names is of those that it stands for now. */
static void follow_exchange(struct job *job)
{
    unsigned number = atomic_load_explicit(&job->conn->session.db, memory_order_relaxed);
    unsigned database = registry_database(job->command.server->registry, number);
    if (job->begun || job->before || job->command.database == database)
        return;
    if (job->row->first_key == 0)
        job->command.database = database;
    else if (job->row->flags & CMD_WRITE)
        job->command.run = say_exchanged;
}

void job_start_held(struct worker *worker)
{
    while (worker->jobs_held.first) {
        struct job *job = worker->jobs_held.first;
        if (!exclusive_job_begin(worker))
            return; /* another section has begun: after that one */
        worker->jobs_held.first = job->next;
        follow_exchange(job);
        job_start(worker, job);
    }
    worker->jobs_held.end = &worker->jobs_held.first;
}

static void job_enqueue(struct worker *worker, struct job *job)
{
    if (!job->on_filters || exclusive_job_begin(worker)) {
        job_start(worker, job);
    } else {
        job->next = NULL;
        *worker->jobs_held.end = job;
        worker->jobs_held.end = &job->next;
    }
}

static int post(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data, bool before)
{
    struct conn *conn = conn_of_session(ctx->session);
    struct worker *worker = conn->worker;
    struct job *job = calloc(1, sizeof(*job));
    if (!job)
        return -ENOMEM;
    job->work.data = job;
    job->conn = conn;
    job->row = ctx->command;
    job->author = tracking_author(conn);
    void *arguments = ctx->keeps_arguments ? conn_give_input(conn) : NULL;
    job->data_bytes = sizeof(*job) + malloc_usable_size(data) + malloc_usable_size(arguments);
    worker_count_memory(worker, (int64_t)job->data_bytes);
    job->on_filters = (ctx->command->flags & (CMD_WRITE | CMD_READONLY)) && !(ctx->command->flags & CMD_TALKS);
    job->no_reply = conn->session.modes & MODE_NO_REPLY;
    buf_init(&job->out, conn->output.buf.cap);
    job->command = (struct command_job){
        .server = ctx->server,
        .reply = {.buf = &job->out, .version = ctx->reply->version},
        .data = data,
        .arguments = arguments,
        .run = run,
        .database = ctx->database,
    };
    job->before = before;
    if (!before)
        timing_defer(&job->timing, &worker->timing, ctx->command, ctx->said, ctx->session);
    conn_wait(conn, CONN_WAITS_JOB, NULL);
    job_enqueue(worker, job);
    return 0;
}

int job_post(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data)
{
    return post(ctx, run, data, false);
}

int job_post_before(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data)
{
    return post(ctx, run, data, true);
}
