/* The bytes of a connection: from the socket through TLS to the head of the request, and the reply back. Each step does
 * a bounded amount of work, so a fast client delays no other. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "acl_user.h"
#include "clock.h"
#include "filter_page.h"
#include "rcu.h"
#include "server.h"
#include "web_internal.h"

#define SENDS_PER_STEP 4

struct web_request *web_conn_open(struct web *web, int fd, bool local)
{
    struct web_request *request = calloc(1, sizeof(*request));
    if (request && web->tls && (request->tls = tls_stream_create()) == NULL) {
        free(request);
        request = NULL;
    }
    if (!request) {
        close(fd);
        return NULL;
    }
    if (request->tls)
        tls_stream_ask_no_certificate(request->tls);
    request->web = web;
    request->fd = fd;
    request->local = local;
    request->deadline_ms = clock_ms() + WEB_REQUEST_MS;
    buf_init(&request->in, WEB_REQUEST_BYTES);
    buf_init(&request->records, 2 * (WEB_RECORD_BYTES + TLS_HANDSHAKE_MAX));
    buf_init(&request->reply_head, WEB_REQUEST_BYTES);
    buf_init(&request->body, WEB_REPLY_BYTES);
    buf_init(&request->more_fields, WEB_REQUEST_BYTES);
    return request;
}

static void free_reply(struct web_request *request)
{
    request->web->reply_bytes -= request->charged;
    request->charged = 0;
    buf_deinit(&request->reply_head);
    buf_deinit(&request->body);
    buf_deinit(&request->more_fields);
    if (request->copy) {
        rcu_reader_online();
        filter_copy_destroy(request->copy);
        rcu_reader_offline();
    }
    request->copy = NULL;
}

void web_conn_free(struct web_request *request)
{
    close(request->fd);
    tls_stream_destroy(request->tls);
    acl_user_unref(request->user);
    free_reply(request);
    buf_deinit(&request->records);
    buf_deinit(&request->in);
    free(request);
}

short web_conn_events(const struct web_request *request)
{
    switch (request->stage) {
    case WEB_READS:
        return buf_len(&request->records) ? POLLIN | POLLOUT : POLLIN;
    case WEB_WRITES:
        return POLLOUT;
    case WEB_DRAINS:
        return POLLIN;
    case WEB_SCANS:
    case WEB_CLOSES:
        break;
    }
    return 0;
}

/* ---- sending ---- */

/* False: the kernel takes nothing now, or the connection is broken and closes. */
static bool send_from(struct web_request *request, struct buf *bytes)
{
    ssize_t n = send(request->fd, buf_head(bytes), buf_len(bytes), MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        request->stage = WEB_CLOSES;
    if (n <= 0)
        return false;
    buf_consume(bytes, (size_t)n);
    return true;
}

/* The next piece of the copy becomes the body. */
static void take_piece(struct web_request *request)
{
    rcu_reader_online();
    bool good = filter_copy_next(request->copy, &request->body);
    rcu_reader_offline();
    request->deadline_ms = clock_ms() + WEB_REQUEST_MS;
    if (!good)
        request->stage = WEB_CLOSES; /* before the announced length: the client notices that a part is missing */
}

/* The next part of the reply that has not been sent, or not been encrypted; NULL: none is left. */
static struct buf *next_part(struct web_request *request)
{
    if (!buf_len(&request->reply_head) && !buf_len(&request->body) && request->copy && filter_copy_left(request->copy))
        take_piece(request);
    return buf_len(&request->reply_head) ? &request->reply_head : buf_len(&request->body) ? &request->body : NULL;
}

static void encrypt(struct web_request *request, struct buf *part)
{
    struct errbuf err;
    size_t len = buf_len(part) < WEB_RECORD_BYTES ? buf_len(part) : WEB_RECORD_BYTES;
    if (tls_stream_write(request->tls, buf_head(part), len, &request->records, &err) != TLS_OK) {
        request->stage = WEB_CLOSES;
        return;
    }
    buf_consume(part, len);
    if (!next_part(request))
        tls_stream_end(request->tls, &request->records);
}

static void drain(struct web_request *request)
{
    int64_t deadline_ms = clock_ms() + WEB_DRAIN_MS;
    free_reply(request);
    shutdown(request->fd, SHUT_WR);
    request->stage = WEB_DRAINS;
    if (deadline_ms < request->deadline_ms)
        request->deadline_ms = deadline_ms;
}

static void write_reply(struct web_request *request)
{
    for (int i = 0; i < SENDS_PER_STEP && request->stage == WEB_WRITES; i++) {
        struct buf *part = next_part(request);
        if (request->tls && part && buf_len(&request->records) == 0)
            encrypt(request, part);
        if (request->tls)
            part = buf_len(&request->records) ? &request->records : NULL;
        if (request->stage == WEB_WRITES && !part)
            drain(request);
        else if (request->stage == WEB_WRITES && !send_from(request, part))
            return;
    }
}

/* ---- receiving ---- */

/* Decrypts web->received[0..len) to web->plain. The bytes that have come of the request, 0 if none have. */
static size_t decrypt(struct web_request *request, size_t len)
{
    struct web *web = request->web;
    struct errbuf err;
    size_t used = 0, n = 0;
    enum tls_status status = TLS_OK;
    if (!tls_stream_is_up(request->tls)) {
        rcu_reader_online();
        status = tls_stream_handshake(request->tls,
                                      atomic_load_explicit(&web->server->settings.tls.now, memory_order_acquire), NULL,
                                      web->received, len, &used, &request->records, &err);
        rcu_reader_offline();
    }
    if (status == TLS_OK && len > used)
        status = tls_stream_read(request->tls, web->received + used, len - used, web->plain, sizeof(web->plain), &n,
                                 &request->records, &err);
    if (buf_len(&request->records))
        (void)send_from(request, &request->records);
    if (status == TLS_NOT_TLS) { /* the client gets an answer that it can read */
        tls_stream_destroy(request->tls);
        request->tls = NULL;
        web_reply_text(request, HTTP_BAD_REQUEST, "this port accepts HTTPS only");
    } else if (status == TLS_FAILED || buf_failed(&request->records)) {
        drain(request); /* the alert has been sent */
    } else if (status == TLS_END && n == 0) {
        request->stage = WEB_CLOSES;
    }
    return n;
}

static void take_request(struct web_request *request, size_t n)
{
    struct buf *in = &request->in;
    size_t seen = buf_len(in), room = WEB_REQUEST_BYTES - seen;
    buf_append(in, request->web->plain, n < room ? n : room);
    size_t head = http_head_length(buf_head(in), buf_len(in), seen);
    if (buf_failed(in))
        request->stage = WEB_CLOSES;
    else if (head > 0)
        web_answer(request, head);
    else if (n >= room)
        web_reply_text(request, HTTP_FIELDS_TOO_LARGE, "the request line and the header fields are longer than 32 KB");
}

/* To web->received, or to web->plain without TLS. 0: nothing is there, or the connection has ended and closes. */
static size_t receive(struct web_request *request)
{
    struct web *web = request->web;
    ssize_t n = recv(request->fd, request->tls ? web->received : web->plain, TLS_RECORD_MAX, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        request->stage = WEB_CLOSES;
    return n > 0 ? (size_t)n : 0;
}

static void read_request(struct web_request *request)
{
    size_t n = receive(request);
    if (n > 0 && request->tls)
        n = decrypt(request, n);
    if (n > 0 && request->stage == WEB_READS)
        take_request(request, n);
}

void web_conn_step(struct web_request *request)
{
    switch (request->stage) {
    case WEB_READS:
        if (buf_len(&request->records))
            (void)send_from(request, &request->records);
        if (request->stage == WEB_READS)
            read_request(request);
        break;
    case WEB_WRITES:
        write_reply(request);
        break;
    case WEB_DRAINS:
        (void)receive(request);
        break;
    case WEB_SCANS:
    case WEB_CLOSES:
        break;
    }
}
