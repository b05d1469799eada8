#include "conn_tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tls_stream.h"

#define KEPT_MAX (2 * (TLS_SEND_SIZE + TLS_HANDSHAKE_MAX)) /* records: those of a send, and those of TLS itself */

_Static_assert(TLS_READ_SIZE + TLS_RECORD_MAX <= INPUT_READ_SIZE, "what is received does not fit into a read");

struct conn_tls {
    struct tls_stream *stream;
    struct buf unsent; /* records that the kernel has not taken */
    char *early;       /* `early_len` bytes that came after the handshake; NULL: none */
    size_t early_len;
    bool begun; /* the first bytes of the handshake have come */
    bool ended; /* the client sends nothing more */
};

static const char plain_text[] = "-ERR this port accepts connections with TLS only (redis-cli --tls)\r\n";
static const char tls_text[] = "-ERR this port accepts connections without TLS; use tls-port\r\n";

/* ---- its life ---- */

int conn_tls_begin(struct conn *conn)
{
    struct conn_tls *tls = handshakes_prepare(&conn->io->handshakes) ? calloc(1, sizeof(*tls)) : NULL;
    if (tls)
        tls->stream = tls_stream_create();
    if (!tls || !tls->stream) {
        free(tls);
        return -ENOMEM;
    }
    buf_init(&tls->unsent, KEPT_MAX);
    conn->tls = tls;
    conn_wait(conn, CONN_WAITS_HANDSHAKE, NULL);
    return 0;
}

size_t conn_tls_memory(const struct conn *conn, size_t *idle_out)
{
    const struct conn_tls *tls = conn->tls;
    bool up = tls_stream_is_up(tls->stream);
    *idle_out = sizeof(*tls) + (up ? TLS_STREAM_MEMORY : 0);
    return tls->unsent.size + tls->early_len + (!up && tls->begun ? TLS_HANDSHAKE_MEMORY : 0);
}

size_t conn_tls_unsent(const struct conn *conn)
{
    return buf_len(&conn->tls->unsent);
}

/* ---- sending ---- */

/* Sends from a buffer until it is empty or the kernel takes no more. False: the connection is broken. */
static bool send_records(struct conn *conn, struct buf *records)
{
    while (buf_len(records)) {
        ssize_t n = send(conn->fd, buf_head(records), buf_len(records), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        stats_add(&conn->io->stats.writes_processed, 1);
        buf_consume(records, (size_t)n);
    }
    return true;
}

static bool send_unsent(struct conn *conn)
{
    struct buf *unsent = &conn->tls->unsent;
    bool whole = send_records(conn, unsent);
    if (buf_len(unsent) == 0)
        buf_deinit(unsent); /* an idle connection keeps no buffer */
    return whole;
}

/* Encrypts the next replies and sends them. False: the connection is broken, or there is no memory. */
static bool send_replies(struct conn *conn)
{
    struct io *io = conn->io;
    struct buf *plain = conn_next_output(conn), *records = &io->handshakes.sent;
    size_t len = buf_len(plain) < TLS_SEND_SIZE ? buf_len(plain) : TLS_SEND_SIZE;
    struct errbuf err;
    bool sent = tls_stream_write(conn->tls->stream, buf_head(plain), len, records, &err) == TLS_OK;
    if (sent) {
        stats_add(&io->stats.net_output_bytes, len);
        atomic_store_explicit(&conn->session.meters.last_ms, io->now_ms, memory_order_relaxed);
        buf_consume(plain, len);
        sent = send_records(conn, records);
    }
    if (sent && buf_len(records)) {
        buf_append(&conn->tls->unsent, buf_head(records), buf_len(records));
        sent = !buf_failed(&conn->tls->unsent);
    }
    if (buf_failed(records))
        buf_deinit(records);
    else
        buf_consume(records, buf_len(records));
    return sent;
}

bool conn_tls_send(struct conn *conn)
{
    struct conn_tls *tls = conn->tls;
    if (!send_unsent(conn))
        return false;
    if (conn->waits & CONN_WAITS_HANDSHAKE)
        return true;
    while (conn_unsent(conn) && buf_len(&tls->unsent) == 0)
        if (!send_replies(conn))
            return false;
    return true;
}

/* ---- the handshake ---- */

static void fail(struct conn *conn, const char *what, const char *why)
{
    char text[ERRBUF_SIZE + 64];
    snprintf(text, sizeof(text), "%s: %s", what, why);
    stats_add(&conn->io->stats.tls_failed, 1);
    conn_warn_closed(conn, text);
    send_unsent(conn);           /* the alert */
    shutdown(conn->fd, SHUT_WR); /* an end that is read before the reset, which follows where input is left unread */
    conn_close(conn);
}

/* The handshake is done: the connection continues as any other. `early`: the input after it. */
static void complete(struct conn *conn, const char *early, size_t len)
{
    struct conn_tls *tls = conn->tls;
    stats_add(&conn->io->stats.tls_handshakes, 1);
    stats_add(&conn->io->stats.tls_resumed, tls_stream_resumed(tls->stream));
    if (len && conn->life == CONN_OPEN) {
        tls->early = malloc(len);
        if (!tls->early) {
            fail(conn, "TLS", "out of memory for its input");
            return;
        }
        memcpy(tls->early, early, len);
        tls->early_len = len;
    }
    conn_ready(conn, CONN_WAITS_HANDSHAKE);
    if (tls->early && conn_may_run(conn))
        conn_read(conn);
}

void conn_tls_step(struct conn *conn)
{
    struct io *io = conn->io;
    struct conn_tls *tls = conn->tls;
    const struct tls_context *context = atomic_load_explicit(&io->server->settings.tls.now, memory_order_acquire);
    char *received = io->handshakes.received;
    struct errbuf err = {""};
    size_t consumed = 0;

    ssize_t n = recv(conn->fd, received, TLS_RECORD_MAX, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        conn_update(conn);
        return;
    }
    if (n <= 0) { /* a port scanner, or a health check: not worth a line */
        stats_add(&io->stats.tls_failed, 1);
        conn_close(conn);
        return;
    }
    tls->begun = true;
    enum tls_status status =
        tls_stream_handshake(tls->stream, context, NULL, received, (size_t)n, &consumed, &tls->unsent, &err);
    if (status == TLS_NOT_TLS) {
        /* it can read why it is closed */
        (void)!send(conn->fd, plain_text, sizeof(plain_text) - 1, MSG_NOSIGNAL);
        fail(conn, "TLS", "it does not speak TLS, which this port (tls-port) expects");
    } else if (status == TLS_FAILED) {
        fail(conn, "its TLS handshake failed", err.text);
    } else if (!send_unsent(conn)) {
        conn_close(conn);
    } else if (status == TLS_OK) {
        complete(conn, received + consumed, (size_t)n - consumed);
    } else {
        conn_count_memory(conn);
        conn_update(conn);
    }
}

bool conn_tls_over_time(struct conn *conn)
{
    struct io *io = conn->io;
    int64_t limit_ms = server_config(io->server)->tls.handshake_timeout * 1000;
    if (!(conn->waits & CONN_WAITS_HANDSHAKE) || io->now_ms - conn->session.origin.created_ms <= limit_ms)
        return false;
    fail(conn, "its TLS handshake failed", "it exceeded tls-handshake-timeout");
    return true;
}

/* ---- receiving ---- */

/* The next bytes of the network: those that came after the handshake, or the socket's. As recv(). */
static ssize_t receive_records(struct conn *conn, size_t size)
{
    struct conn_tls *tls = conn->tls;
    char *to = conn->io->handshakes.received;
    if (!tls->early)
        return recv(conn->fd, to, size < TLS_READ_SIZE ? size : TLS_READ_SIZE, 0);
    size_t len = tls->early_len; /* at most TLS_RECORD_MAX */
    memcpy(to, tls->early, len);
    free(tls->early);
    tls->early = NULL;
    tls->early_len = 0;
    return (ssize_t)len;
}

ssize_t conn_tls_receive(struct conn *conn, void *to, size_t size)
{
    struct conn_tls *tls = conn->tls;
    struct errbuf err = {""};
    size_t n = 0;
    if (tls->ended)
        return 0;
    ssize_t got = receive_records(conn, size - TLS_RECORD_MAX);
    if (got <= 0)
        return got;
    enum tls_status status =
        tls_stream_read(tls->stream, conn->io->handshakes.received, (size_t)got, to, size, &n, &tls->unsent, &err);
    if (status == TLS_FAILED) {
        stats_add(&conn->io->stats.tls_failed, 1);
        conn_warn_closed(conn, err.text);
        send_unsent(conn); /* the alert */
        errno = EPROTO;
        return -1;
    }
    if (buf_len(&tls->unsent) && !send_unsent(conn)) {
        errno = EPIPE;
        return -1;
    }
    tls->ended = status == TLS_END;
    if (n || tls->ended)
        return (ssize_t)n;
    errno = EAGAIN; /* half a record */
    return -1;
}

void conn_tls_look(struct conn *conn, bool may_run)
{
    if (conn->tls->ended && may_run && !conn->input.held && conn->life == CONN_OPEN)
        conn_end_of_input(conn);
}

/* ---- the end ---- */

void conn_tls_end(struct conn *conn)
{
    struct conn_tls *tls = conn->tls;
    if (buf_len(&tls->unsent) == 0) { /* otherwise a record would be cut */
        tls_stream_end(tls->stream, &tls->unsent);
        send_records(conn, &tls->unsent);
    }
    tls_stream_destroy(tls->stream);
    buf_deinit(&tls->unsent);
    free(tls->early);
    free(tls);
    conn->tls = NULL;
}

/* The text that it is sent is no TLS; its library reports that with a well-known error ("wrong version number"). */
void conn_tls_unexpected(struct conn *conn)
{
    (void)!send(conn->fd, tls_text, sizeof(tls_text) - 1, MSG_NOSIGNAL);
    stats_add(&conn->io->stats.protocol_errors, 1);
    conn_warn_closed(conn, "it speaks TLS, and this port does not; use tls-port");
    conn_close(conn);
}
