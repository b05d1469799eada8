/* Deferred commands: libuv's thread pool runs them and brings them back to the loop that sent them. */
#include "job.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "client.h"
#include "command_timing.h"
#include "crash_report.h"
#include "dispatch_errors.h"
#include "exclusive.h"
#include "push.h"
#include "rcu.h"
#include "registry_databases.h"

struct job {
    uv_work_t work;
    struct job *next; /* in jobs->held */
    struct jobs *jobs;
    struct conn *conn;
    struct buf out;
    const struct command *row;
    struct timing_deferred timing;
    size_t data_bytes;        /* of arguments and data */
    _Atomic size_t out_bytes; /* of `out`, which the pool writes */
    bool on_filters;          /* must not run during a transaction */
    bool begun;
    bool before;   /* the command runs again afterwards: no reply, no time of its own */
    bool no_reply; /* CLIENT REPLY OFF or SKIP was in force */
    struct command_job command;
};

size_t job_memory(const struct job *job)
{
    return job->data_bytes + atomic_load_explicit(&job->out_bytes, memory_order_relaxed);
}

const struct command *job_command(const struct job *job)
{
    return job->row;
}

static void job_run(uv_work_t *work)
{
    struct job *job = work->data;
    rcu_reader_begin();
    job->command.again = false;
    crash_note_command(job->row->full_name);
    job->command.run(&job->command);
    rcu_reader_end();
    if (job->on_filters)
        exclusive_job_end(job->command.server);
}

static void job_enqueue(struct job *job);

static void job_done(uv_work_t *work, int status)
{
    struct job *job = work->data;
    struct conn *conn = job->conn;
    struct io *io = job->jobs->io;
    (void)status;
    io_enter(io);
    if (job->command.again && !conn_is_closing(conn)) {
        conn_count_memory(conn);
        job_enqueue(job);
        return;
    }
    client_of(conn)->job = NULL;
    job->out.size_shown = NULL;
    if (!job->before)
        timing_deferred_done(&job->timing, &io->timing);
    stats_add(&io->stats.maybe_answers, job->command.maybe_answers);
    if (job->command.slow_down)
        push_slow_down(job->jobs->push, &conn->session);
    if (job->before) { /* the connection may go now */
        buf_deinit(&job->out);
        conn_ready(conn, CONN_WAITS_JOB);
    } else {
        deferred_done(conn, &job->out, job->row, job->no_reply);
    }
    if (job->command.discard)
        job->command.discard(job->command.data);
    else
        free(job->command.data);
    free(job->command.arguments);
    free(job);
    if (io->stopping) /* no iteration ends any more to do it, and other jobs may wait for all readers */
        io->calls->pause(io);
}

/* Cannot fail: uv_queue_work() refuses nothing but a missing function. */
static void job_start(struct job *job)
{
    job->begun = true;
    uv_queue_work(&job->jobs->io->loop, &job->work, job_run, job_done);
}

static void say_exchanged(struct command_job *command)
{
    reply_error(&command->reply,
                "TRYAGAIN SWAPDB has exchanged the databases while the command waited; nothing has been changed");
}

/* SWAPDB may have come before the job, which then must not change the filters of the number's former database. A
 * command without names applies to its present one. */
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

void jobs_start_held(struct jobs *jobs)
{
    while (jobs->held) {
        struct job *job = jobs->held;
        if (!exclusive_job_begin(jobs->section))
            return; /* another section has begun: after that one */
        jobs->held = job->next;
        follow_exchange(job);
        job_start(job);
    }
    jobs->held_end = &jobs->held;
}

void jobs_init(struct jobs *jobs, struct io *io, struct section *section, struct push *push)
{
    *jobs = (struct jobs){.io = io, .section = section, .push = push, .held_end = &jobs->held};
}

static void job_enqueue(struct job *job)
{
    struct jobs *jobs = job->jobs;
    if (!job->on_filters || exclusive_job_begin(jobs->section)) {
        job_start(job);
    } else {
        job->next = NULL;
        *jobs->held_end = job;
        jobs->held_end = &job->next;
    }
}

static int post(struct jobs *jobs, struct command_ctx *ctx, void (*run)(struct command_job *job), void *data,
                bool before)
{
    struct conn *conn = conn_of_session(ctx->session);
    struct job *job = calloc(1, sizeof(*job));
    if (!job)
        return -ENOMEM;
    job->work.data = job;
    job->jobs = jobs;
    job->conn = conn;
    job->row = ctx->command;
    void *arguments = ctx->keeps_arguments ? conn_give_input(conn) : NULL;
    job->data_bytes = sizeof(*job) + malloc_usable_size(data) + malloc_usable_size(arguments);
    job->on_filters = ctx->command->flags & (CMD_WRITE | CMD_READONLY);
    job->no_reply = conn->session.modes & MODE_NO_REPLY;
    buf_init(&job->out, conn->output.buf.cap);
    job->out.size_shown = &job->out_bytes;
    client_of(conn)->job = job;
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
        timing_defer(&job->timing, &jobs->io->timing, ctx->command, ctx->original, ctx->session);
    conn_wait(conn, CONN_WAITS_JOB, NULL);
    job_enqueue(job);
    return 0;
}

int job_post(struct jobs *jobs, struct command_ctx *ctx, void (*run)(struct command_job *job), void *data)
{
    return post(jobs, ctx, run, data, false);
}

int job_post_before(struct jobs *jobs, struct command_ctx *ctx, void (*run)(struct command_job *job), void *data)
{
    return post(jobs, ctx, run, data, true);
}
