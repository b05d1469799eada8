/* The beginning of a connection: its addresses, the options of its socket, and refusals. */
#include "conn_internal.h"

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

#include "acl_session.h"
#include "conn_tls.h"
#include "memory_reserve.h"
#include "worker.h"

static void format_addr(const struct sockaddr_storage *ss, char *text_out, size_t size, bool *local_out)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    if (ss->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)ss;
        inet_ntop(AF_INET, &in->sin_addr, ip, sizeof(ip));
        snprintf(text_out, size, "%s:%u", ip, ntohs(in->sin_port));
        *local_out = ntohl(in->sin_addr.s_addr) >> 24 == 127;
    } else if (ss->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;
        inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof(ip));
        snprintf(text_out, size, "[%s]:%u", ip, ntohs(in6->sin6_port));
        *local_out = IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) ||
                     (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr) && in6->sin6_addr.s6_addr[12] == 127);
    } else {
        const struct sockaddr_un *un = (const struct sockaddr_un *)ss;
        snprintf(text_out, size, "%.*s:0", (int)(size - 3), un->sun_path[0] ? un->sun_path : "unixsocket");
        *local_out = true;
    }
}

static void describe(struct conn *conn)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);
    bool ignored;
    memset(&ss, 0, sizeof(ss));
    if (getsockname(conn->fd, (struct sockaddr *)&ss, &len) == 0)
        format_addr(&ss, conn->session.laddr, sizeof(conn->session.laddr), &ignored);
    len = sizeof(ss);
    bool is_unix = ss.ss_family == AF_UNIX;
    if (is_unix)
        snprintf(conn->session.addr, sizeof(conn->session.addr), "%s", conn->session.laddr);
    else if (memset(&ss, 0, sizeof(ss)), getpeername(conn->fd, (struct sockaddr *)&ss, &len) == 0)
        format_addr(&ss, conn->session.addr, sizeof(conn->session.addr), &conn->session.local);
    conn->session.local |= is_unix;
}

static void set_socket_options(const struct conn *conn, const struct config *config)
{
    int one = 1;
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* fails on a Unix socket, which does not need
                                                                        * it */
    int interval = (int)config->tcp_keepalive;
    if (interval > 0 && setsockopt(conn->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)) == 0) {
        int step = interval / 3 > 0 ? interval / 3 : 1, probes = 3;
        setsockopt(conn->fd, IPPROTO_TCP, TCP_KEEPIDLE, &interval, sizeof(interval));
        setsockopt(conn->fd, IPPROTO_TCP, TCP_KEEPINTVL, &step, sizeof(step));
        setsockopt(conn->fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    }
}

static const char protected_mode_text[] =
    "DENIED Bloomery is in protected mode: it has no password and takes connections from this machine only. To allow "
    "others, set a password ('requirepass' in the configuration file, or CONFIG SET requirepass from this machine), "
    "or, if "
    "the network itself is trusted, set 'protected-mode no'.";

static const char too_many_text[] = "ERR max number of clients reached";

/* A refused client gets a reason before it is closed. */
static const char *refusal(const struct conn *conn, const struct config *config)
{
    if (config->protected_mode && conn->session.user->flags & ACL_NOPASS && !conn->session.local)
        return protected_mode_text;
    const struct server *server = conn->worker->server;
    if (sessions_count(server->sessions) > (uint64_t)atomic_load_explicit(&server->clients_max, memory_order_relaxed))
        return too_many_text;
    return NULL;
}

static int allocate(struct worker *worker, int fd, struct conn **conn_out)
{
    struct conn *conn = calloc(1, sizeof(*conn));
    int err = conn ? uv_poll_init(&worker->loop, &conn->poll, fd) : -ENOMEM;
    if (err)
        free(conn);
    else
        *conn_out = conn;
    return err;
}

/* A client that is refused before its handshake costs none, and cannot be told why. */
static void begin_tls(struct conn *conn, bool refused)
{
    if (refused || conn_tls_begin(conn) != 0)
        conn_close(conn);
}

int conn_open(struct worker *worker, int fd, bool with_tls)
{
    const struct config *config = server_config(worker->server);
    struct conn *conn = NULL;
    int err = allocate(worker, fd, &conn);
    if (err == -ENOMEM && memory_reserve_spend(worker->server))
        err = allocate(worker, fd, &conn);
    if (err) {
        close(fd);
        return err;
    }
    conn->poll.data = conn;
    conn->worker = worker;
    conn->fd = fd;
    resp_parser_init(&conn->input.parser);
    buf_init(&conn->output.buf, (size_t)config->reply_buffer_limit);
    conn->output.reply = (struct reply){.buf = &conn->output.buf, .version = 2};
    conn->session.fd = fd;
    conn->session.worker = worker->index;
    conn->session.resp = 2;
    conn->session.created_ms = worker->now_ms;
    conn->session.last_ms = worker->now_ms;
    describe(conn);
    set_socket_options(conn, config);

    conn->next = worker->conns;
    if (conn->next)
        conn->next->prev = conn;
    worker->conns = conn;
    acl_login_default(worker->server, &conn->session);
    sessions_add(worker->server->sessions, &conn->session);

    const char *why_not = refusal(conn, config);
    if (why_not) {
        conn_will_reply(conn);
        reply_error(&conn->output.reply, why_not);
        conn_drain(conn);
        stats_add(&worker->stats.connections_rejected, 1);
    } else {
        stats_add(&worker->stats.connections_received, 1);
    }
    if (with_tls)
        begin_tls(conn, why_not == too_many_text);
    if (conn_is_closing(conn))
        return 0;
    conn_count_memory(conn);
    conn_update(conn);
    return 0;
}
