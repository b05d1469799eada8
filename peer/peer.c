/* exchange() alone moves bytes: from `out` to the socket and from the socket to `in`, whichever it is ready for. A
 * reply points into `in`: it is consumed when the next one is asked for. */
#include "peer.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "tls_stream.h"

/* ---- a socket, connected within a time limit ---- */

#define CANCEL_POLL_MS 100 /* the interval at which a wait checks for a cancellation */

/* Waits for events of poll() on the socket. Returns the events, more than 0; or -ETIMEDOUT, -ECANCELED, -errno. */
static int peer_wait(int fd, short events, const struct peer_limit *limit)
{
    struct pollfd polled = {.fd = fd, .events = events};
    for (;;) {
        int64_t left = limit->end_ms - clock_ms();
        if (limit->cancelled && atomic_load_explicit(limit->cancelled, memory_order_relaxed))
            return -ECANCELED;
        if (left <= 0)
            return -ETIMEDOUT;
        if (left > CANCEL_POLL_MS)
            left = CANCEL_POLL_MS;
        int n = poll(&polled, 1, (int)left);
        if (n > 0)
            return polled.revents;
        if (n < 0 && errno != EINTR)
            return -errno;
    }
}

/* Connects a new socket. The socket, or -errno. */
static int connect_socket(int family, const struct sockaddr *address, socklen_t len, const struct peer_limit *limit)
{
    int error = 0, fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t error_len = sizeof(error);
    if (fd < 0)
        return -errno;
    int status = connect(fd, address, len) == 0 ? 0 : -errno;
    if (status == -EINPROGRESS) {
        status = peer_wait(fd, POLLOUT, limit);
        if (status > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_len) != 0)
            status = -errno;
        else if (status > 0)
            status = -error;
    }
    if (status == 0)
        return fd;
    close(fd);
    return status;
}

static int connect_unix(const char *path, const struct peer_limit *limit, struct errbuf *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return errbuf_fail(err, -ENAMETOOLONG, "the socket's path is longer than %zu bytes",
                           sizeof(address.sun_path) - 1);
    strcpy(address.sun_path, path);
    int fd = connect_socket(AF_UNIX, (const struct sockaddr *)&address, sizeof(address), limit);
    if (fd < 0)
        errbuf_set(err, "cannot connect to %s: %s", path, strerror(-fd));
    return fd;
}

/* Tries one address after the other. Each gets an equal share of the time left, because the first may be silent. */
static int connect_one_of(const struct addrinfo *list, const struct peer_limit *limit)
{
    int fd = -EHOSTUNREACH;
    int64_t addresses = 0;
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        addresses++;
    for (const struct addrinfo *a = list; a && fd < 0 && fd != -ECANCELED; a = a->ai_next, addresses--) {
        struct peer_limit part = *limit;
        part.end_ms -= (limit->end_ms - clock_ms()) * (addresses - 1) / addresses;
        fd = connect_socket(a->ai_family, a->ai_addr, a->ai_addrlen, &part);
    }
    return fd;
}

static int connect_tcp(const struct peer_address *address, const struct peer_limit *limit, struct errbuf *err)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    int one = 1, gai = getaddrinfo(address->host, address->port, &hints, &list);
    if (gai != 0)
        return errbuf_fail(err, -EHOSTUNREACH, "cannot find %s: %s", address->host, gai_strerror(gai));
    int fd = connect_one_of(list, limit);
    freeaddrinfo(list);
    if (fd < 0)
        errbuf_set(err, "cannot connect to %s port %s: %s", address->host, address->port, strerror(-fd));
    else
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

/* ---- TLS between the buffers and the socket ---- */

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

/* The reason of a TLS failure; "" if there was none. */
static const char *peer_tls_reason(const struct peer *peer)
{
    return peer->tls ? peer->tls->why.text : "";
}

/* Encrypt peer->out into the socket, and decrypt the socket into peer->in. 0 or -errno. */
static int peer_tls_send(struct peer *peer)
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

static int peer_tls_receive(struct peer *peer)
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

/* Makes the connection one with TLS: the handshake, all of it within the limit. 0 or -errno with the reason. */
static int peer_tls_open(struct peer *peer, const struct peer_address *address, struct errbuf *err)
{
    peer->tls = calloc(1, sizeof(*peer->tls));
    struct tls_stream *stream = peer->tls ? tls_stream_create() : NULL;
    if (!stream)
        return errbuf_fail(err, -ENOMEM, "%s", strerror(ENOMEM));
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

/* Sends close_notify, if the socket takes it at once, and frees everything; idempotent. */
static void peer_tls_close(struct peer *peer)
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

/* ---- requests and replies ---- */

#define READ_BYTES (64 * 1024)        /* at least this much room for each read */
#define READ_MOST  (1024 * 1024)      /* at most, so that an announced length alone takes no memory */
#define BUFFER_CAP ((size_t)2 << 30)  /* more than the largest reply, RESP_REPLY_MAX_TEXT */
#define KEPT_BYTES ((size_t)32 << 20) /* an empty buffer that is larger gives its memory back */

void peer_init(struct peer *peer, int64_t timeout_ms, const atomic_bool *cancelled)
{
    *peer = (struct peer){.fd = -1, .timeout_ms = timeout_ms, .limit.cancelled = cancelled};
    buf_init(&peer->out, BUFFER_CAP);
    buf_init(&peer->in, BUFFER_CAP);
}

/* ---- the deadline ---- */

static void begin_call(struct peer *peer)
{
    peer->limit.end_ms = clock_ms() + peer->timeout_ms;
}

static void note_moved(struct peer *peer, size_t bytes)
{
    peer->moved += bytes;
    peer->limit.end_ms += (int64_t)(peer->moved / PEER_SLOWEST);
    peer->moved %= PEER_SLOWEST;
}

void peer_close(struct peer *peer)
{
    peer_tls_close(peer);
    if (peer->fd >= 0)
        close(peer->fd);
    buf_deinit(&peer->out);
    buf_deinit(&peer->in);
    resp_reply_reader_deinit(&peer->reader);
    peer->fd = -1;
    peer->taken = 0;
}

int peer_connect(struct peer *peer, const struct peer_address *address, struct errbuf *err)
{
    peer_close(peer);
    begin_call(peer);
    int fd = address->unixpath ? connect_unix(address->unixpath, &peer->limit, err)
                               : connect_tcp(address, &peer->limit, err);
    if (fd < 0)
        return fd;
    peer->fd = fd;
    int status = address->tls ? peer_tls_open(peer, address, err) : 0;
    if (status != 0)
        peer_close(peer);
    return status;
}

struct slice peer_number(int64_t number, char storage[PEER_NUMBER_SIZE])
{
    int len = snprintf(storage, PEER_NUMBER_SIZE, "%" PRId64, number);
    return (struct slice){storage, (size_t)len};
}

void peer_put(struct peer *peer, const struct slice *words, size_t n)
{
    buf_appendf(&peer->out, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++) {
        buf_appendf(&peer->out, "$%zu\r\n", words[i].len);
        buf_append(&peer->out, words[i].ptr, words[i].len);
        buf_append(&peer->out, "\r\n", 2);
    }
}

/* ---- bytes ---- */

static int fail(const struct peer *peer, int status, struct errbuf *err)
{
    if (peer_tls_reason(peer)[0])
        errbuf_set(err, "%s", peer_tls_reason(peer));
    else if (status == -ECONNRESET || status == -EPIPE)
        errbuf_set(err, "the server closed the connection");
    else if (status == -ETIMEDOUT)
        errbuf_set(err, "the server does not answer");
    else if (status == -ECANCELED)
        errbuf_set(err, "interrupted");
    else
        errbuf_set(err, "%s", strerror(-status));
    return status;
}

static int send_plain(struct peer *peer)
{
    ssize_t n = send(peer->fd, buf_head(&peer->out), buf_len(&peer->out), MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    buf_consume(&peer->out, (size_t)n);
    if (buf_len(&peer->out) == 0 && peer->out.size > KEPT_BYTES)
        buf_deinit(&peer->out);
    return 0;
}

static int send_some(struct peer *peer)
{
    size_t before = buf_len(&peer->out);
    int status = peer->tls ? peer_tls_send(peer) : send_plain(peer);
    note_moved(peer, before - buf_len(&peer->out));
    return status;
}

/* The caller knows that `expected` more bytes will come. */
static int receive_plain(struct peer *peer, size_t expected)
{
    size_t room = expected < READ_BYTES ? READ_BYTES : expected > READ_MOST ? READ_MOST : expected;
    char *to = buf_reserve(&peer->in, room);
    if (!to)
        return -ENOMEM;
    ssize_t n = recv(peer->fd, to, room, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0)
        return -ECONNRESET;
    buf_commit(&peer->in, (size_t)n);
    return 0;
}

static int receive_some(struct peer *peer, size_t expected)
{
    size_t before = buf_len(&peer->in);
    int status = peer->tls ? peer_tls_receive(peer) : receive_plain(peer, expected);
    note_moved(peer, buf_len(&peer->in) - before);
    return status;
}

static bool is_sending(const struct peer *peer)
{
    return buf_len(&peer->out) > 0 || (peer->tls && buf_len(&peer->tls->records) > 0);
}

/* Waits until the socket is ready and moves bytes in both directions. */
static int exchange(struct peer *peer, size_t expected)
{
    short events = POLLIN;
    if (peer->fd < 0)
        return -ENOTCONN;
    if (buf_failed(&peer->out))
        return -ENOMEM;
    if (is_sending(peer))
        events |= POLLOUT;
    int ready = peer_wait(peer->fd, events, &peer->limit), status = ready < 0 ? ready : 0;
    if (status == 0 && (ready & ~POLLOUT)) /* an error, too, is read from the socket */
        status = receive_some(peer, expected);
    if (status == 0 && (ready & POLLOUT))
        status = send_some(peer);
    return status;
}

static void drop_taken(struct peer *peer)
{
    buf_consume(&peer->in, peer->taken);
    peer->taken = 0;
    if (buf_len(&peer->in) == 0 && peer->in.size > KEPT_BYTES)
        buf_deinit(&peer->in);
}

int peer_flush(struct peer *peer, struct errbuf *err)
{
    begin_call(peer);
    drop_taken(peer);
    while (is_sending(peer)) {
        int status = exchange(peer, 0);
        if (status != 0)
            return fail(peer, status, err);
    }
    return buf_failed(&peer->out) ? fail(peer, -ENOMEM, err) : 0;
}

/* ---- replies ---- */

int peer_reply(struct peer *peer, struct resp_reply *reply_out, struct errbuf *err)
{
    begin_call(peer);
    drop_taken(peer);
    while (is_sending(peer) || buf_failed(&peer->out)) {
        int status = exchange(peer, 0);
        if (status != 0)
            return fail(peer, status, err);
    }
    for (;;) {
        size_t consumed, needs = 1, len = buf_len(&peer->in);
        enum resp_reply_status found =
            len > 0 ? resp_reply_next(&peer->reader, buf_head(&peer->in), len, &consumed, &needs, reply_out)
                    : RESP_REPLY_NEED_MORE;
        int status = found == RESP_REPLY_MALFORMED ? -EPROTO : found == RESP_REPLY_NO_MEMORY ? -ENOMEM : 0;
        if (found == RESP_REPLY_WHOLE) {
            peer->taken = consumed;
            if (reply_out->nodes[0].kind != RESP_REPLY_PUSH)
                return 0;
            drop_taken(peer);
        } else if (status == 0) {
            do
                status = exchange(peer, needs - buf_len(&peer->in));
            while (status == 0 && buf_len(&peer->in) < needs);
        }
        if (status == -EPROTO && peer_tls_reason(peer)[0] == '\0')
            return errbuf_fail(err, status, "the server does not speak the Redis protocol");
        if (status != 0)
            return fail(peer, status, err);
    }
}

/* ---- AUTH, SELECT ---- */

static int demand_ok(struct peer *peer, const char *what, struct errbuf *err)
{
    struct resp_reply reply;
    int status = peer_reply(peer, &reply, err);
    if (status != 0 || reply.nodes[0].kind != RESP_REPLY_ERROR)
        return status;
    struct slice text = resp_reply_text(&reply, 0);
    errbuf_set(err, "%s is refused: %.*s", what, (int)text.len, text.ptr);
    return text.len >= 7 && memcmp(text.ptr, "LOADING", 7) == 0 ? -EAGAIN : -EACCES;
}

int peer_log_in(struct peer *peer, const struct peer_address *address, struct errbuf *err)
{
    char number[PEER_NUMBER_SIZE];
    int status = peer_connect(peer, address, err);
    if (status != 0)
        return status;
    if (address->password && address->user)
        PEER_PUT(peer, slice_of("AUTH"), slice_of(address->user), slice_of(address->password));
    else if (address->password)
        PEER_PUT(peer, slice_of("AUTH"), slice_of(address->password));
    if (address->password)
        status = demand_ok(peer, "the password", err);
    if (status == 0 && address->database != 0) {
        PEER_PUT(peer, slice_of("SELECT"), peer_number(address->database, number));
        status = demand_ok(peer, "the database", err);
    }
    return status;
}
