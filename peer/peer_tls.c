/* TLS between a peer's buffers and its socket. */
#include "peer_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tls_stream.h"

#define RECEIVE_SIZE (44 * 1024)
#define SEND_SIZE    (256 * 1024) /* encrypted at a time */
#define RECORDS_CAP  (2 * (SEND_SIZE + TLS_HANDSHAKE_MAX))

struct peer_tls {
    struct tls_stream *stream;
    struct buf records; /* on their way to the socket */
    struct errbuf why;
    char received[RECEIVE_SIZE];
};

static int failed(struct peer_tls *tls)
{
    errbuf_prefix(&tls->why, "TLS");
    return -EPROTO;
}

/* Sends records until there are none or the socket takes no more. */
static int send_records(struct peer *peer)
{
    struct buf *records = &peer->tls->records;
    while (buf_len(records)) {
        ssize_t n = send(peer->fd, buf_head(records), buf_len(records), MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        buf_consume(records, (size_t)n);
    }
    return 0;
}

bool peer_tls_is_sending(const struct peer *peer)
{
    return peer->tls && buf_len(&peer->tls->records) > 0;
}

const char *peer_tls_reason(const struct peer *peer)
{
    return peer->tls ? peer->tls->why.text : "";
}

int peer_tls_send(struct peer *peer)
{
    struct peer_tls *tls = peer->tls;
    int status = send_records(peer);
    while (status == 0 && buf_len(&tls->records) == 0 && buf_len(&peer->out)) {
        size_t len = buf_len(&peer->out) < SEND_SIZE ? buf_len(&peer->out) : SEND_SIZE;
        if (tls_stream_write(tls->stream, buf_head(&peer->out), len, &tls->records, &tls->why) != TLS_OK)
            return failed(tls);
        buf_consume(&peer->out, len);
        status = send_records(peer);
    }
    return status;
}

/* Decrypts received bytes. */
static int take(struct peer *peer, const char *bytes, size_t len)
{
    struct peer_tls *tls = peer->tls;
    size_t n, size = len + TLS_RECORD_MAX;
    char *to = buf_reserve(&peer->in, size);
    if (!to)
        return -ENOMEM;
    enum tls_status status = tls_stream_read(tls->stream, bytes, len, to, size, &n, &tls->records, &tls->why);
    buf_commit(&peer->in, n);
    if (status == TLS_FAILED) {
        (void)send_records(peer);
        return failed(tls);
    }
    return status == TLS_END && n == 0 ? -ECONNRESET : 0;
}

int peer_tls_receive(struct peer *peer)
{
    ssize_t n = recv(peer->fd, peer->tls->received, RECEIVE_SIZE, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    return n == 0 ? -ECONNRESET : take(peer, peer->tls->received, (size_t)n);
}

/* ---- the handshake ---- */

/* Waits until all records have left. */
static int send_all(struct peer *peer)
{
    int status = send_records(peer);
    while (status == 0 && buf_len(&peer->tls->records)) {
        int ready = peer_wait(peer->fd, POLLOUT, &peer->limit);
        status = ready < 0 ? ready : send_records(peer);
    }
    return status;
}

/* Waits for bytes of the server; their number, or -errno. */
static ssize_t receive(struct peer *peer)
{
    for (;;) {
        int ready = peer_wait(peer->fd, POLLIN, &peer->limit);
        if (ready < 0)
            return ready;
        ssize_t n = recv(peer->fd, peer->tls->received, RECEIVE_SIZE, 0);
        if (n > 0)
            return n;
        if (n == 0)
            return -ECONNRESET;
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
    }
}

static int shake_hands(struct peer *peer, const struct peer_address *address)
{
    struct peer_tls *tls = peer->tls;
    ssize_t n = 0;
    for (;;) {
        size_t consumed;
        enum tls_status status = tls_stream_handshake(tls->stream, address->tls, address->host, tls->received,
                                                      (size_t)n, &consumed, &tls->records, &tls->why);
        int sent = send_all(peer);
        if (status == TLS_FAILED)
            return failed(tls);
        if (sent != 0)
            return sent;
        if (status == TLS_OK)
            return consumed < (size_t)n ? take(peer, tls->received + consumed, (size_t)n - consumed) : 0;
        n = receive(peer);
        if (n < 0)
            return (int)n;
    }
}

int peer_tls_open(struct peer *peer, const struct peer_address *address, struct errbuf *err)
{
    peer->tls = calloc(1, sizeof(*peer->tls));
    struct tls_stream *stream = peer->tls ? tls_stream_create() : NULL;
    if (!stream) {
        errbuf_set(err, "%s", strerror(ENOMEM));
        return -ENOMEM;
    }
    peer->tls->stream = stream;
    buf_init(&peer->tls->records, RECORDS_CAP);
    int status = shake_hands(peer, address);
    if (peer->tls->why.text[0])
        *err = peer->tls->why;
    else if (status == -ECONNRESET)
        errbuf_set(err, "the server closed the connection in the handshake of TLS");
    else if (status != 0)
        errbuf_set(err, "TLS: %s",
                   status == -ETIMEDOUT ? "the server did not complete the handshake in time" : strerror(-status));
    return status;
}

/* ---- the end ---- */

void peer_tls_close(struct peer *peer)
{
    struct peer_tls *tls = peer->tls;
    if (!tls)
        return;
    if (tls->stream && buf_len(&tls->records) == 0) {
        tls_stream_end(tls->stream, &tls->records);
        (void)send_records(peer);
    }
    tls_stream_destroy(tls->stream);
    buf_deinit(&tls->records);
    free(tls);
    peer->tls = NULL;
}
