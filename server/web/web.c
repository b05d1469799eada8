/* libmicrohttpd parses requests and writes replies; which connections there are, and for how long, is decided here.
 *
 * All connections lie in a list, the oldest first. One that has lasted too long is shut down, whatever it was doing: a
 * client that sends a byte now and then gets no further than one that sends none. Where there are too many, the oldest
 * one whose request has not come goes, so that those who hold connections open cannot keep others out. */
#include "web_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "rcu.h"
#include "server.h"
#include "thread.h"
#include "web_tls.h"

#define ACCEPT_BURST 16                                           /* connections accepted before others are served */
#define PRIORITIES   "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2" /* for GnuTLS */

/* ---- connections ---- */

static void conn_append(struct web *web, struct web_conn *conn)
{
    conn->deadline_ms = clock_ms() + WEB_REQUEST_MS;
    conn->next = &web->conns;
    conn->prev = web->conns.prev;
    conn->prev->next = conn;
    web->conns.prev = conn;
    web->nconns++;
}

static void conn_remove(struct web *web, struct web_conn *conn)
{
    conn->prev->next = conn->next;
    conn->next->prev = conn->prev;
    web->nconns--;
}

/* libmicrohttpd sees the end and closes it; where a scan is waited for, after that. */
static void conn_shut(struct web *web, struct web_conn *conn)
{
    if (conn->shut)
        return;
    conn->shut = true;
    web->counts.closed++;
    shutdown(conn->fd, SHUT_RDWR);
}

static void make_room(struct web *web)
{
    struct web_conn *victim = web->conns.next;
    if (web->nconns < WEB_CONNECTIONS)
        return;
    while (victim != &web->conns && (victim->answering || victim->shut))
        victim = victim->next;
    if (victim != &web->conns)
        conn_shut(web, victim);
    MHD_run(web->http); /* closes it */
}

/* Returns the time until the next one is too late, in ms; INT32_MAX if there is none. */
static int64_t shut_late(struct web *web)
{
    int64_t now_ms = clock_ms();
    for (struct web_conn *conn = web->conns.next; conn != &web->conns; conn = conn->next) {
        if (conn->deadline_ms > now_ms)
            return conn->deadline_ms - now_ms;
        conn_shut(web, conn);
    }
    return INT32_MAX;
}

static bool is_loopback(const struct sockaddr *addr)
{
    if (addr->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)addr)->sin_addr.s_addr) >> 24) == 127;
    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr;
    return addr->sa_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(in6) || (IN6_IS_ADDR_V4MAPPED(in6) && in6->s6_addr[12] == 127));
}

static void on_connection(void *cls, struct MHD_Connection *connection, void **socket_ctx,
                          enum MHD_ConnectionNotificationCode code)
{
    struct web *web = cls;
    struct web_conn *conn = *socket_ctx;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (conn) {
            conn_remove(web, conn);
            free(conn);
        }
        return;
    }
    conn = calloc(1, sizeof(*conn));
    *socket_ctx = conn;
    if (!conn)
        return; /* its requests are refused (web_request.c) */
    conn->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    conn->local = is_loopback(MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr);
    conn_append(web, conn);
}

static void accept_some(struct web *web, int listener)
{
    for (int i = 0; i < ACCEPT_BURST; i++) {
        struct sockaddr_storage addr;
        socklen_t len = sizeof(addr);
        int fd = accept4(listener, (struct sockaddr *)&addr, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        make_room(web);
        (void)MHD_add_connection(web->http, fd, (struct sockaddr *)&addr, len); /* closes it if it cannot */
    }
}

/* ---- the loop ---- */

static int wait_ms(struct web *web, int64_t late_ms)
{
    MHD_UNSIGNED_LONG_LONG http_ms;
    if (MHD_get_timeout(web->http, &http_ms) == MHD_YES && http_ms < (MHD_UNSIGNED_LONG_LONG)late_ms)
        return (int)http_ms;
    return (int)late_ms;
}

static void serve(struct web *web)
{
    struct pollfd fds[WEB_LISTENERS + 2];
    size_t n = web->nlisteners;
    for (size_t i = 0; i < n; i++)
        fds[i] = (struct pollfd){.fd = web->listeners[i].fd, .events = POLLIN};
    fds[n] = (struct pollfd){.fd = web->wake, .events = POLLIN};
    fds[n + 1] =
        (struct pollfd){.fd = MHD_get_daemon_info(web->http, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, .events = POLLIN};
    bool scanned = false; /* then requests may have been resumed, and there may be more to do */
    while (!atomic_load(&web->stop)) {
        int64_t late_ms = shut_late(web);
        if (poll(fds, n + 2, scanned ? 0 : wait_ms(web, late_ms)) > 0) {
            for (size_t i = 0; i < n; i++)
                if (fds[i].revents)
                    accept_some(web, fds[i].fd);
        }
        web_tls_follow(web->tls);
        MHD_run(web->http);
        scanned = scan_step(&web->scans, web->server->registry);
    }
    scan_end_all(&web->scans); /* requests that wait for one cannot be left suspended */
}

static void *web_main(void *arg)
{
    struct web *web = arg;
    thread_begin_background(THREAD_BACKGROUND, "web");
    rcu_reader_begin();
    rcu_reader_offline();
    serve(web);
    MHD_stop_daemon(web->http);
    rcu_reader_end();
    return NULL;
}

/* ---- start and stop ---- */

static int open_listeners(struct web *web, const struct config *config, struct errbuf *err)
{
    char port[8];
    snprintf(port, sizeof(port), "%d", (int)config->metrics_port);
    for (size_t i = 0; i < config->metrics_bind.count; i++) {
        if (web->nlisteners == WEB_LISTENERS) {
            errbuf_set(err, "more than %d addresses in metrics-bind", WEB_LISTENERS);
            return -1;
        }
        struct tcp_socket *listener = &web->listeners[web->nlisteners];
        int status = tcp_bind(config->metrics_bind.items[i], port, listener, err);
        if (status > 0)
            continue;
        if (status < 0)
            return -1;
        web->nlisteners++;
        if (listen(listener->fd, WEB_CONNECTIONS) != 0) {
            errbuf_set(err, "cannot listen on %s: %s", listener->name, strerror(errno));
            return -1;
        }
    }
    if (web->nlisteners > 0)
        return 0;
    errbuf_set(err, "metrics-port is set, but metrics-bind names no address of this machine");
    return -1;
}

static void destroy(struct web *web)
{
    for (size_t i = 0; i < web->nlisteners; i++)
        close(web->listeners[i].fd);
    if (web->wake >= 0)
        close(web->wake);
    metrics_choice_deinit(&web->choice);
    web_tls_destroy(web->tls);
    free(web);
}

static int start_http(struct web *web, struct errbuf *err)
{
    web->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_CERT_CALLBACK, 0, web_tls_callback()},
                                   {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)PRIORITIES},
                                   {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem *options = web->tls ? tls : &tls[2];
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME;
    web->http = MHD_start_daemon(
        web->tls ? flags | MHD_USE_TLS : flags, 0, NULL, NULL, web_on_request, web, MHD_OPTION_NOTIFY_COMPLETED,
        web_on_completed, web, MHD_OPTION_NOTIFY_CONNECTION, on_connection, web, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        WEB_REQUEST_BYTES, MHD_OPTION_CONNECTION_LIMIT, (unsigned)WEB_CONNECTIONS + 1, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    if (web->wake < 0 || !web->http) {
        errbuf_set(err, "the status page: %s", strerror(errno ? errno : ENOMEM));
        return -1;
    }
    int status = pthread_create(&web->thread, NULL, web_main, web);
    if (status)
        errbuf_set(err, "the status page: %s", strerror(status));
    return status ? -1 : 0;
}

int web_start(struct web **web_out, struct server *server, struct errbuf *err)
{
    const struct config *config = server_config(server);
    *web_out = NULL;
    if (config->metrics_port == 0)
        return 0;
    struct web *web = calloc(1, sizeof(*web));
    if (!web) {
        errbuf_set(err, "the status page: %s", strerror(ENOMEM));
        return -1;
    }
    web->server = server;
    web->wake = -1;
    web->conns.prev = web->conns.next = &web->conns;
    if (web_tls_create(&web->tls, server, err) == 0 && open_listeners(web, config, err) == 0 &&
        start_http(web, err) == 0) {
        for (size_t i = 0; i < web->nlisteners; i++)
            log_notice(&server->log, "metrics and status page: http%s://%s/", web->tls ? "s" : "",
                       web->listeners[i].name);
        *web_out = web;
        return 0;
    }
    if (web->http)
        MHD_stop_daemon(web->http);
    destroy(web);
    return -1;
}

void web_stop(struct web *web)
{
    if (!web)
        return;
    uint64_t one = 1;
    atomic_store(&web->stop, true);
    (void)!write(web->wake, &one, sizeof(one));
    pthread_join(web->thread, NULL);
    destroy(web);
}
