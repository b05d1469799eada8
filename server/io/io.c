#include "io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "conn.h"
#include "conn_tls.h"
#include "log_text.h"
#include "tcp_bind.h"

/* ---- the parts ---- */

static void take_turn(struct conn_link *link)
{
    struct conn *conn = CONN_OF(link, turn);
    io_enter(conn->io);
    conn_take_turn(conn);
}

static void step_handshake(struct conn_link *link)
{
    struct conn *conn = CONN_OF(link, waiter);
    io_enter(conn->io);
    conn_tls_step(conn);
}

int conns_init(struct io *io, struct server *server, unsigned index, const struct io_calls *calls)
{
    io->server = server;
    io->index = index;
    io->calls = calls;
    mailbox_init(&io->mailbox);
    mailbox_expect(&io->mailbox, NOTICE_CLIENTS, client_limit_look, io);
    conn_list_init(&io->delivery.conns);
    turns_init(&io->turns, &io->loop, take_turn);
    handshakes_init(&io->handshakes, &io->loop, step_handshake);
    io->input.arena = malloc(INPUT_ARENA_SIZE);
    return io->input.arena ? 0 : -ENOMEM;
}

void conns_deinit(struct io *io)
{
    while (io->delivery.nspare)
        free(io->delivery.spare_bufs[--io->delivery.nspare]);
    resp_args_deinit(&io->input.args);
    free(io->input.arena);
    handshakes_deinit(&io->handshakes);
}

void conns_close(struct io *io)
{
    mailbox_close(&io->mailbox);
    turns_close(&io->turns);
    handshakes_close(&io->handshakes);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void conns_refresh(struct io *io, const struct config *config)
{
    struct input *input = &io->input;
    input->limits = (struct resp_limits){
        .max_args = (size_t)config->clients.proto_max_args,
        .max_bulk = (size_t)config->clients.proto_max_bulk_len,
        .max_inline = (size_t)config->clients.proto_inline_max_size,
    };
    input->limits_noauth = (struct resp_limits){
        .max_args = least(input->limits.max_args, (size_t)config->clients.proto_max_args_noauth),
        .max_bulk = least(input->limits.max_bulk, (size_t)config->clients.proto_max_bulk_noauth),
        .max_inline = input->limits.max_inline,
    };
    io->delivery.high_water = (size_t)config->clients.reply_buffer_high_water;
    for (int i = 0; i < CONFIG_CLIENT_CLASSES; i++) {
        uint64_t hard = config->clients.client_output_buffer_limit.classes[i].hard;
        io->delivery.limits[i] =
            (size_t)(hard && hard < config->clients.reply_buffer_limit ? hard : config->clients.reply_buffer_limit);
    }
}

void conns_send(struct io *io)
{
    while (!conn_list_empty(&io->delivery.conns)) {
        struct conn *conn = CONN_OF(io->delivery.conns.next, with_replies);
        conn_list_remove(&conn->with_replies);
        conn_flush(conn);
    }
}

/* ---- ten times a second ---- */

/* Closes a client that is over its class's soft limit for too long (client-output-buffer-limit). True if it did. */
static bool is_over_soft_limit(struct conn *conn)
{
    const struct config *config = server_config(conn->io->server);
    const struct config_output_limit *limit = &config->clients.client_output_buffer_limit.classes[conn_class(conn)];
    if (limit->soft == 0 || conn_unsent(conn) <= limit->soft) {
        conn->output.over_soft_ms = 0;
        return false;
    }
    if (conn->output.over_soft_ms == 0)
        conn->output.over_soft_ms = conn->io->now_ms;
    if (conn->io->now_ms - conn->output.over_soft_ms < limit->soft_seconds * 1000)
        return false;
    conn_close_over_output(conn, "its replies exceeded the soft client-output-buffer-limit for too long");
    return true;
}

/* Closes a waiting client that seems to be gone. True if it was closed. */
static bool is_over_half_closed(struct conn *conn)
{
    if (conn->input.eof_seen_ms == 0 || conn->io->now_ms - conn->input.eof_seen_ms <= CONN_HALF_CLOSED_MS)
        return false;
    conn_close(conn);
    return true;
}

/* Most libraries write a whole pipeline before they read a reply. They would deadlock with a server that stops reading
 * until its replies are read. So a client that has taken none since the last tick may have twice as many pending bytes,
 * up to reply-buffer-limit. */
static void allow_more_replies(struct conn *conn)
{
    size_t waiting = conn_unsent(conn);
    if (waiting <= conn->io->delivery.high_water) {
        conn->output.allowance = conn->output.seen = 0;
        return;
    }
    bool stuck = waiting == conn->output.seen && waiting > conn_high_water(conn) && !conn->waits;
    conn->output.seen = waiting;
    if (!stuck || conn_is_closing(conn))
        return;
    conn->output.allowance = waiting * 2;
    conn_update(conn);
}

void conns_tick(struct io *io)
{
    int64_t timeout_ms = server_config(io->server)->network.timeout * 1000;
    for (struct conn *conn = LIST_FIRST(&io->conns), *next; conn; conn = next) {
        next = LIST_NEXT(conn, link);
        if (conn_has_command(conn))
            conn_count_memory(conn);
        bool listens = conn->session.pubsub.subscribed || session_monitors(&conn->session);
        if (timeout_ms > 0 && !conn->waits && !listens && io->now_ms - conn->session.meters.last_ms > timeout_ms)
            conn_close(conn);
        else if (!conn_tls_over_time(conn) && !is_over_half_closed(conn) && !is_over_soft_limit(conn) &&
                 (conn_unsent(conn) || conn->output.allowance))
            allow_more_replies(conn);
    }
    client_limit_look(io);
}

/* ---- the end ---- */

void conns_close_all(struct io *io)
{
    while (!LIST_EMPTY(&io->conns))
        conn_close(LIST_FIRST(&io->conns));
    while (!conn_list_empty(&io->turns.waiting)) { /* closed connections with subscriptions left */
        struct conn *conn = CONN_OF(io->turns.waiting.next, turn);
        conn_list_remove(&conn->turn);
        conn_take_turn(conn);
    }
}

/* ---- reply buffers ---- */

char *delivery_buf_get(struct delivery *delivery)
{
    if (delivery->nspare)
        return delivery->spare_bufs[--delivery->nspare];
    return malloc(DELIVERY_BUF_SIZE);
}

void delivery_buf_put(struct delivery *delivery, char *mem)
{
    if (delivery->nspare < DELIVERY_SPARE_BUFS)
        delivery->spare_bufs[delivery->nspare++] = mem;
    else
        free(mem);
}

/* ---- the beginning of a connection: its addresses, the options of its socket, and refusals ---- */

static void format_addr(const struct sockaddr_storage *ss, char *text_out, size_t size)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    if (ss->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)ss;
        inet_ntop(AF_INET, &in->sin_addr, ip, sizeof(ip));
        snprintf(text_out, size, "%s:%u", ip, ntohs(in->sin_port));
    } else if (ss->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;
        inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof(ip));
        snprintf(text_out, size, "[%s]:%u", ip, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_un *un = (const struct sockaddr_un *)ss;
        snprintf(text_out, size, "%.*s:0", (int)(size - 3), un->sun_path[0] ? un->sun_path : "unixsocket");
    }
}

/* False: the client has gone. */
static bool describe(struct conn *conn)
{
    struct session_origin *origin = &conn->session.origin;
    struct sockaddr_storage ss = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof(ss);
    if (getsockname(conn->fd, (struct sockaddr *)&ss, &len) == 0)
        format_addr(&ss, origin->laddr, sizeof(origin->laddr));
    origin->local = ss.ss_family == AF_UNIX;
    if (origin->local) {
        memcpy(origin->addr, origin->laddr, sizeof(origin->addr));
        return true;
    }
    ss = (struct sockaddr_storage){.ss_family = AF_UNSPEC};
    len = sizeof(ss);
    if (getpeername(conn->fd, (struct sockaddr *)&ss, &len) != 0)
        return false;
    format_addr(&ss, origin->addr, sizeof(origin->addr));
    origin->local = tcp_is_loopback(&ss);
    return true;
}

static void set_socket_options(const struct conn *conn, const struct config *config)
{
    int one = 1;
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* fails on a Unix socket, which does not need
                                                                        * it */
    int interval = (int)config->network.tcp_keepalive;
    if (interval > 0 && setsockopt(conn->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)) == 0) {
        int step = interval / 3 > 0 ? interval / 3 : 1, probes = 3;
        setsockopt(conn->fd, IPPROTO_TCP, TCP_KEEPIDLE, &interval, sizeof(interval));
        setsockopt(conn->fd, IPPROTO_TCP, TCP_KEEPINTVL, &step, sizeof(step));
        setsockopt(conn->fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    }
}

static const char too_many_text[] = "ERR max number of clients reached";

/* A client that is refused gets the reason before it is closed. */
static const char *list_or_refuse(struct conn *conn)
{
    struct io *io = conn->io;
    LIST_INSERT_HEAD(&io->conns, conn, link);
    const char *why_not = io->calls->open(conn);
    const struct server *server = io->server;
    int64_t most = atomic_load_explicit(&server->clients.max, memory_order_relaxed);
    return why_not || sessions_count(server->clients.sessions) <= (uint64_t)most ? why_not : too_many_text;
}

static int allocate(struct io *io, int fd, struct conn **conn_out)
{
    struct conn *conn = calloc(1, io->calls->conn_size);
    int err = conn ? uv_poll_init(&io->loop, &conn->poll, fd) : -ENOMEM;
    if (err)
        free(conn);
    else
        *conn_out = conn;
    return err;
}

int conn_open(struct io *io, int fd, bool with_tls)
{
    const struct config *config = server_config(io->server);
    struct conn *conn = NULL;
    int err = allocate(io, fd, &conn);
    if (err) {
        close(fd);
        return err;
    }
    conn->poll.data = conn;
    conn->io = io;
    conn->fd = fd;
    resp_parser_init(&conn->input.parser);
    buf_init(&conn->output.buf, (size_t)config->clients.reply_buffer_limit);
    conn->output.reply = (struct reply){.buf = &conn->output.buf, .version = 2};
    conn->session.origin.fd = fd;
    conn->session.origin.tls = with_tls;
    conn->session.worker = io->index;
    conn->session.resp = 2;
    conn->session.origin.created_ms = io->now_ms;
    conn->session.meters.last_ms = io->now_ms;
    bool is_there = describe(conn);
    set_socket_options(conn, config);

    const char *why_not = list_or_refuse(conn);
    if (why_not) {
        conn_will_reply(conn);
        reply_error(&conn->output.reply, why_not);
        conn_drain(conn);
        stats_add(&io->stats.connections_rejected, is_there);
    } else {
        stats_add(&io->stats.connections_received, 1);
    }
    /* A client that is refused before its handshake costs none, and cannot get the reason. */
    if (with_tls && (why_not == too_many_text || conn_tls_begin(conn) != 0))
        conn_close(conn);
    if (conn_is_closing(conn))
        return 0;
    conn_count_memory(conn);
    conn_update(conn);
    return 0;
}
