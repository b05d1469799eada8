/* The host interface of handlers (host.h), as the workers implement it. The other part of it is in defer.c. */
#include "host.h"

#include <sched.h>
#include <stdlib.h>

#include "acl.h"
#include "client.h"
#include "dispatch.h"
#include "handlers.h"
#include "job.h"
#include "transaction.h"
#include "worker.h"

static struct runner *runner_of_ctx(const struct command_ctx *ctx)
{
    return runner_of(conn_of_session(ctx->session)->io);
}

/* ---- being alone ---- */

bool command_is_alone(const struct command_ctx *ctx)
{
    return exclusive_now(&runner_of_ctx(ctx)->section);
}

void command_wait_to_be_alone(struct command_ctx *ctx)
{
    exclusive_request(&runner_of_ctx(ctx)->section, conn_of_session(ctx->session));
    ctx->later = true;
}

static void run_queued(void *conn, const struct command *command, const struct resp_command *cmd)
{
    dispatch_queued(conn, command, cmd);
}

void command_run_queue(struct command_ctx *ctx, const struct transaction *tx)
{
    transaction_each(tx, run_queued, conn_of_session(ctx->session));
    pipeline_flush(&runner_of_ctx(ctx)->pipeline);
}

static void look_at_pause(void *admission)
{
    admission_look_at_pause(admission);
}

void command_pause_changed(struct command_ctx *ctx, bool all)
{
    admission_look_at_pause(&runner_of_ctx(ctx)->admission);
    if (all)
        io_notify_all(ctx->server, NOTICE_PAUSE);
}

/* ---- waiting ---- */

void command_sleep(struct command_ctx *ctx, int64_t ms, const char *reply, bool timed)
{
    sleepers_add(&runner_of_ctx(ctx)->sleepers, ctx, ms, reply, timed);
}

void command_wait_for_log(struct command_ctx *ctx, int64_t ms, bool for_replicas)
{
    sleepers_add_for_log(&runner_of_ctx(ctx)->sleepers, ctx, ms, for_replicas);
}

/* ---- messages ---- */

void command_slow_publisher(struct command_ctx *ctx)
{
    push_slow_down(&runner_of_ctx(ctx)->push, ctx->session);
}

void command_monitor_begins(struct command_ctx *ctx)
{
    monitor_flush(&runner_of_ctx(ctx)->monitor);
}

void command_monitor_begun(struct command_ctx *ctx)
{
    monitor_look(&runner_of_ctx(ctx)->monitor);
}

/* ---- connections ---- */

void command_over_limit(struct command_ctx *ctx, const char *why)
{
    stats_add(&ctx->stats->over_query_buffer, 1);
    conn_warn_closed(conn_of_session(ctx->session), why);
    conn_drain(conn_of_session(ctx->session));
}

unsigned host_connections(const struct server *server, unsigned worker)
{
    return worker_nconns(server->threads.workers[worker]);
}

unsigned host_blocked(const struct server *server, unsigned worker)
{
    const struct runner *runner = &server->threads.workers[worker]->runner;
    return atomic_load_explicit(&runner->sleepers.n, memory_order_relaxed) +
           atomic_load_explicit(&runner->io.npaused, memory_order_relaxed);
}

struct closing {
    uint64_t self;
    size_t n;
    uint64_t *ids;
};

static int compare_id(const void *key, const void *id)
{
    uint64_t a = *(const uint64_t *)key, b = *(const uint64_t *)id;
    return (a > b) - (a < b);
}

static void close_some(struct worker *worker, void *arg)
{
    struct closing *closing = arg;
    for (struct conn *conn = LIST_FIRST(&worker->runner.io.conns), *next; conn; conn = next) {
        next = LIST_NEXT(conn, link);
        if (!bsearch(&conn->session.id, closing->ids, closing->n, sizeof(closing->ids[0]), compare_id))
            continue;
        if (conn->session.id == closing->self)
            conn_close_after_reply(conn);
        else
            conn_close(conn);
    }
    free(closing->ids);
    free(closing);
    atomic_fetch_add(&worker->kills.done, 1);
}

/* The sessions are marked as closed already, so this retries until there is memory. */
uint64_t host_close(struct server *server, unsigned index, uint64_t *ids, size_t n, uint64_t self)
{
    struct worker *worker = server->threads.workers[index];
    struct closing *closing;
    while (!(closing = malloc(sizeof(*closing))))
        sched_yield();
    *closing = (struct closing){self, n, ids};
    atomic_fetch_add(&worker->kills.posted, 1);
    while (worker_post(worker, close_some, closing) != 0)
        sched_yield();
    return atomic_load(&worker->kills.posted); /* ours is among these */
}

bool host_closed(const struct server *server, unsigned worker, uint64_t closing)
{
    return atomic_load(&server->threads.workers[worker]->kills.done) >= closing;
}

/* ---- users ---- */

bool host_may_hear(const struct conn *conn)
{
    return acl_may_hear(conn->io->server, &conn->session);
}

/* Looks at one client whose user has been replaced. One that has changed its own user gets the reply to that, others
 * get none, whatever they wait for. */
static void look_at_user(struct conn *conn)
{
    const struct job *job = client_of(conn)->job;
    if (acl_refresh(conn->io->server, &conn->session))
        return;
    if (conn->session.close_after_reply || (job && job_command(job)->handler == cmd_acl_load))
        conn_close_after_reply(conn);
    else
        conn_close(conn);
}

static void look_at_users(void *part)
{
    struct io *io = part;
    io_settle(io);
    for (struct conn *conn = LIST_FIRST(&io->conns), *next; conn; conn = next) {
        next = LIST_NEXT(conn, link);
        if (!acl_is_current(&conn->session))
            look_at_user(conn);
    }
}

void host_users_changed(struct server *server)
{
    io_notify_all(server, NOTICE_USERS);
}

bool host_users_are_looked_at(const struct server *server)
{
    return io_all_noticed(server, NOTICE_USERS);
}

void host_init(struct worker *worker)
{
    struct runner *runner = &worker->runner;
    mailbox_expect(&runner->io.mailbox, NOTICE_PAUSE, look_at_pause, &runner->admission);
    mailbox_expect(&runner->io.mailbox, NOTICE_USERS, look_at_users, &runner->io);
}
