#include "sleep.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "command.h"
#include "conn.h"
#include "journal.h"
#include "command_timing.h"
#include "worker.h"

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
    bool there;      /* and has what it should */
    bool for_replicas;
    struct timing_deferred timing;
};

/* NULL without memory, after the error reply. */
static struct sleeper *go_to_sleep(struct command_ctx *ctx, struct sleeper **list, int64_t ms)
{
    struct conn *conn = conn_of_session(ctx->session);
    struct sleeper *sleeper = calloc(1, sizeof(*sleeper));
    int64_t now_ms = clock_ms();

    if (sleeper == NULL) {
        reply_error(ctx->reply, "ERR out of memory");
        return NULL;
    }
    *sleeper = (struct sleeper){
        .next = *list,
        .conn = conn,
        .row = ctx->command,
        .until_ms = ms > INT64_MAX - now_ms ? INT64_MAX : now_ms + ms,
        .no_reply = conn->session.modes & MODE_NO_REPLY,
    };
    *list = sleeper;
    atomic_fetch_add_explicit(&conn->worker->sleepers.n, 1, memory_order_relaxed);
    conn_wait(conn, CONN_WAITS_JOB, NULL);
    return sleeper;
}

void command_sleep(struct command_ctx *ctx, int64_t ms, const char *reply, bool timed)
{
    struct conn *conn = conn_of_session(ctx->session);
    if (conn->session.in_exec) { /* all other clients would wait, too */
        buf_append(ctx->reply->buf, reply, strlen(reply));
        return;
    }
    struct sleeper *sleeper = go_to_sleep(ctx, &conn->worker->sleepers.for_time, ms);
    if (sleeper == NULL)
        return;
    sleeper->reply = reply;
    sleeper->timed = timed;
    if (timed)
        timing_defer(&sleeper->timing, &conn->worker->timing, ctx->command, ctx->args, ctx->session);
}

/* The records of this iteration come before the ticket, because the client means its own earlier writes, too. */
void command_wait_for_log(struct command_ctx *ctx, int64_t ms, bool for_replicas)
{
    struct worker *worker = conn_of_session(ctx->session)->worker;
    struct journal *journal = server_journal(ctx->server);
    if (journal == NULL || !journal_records(journal)) {
        buf_append(ctx->reply->buf, sleep_without_log, strlen(sleep_without_log));
        return;
    }
    struct sleeper *sleeper = go_to_sleep(ctx, &worker->sleepers.for_log, ms);
    if (sleeper == NULL)
        return;
    sleeper->for_replicas = for_replicas;
    sleeper->ticket = journal_ask(journal, worker->index);
}

/* The reply to send now; NULL: the wait goes on. */
static const char *answer(const struct worker *worker, struct sleeper *sleeper, bool over)
{
    if (sleeper->ticket == 0)
        return over ? sleeper->reply : NULL;
    const struct journal *journal = server_journal(worker->server);
    if (journal == NULL || !journal_records(journal))
        return sleep_without_log;
    if (atomic_load(&worker->log.durable) >= sleeper->ticket && journal_is_whole(journal))
        sleeper->there = true;
    if (sleeper->there && (over || !sleeper->for_replicas))
        return "*2\r\n:1\r\n:0\r\n";
    return over ? "*2\r\n:0\r\n:0\r\n" : NULL;
}

static void wake(struct worker *worker, struct sleeper *sleeper, const char *text)
{
    struct buf reply;

    atomic_fetch_sub_explicit(&worker->sleepers.n, 1, memory_order_relaxed);
    if (sleeper->timed)
        timing_deferred_done(&sleeper->timing, &worker->timing);
    buf_init(&reply, SIZE_MAX);
    buf_append(&reply, text, strlen(text));
    conn_deferred_done(sleeper->conn, &reply, sleeper->row, sleeper->no_reply);
    free(sleeper);
}

static void look_at(struct worker *worker, struct sleeper **list, bool all)
{
    int64_t now_ms = *list == NULL ? 0 : clock_ms();
    struct sleeper **at = list;

    while (*at != NULL) {
        struct sleeper *sleeper = *at;
        const char *text =
            answer(worker, sleeper, all || conn_is_closing(sleeper->conn) || sleeper->until_ms <= now_ms);
        if (text != NULL) {
            *at = sleeper->next;
            wake(worker, sleeper, text);
        } else {
            at = &sleeper->next;
        }
    }
}

void sleepers_look_at_log(struct worker *worker, uint64_t durable)
{
    if (!worker->sleepers.for_log || durable == worker->sleepers.log_seen)
        return;
    worker->sleepers.log_seen = durable;
    worker_enter(worker);
    look_at(worker, &worker->sleepers.for_log, false);
}

void sleepers_wake(struct worker *worker, bool all)
{
    look_at(worker, &worker->sleepers.for_time, all);
    look_at(worker, &worker->sleepers.for_log, all);
}
