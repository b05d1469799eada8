
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "main_loop.h"
#include "memory_use.h"
#include "tcp_bind.h"
#include "worker.h"

#define ACCEPT_BURST 64 /* connections accepted before other events */

struct listener {
    struct listener *next;
    uv_poll_t poll;
    struct main_loop *main_loop;
    int fd;
    bool with_tls;
    char name[128]; /* "127.0.0.1:6379", "[::1]:6380" or the path of a Unix socket */
};

/* ---- accepting ---- */

/* The worker with the fewest connections, so that they stay evenly spread while clients come and go. */
static struct worker *least_loaded(struct server *server)
{
    struct worker *best = server->threads.workers[0];
    for (unsigned i = 1; i < server->threads.nworkers; i++)
        if (worker_nconns(server->threads.workers[i]) < worker_nconns(best))
            best = server->threads.workers[i];
    return best;
}

/* Takes up to `most` connections. False when none can be taken: the event would come back at once, again and again. */
static bool accept_some(struct listener *listener, int64_t most)
{
    struct server *server = listener->main_loop->server;
    for (int64_t i = 0; i < most; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        if (fd < 0) { /* out of descriptors or memory */
            log_limited(&server->log, &server->log.limits.accept, clock_ms(), LOG_LEVEL_WARNING,
                        "cannot accept a connection on %s: %s", listener->name, strerror(errno));
            return false;
        }
        if (worker_post_connection(least_loaded(server), fd, listener->with_tls) != 0 &&
            (!memory_reserve_spend(server) ||
             worker_post_connection(least_loaded(server), fd, listener->with_tls) != 0))
            close(fd);
    }
    return true;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = poll->data;
    (void)status, (void)events;
    if (!accept_some(listener, ACCEPT_BURST))
        listen_accept(listener->main_loop, false);
}

void listen_accept(struct main_loop *ml, bool yes)
{
    ml->accepting = yes;
    for (struct listener *listener = ml->listeners; listener; listener = listener->next) {
        if (yes)
            uv_poll_start(&listener->poll, UV_READABLE, on_connection);
        else
            uv_poll_stop(&listener->poll);
    }
}

/* ---- opening and closing ---- */

static void free_listener(uv_handle_t *handle)
{
    free(handle->data);
}

static void close_first(struct listener **link)
{
    struct listener *listener = *link;
    *link = listener->next;
    uv_close((uv_handle_t *)&listener->poll, free_listener);
    close(listener->fd);
}

/* Takes the socket, bound, over and listens. Appends, so that the names keep the order of the settings. */
static int add_listener(struct main_loop *ml, int fd, const char *name, bool with_tls, struct errbuf *err)
{
    struct listener *listener = calloc(1, sizeof(*listener)), **link = &ml->listeners;
    int status = listener ? 0 : -ENOMEM;
    if (status == 0 && listen(fd, (int)server_config(ml->server)->network.tcp_backlog) != 0)
        status = -errno;
    STEP(status, uv_poll_init(&ml->loop, &listener->poll, fd));
    if (status) {
        errbuf_set(err, "cannot listen on %s: %s", name, strerror(-status));
        close(fd);
        free(listener);
        return -1;
    }
    listener->fd = fd;
    listener->main_loop = ml;
    listener->with_tls = with_tls;
    listener->poll.data = listener;
    snprintf(listener->name, sizeof(listener->name), "%s", name);
    while (*link)
        link = &(*link)->next;
    *link = listener;
    return 0;
}

/* Removes a socket file that a crash has left behind; keeps one with a listener, and any other file. */
static int remove_stale_socket(const struct sockaddr_un *addr, struct errbuf *err)
{
    struct stat st;
    if (lstat(addr->sun_path, &st) != 0)
        return 0;
    if (!S_ISSOCK(st.st_mode))
        return errbuf_fail(err, -1, "unixsocket %s exists and is not a socket", addr->sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool used = fd >= 0 && connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0;
    if (fd >= 0)
        close(fd);
    if (used)
        return errbuf_fail(err, -1, "unixsocket %s is in use by another process", addr->sun_path);
    unlink(addr->sun_path);
    return 0;
}

static int listen_unix(struct main_loop *ml, const char *path, mode_t mode, struct errbuf *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(addr.sun_path))
        return errbuf_fail(err, -1, "unixsocket %s: the path has more than %zu bytes", path, sizeof(addr.sun_path) - 1);
    strcpy(addr.sun_path, path);
    if (remove_stale_socket(&addr, err) != 0)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
        errbuf_set(err, "cannot listen on unixsocket %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    ml->unixsocket = strdup(path);
    if (mode && chmod(path, mode) != 0) {
        errbuf_set(err, "cannot set the permissions of unixsocket %s: %s", path, strerror(errno));
        close(fd);
        return -1;
    }
    return add_listener(ml, fd, path, false, err);
}

/* ---- the listeners of settings ---- */

static struct listener *find(struct main_loop *ml, const char *name, bool with_tls)
{
    struct listener *listener = ml->listeners;
    while (listener && (listener->with_tls != with_tls || strcmp(listener->name, name) != 0))
        listener = listener->next;
    return listener;
}

static bool has_address(const struct config *config, int64_t number, const char *name)
{
    char port[16], address[TCP_NAME_SIZE];
    snprintf(port, sizeof(port), "%d", (int)number);
    for (size_t i = 0; number && i < config->network.bind.count; i++) {
        tcp_name(config->network.bind.items[i], port, address);
        if (strcmp(address, name) == 0)
            return true;
    }
    return false;
}

static bool is_wanted(const struct config *config, const struct listener *listener)
{
    return has_address(config, listener->with_tls ? config->tls.port : config->network.port, listener->name) ||
           (!listener->with_tls && strcmp(listener->name, config->network.unixsocket) == 0);
}

/* Shares the sockets of this port that these settings no longer want. Returns whether there is one. */
static bool share_unwanted(struct main_loop *ml, const struct config *config, const char *port, bool yes)
{
    bool any = false;
    for (struct listener *listener = ml->listeners; listener; listener = listener->next) {
        const char *colon = strrchr(listener->name, ':');
        if (is_wanted(config, listener) || !colon || strcmp(colon + 1, port) != 0)
            continue;
        tcp_share(listener->fd, yes);
        any = true;
    }
    return any;
}

static int bind_and_listen(struct main_loop *ml, const char *address, const char *port, enum tcp_sharing sharing,
                           bool with_tls, struct errbuf *err)
{
    struct tcp_socket tcp;
    int status = tcp_bind(address, port, sharing, &tcp, err);
    STEP(status, add_listener(ml, tcp.fd, tcp.name, with_tls, err));
    if (status == 0 && sharing == TCP_SHARED)
        tcp_share(tcp.fd, false);
    return status;
}

/* One address. 0, -1 with the reason, or 1 when the machine does not have an optional address. The kernel gives an
 * address to two sockets if both share their port. Only sockets that will be closed share it, and one new socket until
 * it listens. So "*" takes over from "127.0.0.1" without a gap, and an address of another process, or an address named
 * twice, is in use. */
static int listen_tcp(struct main_loop *ml, const struct config *config, const char *address, const char *port,
                      bool with_tls, struct errbuf *err)
{
    char name[TCP_NAME_SIZE];
    tcp_name(address, port, name);
    if (find(ml, name, with_tls))
        return 0;
    int status = bind_and_listen(ml, address, port, TCP_ALONE, with_tls, err);
    if (status < 0 && share_unwanted(ml, config, port, true)) {
        status = bind_and_listen(ml, address, port, TCP_SHARED, with_tls, err);
        (void)share_unwanted(ml, config, port, false);
    }
    return status;
}

/* All addresses of `bind`, without optional ones that the machine does not have. */
static int listen_port(struct main_loop *ml, const struct config *config, int64_t number, bool with_tls,
                       struct errbuf *err)
{
    char port[16];
    snprintf(port, sizeof(port), "%d", (int)number);
    for (size_t i = 0; number && i < config->network.bind.count; i++)
        if (listen_tcp(ml, config, config->network.bind.items[i], port, with_tls, err) < 0)
            return -1;
    return 0;
}

int listen_open(struct main_loop *ml, const struct config *config, struct errbuf *err)
{
    const struct config_network *network = &config->network;
    struct listener **added = &ml->listeners;
    int status = -1;
    while (*added)
        added = &(*added)->next;
    if (listen_port(ml, config, network->port, false, err) == 0 &&
        listen_port(ml, config, config->tls.port, true, err) == 0 &&
        (!network->unixsocket[0] || find(ml, network->unixsocket, false) ||
         listen_unix(ml, network->unixsocket, (mode_t)network->unixsocketperm, err) == 0))
        status = 0;
    const struct listener *wanted = ml->listeners;
    while (wanted && !is_wanted(config, wanted))
        wanted = wanted->next;
    if (status == 0 && !wanted) {
        errbuf_set(err, "nothing to listen on: set 'port' or 'tls-port', and 'bind', or 'unixsocket'");
        status = -1;
    }
    while (status != 0 && *added)
        close_first(added);
    return status;
}

void listen_settle(struct main_loop *ml)
{
    const struct config *config = server_config(ml->server);
    struct process_facts *process = &ml->server->process;
    int64_t port = 0, tls_port = 0;
    for (struct listener **link = &ml->listeners; *link;) {
        const struct listener *listener = *link;
        if (is_wanted(config, listener)) {
            if (listener->with_tls)
                tls_port = config->tls.port;
            else if (strcmp(listener->name, config->network.unixsocket) != 0)
                port = config->network.port;
            link = &(*link)->next;
        } else {
            (void)accept_some(*link, config->network.tcp_backlog + 1); /* all that wait, as the kernel counts them */
            close_first(link);
        }
    }
    atomic_store(&process->port, (int)port);
    atomic_store(&process->tls_port, (int)tls_port);
    listen_accept(ml, ml->accepting);
}

void listen_names(const struct main_loop *ml, char *text_out, size_t size)
{
    size_t used = 0;
    text_out[0] = '\0';
    for (const struct listener *listener = ml->listeners; listener && used < size; listener = listener->next)
        used += (size_t)snprintf(text_out + used, size - used, "%s%s%s", used ? ", " : "", listener->name,
                                 listener->with_tls ? " (TLS)" : "");
}

void listen_close(struct main_loop *ml)
{
    while (ml->listeners)
        close_first(&ml->listeners);
    if (ml->unixsocket)
        unlink(ml->unixsocket);
    free(ml->unixsocket);
}
