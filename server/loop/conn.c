#include "conn_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "acl_session.h"
#include "bring.h"
#include "check.h"
#include "command.h"
#include "conn_tls.h"
#include "dispatch_errors.h"
#include "log.h"
#include "tracking.h"
#include "transaction.h"
#include "subscriptions.h"
#include "worker.h"

/* ---- its life ---- */

enum event { END_OF_INPUT, DRAIN, CLOSE, SOCKET_CLOSED };
#define NEVER (-1) /* the event does not come in this state */

static void move(struct conn *conn, enum event event)
{
    static const int next[][4] = {
        [CONN_OPEN] = {CONN_HALF_CLOSED, CONN_DRAINING, CONN_CLOSING, NEVER},
        [CONN_HALF_CLOSED] = {NEVER, CONN_DRAINING, CONN_CLOSING, NEVER},
        [CONN_DRAINING] = {NEVER, CONN_DRAINING, CONN_CLOSING, NEVER},
        [CONN_CLOSING] = {NEVER, NEVER, NEVER, CONN_CLOSED},
        [CONN_CLOSED] = {NEVER, NEVER, NEVER, NEVER},
    };
    int life = next[conn->life][event];
    CHECK(life != NEVER);
    conn->life = (enum conn_life)life;
}

static void free_if_over(struct conn *conn)
{
    if (conn->life != CONN_CLOSED || conn->waits)
        return;
    resp_parser_deinit(&conn->input.parser);
    free(conn);
}

/* ---- polling ---- */

static void poll_for(struct conn *conn, int events);

/* The event that reports the client's end while nothing is read; a broken connection is always reported. */
static int wants_end(const struct conn *conn)
{
    return conn->waits && conn->life == CONN_OPEN && !conn->input.eof_seen_ms ? UV_DISCONNECT : 0;
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
        window_flush(conn->worker); /* its own replies may still be in the window */
        conn_flush(conn);
    }
    if (conn_is_closing(conn))
        return;
    if ((events & UV_DISCONNECT) && conn->waits) {
        conn->input.eof_seen_ms = conn->worker->now_ms;
        conn_update(conn);
    }
    if (!(events & UV_READABLE))
        return;
    if (!conn->input.held && conn->life == CONN_OPEN && conn_may_run(conn)) {
        conn_read(conn);
        return;
    }
    if (conn->waits & CONN_WAITS_HANDSHAKE) {
        handshakes_give(conn->worker, conn);
        conn_update(conn);
    } else {
        poll_for(conn, (conn->events & ~UV_READABLE) | wants_end(conn));
    }
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

/* Reasons of replies to wait, too. */
#define WAITS_TO_SEND (CONN_WAITS_DURABLE | CONN_WAITS_HANDSHAKE)

static bool over_high_water(const struct conn *conn)
{
    size_t pause =
        conn->output.pause > conn->worker->delivery.high_water ? conn->output.pause : conn->worker->delivery.high_water;
    return buf_len(&conn->output.buf) > pause;
}

bool conn_may_run(const struct conn *conn)
{
    return !conn->waits && conn->life < CONN_DRAINING && !over_high_water(conn);
}

/* A waiting client usually sends nothing before it has its reply, and leaving the poll set and coming back costs more
 * than the reply: it stays polled, and on_poll() ends that if input comes. */
static int wants_to_read(const struct conn *conn, bool may_run)
{
    if (conn->waits)
        return conn->events & UV_READABLE ? UV_READABLE : wants_end(conn);
    if (conn->input.held || conn->life != CONN_OPEN)
        return 0;
    return may_run ? UV_READABLE : 0;
}

static __attribute__((noinline, cold)) void update_tls(struct conn *conn)
{
    bool may_run = conn_may_run(conn);
    if (may_run && conn->input.held)
        turns_give(conn->worker, conn);
    bool may_send = (buf_len(&conn->output.buf) && !(conn->waits & WAITS_TO_SEND)) || conn_tls_unsent(conn);
    conn_tls_look(conn, may_run);
    int reading = wants_to_read(conn, may_run);
    if (conn->waits & CONN_WAITS_HANDSHAKE) /* while it waits for its step, its input waits, too */
        reading = conn_link_used(&conn->waiter) ? 0 : UV_READABLE;
    poll_for(conn, reading | (may_send ? UV_WRITABLE : 0));
}

void conn_update(struct conn *conn)
{
    if (conn_is_closing(conn))
        return;
    if (conn_has_tls(conn)) {
        update_tls(conn);
        return;
    }
    bool may_run = conn_may_run(conn);
    if (may_run && conn->input.held)
        turns_give(conn->worker, conn);
    bool may_send = buf_len(&conn->output.buf) && !(conn->waits & WAITS_TO_SEND);
    poll_for(conn, wants_to_read(conn, may_run) | (may_send ? UV_WRITABLE : 0));
}

/* ---- waiting ---- */

static struct conn_link *link_of(struct conn *conn, enum conn_wait why)
{
    return why == CONN_WAITS_DURABLE ? &conn->durable : &conn->waiter;
}

void conn_wait(struct conn *conn, enum conn_wait why, struct conn_link *list)
{
    conn->waits |= (unsigned)why;
    if (list) {
        conn_list_remove(link_of(conn, why));
        conn_list_append(list, link_of(conn, why));
    }
    conn_list_remove(&conn->turn);
    conn_will_reply(conn); /* the end of the iteration updates the polling */
}

/* The flush at the end of the iteration does all that is due now: replies, a turn, a delayed close. */
void conn_ready(struct conn *conn, enum conn_wait why)
{
    if (!(conn->waits & (unsigned)why))
        return;
    conn->waits &= ~(unsigned)why;
    if (why != CONN_WAITS_JOB && why != CONN_WAITS_LEAVE)
        conn_list_remove(link_of(conn, why));
    if (conn->waits == 0)
        conn->input.eof_seen_ms = 0; /* the end will be read in the connection's turn */
    conn_will_reply(conn);
    free_if_over(conn);
}

void conn_all_ready(struct conn_link *list, enum conn_wait why)
{
    while (!conn_list_empty(list))
        conn_ready(CONN_OF(list->next, waiter), why);
}

/* ---- closing ---- */

static void on_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;
    close(conn->fd); /* not earlier: libuv may still use the number, which could be another connection's by then */
    move(conn, SOCKET_CLOSED);
    free_if_over(conn);
}

void conn_leave(struct conn *conn)
{
    bool left = subscriptions_end(&conn->session);
    while (!left && conn->worker->stopping)
        left = subscriptions_end(&conn->session);
    if (left) {
        conn_ready(conn, CONN_WAITS_LEAVE);
    } else {
        conn_wait(conn, CONN_WAITS_LEAVE, NULL);
        turns_give(conn->worker, conn);
    }
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
    conn->waits &= CONN_WAITS_JOB; /* whatever else it waited for was to run or send something */
}

static size_t memory_of(const struct conn *conn)
{
    const struct session *session = &conn->session;
    return sizeof(*conn) + conn->input.size + conn->output.buf.size + conn->running.reply.size + session->text_bytes +
           (conn->input.pending.spans ? conn->input.pending.argc * sizeof(*conn->input.pending.spans) : 0) +
           (size_t)atomic_load_explicit(&session->multi_bytes, memory_order_relaxed) +
           (size_t)atomic_load_explicit(&session->tracking_bytes, memory_order_relaxed);
}

/* The counter has one writer, this thread. */
static void count_memory(struct conn *conn, size_t now)
{
    worker_count_memory(conn->worker, (int64_t)now - (int64_t)conn->counted);
    conn->counted = now;
}

static __attribute__((noinline, cold)) void count_tls_memory(struct conn *conn)
{
    count_memory(conn, memory_of(conn) + conn_tls_memory(conn));
}

void conn_count_memory(struct conn *conn)
{
    if (conn_has_tls(conn))
        count_tls_memory(conn);
    else
        count_memory(conn, memory_of(conn));
}

void conn_close(struct conn *conn)
{
    if (conn_is_closing(conn))
        return;
    struct worker *worker = conn->worker;
    window_flush(worker); /* commands in the window point into this connection */
    move(conn, CLOSE);
    unlink_conn(conn);
    conn_leave(conn);
    tracking_stop(conn);
    sessions_remove(worker->server->sessions, &conn->session);
    acl_logout(&conn->session);
    conn_drop_input(conn);
    bring_end(conn);
    transaction_end(&conn->session);
    buf_deinit(&conn->running.reply);
    buf_deinit(&conn->output.buf);
    if (conn->tls)
        conn_tls_end(conn);
    count_memory(conn, 0);
    uv_close((uv_handle_t *)&conn->poll, on_closed);
}

void conn_end_of_input(struct conn *conn)
{
    move(conn, END_OF_INPUT);
    conn_drop_input(conn); /* half a command is no command */
    conn_will_reply(conn); /* the end of the iteration sends what there is and closes */
}

void conn_drain(struct conn *conn)
{
    move(conn, DRAIN);
}

void conn_close_after_reply(struct conn *conn)
{
    if (conn->waits & CONN_WAITS_HANDSHAKE) { /* there is no reply, and perhaps never an end of the handshake */
        conn_close(conn);
        return;
    }
    conn_drain(conn);
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

/* ---- replies ---- */

static enum config_client_class conn_class(const struct conn *conn)
{
    return conn->session.subscribed ? CONFIG_CLIENT_PUBSUB : CONFIG_CLIENT_NORMAL;
}

void conn_will_reply(struct conn *conn)
{
    struct worker *worker = conn->worker;
    if (conn_link_used(&conn->with_replies) || conn_is_closing(conn))
        return;
    conn_list_append(&worker->delivery.conns, &conn->with_replies);
    conn->output.buf.cap = worker->delivery.limits[conn_class(conn)]; /* the present setting */
    if (!conn->output.buf.data) {
        conn->output.buf.data = delivery_buf_get(worker);
        conn->output.buf.size = conn->output.buf.data ? DELIVERY_BUF_SIZE : 0;
    }
}

/* An idle connection keeps no buffer. */
static void give_back_buf(struct conn *conn)
{
    if (conn->output.buf.size == DELIVERY_BUF_SIZE) {
        delivery_buf_put(&conn->worker->delivery, conn->output.buf.data);
        conn->output.buf.data = NULL;
        conn->output.buf.size = 0;
    }
    buf_deinit(&conn->output.buf);
}

/* Sends until the kernel accepts no more. False: the connection is broken. */
static bool send_some(struct conn *conn)
{
    while (buf_len(&conn->output.buf)) {
        ssize_t n = send(conn->fd, buf_head(&conn->output.buf), buf_len(&conn->output.buf), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        stats_add(&conn->worker->stats.net_output_bytes, (uint64_t)n);
        stats_add(&conn->worker->stats.writes_processed, 1);
        atomic_store_explicit(&conn->session.last_ms, conn->worker->now_ms, memory_order_relaxed);
        buf_consume(&conn->output.buf, (size_t)n);
    }
    return true;
}

/* Whether the replies may leave: the records that they rest on are on disk. `wrote` is checked because a connection may
 * become writable again in the iteration in which it has run a write, before the write has its ticket. */
static bool may_send(const struct conn *conn)
{
    return !(conn->waits & WAITS_TO_SEND) && !conn->output.wrote;
}

/* Whether a connection whose replies have left has nothing more to do. */
static bool is_over(const struct conn *conn)
{
    return (conn->life == CONN_DRAINING || (conn->life == CONN_HALF_CLOSED && !conn->input.len)) && !conn->waits;
}

/* The same as below for replies that become records, which may have to wait where the replies have gone. */
static __attribute__((noinline, cold)) void flush_tls(struct conn *conn)
{
    bool sends = may_send(conn) || conn->waits & CONN_WAITS_HANDSHAKE;
    if (sends && !conn_tls_send(conn)) {
        conn_close(conn);
        return;
    }
    size_t left = buf_len(&conn->output.buf), records = conn_tls_unsent(conn);
    atomic_store_explicit(&conn->session.output_bytes, left + records, memory_order_relaxed);
    if (left == 0)
        give_back_buf(conn);
    if (left + records == 0 && is_over(conn)) {
        conn_close(conn);
        return;
    }
    conn_count_memory(conn);
    conn_update(conn);
}

void conn_flush(struct conn *conn)
{
    if (conn_is_closing(conn))
        return;
    if (buf_failed(&conn->output.buf)) {
        stats_add(&conn->worker->stats.over_output_buffer, 1);
        conn_warn_closed(
            conn,
            "its replies passed reply-buffer-limit or client-output-buffer-limit, or there is no memory for them");
        conn_close(conn);
        return;
    }
    if (conn_has_tls(conn)) {
        flush_tls(conn);
        return;
    }
    if (may_send(conn) && !send_some(conn)) {
        conn_close(conn);
        return;
    }
    atomic_store_explicit(&conn->session.output_bytes, buf_len(&conn->output.buf), memory_order_relaxed);
    if (buf_len(&conn->output.buf) == 0) {
        give_back_buf(conn);
        if (is_over(conn)) {
            conn_close(conn);
            return;
        }
    }
    conn_count_memory(conn);
    conn_update(conn);
}

bool conn_over_soft_limit(struct conn *conn)
{
    const struct config *config = server_config(conn->worker->server);
    const struct config_output_limit *limit = &config->client_output_buffer_limit.classes[conn_class(conn)];
    if (limit->soft == 0 || buf_len(&conn->output.buf) <= limit->soft) {
        conn->output.over_soft_ms = 0;
        return false;
    }
    if (conn->output.over_soft_ms == 0)
        conn->output.over_soft_ms = conn->worker->now_ms;
    if (conn->worker->now_ms - conn->output.over_soft_ms < limit->soft_seconds * 1000)
        return false;
    stats_add(&conn->worker->stats.over_output_buffer, 1);
    conn_warn_closed(conn, "its replies were over the soft client-output-buffer-limit for too long");
    conn_close(conn);
    return true;
}

bool conn_over_half_closed(struct conn *conn)
{
    if (conn->input.eof_seen_ms == 0 || conn->worker->now_ms - conn->input.eof_seen_ms <= CONN_HALF_CLOSED_MS)
        return false;
    conn_close(conn);
    return true;
}

void conn_unstick(struct conn *conn)
{
    size_t waiting = buf_len(&conn->output.buf);
    if (waiting <= conn->worker->delivery.high_water) {
        conn->output.pause = conn->output.seen = 0;
        return;
    }
    bool stuck = waiting == conn->output.seen && over_high_water(conn) && !conn->waits;
    conn->output.seen = waiting;
    if (!stuck || conn_is_closing(conn))
        return;
    conn->output.pause = waiting * 2;
    conn_update(conn);
}

void conn_append_reply(struct conn *conn, struct buf *reply)
{
    if (buf_failed(reply)) {
        conn->output.buf.failed = true;
    } else if (buf_len(&conn->output.buf) == 0 && buf_len(reply) > DELIVERY_BUF_SIZE &&
               !buf_failed(&conn->output.buf)) {
        size_t cap = conn->output.buf.cap;
        give_back_buf(conn);
        conn->output.buf = *reply;
        conn->output.buf.cap = cap;
        buf_init(reply, reply->cap);
    } else {
        buf_append(&conn->output.buf, buf_head(reply), buf_len(reply));
    }
    buf_deinit(reply);
}

void conn_deferred_done(struct conn *conn, struct buf *reply, const struct command *command, bool no_reply)
{
    stats_add(&conn->worker->stats.calls[command_index(command)], 1);
    if (conn_is_closing(conn)) {
        buf_deinit(reply);
        conn_ready(conn, CONN_WAITS_JOB);
        return;
    }
    conn_will_reply(conn);
    dispatch_count_error(conn, reply, 0, command_index(command));
    if (no_reply)
        buf_deinit(reply);
    else
        conn_append_reply(conn, reply);
    conn->output.wrote |= (command->flags & CMD_WRITE) != 0;
    conn_ready(conn, CONN_WAITS_JOB);
}
