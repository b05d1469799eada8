#include "sleep.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "conn.h"
#include "timing.h"
#include "worker.h"

struct sleeper {
    struct sleeper *next;
    struct conn *conn;
    const struct command *row;
    int64_t until_ms; /* monotonic */
    const char *reply;
    bool timed;
    bool no_reply; /* CLIENT REPLY OFF or SKIP was in force */
    struct timing_deferred timing;
};

void command_sleep(struct command_ctx *ctx, int64_t ms, const char *reply, bool timed)
{
    struct conn *conn = conn_of_session(ctx->session);
    struct worker *worker = conn->worker;
    if (conn->in_exec) { /* everybody else would wait as well */
        buf_append(ctx->reply->buf, reply, strlen(reply));
        return;
    }
    struct sleeper *sleeper = calloc(1, sizeof(*sleeper));
    int64_t now_ms = server_now_ms();

    if (sleeper == NULL) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    *sleeper = (struct sleeper){
        .next = worker->sleepers,
        .conn = conn,
        .row = ctx->command,
        .until_ms = ms > INT64_MAX - now_ms ? INT64_MAX : now_ms + ms,
        .reply = reply,
        .timed = timed,
        .no_reply = conn->modes & CONN_NO_REPLY,
    };
    if (timed)
        timing_defer(&sleeper->timing, worker, ctx->command, ctx->args, ctx->session);
    worker->sleepers = sleeper;
    atomic_fetch_add_explicit(&worker->nsleepers, 1, memory_order_relaxed);
    conn_wait(conn, CONN_WAITS_JOB);
}

static void wake(struct worker *worker, struct sleeper *sleeper)
{
    struct buf reply;

    atomic_fetch_sub_explicit(&worker->nsleepers, 1, memory_order_relaxed);
    if (sleeper->timed)
        timing_deferred_done(&sleeper->timing, worker);
    buf_init(&reply, SIZE_MAX);
    buf_append(&reply, sleeper->reply, strlen(sleeper->reply));
    conn_deferred_done(sleeper->conn, &reply, sleeper->row, sleeper->no_reply);
    free(sleeper);
}

/* While a connection waits its socket is not polled, and some sleep for ever: so somebody has to look. */
static bool peer_is_gone(const struct conn *conn)
{
    struct pollfd fd = {.fd = conn->fd, .events = POLLRDHUP};

    return poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void sleepers_wake(struct worker *worker, bool all)
{
    int64_t now_ms = worker->sleepers == NULL ? 0 : server_now_ms();
    struct sleeper **at = &worker->sleepers;

    while (*at != NULL) {
        struct sleeper *sleeper = *at;
        if (!sleeper->conn->closing && peer_is_gone(sleeper->conn))
            conn_close(sleeper->conn);
        if (all || sleeper->conn->closing || sleeper->until_ms <= now_ms) {
            *at = sleeper->next;
            wake(worker, sleeper);
        } else {
            at = &sleeper->next;
        }
    }
}
