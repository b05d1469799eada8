/* The loop's implementation of the host interface of handlers (host.h). Waits are in sleep.c. */
#include "host.h"

#include <sched.h>
#include <stdlib.h>

#include "acl_session.h"
#include "conn.h"
#include "dispatch.h"
#include "exclusive.h"
#include "monitor.h"
#include "push.h"
#include "tracking.h"
#include "transaction.h"
#include "worker.h"

/* ---- being alone ---- */

bool command_is_alone(const struct command_ctx *ctx)
{
    return exclusive_now(ctx->worker);
}

bool host_alone(struct server *server, void (*run)(void *ctx), void *ctx)
{
    return exclusive_visit(server, run, ctx);
}

void command_wait_to_be_alone(struct command_ctx *ctx)
{
    exclusive_request(conn_of_session(ctx->session));
    ctx->later = true;
}

static void run_queued(void *conn, const struct command *command, const struct resp_command *cmd)
{
    dispatch_queued(conn, command, cmd);
}

void command_run_queue(struct command_ctx *ctx, const struct transaction *tx)
{
    transaction_each(tx, run_queued, conn_of_session(ctx->session));
    window_flush(ctx->worker);
}

static void look_at_pause(struct worker *worker, void *arg)
{
    (void)arg;
    if (!worker->stopping)
        admission_look_at_pause(worker);
}

void command_pause_changed(struct command_ctx *ctx, bool all)
{
    admission_look_at_pause(ctx->worker);
    for (unsigned i = 0; all && i < ctx->server->nworkers; i++)
        (void)worker_post(ctx->server->workers[i], look_at_pause, NULL); /* without memory its tick sees it soon */
}

/* ---- messages ---- */

void command_slow_publisher(struct command_ctx *ctx)
{
    push_slow_down(ctx->worker, ctx->session);
}

void command_monitor_begins(struct command_ctx *ctx)
{
    monitor_flush(ctx->worker);
}

void command_monitor_begun(struct command_ctx *ctx)
{
    monitor_look(ctx->worker);
}

int command_start_tracking(struct command_ctx *ctx, const struct session_tracking *options,
                           const struct slice *prefixes, size_t n)
{
    return tracking_start(conn_of_session(ctx->session), options, prefixes, n);
}

void command_stop_tracking(struct command_ctx *ctx)
{
    tracking_stop(conn_of_session(ctx->session));
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
    return worker_nconns(server->workers[worker]);
}

unsigned host_sleepers(const struct server *server, unsigned worker)
{
    return atomic_load_explicit(&server->workers[worker]->sleepers.n, memory_order_relaxed);
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
    for (struct conn *conn = worker->conns, *next; conn; conn = next) {
        next = conn->next;
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
    struct worker *worker = server->workers[index];
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
    return atomic_load(&server->workers[worker]->kills.done) >= closing;
}

/* ---- users ---- */

/* Looks at one client whose user has been replaced. */
static void look_at_user(struct conn *conn)
{
    if (!acl_refresh(conn->worker->server, &conn->session)) {
        if (conn->session.close_after_reply || conn->waits & CONN_WAITS_JOB)
            conn_close_after_reply(conn); /* it may have deleted its own user: it gets the reply */
        else
            conn_close(conn);
    } else if (!acl_allows_subscriptions(&conn->session)) {
        conn_close_after_reply(conn);
    }
}

void worker_look_at_users(struct worker *worker, struct worker_message *message)
{
    (void)message;
    atomic_store(&worker->users.posted, false);
    if (worker->stopping)
        return;
    window_flush(worker);
    for (struct conn *conn = worker->conns, *next; conn; conn = next) {
        next = conn->next;
        if (!acl_is_current(&conn->session))
            look_at_user(conn);
    }
}

void host_users_changed(struct server *server)
{
    for (unsigned i = 0; i < server->nworkers; i++) {
        struct users_message *users = &server->workers[i]->users;
        if (!atomic_exchange(&users->posted, true))
            worker_post_message(server->workers[i], &users->message);
    }
}
