#include "conn.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "conn_tls.h"
#include "log.h"
#include "rcu.h"

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

/* The sum of a loop's connections has one writer, this thread. */
static void count_total(struct conn *conn, size_t bytes)
{
    _Atomic uint64_t *sum = &conn->io->server->memory.of_clients[conn->io->index].bytes;
    atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + bytes - conn->counted,
                          memory_order_relaxed);
    conn->counted = bytes;
}

static void free_if_over(struct conn *conn)
{
    if (conn->life != CONN_CLOSED || conn->waits)
        return;
    resp_parser_deinit(&conn->input.parser);
    count_total(conn, 0);
    free(conn);
}

/* ---- polling ---- */

static void poll_for(struct conn *conn, int events);

static void give_turn(struct conn *conn)
{
    if (!conn->io->stopping)
        turns_give(&conn->io->turns, &conn->turn);
}

/* The event that reports the client's end while nothing is read, also if its commands were ended (CONN_DRAINING); a
 * broken connection is always reported. */
static int wants_end(const struct conn *conn)
{
    bool may_end = conn->life == CONN_OPEN || conn->life == CONN_DRAINING;
    return conn->waits && may_end && !conn->input.eof_seen_ms ? UV_DISCONNECT : 0;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct conn *conn = poll->data;
    io_enter(conn->io);
    if (status < 0) { /* it polls no longer */
        conn->events = 0;
        if (conn->io->turns.round.over && conn->life == CONN_OPEN && conn_may_run(conn) && !conn->input.held) {
            conn->input.unread = true; /* reading will fail */
            give_turn(conn);
        } else {
            conn_close(conn);
        }
        return;
    }
    if (events & UV_WRITABLE) {
        io_settle(conn->io); /* its commands may be without their replies */
        conn_flush(conn);
    }
    if (conn_is_closing(conn))
        return;
    if ((events & UV_DISCONNECT) && conn->waits) {
        conn->input.eof_seen_ms = conn->io->now_ms;
        conn_update(conn);
    }
    if (!(events & UV_READABLE))
        return;
    if (!conn->input.held && conn->life == CONN_OPEN && conn_may_run(conn)) {
        conn->input.unread = conn->io->turns.round.over;
        if (conn->input.unread)
            give_turn(conn);
        else
            conn_read(conn);
        return;
    }
    if (conn->waits & CONN_WAITS_HANDSHAKE) {
        if (!conn->io->stopping)
            handshakes_give(&conn->io->handshakes, &conn->waiter);
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

/* Reasons for replies to wait, too. */
#define WAITS_TO_SEND (CONN_WAITS_DURABLE | CONN_WAITS_HANDSHAKE)

bool conn_may_run(const struct conn *conn)
{
    return !conn->waits && conn->life < CONN_DRAINING && conn_unsent(conn) <= conn_high_water(conn);
}

/* A waiting client usually sends nothing before its reply, and removing it from the poll set and adding it again costs
 * more than the reply. So it stays polled; on_poll() stops polling if input arrives. */
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
        give_turn(conn);
    bool may_send = (conn_unsent(conn) && !(conn->waits & WAITS_TO_SEND)) || conn_tls_unsent(conn);
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
        give_turn(conn);
    bool may_send = conn_unsent(conn) && !(conn->waits & WAITS_TO_SEND);
    poll_for(conn, wants_to_read(conn, may_run) | (may_send ? UV_WRITABLE : 0));
}

/* ---- waiting ---- */

static struct conn_link *link_of(struct conn *conn, enum conn_wait why)
{
    return why == CONN_WAITS_DURABLE ? &conn->unsynced : &conn->waiter;
}

void conn_wait(struct conn *conn, enum conn_wait why, struct conn_link *list)
{
    if (why & ~conn->waits & CONN_WAITS_PAUSE)
        atomic_fetch_add_explicit(&conn->io->npaused, 1, memory_order_relaxed);
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
    if (why == CONN_WAITS_PAUSE)
        atomic_fetch_sub_explicit(&conn->io->npaused, 1, memory_order_relaxed);
    conn->waits &= ~(unsigned)why;
    if (why != CONN_WAITS_JOB && why != CONN_WAITS_UNSUBSCRIBE)
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

void conn_unsubscribe(struct conn *conn)
{
    const struct io *io = conn->io;
    bool done = io->calls->unsubscribe(conn);
    while (!done && io->stopping)
        done = io->calls->unsubscribe(conn);
    if (done) {
        conn_ready(conn, CONN_WAITS_UNSUBSCRIBE);
    } else {
        conn_wait(conn, CONN_WAITS_UNSUBSCRIBE, NULL);
        give_turn(conn);
    }
}

/* Bytes that an open connection holds and an idle one does not; without subscriptions. */
static size_t memory_of(const struct conn *conn)
{
    const struct session *session = &conn->session;
    size_t pending = conn->input.pending.spans ? conn->input.pending.argc * sizeof(*conn->input.pending.spans) : 0;
    for (const struct conn_ahead *ahead = conn->output.ahead; ahead; ahead = ahead->next)
        pending += ahead->buf.size;
    return conn->input.size + conn->output.buf.size + session->texts.bytes + pending +
           (size_t)atomic_load_explicit(&session->multi.bytes, memory_order_relaxed) +
           (conn_has_command(conn) ? conn->io->calls->memory(conn) : 0);
}

static void count_memory(struct conn *conn, size_t idle, size_t held)
{
    struct session *session = &conn->session;
    size_t now = idle + held, subscriptions = atomic_load_explicit(&session->pubsub.bytes, memory_order_relaxed);
    bool may_close = !(atomic_load_explicit(&session->flags, memory_order_relaxed) & SESSION_NO_EVICT);
    if (now != conn->counted)
        count_total(conn, now);
    atomic_store_explicit(&session->meters.memory, now + subscriptions, memory_order_relaxed);
    client_limit_note(conn, may_close ? held + subscriptions : 0);
}

static __attribute__((noinline, cold)) void count_tls_memory(struct conn *conn)
{
    size_t idle;
    size_t held = memory_of(conn) + conn_tls_memory(conn, &idle);
    count_memory(conn, conn->io->calls->conn_size + idle, held);
}

void conn_count_memory(struct conn *conn)
{
    if (conn_has_tls(conn))
        count_tls_memory(conn);
    else
        count_memory(conn, conn->io->calls->conn_size, memory_of(conn));
}

static int free_bytes(void *bytes)
{
    free(bytes);
    return 0;
}

/* Giving hundreds of megabytes back to the system takes tens of milliseconds: not on a loop. */
void conn_free(struct conn *conn, void *bytes, size_t size)
{
    if (size > (1u << 20))
        reclaimer_defer(conn->io->server->reclaimer, free_bytes, bytes, 0);
    else
        free(bytes);
}

void conn_free_reply(struct conn *conn, struct buf *reply)
{
    conn_free(conn, reply->data, reply->size);
    reply->data = NULL;
    buf_deinit(reply);
}

static void drop_ahead(struct conn *conn)
{
    struct conn_ahead *ahead = conn->output.ahead;
    conn->output.ahead = ahead->next;
    conn_free_reply(conn, &ahead->buf);
    free(ahead);
}

static void free_output(struct conn *conn)
{
    while (conn->output.ahead)
        drop_ahead(conn);
    conn_free_reply(conn, &conn->output.buf);
}

void conn_close(struct conn *conn)
{
    if (conn_is_closing(conn))
        return;
    io_settle(conn->io); /* commands that have been taken in point into this connection */
    move(conn, CLOSE);
    LIST_REMOVE(conn, link);
    atomic_fetch_sub_explicit(&conn->io->nconns, 1, memory_order_relaxed);
    conn_list_remove(&conn->with_replies);
    conn_list_remove(&conn->turn);
    conn_list_remove(&conn->unsynced);
    conn_list_remove(&conn->waiter);
    if (conn->waits & CONN_WAITS_PAUSE)
        atomic_fetch_sub_explicit(&conn->io->npaused, 1, memory_order_relaxed);
    conn->waits &= CONN_WAITS_JOB; /* all its other waits were to run or send something */
    conn_unsubscribe(conn);
    conn->io->calls->close(conn);
    conn_drop_input(conn);
    free_output(conn);
    if (conn->tls)
        conn_tls_end(conn);
    /* A deferred command continues until it notices, and its memory counts, but there is no client to close for it. */
    client_limit_note(conn, 0);
    count_total(conn, conn->io->calls->conn_size + (conn_has_command(conn) ? conn->io->calls->memory(conn) : 0));
    uv_close((uv_handle_t *)&conn->poll, on_closed);
}

void conn_end_of_input(struct conn *conn)
{
    move(conn, END_OF_INPUT);
    conn_drop_input(conn); /* half a command is no command */
    conn_will_reply(conn); /* the end of the iteration sends the replies and closes */
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
    struct server *server = conn->io->server;
    log_limited(&server->log, &server->log.limits.client, conn->io->now_ms, LOG_LEVEL_WARNING, "client %s closed: %s",
                conn->session.origin.addr, why);
}

/* ---- replies ---- */

void conn_will_reply(struct conn *conn)
{
    struct delivery *delivery = &conn->io->delivery;
    if (conn_link_used(&conn->with_replies) || conn_is_closing(conn))
        return;
    conn_list_append(&delivery->conns, &conn->with_replies);
    conn->output.buf.cap = delivery->limits[conn_class(conn)]; /* the present setting */
    if (!conn->output.buf.data) {
        conn->output.buf.data = delivery_buf_get(delivery);
        conn->output.buf.size = conn->output.buf.data ? DELIVERY_BUF_SIZE : 0;
    }
}

/* An idle connection keeps no buffer. */
static void give_back_buf(struct conn *conn)
{
    if (conn->output.buf.size == DELIVERY_BUF_SIZE) {
        delivery_buf_put(&conn->io->delivery, conn->output.buf.data);
        conn->output.buf.data = NULL;
        conn->output.buf.size = 0;
    }
    free_output(conn);
}

#define SEND_AT_ONCE ((size_t)256 << 10) /* bytes for a system call */
#define SENDS        8                   /* in a row: a fast reader of a large reply leaves time for others */

/* Sends until the kernel accepts no more, or for long enough. False: the connection is broken. */
static bool send_some(struct conn *conn)
{
    for (int i = 0; i < SENDS && conn_unsent(conn); i++) {
        struct buf *out = conn_next_output(conn);
        size_t left = buf_len(out);
        ssize_t n = send(conn->fd, buf_head(out), left < SEND_AT_ONCE ? left : SEND_AT_ONCE, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        stats_add(&conn->io->stats.net_output_bytes, (uint64_t)n);
        stats_add(&conn->io->stats.writes_processed, 1);
        atomic_store_explicit(&conn->session.meters.last_ms, conn->io->now_ms, memory_order_relaxed);
        buf_consume(out, (size_t)n);
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

/* Whether a client that has not given its password leaves more replies unread than it may. */
static bool is_greedy_stranger(const struct conn *conn, size_t left)
{
    return left > CONN_NOAUTH_REPLIES && !conn_is_known(conn);
}

void conn_close_over_output(struct conn *conn, const char *why)
{
    stats_add(&conn->io->stats.over_output_buffer, 1);
    conn_warn_closed(conn, why);
    conn_close(conn);
}

static const char greedy_stranger[] = "it does not read its replies, and has not logged in";

/* The same as below for replies that become records, which may have to wait where the replies have gone. */
static __attribute__((noinline, cold)) void flush_tls(struct conn *conn)
{
    bool sends = may_send(conn) || conn->waits & CONN_WAITS_HANDSHAKE;
    if (sends && !conn_tls_send(conn)) {
        conn_close(conn);
        return;
    }
    size_t left = conn_unsent(conn), records = conn_tls_unsent(conn);
    atomic_store_explicit(&conn->session.meters.output_bytes, left + records, memory_order_relaxed);
    if (left == 0)
        give_back_buf(conn);
    if (is_greedy_stranger(conn, left)) {
        conn_close_over_output(conn, greedy_stranger);
        return;
    }
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
        conn_close_over_output(conn,
                               "its replies exceeded reply-buffer-limit or client-output-buffer-limit, or the memory");
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
    size_t left = conn_unsent(conn);
    atomic_store_explicit(&conn->session.meters.output_bytes, left, memory_order_relaxed);
    if (left == 0) {
        give_back_buf(conn);
        if (is_over(conn)) {
            conn_close(conn);
            return;
        }
    } else if (is_greedy_stranger(conn, left)) {
        conn_close_over_output(conn, greedy_stranger);
        return;
    }
    conn_count_memory(conn);
    conn_update(conn);
}

struct buf *conn_next_output(struct conn *conn)
{
    while (conn->output.ahead && !buf_len(&conn->output.ahead->buf))
        drop_ahead(conn);
    return conn->output.ahead ? &conn->output.ahead->buf : &conn->output.buf;
}

/* Later replies go into the buffer that is left, an empty one. False: no memory. */
static bool put_ahead(struct conn *conn, struct buf *buf)
{
    struct conn_ahead **end = &conn->output.ahead, *ahead = malloc(sizeof(*ahead));
    if (!ahead)
        return false;
    while (*end)
        end = &(*end)->next;
    *ahead = (struct conn_ahead){.buf = *buf};
    *end = ahead;
    buf_init(buf, buf->cap);
    return true;
}

void conn_append_reply(struct conn *conn, struct buf *reply)
{
    struct buf *out = &conn->output.buf;
    if (buf_failed(reply) || conn_unsent(conn) > out->cap)
        out->failed = true;
    else if (buf_len(reply) > DELIVERY_BUF_SIZE)
        out->failed |= (buf_len(out) && !put_ahead(conn, out)) || !put_ahead(conn, reply);
    else
        buf_append(out, buf_head(reply), buf_len(reply));
    buf_deinit(reply);
}
