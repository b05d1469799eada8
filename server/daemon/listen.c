
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

/* Takes up to ACCEPT_BURST connections. False when none can be taken: the event would come back at once, again and
 * again. */
static bool accept_some(struct listener *listener)
{
    struct server *server = listener->main_loop->server;
    for (int i = 0; i < ACCEPT_BURST; i++) {
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
        if (worker_post_connection(least_loaded(server), fd, listener->with_tls) != 0)
            close(fd);
    }
    return true;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = poll->data;
    (void)status, (void)events;
    if (!accept_some(listener))
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

/* All addresses of `bind`, without optional ones that the machine does not have. The number of them, or -1. */
static int listen_port(struct main_loop *ml, int64_t number, bool with_tls, struct errbuf *err)
{
    const struct config_list *addresses = &server_config(ml->server)->network.bind;
    char port[16];
    int n = 0;
    snprintf(port, sizeof(port), "%d", (int)number);
    for (size_t i = 0; number && i < addresses->count; i++) {
        struct tcp_socket tcp;
        int status = tcp_bind(addresses->items[i], port, &tcp, err);
        STEP(status, add_listener(ml, tcp.fd, tcp.name, with_tls, err));
        if (status < 0)
            return -1;
        n += status == 0;
    }
    return n;
}

int listen_open(struct main_loop *ml, struct errbuf *err)
{
    const struct config *config = server_config(ml->server);
    const struct config_network *network = &config->network;
    struct process_facts *process = &ml->server->process;
    int tcp = listen_port(ml, network->port, false, err);
    int tls = tcp < 0 ? -1 : listen_port(ml, config->tls.port, true, err);
    if (tls < 0)
        return -1;
    if (network->unixsocket[0] && listen_unix(ml, network->unixsocket, (mode_t)network->unixsocketperm, err) != 0)
        return -1;
    if (!ml->listeners)
        return errbuf_fail(err, -1, "nothing to listen on: set 'port' or 'tls-port', and 'bind', or 'unixsocket'");
    process->port = tcp ? (int)network->port : 0;
    process->tls_port = tls ? (int)config->tls.port : 0;
    return 0;
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
    for (struct listener *listener = ml->listeners, *next; listener; listener = next) {
        next = listener->next;
        uv_close((uv_handle_t *)&listener->poll, free_listener);
        close(listener->fd);
    }
    ml->listeners = NULL;
    if (ml->unixsocket)
        unlink(ml->unixsocket);
    free(ml->unixsocket);
}
