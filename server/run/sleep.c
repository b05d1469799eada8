#include "sleep.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "command.h"
#include "conn.h"
#include "command_timing.h"
#include "dispatch_errors.h"
#include "journal.h"
#include "log_waits.h"

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
