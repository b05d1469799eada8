/* exchange() alone moves bytes: from `out` to the socket and from the socket to `in`, whichever it is ready for. A
 * reply points into `in`: it is consumed when the next one is asked for. */
#include "peer_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"

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

void peer_set_cancelled(struct peer *peer, const atomic_bool *cancelled)
{
    peer->limit.cancelled = cancelled;
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
    int fd = peer_socket(address, &peer->limit, err);
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
    return buf_len(&peer->out) > 0 || peer_tls_is_sending(peer);
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
        if (status == -EPROTO && peer_tls_reason(peer)[0] == '\0') {
            errbuf_set(err, "the server does not speak the Redis protocol");
            return status;
        }
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
