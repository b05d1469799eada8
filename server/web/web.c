/* The loop of the web thread, and the number and the duration of its connections.
 *
 * A connection that has lasted too long is closed in any state: a client that sends a byte now and then gets no further
 * than one that sends none. When there are too many, the oldest one whose request has not come is closed, so that
 * clients that hold connections open cannot keep others out. */
#include "web.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "rcu.h"
#include "server.h"
#include "thread.h"
#include "web_internal.h"

#define ACCEPT_BURST 16  /* connections accepted before others are served */
#define PAUSE_MS     100 /* without accepting, when there is no descriptor or memory for a connection */

/* ---- connections ---- */

static void close_request(struct web *web, size_t i)
{
    web_conn_free(web->requests[i]);
    web->nrequests--;
    memmove(&web->requests[i], &web->requests[i + 1], (web->nrequests - i) * sizeof(web->requests[0]));
}

/* False: all have requests that are being answered. */
static bool make_room(struct web *web)
{
    size_t i = 0;
    if (web->nrequests < WEB_CONNECTIONS)
        return true;
    web->counts.closed++;
    while (i < web->nrequests && (web->requests[i]->stage == WEB_SCANS || web->requests[i]->stage == WEB_WRITES))
        i++;
    if (i == web->nrequests)
        return false;
    close_request(web, i);
    return true;
}

/* Closes connections that are over or late. Returns the time until the next one is late, in ms; -1 if there is none. */
static int close_late(struct web *web)
{
    int64_t now_ms = clock_ms(), next_ms = INT64_MAX;
    for (size_t i = web->nrequests; i-- > 0;) {
        const struct web_request *request = web->requests[i];
        bool late = request->deadline_ms <= now_ms;
        if (request->stage == WEB_SCANS)
            continue; /* its route has memory that finish() frees */
        if (request->stage == WEB_CLOSES || late) {
            web->counts.closed += request->stage == WEB_READS || request->stage == WEB_WRITES;
            close_request(web, i);
        } else if (request->deadline_ms < next_ms) {
            next_ms = request->deadline_ms;
        }
    }
    return next_ms == INT64_MAX ? -1 : (int)(next_ms - now_ms);
}

/* False: there is no descriptor, or no memory, for a connection. */
static bool accept_some(struct web *web, int listener)
{
    for (int i = 0; i < ACCEPT_BURST; i++) {
        struct sockaddr_storage addr;
        socklen_t len = sizeof(addr);
        int fd = accept4(listener, (struct sockaddr *)&addr, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
        if (!make_room(web)) {
            close(fd);
            continue;
        }
        struct web_request *request = web_conn_open(web, fd, tcp_is_loopback(&addr));
        if (!request)
            return false;
        web->requests[web->nrequests++] = request;
    }
    return true;
}

/* ---- the loop ---- */

/* One turn: waits for `wait_ms` at most, serves all that are ready, and accepts unless `pauses`. False: see above. */
static bool serve_ready(struct web *web, int wait_ms, bool pauses)
{
    struct pollfd fds[1 + WEB_CONNECTIONS + WEB_LISTENERS] = {{.fd = web->wake, .events = POLLIN}};
    size_t nrequests = web->nrequests, n = 1 + nrequests;
    bool accepted = true;
    for (size_t i = 0; i < nrequests; i++) {
        short events = web_conn_events(web->requests[i]);
        fds[1 + i] = (struct pollfd){.fd = events ? web->requests[i]->fd : -1, .events = events};
    }
    for (size_t i = 0; i < web->nlisteners && !pauses; i++)
        fds[n++] = (struct pollfd){.fd = web->listeners[i].fd, .events = POLLIN};
    if (poll(fds, n, wait_ms) <= 0)
        return true;
    for (size_t i = 0; i < nrequests; i++)
        if (fds[1 + i].revents)
            web_conn_step(web->requests[i]);
    for (size_t i = 1 + nrequests; i < n && accepted; i++)
        if (fds[i].revents)
            accepted = accept_some(web, fds[i].fd);
    return accepted;
}

static void serve(struct web *web)
{
    bool scanned = false; /* then there may be more to do */
    int64_t pause_ms = 0; /* until then no connection is accepted */
    while (!atomic_load(&web->stop)) {
        int wait_ms = close_late(web);
        rcu_reader_online();
        int step_ms = history_step(web->history, web->server, clock_ms());
        rcu_reader_offline();
        if (wait_ms < 0 || wait_ms > step_ms)
            wait_ms = step_ms;
        bool pauses = clock_ms() < pause_ms;
        if (pauses && (wait_ms < 0 || wait_ms > PAUSE_MS))
            wait_ms = PAUSE_MS;
        if (!serve_ready(web, scanned ? 0 : wait_ms, pauses))
            pause_ms = clock_ms() + PAUSE_MS;
        scanned = web_scan_step(web);
    }
    while (web->nrequests > 0) {
        struct web_request *last = web->requests[web->nrequests - 1];
        if (last->stage == WEB_SCANS)
            last->pass.finish(last, last->pass.busy_ns); /* frees the route's data for it */
        close_request(web, web->nrequests - 1);
    }
}

static void *web_main(void *arg)
{
    struct web *web = arg;
    thread_begin_background("web");
    rcu_reader_begin();
    rcu_reader_offline();
    serve(web);
    rcu_reader_end();
    return NULL;
}

/* ---- start and stop ---- */

static int open_listeners(struct web *web, const struct config *config, struct errbuf *err)
{
    char port[8];
    snprintf(port, sizeof(port), "%d", (int)config->metrics.port);
    for (size_t i = 0; i < config->metrics.bind.count; i++) {
        if (web->nlisteners == WEB_LISTENERS)
            return errbuf_fail(err, -1, "more than %d addresses in metrics-bind", WEB_LISTENERS);
        struct tcp_socket *listener = &web->listeners[web->nlisteners];
        int status = tcp_bind(config->metrics.bind.items[i], port, listener, err);
        if (status > 0)
            continue;
        if (status < 0)
            return -1;
        web->nlisteners++;
        if (listen(listener->fd, WEB_CONNECTIONS) != 0)
            return errbuf_fail(err, -1, "cannot listen on %s: %s", listener->name, strerror(errno));
    }
    if (web->nlisteners > 0)
        return 0;
    return errbuf_fail(err, -1, "metrics-port is set, but metrics-bind names no address of this machine");
}

static void destroy(struct web *web)
{
    for (size_t i = 0; i < web->nlisteners; i++)
        close(web->listeners[i].fd);
    if (web->wake >= 0)
        close(web->wake);
    metrics_choice_deinit(&web->choice);
    history_destroy(web->history);
    free(web);
}

static int start_thread(struct web *web, struct errbuf *err)
{
    web->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int status = web->wake < 0 ? errno : pthread_create(&web->thread, NULL, web_main, web);
    if (status)
        errbuf_set(err, "the status page: %s", strerror(status));
    return status ? -1 : 0;
}

int web_start(struct web **web_out, struct server *server, struct errbuf *err)
{
    const struct config *config = server_config(server);
    *web_out = NULL;
    if (config->metrics.port == 0)
        return 0;
    struct web *web = calloc(1, sizeof(*web));
    struct history *history = history_create();
    if (!web || !history) {
        free(web);
        history_destroy(history);
        return errbuf_fail(err, -1, "the status page: %s", strerror(ENOMEM));
    }
    web->server = server;
    web->history = history;
    web->wake = -1;
    web->tls = config->metrics.tls;
    if (open_listeners(web, config, err) == 0 && start_thread(web, err) == 0) {
        for (size_t i = 0; i < web->nlisteners; i++)
            log_notice(&server->log, "metrics and status page: http%s://%s/", web->tls ? "s" : "",
                       web->listeners[i].name);
        *web_out = web;
        return 0;
    }
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
