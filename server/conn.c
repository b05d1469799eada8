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

#include "dispatch.h"
#include "log.h"
#include "worker.h"

#define INPUT_MIN_SIZE (4 * 1024)

/* ---- what is polled for ---------------------------------------------------------------------------------------------- */

static void on_poll(uv_poll_t *poll, int status, int events);

static bool over_high_water(const struct conn *conn)
{
    size_t pause = conn->out_pause > conn->worker->high_water ? conn->out_pause : conn->worker->high_water;
    return buf_len(&conn->out) > pause;
}

static bool may_read(const struct conn *conn)
{
    return !conn->waiting && !conn->eof && !conn->session.close_after_reply && !over_high_water(conn);
}

static void update_poll(struct conn *conn)
{
    int events = (may_read(conn) ? UV_READABLE : 0) | (buf_len(&conn->out) ? UV_WRITABLE : 0);
    if (events == conn->events || conn->closing)
        return;
    conn->events = events;
    if (events)
        uv_poll_start(&conn->poll, events, on_poll);
    else
        uv_poll_stop(&conn->poll);
}

/* ---- closing --------------------------------------------------------------------------------------------------------- */

static void conn_free(struct conn *conn)
{
    resp_parser_deinit(&conn->parser);
    free(conn);
}

static void on_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;
    close(conn->fd); /* not earlier: until here libuv may name the descriptor to the kernel, and it could be another's */
    conn->fd = -1;
    if (!conn->waiting)
        conn_free(conn);
}

static void unlink_conn(struct conn *conn)
{
    struct worker *worker = conn->worker;
    if (conn->prev)
        conn->prev->next = conn->next;
    else
        worker->conns = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
    atomic_fetch_sub_explicit(&worker->nconns, 1, memory_order_relaxed);

    for (struct conn **at = &worker->with_replies; conn->in_reply_list && *at; at = &(*at)->next_with_replies) {
        if (*at == conn) {
            *at = conn->next_with_replies;
            break;
        }
    }
    conn->in_reply_list = false;
}

void conn_close(struct conn *conn)
{
    if (conn->closing)
        return;
    struct worker *worker = conn->worker;
    window_flush(worker); /* commands in the window point into this connection */
    conn->closing = true;
    unlink_conn(conn);
    sessions_remove(worker->server->sessions, &conn->session);
    free(conn->in);
    conn->in = NULL;
    conn->in_len = conn->in_size = 0;
    buf_deinit(&conn->out);
    uv_close((uv_handle_t *)&conn->poll, on_closed);
}

static void warn_closed(const struct conn *conn, const char *why)
{
    struct server *server = conn->worker->server;
    log_limited(&server->log, &server->limits.client, conn->worker->now_ms, LOG_LEVEL_WARNING, "client %s closed: %s",
                conn->session.addr, why);
}

/* ---- replies --------------------------------------------------------------------------------------------------------- */

void conn_will_reply(struct conn *conn)
{
    struct worker *worker = conn->worker;
    if (conn->in_reply_list || conn->closing)
        return;
    conn->in_reply_list = true;
    conn->next_with_replies = worker->with_replies;
    worker->with_replies = conn;
    if (!conn->out.data) {
        conn->out.data = worker_buf_get(worker);
        conn->out.size = conn->out.data ? WORKER_BUF_SIZE : 0;
    }
}

/* An idle connection keeps no buffer. */
static void give_back_buf(struct conn *conn)
{
    if (conn->out.size == WORKER_BUF_SIZE) {
        worker_buf_put(conn->worker, conn->out.data);
        conn->out.data = NULL;
        conn->out.size = 0;
    }
    buf_deinit(&conn->out);
}

/* Sends until the kernel takes no more. false: the connection is broken. */
static bool send_some(struct conn *conn)
{
    while (buf_len(&conn->out)) {
        ssize_t n = send(conn->fd, buf_head(&conn->out), buf_len(&conn->out), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        stats_add(&conn->worker->stats.net_output_bytes, (uint64_t)n);
        atomic_store_explicit(&conn->session.last_ms, conn->worker->now_ms, memory_order_relaxed);
        buf_consume(&conn->out, (size_t)n);
    }
    return true;
}

void conn_flush(struct conn *conn)
{
    if (conn->closing)
        return;
    if (buf_failed(&conn->out)) {
        stats_add(&conn->worker->stats.clients_over_limit, 1);
        warn_closed(conn, "its replies passed reply-buffer-limit, or there is no memory for them");
        conn_close(conn);
        return;
    }
    if (!send_some(conn)) {
        conn_close(conn);
        return;
    }
    atomic_store_explicit(&conn->session.output_bytes, buf_len(&conn->out), memory_order_relaxed);
    if (buf_len(&conn->out) == 0) {
        give_back_buf(conn);
        if ((conn->session.close_after_reply || (conn->eof && !conn->in_len)) && !conn->waiting) {
            conn_close(conn);
            return;
        }
    }
    if (conn->held && may_read(conn))
        conn_resume(conn);
    else
        update_poll(conn);
}

/* ---- input ----------------------------------------------------------------------------------------------------------- */

static void protocol_error(struct conn *conn)
{
    char text[128];
    memcpy(text, "ERR ", 4);
    resp_parser_error(&conn->parser, text + 4, sizeof(text) - 4);
    window_flush(conn->worker);
    conn_will_reply(conn);
    reply_error(&conn->reply, text);
    stats_add(&conn->worker->stats.protocol_errors, 1);
    conn->session.close_after_reply = true;
}

/* Runs the commands in data[0..len) and returns how many bytes are done with. */
static size_t run_commands(struct conn *conn, char *data, size_t len)
{
    struct worker *worker = conn->worker;
    size_t done = 0;
    while (may_read(conn) && done < len) {
        bool known = atomic_load_explicit(&conn->session.authenticated, memory_order_relaxed);
        struct resp_command cmd;
        size_t consumed = 0;
        enum resp_status status =
            resp_parser_next(&conn->parser, &worker->args, known ? &worker->limits : &worker->limits_noauth, !known,
                             data + done, len - done, &consumed, &cmd);
        done += consumed;
        if (status == RESP_COMMAND) {
            dispatch(conn, &cmd);
        } else if (status == RESP_NEED_MORE) {
            break;
        } else if (status == RESP_MALFORMED) {
            protocol_error(conn);
        } else {
            warn_closed(conn, "there is no memory for its command");
            conn_will_reply(conn);
            conn->session.close_after_reply = true;
        }
    }
    conn->held = done < len && !may_read(conn);
    return conn->session.close_after_reply ? len : done;
}

/* Makes the connection's own input buffer at least `size` bytes large. */
static bool grow_input(struct conn *conn, size_t size)
{
    if (size <= conn->in_size)
        return true;
    if (size < INPUT_MIN_SIZE)
        size = INPUT_MIN_SIZE;
    char *in = realloc(conn->in, size);
    if (!in)
        return false;
    conn->in = in;
    conn->in_size = size;
    return true;
}

/* Gives memory back that only a past command needed. */
static void shrink_input(struct conn *conn)
{
    if (conn->in_size <= WORKER_READ_SIZE || conn->in_len > conn->in_size / 4)
        return;
    size_t size = conn->in_len > INPUT_MIN_SIZE ? conn->in_len : INPUT_MIN_SIZE;
    char *in = realloc(conn->in, size);
    if (!in)
        return; /* the large one serves as well */
    conn->in = in;
    conn->in_size = size;
}

/* Keeps what is left of an incomplete command, or drops the buffer when nothing is left. */
static bool keep_rest(struct conn *conn, char *rest, size_t len)
{
    if (len == 0) {
        free(conn->in);
        conn->in = NULL;
        conn->in_len = conn->in_size = 0;
    } else if (conn->in) {
        memmove(conn->in, rest, len);
        conn->in_len = len;
        shrink_input(conn);
    } else {
        if (!grow_input(conn, len))
            return false;
        memcpy(conn->in, rest, len);
        conn->in_len = len;
    }
    atomic_store_explicit(&conn->session.input_bytes, conn->in_len, memory_order_relaxed);
    return true;
}

/* Where the next bytes go. With an incomplete command: behind it, in a buffer that doubles with what has really arrived, at
 * most up to what the argument under way needs, so that announcing much costs the server nothing. Otherwise: into the
 * worker's arena. */
static char *input_space(struct conn *conn, size_t *size_out)
{
    struct worker *worker = conn->worker;
    if (conn->in_len) {
        size_t needs = resp_parser_needs(&conn->parser);
        size_t want = needs < conn->in_len * 2 ? needs : conn->in_len * 2;
        if (want < conn->in_len + WORKER_READ_SIZE)
            want = conn->in_len + WORKER_READ_SIZE;
        size_t limit = (size_t)server_config(worker->server)->client_query_buffer_limit;
        if (want > limit)
            want = limit;
        if (want <= conn->in_len || !grow_input(conn, want))
            return NULL;
        *size_out = conn->in_size - conn->in_len;
        return conn->in + conn->in_len;
    }
    if (worker->arena_used + WORKER_READ_SIZE > WORKER_ARENA_SIZE) {
        window_flush(worker);
        worker->arena_used = 0;
    }
    *size_out = WORKER_READ_SIZE;
    return worker->arena + worker->arena_used;
}

static void over_input_limit(struct conn *conn)
{
    stats_add(&conn->worker->stats.clients_over_limit, 1);
    warn_closed(conn, "its command passed client-query-buffer-limit, or there is no memory for it");
    conn_close(conn);
}

/* `fresh` bytes have arrived behind what was kept, at `data`. */
static void take_input(struct conn *conn, char *data, size_t fresh)
{
    struct worker *worker = conn->worker;
    bool own = conn->in_len > 0;
    size_t len = fresh;
    if (own) {
        data = conn->in;
        len = conn->in_len += fresh;
    } else {
        worker->arena_used += fresh;
    }
    window_new_input(&worker->window);
    size_t done = run_commands(conn, data, len);
    if (own && done)
        window_flush(worker); /* its commands point into the buffer that is changed now */
    if (!keep_rest(conn, data + done, len - done))
        over_input_limit(conn);
    else if (!conn->in_reply_list) /* otherwise the end of the iteration does, once the replies have left */
        update_poll(conn);
}

static void on_readable(struct conn *conn)
{
    size_t size;
    char *space = input_space(conn, &size);
    if (!space) {
        over_input_limit(conn);
        return;
    }
    ssize_t n = recv(conn->fd, space, size, 0);
    if (n < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            conn_close(conn);
        return;
    }
    if (n == 0) {
        conn->eof = true;
        conn->in_len = 0; /* half a command is no command */
        conn_will_reply(conn); /* the end of the iteration sends what there is and closes */
        return;
    }
    stats_add(&conn->worker->stats.net_input_bytes, (uint64_t)n);
    atomic_store_explicit(&conn->session.last_ms, conn->worker->now_ms, memory_order_relaxed);
    take_input(conn, space, (size_t)n);
}

void conn_resume(struct conn *conn)
{
    if (conn->closing)
        return;
    if (conn->in_len && may_read(conn))
        take_input(conn, conn->in, 0);
    else
        update_poll(conn);
}

void conn_unstick(struct conn *conn)
{
    size_t waiting = buf_len(&conn->out);
    if (waiting <= conn->worker->high_water) {
        conn->out_pause = conn->out_seen = 0;
        return;
    }
    bool stuck = waiting == conn->out_seen && over_high_water(conn);
    conn->out_seen = waiting;
    if (!stuck || conn->closing)
        return;
    conn->out_pause = waiting * 2;
    if (conn->held)
        conn_resume(conn);
    else
        update_poll(conn);
}

void conn_deferred_done(struct conn *conn, const struct buf *reply)
{
    conn->waiting = false;
    if (conn->closing) {
        if (conn->fd < 0) /* its close callback has been: the last one frees */
            conn_free(conn);
        return;
    }
    conn_will_reply(conn);
    if (buf_len(reply) && buf_head(reply)[0] == '-')
        stats_add(&conn->worker->stats.error_replies, 1);
    if (buf_failed(reply))
        conn->out.failed = true;
    else
        buf_append(&conn->out, buf_head(reply), buf_len(reply));
    conn_resume(conn);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct conn *conn = poll->data;
    worker_enter(conn->worker);
    if (status < 0) {
        conn_close(conn);
        return;
    }
    if (events & UV_WRITABLE) {
        window_flush(conn->worker); /* its own replies may still be on their way there */
        conn_flush(conn);
    }
    if ((events & UV_READABLE) && !conn->closing && may_read(conn))
        on_readable(conn);
}

/* ---- opening --------------------------------------------------------------------------------------------------------- */

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
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* fails on a Unix socket, which needs none */
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
    "others, set a password ('requirepass' in the configuration file, or CONFIG SET requirepass from this machine), or, if "
    "the network itself is trusted, set 'protected-mode no'.";

/* Clients that must not stay get a reason before they are closed. */
static const char *refusal(const struct conn *conn, const struct config *config)
{
    if (config->protected_mode && !config->requirepass[0] && !conn->session.local)
        return protected_mode_text;
    if (sessions_count(conn->worker->server->sessions) > (uint64_t)config->maxclients)
        return "ERR max number of clients reached";
    return NULL;
}

int conn_open(struct worker *worker, int fd)
{
    const struct config *config = server_config(worker->server);
    struct conn *conn = calloc(1, sizeof(*conn));
    int err = conn ? uv_poll_init(&worker->loop, &conn->poll, fd) : -ENOMEM;
    if (err) {
        free(conn);
        close(fd);
        return err;
    }
    conn->poll.data = conn;
    conn->worker = worker;
    conn->fd = fd;
    resp_parser_init(&conn->parser);
    buf_init(&conn->out, (size_t)config->reply_buffer_limit);
    conn->reply = (struct reply){.buf = &conn->out, .version = 2};
    conn->session.fd = fd;
    conn->session.worker = worker->index;
    conn->session.resp = 2;
    conn->session.created_ms = worker->now_ms;
    conn->session.last_ms = worker->now_ms;
    conn->session.authenticated = !config->requirepass[0];
    describe(conn);
    set_socket_options(conn, config);

    conn->next = worker->conns;
    if (conn->next)
        conn->next->prev = conn;
    worker->conns = conn;
    sessions_add(worker->server->sessions, &conn->session);

    const char *why_not = refusal(conn, config);
    if (why_not) {
        conn_will_reply(conn);
        reply_error(&conn->reply, why_not);
        conn->session.close_after_reply = true;
        stats_add(&worker->stats.connections_rejected, 1);
    } else {
        stats_add(&worker->stats.connections_received, 1);
    }
    update_poll(conn);
    return 0;
}
