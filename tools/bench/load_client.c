/* One connection of a load: sends requests, reads replies and records their latencies. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* after <time.h>, without which they do not compile */
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>

#include "load_internal.h"
#include "tls_stream.h"

int worker_fail(struct worker *worker, int status, const char *what)
{
    worker->status = status;
    errbuf_set(&worker->err, "%s: %s", what, strerror(-status));
    return status;
}

/* Like worker_fail(), for an error reply of the server. */
static int worker_refused(struct worker *worker, const char *error)
{
    worker->status = -EREMOTEIO;
    errbuf_set(&worker->err, "the server replied: %s", error);
    return worker->status;
}

/* Open loop: the kernel notes the time of arrival, so this thread may read the data later. */
static void note_arrivals(int fd)
{
    int flags = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    (void)setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof(flags)); /* not every kind of socket can */
}

int client_open(struct worker *worker, struct client *client, struct errbuf *err)
{
    const struct load_options *options = worker->run->options;
    client->since = calloc(options->pipeline, sizeof(*client->since));
    client->out = malloc(options->request->max_size * options->pipeline);
    if (!client->since || !client->out)
        return -ENOMEM;
    buf_init(&client->records, LOAD_RECORDS);
    replies_init(&client->reader);
    client->fd = endpoint_connect(options->endpoint, &client->tls, err);
    if (client->fd < 0)
        return client->fd;
    if (worker->rate > 0)
        note_arrivals(client->fd);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    return epoll_ctl(worker->epoll, EPOLL_CTL_ADD, client->fd, &event) == 0 ? 0 : -errno;
}

void client_close(struct client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    tls_stream_destroy(client->tls);
    buf_deinit(&client->records);
    replies_deinit(&client->reader);
    free(client->since);
    free(client->out);
}

/* Sends from `bytes`; *sent_out of them have been taken. */
static int send_bytes(struct worker *worker, struct client *client, const char *bytes, size_t len, size_t *sent_out)
{
    *sent_out = 0;
    while (*sent_out < len) {
        ssize_t n = send(client->fd, bytes + *sent_out, len - *sent_out, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            return worker_fail(worker, -errno, "cannot send");
        if (n < 0)
            break;
        *sent_out += (size_t)n;
    }
    return 0;
}

static int fail_tls(struct worker *worker, const struct errbuf *err)
{
    worker->status = -EPROTO;
    errbuf_set(&worker->err, "TLS: %s", err->text);
    return worker->status;
}

/* Turns requests into records and sends these. *left_out: some could not be sent. */
static int flush_tls(struct worker *worker, struct client *client, bool *left_out)
{
    struct errbuf err = {""};
    size_t sent, len = client->out_end - client->out_start;
    if (len && tls_stream_write(client->tls, client->out + client->out_start, len, &client->records, &err) != TLS_OK)
        return fail_tls(worker, &err);
    client->out_start = client->out_end = 0;
    int status = send_bytes(worker, client, buf_head(&client->records), buf_len(&client->records), &sent);
    buf_consume(&client->records, sent);
    *left_out = buf_len(&client->records) > 0;
    return status;
}

static int flush_plain(struct worker *worker, struct client *client, bool *left_out)
{
    size_t sent;
    int status =
        send_bytes(worker, client, client->out + client->out_start, client->out_end - client->out_start, &sent);
    client->out_start += sent;
    *left_out = client->out_start < client->out_end;
    if (!*left_out)
        client->out_start = client->out_end = 0;
    return status;
}

int client_flush(struct worker *worker, struct client *client)
{
    bool left = false;
    int status = client->tls ? flush_tls(worker, client, &left) : flush_plain(worker, client, &left);
    if (status != 0)
        return status;
    if (left != client->wants_write) {
        struct epoll_event event = {.events = EPOLLIN | (left ? EPOLLOUT : 0u), .data.ptr = client};
        client->wants_write = left;
        if (epoll_ctl(worker->epoll, EPOLL_CTL_MOD, client->fd, &event) != 0)
            return worker_fail(worker, -errno, "epoll");
    }
    return 0;
}

void client_put(struct worker *worker, struct client *client, uint64_t since)
{
    const struct load_options *options = worker->run->options;
    unsigned place = client->oldest + client->under_way;
    client->since[place < options->pipeline ? place : place - options->pipeline] = since;
    client->under_way++;
    client->out_end += request_write(options->request, &worker->items, client->out + client->out_end);
    if (worker->requests_left != UINT64_MAX)
        worker->requests_left--;
}

int client_send_batch(struct worker *worker, struct client *client, uint64_t now)
{
    unsigned pipeline = worker->run->options->pipeline;
    if (client->out_end || client->under_way)
        return 0;
    for (unsigned i = 0; i < pipeline && worker->requests_left; i++)
        client_put(worker, client, now);
    return client_flush(worker, client);
}

/* The time since the arrival of the data, by the kernel's note; 0 without one. */
static uint64_t age_of(struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        struct scm_timestamping stamps;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPING)
            continue;
        memcpy(&stamps, CMSG_DATA(c), sizeof(stamps));
        /* The stamps are of the same clock. */
        int64_t ns = (int64_t)clock_unix_ns() - ((int64_t)stamps.ts[0].tv_sec * 1000000000 + stamps.ts[0].tv_nsec);
        return ns > 0 ? (uint64_t)ns : 0;
    }
    return 0;
}

/* Like recv(); *arrived_out is the time of the last byte's arrival. */
static ssize_t receive(struct worker *worker, int fd, char *to, uint64_t *arrived_out)
{
    char control[256];
    struct iovec part = {.iov_base = to, .iov_len = LOAD_READ_SIZE};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (worker->rate > 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
    }
    ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT);
    *arrived_out = clock_ns();
    if (n > 0 && worker->rate > 0)
        *arrived_out -= age_of(&message);
    return n;
}

static void record(struct worker *worker, struct client *client, uint64_t replies, uint64_t arrived)
{
    for (uint64_t left = replies; left;) { /* requests of one batch have one time: recorded at once */
        uint64_t since = client->since[client->oldest], same = 0;
        while (same < left && client->since[client->oldest] == since) {
            client->oldest = client->oldest + 1 == worker->run->options->pipeline ? 0 : client->oldest + 1;
            same++;
        }
        left -= same;
        if (worker->measured.on)
            hdr_record(&worker->measured.latency, arrived > since ? arrived - since : 0, same);
    }
    client->under_way -= (unsigned)replies;
    if (worker->measured.on)
        worker->measured.answered += replies;
    atomic_store_explicit(&worker->answered_ever, worker->answered_ever + replies, memory_order_relaxed);
}

/* Decrypts `len` received bytes; *n_out plain ones are in worker->input. */
static int decrypt(struct worker *worker, struct client *client, size_t len, size_t *n_out)
{
    struct errbuf err = {""};
    enum tls_status status = tls_stream_read(client->tls, worker->received, len, worker->input,
                                             LOAD_READ_SIZE + TLS_RECORD_MAX, n_out, &client->records, &err);
    if (status == TLS_FAILED)
        return fail_tls(worker, &err);
    if (status == TLS_END)
        return worker_fail(worker, -ECONNRESET, "the server closed a connection");
    return 0;
}

int client_take_replies(struct worker *worker, struct client *client)
{
    uint64_t before = client->reader.replies, arrived;
    ssize_t n = receive(worker, client->fd, client->tls ? worker->received : worker->input, &arrived);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    if (n < 0)
        return worker_fail(worker, -errno, "cannot receive");
    if (n == 0)
        return worker_fail(worker, -ECONNRESET, "the server closed a connection");
    size_t len = (size_t)n;
    if (client->tls && decrypt(worker, client, len, &len) != 0)
        return worker->status;
    if (!replies_take(&client->reader, worker->input, len))
        return worker_fail(worker, -EPROTO, "cannot read the server's reply");
    if (client->reader.errors > 0)
        return worker_refused(worker, client->reader.first_error);
    uint64_t replies = client->reader.replies - before;
    if (replies > client->under_way)
        return worker_fail(worker, -EPROTO, "more replies than requests");
    record(worker, client, replies, arrived);
    if (worker->rate <= 0 && client->under_way == 0)
        return client_send_batch(worker, client, arrived);
    return 0;
}
