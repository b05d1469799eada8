#include "conn_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "command.h"
#include "dispatch.h"
#include "log.h"
#include "transaction.h"
#include "push.h"
#include "worker.h"

/* ---- what is polled for ------------------------------------------------------------------------------------------ */

static void poll_for(struct conn *conn, int events);

/* Whether to be told of its end while nothing is read: of a broken connection one is told whatever is polled for. */
static int wants_end(const struct conn *conn)
{
    return conn->waits && !conn->eof && !conn->eof_seen_ms ? UV_DISCONNECT : 0;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct conn *conn = poll->data;
    worker_enter(conn->worker);
    if (status < 0) {
        conn_close(conn);
        return;
    }
    if (events & UV_WRITABLE) {
        window_flush(conn->worker); /* its own replies may still be on their way there */
        conn_flush(conn);
    }
    if (conn->closing)
        return;
    if ((events & UV_DISCONNECT) && conn->waits) {
        conn->eof_seen_ms = conn->worker->now_ms;
        conn_update(conn);
    }
    if (!(events & UV_READABLE))
        return;
    if (!conn->held && !conn->eof && conn_may_run(conn))
        conn_read(conn);
    else
        poll_for(conn, (conn->events & ~UV_READABLE) | wants_end(conn));
}

static void poll_for(struct conn *conn, int events)
{
    if (events == conn->events)
        return;
    conn->events = events;
    if (events)
        uv_poll_start(&conn->poll, events, on_poll);
    else
        uv_poll_stop(&conn->poll);
}

static bool over_high_water(const struct conn *conn)
{
    size_t pause = conn->out_pause > conn->worker->high_water ? conn->out_pause : conn->worker->high_water;
    return buf_len(&conn->out) > pause;
}

bool conn_may_run(const struct conn *conn)
{
    return !conn->waits && !conn->session.close_after_reply && !over_high_water(conn);
}

/* Who waits has mostly nothing to say until it has its reply, and leaving the poll set and coming back costs more than the
 * reply: it is polled on, and on_poll() ends that if it does say something. */
static int wants_to_read(const struct conn *conn, bool may_run)
{
    if (conn->waits)
        return conn->events & UV_READABLE ? UV_READABLE : wants_end(conn);
    if (conn->held || conn->eof || conn->session.close_after_reply)
        return 0;
    return may_run ? UV_READABLE : 0;
}

void conn_update(struct conn *conn)
{
    if (conn->closing)
        return;
    bool may_run = conn_may_run(conn);
    if (may_run && conn->held)
        worker_give_turn(conn->worker, conn);
    bool may_send = buf_len(&conn->out) && !(conn->waits & CONN_WAITS_DURABLE);
    poll_for(conn, wants_to_read(conn, may_run) | (may_send ? UV_WRITABLE : 0));
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

void conn_wait(struct conn *conn, enum conn_wait why)
{
    conn->waits |= (unsigned)why;
    conn_list_remove(&conn->turn);
    conn_will_reply(conn); /* the end of the iteration looks at what is polled for */
}

/* The flush at the end of the iteration sees to all that is due now: replies, a turn, an end that was put off. */
void conn_ready(struct conn *conn, enum conn_wait why)
{
    if (!(conn->waits & (unsigned)why))
        return;
    conn->waits &= ~(unsigned)why;
    if (conn->waits == 0)
        conn->eof_seen_ms = 0; /* it will be read in its turn */
    if (!conn->closing)
        conn_will_reply(conn);
}

/* ---- closing ----------------------------------------------------------------------------------------------------- */

static void conn_free(struct conn *conn)
{
    resp_parser_deinit(&conn->parser);
    free(conn);
}

static void on_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;
    close(conn->fd); /* not earlier: until here libuv may name it to the kernel, and it could be another's by then */
    conn->fd = -1;
    if (!(conn->waits & CONN_WAITS_JOB))
        conn_free(conn);
}

static void unlink_conn(struct conn *conn)
{
    struct worker *worker = conn->worker;
    if (conn->prev)
        conn->prev->next = conn->next;
    else
        worker->conns = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
    atomic_fetch_sub_explicit(&worker->nconns, 1, memory_order_relaxed);
    conn_list_remove(&conn->with_replies);
    conn_list_remove(&conn->turn);
    conn_list_remove(&conn->durable);
    conn_list_remove(&conn->waiter);
}

void conn_close(struct conn *conn)
{
    if (conn->closing)
        return;
    struct worker *worker = conn->worker;
    window_flush(worker); /* commands in the window point into this connection */
    conn->closing = true;
    unlink_conn(conn);
    push_leave(&conn->session);
    sessions_remove(worker->server->sessions, &conn->session);
    conn_drop_input(conn);
    transaction_end(conn);
    buf_deinit(&conn->slice_out);
    buf_deinit(&conn->out);
    uv_close((uv_handle_t *)&conn->poll, on_closed);
}

void conn_close_after_reply(struct conn *conn)
{
    conn->session.close_after_reply = true;
    atomic_fetch_or_explicit(&conn->session.flags, SESSION_CLOSING, memory_order_relaxed);
    conn_drop_input(conn);
    conn_will_reply(conn);
}

void conn_warn_closed(const struct conn *conn, const char *why)
{
    struct server *server = conn->worker->server;
    log_limited(&server->log, &server->limits.client, conn->worker->now_ms, LOG_LEVEL_WARNING, "client %s closed: %s",
                conn->session.addr, why);
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static enum config_client_class conn_class(const struct conn *conn)
{
    return conn->session.subscribed ? CONFIG_CLIENT_PUBSUB : CONFIG_CLIENT_NORMAL;
}

void conn_will_reply(struct conn *conn)
{
    struct worker *worker = conn->worker;
    if (conn_link_used(&conn->with_replies) || conn->closing)
        return;
    conn_list_append(&worker->with_replies, &conn->with_replies);
    conn->out.cap = worker->reply_limits[conn_class(conn)]; /* as it is set now */
    if (!conn->out.data) {
        conn->out.data = worker_buf_get(worker);
        conn->out.size = conn->out.data ? WORKER_BUF_SIZE : 0;
    }
}

/* An idle connection keeps no buffer. */
static void give_back_buf(struct conn *conn)
{
    if (conn->out.size == WORKER_BUF_SIZE) {
        worker_buf_put(conn->worker, conn->out.data);
        conn->out.data = NULL;
        conn->out.size = 0;
    }
    buf_deinit(&conn->out);
}

/* Sends until the kernel takes no more. false: the connection is broken. */
static bool send_some(struct conn *conn)
{
    while (buf_len(&conn->out)) {
        ssize_t n = send(conn->fd, buf_head(&conn->out), buf_len(&conn->out), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        stats_add(&conn->worker->stats.net_output_bytes, (uint64_t)n);
        stats_add(&conn->worker->stats.writes_processed, 1);
        atomic_store_explicit(&conn->session.last_ms, conn->worker->now_ms, memory_order_relaxed);
        buf_consume(&conn->out, (size_t)n);
    }
    return true;
}

/* Whether the replies may leave: what they promise is on disk. `wrote` is looked at because a connection may become
 * writable once more in the iteration in which it has written, before that has its ticket. */
static bool may_send(const struct conn *conn)
{
    return !(conn->waits & CONN_WAITS_DURABLE) && !conn->wrote;
}

void conn_flush(struct conn *conn)
{
    if (conn->closing)
        return;
    if (buf_failed(&conn->out)) {
        stats_add(&conn->worker->stats.over_output_buffer, 1);
        conn_warn_closed(
            conn,
            "its replies passed reply-buffer-limit or client-output-buffer-limit, or there is no memory for them");
        conn_close(conn);
        return;
    }
    if (may_send(conn) && !send_some(conn)) {
        conn_close(conn);
        return;
    }
    atomic_store_explicit(&conn->session.output_bytes, buf_len(&conn->out), memory_order_relaxed);
    if (buf_len(&conn->out) == 0) {
        give_back_buf(conn);
        if ((conn->session.close_after_reply || (conn->eof && !conn->in_len)) && !conn->waits) {
            conn_close(conn);
            return;
        }
    }
    conn_update(conn);
}

bool conn_over_soft_limit(struct conn *conn)
{
    const struct config *config = server_config(conn->worker->server);
    const struct config_output_limit *limit = &config->client_output_buffer_limit.classes[conn_class(conn)];
    if (limit->soft == 0 || buf_len(&conn->out) <= limit->soft) {
        conn->over_soft_ms = 0;
        return false;
    }
    if (conn->over_soft_ms == 0)
        conn->over_soft_ms = conn->worker->now_ms;
    if (conn->worker->now_ms - conn->over_soft_ms < limit->soft_seconds * 1000)
        return false;
    stats_add(&conn->worker->stats.over_output_buffer, 1);
    conn_warn_closed(conn, "its replies were over the soft client-output-buffer-limit for too long");
    conn_close(conn);
    return true;
}

bool conn_over_half_closed(struct conn *conn)
{
    if (conn->eof_seen_ms == 0 || conn->worker->now_ms - conn->eof_seen_ms <= CONN_HALF_CLOSED_MS)
        return false;
    conn_close(conn);
    return true;
}

void conn_unstick(struct conn *conn)
{
    size_t waiting = buf_len(&conn->out);
    if (waiting <= conn->worker->high_water) {
        conn->out_pause = conn->out_seen = 0;
        return;
    }
    bool stuck = waiting == conn->out_seen && over_high_water(conn) && !conn->waits;
    conn->out_seen = waiting;
    if (!stuck || conn->closing)
        return;
    conn->out_pause = waiting * 2;
    conn_update(conn);
}

void conn_append_reply(struct conn *conn, struct buf *reply)
{
    if (buf_failed(reply)) {
        conn->out.failed = true;
    } else if (buf_len(&conn->out) == 0 && buf_len(reply) > WORKER_BUF_SIZE && !buf_failed(&conn->out)) {
        size_t cap = conn->out.cap;
        give_back_buf(conn);
        conn->out = *reply;
        conn->out.cap = cap;
        buf_init(reply, reply->cap);
    } else {
        buf_append(&conn->out, buf_head(reply), buf_len(reply));
    }
    buf_deinit(reply);
}

void conn_deferred_done(struct conn *conn, struct buf *reply, const struct command *command, bool no_reply)
{
    stats_add(&conn->worker->stats.calls[command_index(command)], 1);
    if (conn->closing) {
        conn->waits &= ~(unsigned)CONN_WAITS_JOB;
        buf_deinit(reply);
        if (conn->fd < 0) /* its close callback has been: the last one frees */
            conn_free(conn);
        return;
    }
    conn_will_reply(conn);
    dispatch_count_error(conn, reply, 0, command_index(command));
    if (no_reply)
        buf_deinit(reply);
    else
        conn_append_reply(conn, reply);
    conn->wrote |= (command->flags & CMD_WRITE) != 0;
    conn_ready(conn, CONN_WAITS_JOB);
}
