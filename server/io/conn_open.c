/* The beginning of a connection: its addresses, the options of its socket, and refusals. */
#include "conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "conn_tls.h"
#include "memory_use.h"
#include "tcp_bind.h"

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
    conn->next = io->conns;
    if (conn->next)
        conn->next->prev = conn;
    io->conns = conn;
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

/* A client that is refused before its handshake costs none, and cannot get the reason. */
static void begin_tls(struct conn *conn, bool refused)
{
    if (refused || conn_tls_begin(conn) != 0)
        conn_close(conn);
}

int conn_open(struct io *io, int fd, bool with_tls)
{
    const struct config *config = server_config(io->server);
    struct conn *conn = NULL;
    int err = allocate(io, fd, &conn);
    if (err == -ENOMEM && memory_reserve_spend(io->server))
        err = allocate(io, fd, &conn);
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
    if (with_tls)
        begin_tls(conn, why_not == too_many_text);
    if (conn_is_closing(conn))
        return 0;
    conn_count_memory(conn);
    conn_update(conn);
    return 0;
}
