/* Deferred commands: libuv's thread pool runs them and brings them back to the loop that sent them. */
#include "job.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "clock.h"
#include "command_timing.h"
#include "conn.h"
#include "dispatch_errors.h"
#include "log.h"
#include "exclusive.h"
#include "journal.h"
#include "log_waits.h"
#include "push.h"
#include "rcu.h"
#include "registry_key.h"

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

int job_post(struct jobs *jobs, struct command_ctx *ctx, void (*run)(struct command_job *job), void *data, bool before)
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

const char sleep_without_log[] = "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.\r\n";

struct sleeper {
    struct sleeper *next;
    struct conn *conn;
    const struct command *row;
    int64_t until_ms; /* monotonic */
    const char *reply;
    bool timed;
    bool no_reply;   /* CLIENT REPLY OFF or SKIP was in force */
    uint64_t ticket; /* ticket of the log to wait for; 0: none */
    bool there;      /* the ticket's records are on the disk */
    bool for_replicas;
    struct timing_deferred timing;
};

/* NULL without memory, after the error reply. */
static struct sleeper *go_to_sleep(struct sleepers *sleepers, struct command_ctx *ctx, struct sleeper **list,
                                   int64_t ms)
{
    struct conn *conn = conn_of_session(ctx->session);
    struct sleeper *sleeper = calloc(1, sizeof(*sleeper));
    int64_t now_ms = clock_ms();

    if (sleeper == NULL)
        return reply_error(ctx->reply, "ERR out of memory"), NULL;
    *sleeper = (struct sleeper){
        .next = *list,
        .conn = conn,
        .row = ctx->command,
        .until_ms = ms > INT64_MAX - now_ms ? INT64_MAX : now_ms + ms,
        .no_reply = conn->session.modes & MODE_NO_REPLY,
    };
    *list = sleeper;
    atomic_fetch_add_explicit(&sleepers->n, 1, memory_order_relaxed);
    conn_wait(conn, CONN_WAITS_JOB, NULL);
    return sleeper;
}

void sleepers_init(struct sleepers *sleepers, struct io *io, const struct log_waits *log)
{
    sleepers->io = io;
    sleepers->log = log;
}

void sleepers_add(struct sleepers *sleepers, struct command_ctx *ctx, int64_t ms, const char *reply, bool timed)
{
    if (ctx->session->multi.in_exec) { /* all other clients would wait, too */
        buf_append(ctx->reply->buf, reply, strlen(reply));
        return;
    }
    struct sleeper *sleeper = go_to_sleep(sleepers, ctx, &sleepers->for_time, ms);
    if (sleeper == NULL)
        return;
    sleeper->reply = reply;
    sleeper->timed = timed;
    if (timed)
        timing_defer(&sleeper->timing, &sleepers->io->timing, ctx->command, ctx->args, ctx->session);
}

/* The records of this iteration come before the ticket, because the client means its own earlier writes, too. */
void sleepers_add_for_log(struct sleepers *sleepers, struct command_ctx *ctx, int64_t ms, bool for_replicas)
{
    struct journal *journal = server_journal(ctx->server);
    if (journal == NULL || !journal_records(journal)) {
        buf_append(ctx->reply->buf, sleep_without_log, strlen(sleep_without_log));
        return;
    }
    struct sleeper *sleeper = go_to_sleep(sleepers, ctx, &sleepers->for_log, ms);
    if (sleeper == NULL)
        return;
    sleeper->for_replicas = for_replicas;
    sleeper->ticket = journal_ask(journal, sleepers->io->index);
}

/* The reply to send now; NULL: the wait continues. */
static const char *answer(const struct sleepers *sleepers, struct sleeper *sleeper, bool over)
{
    if (sleeper->ticket == 0)
        return over ? sleeper->reply : NULL;
    const struct journal *journal = server_journal(sleepers->io->server);
    if (journal == NULL || !journal_records(journal))
        return sleep_without_log;
    if (atomic_load(&sleepers->log->durable) >= sleeper->ticket && journal_is_whole(journal))
        sleeper->there = true;
    if (sleeper->there && (over || !sleeper->for_replicas))
        return "*2\r\n:1\r\n:0\r\n";
    return over ? "*2\r\n:0\r\n:0\r\n" : NULL;
}

static void wake(struct sleepers *sleepers, struct sleeper *sleeper, const char *text)
{
    struct buf reply;

    atomic_fetch_sub_explicit(&sleepers->n, 1, memory_order_relaxed);
    if (sleeper->timed)
        timing_deferred_done(&sleeper->timing, &sleepers->io->timing);
    buf_init(&reply, SIZE_MAX);
    buf_append(&reply, text, strlen(text));
    deferred_done(sleeper->conn, &reply, sleeper->row, sleeper->no_reply);
    free(sleeper);
}

static void look_at(struct sleepers *sleepers, struct sleeper **list, bool all)
{
    int64_t now_ms = *list == NULL ? 0 : clock_ms();
    struct sleeper **at = list;

    while (*at != NULL) {
        struct sleeper *sleeper = *at;
        const char *text =
            answer(sleepers, sleeper, all || conn_is_closing(sleeper->conn) || sleeper->until_ms <= now_ms);
        if (text != NULL) {
            *at = sleeper->next;
            wake(sleepers, sleeper, text);
        } else {
            at = &sleeper->next;
        }
    }
}

void sleepers_look_at_log(struct sleepers *sleepers)
{
    if (!sleepers->for_log)
        return;
    uint64_t durable = atomic_load(&sleepers->log->durable);
    if (durable == sleepers->log_seen)
        return;
    sleepers->log_seen = durable;
    io_enter(sleepers->io);
    look_at(sleepers, &sleepers->for_log, false);
}

void sleepers_wake(struct sleepers *sleepers, bool all)
{
    look_at(sleepers, &sleepers->for_time, all);
    look_at(sleepers, &sleepers->for_log, all);
}
