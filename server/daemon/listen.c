/* Listening sockets: TCP addresses of `bind`, and a Unix socket. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "main_loop.h"
#include "tcp_bind.h"

static int add_listener(struct main_loop *ml, int fd, const char *name, bool with_tls, struct errbuf *err)
{
    if (ml->nlisteners == LISTENERS_MAX) {
        errbuf_set(err, "more than %d addresses to listen on", LISTENERS_MAX);
        close(fd);
        return -1;
    }
    struct listener *listener = &ml->listeners[ml->nlisteners];
    if (listen(fd, (int)server_config(ml->server)->network.tcp_backlog) != 0) {
        errbuf_set(err, "cannot listen on %s: %s", name, strerror(errno));
        close(fd);
        return -1;
    }
    listener->fd = fd;
    listener->main_loop = ml;
    listener->with_tls = with_tls;
    snprintf(listener->name, sizeof(listener->name), "%s%s", name, with_tls ? " (TLS)" : "");
    int status = uv_poll_init(&ml->loop, &listener->poll, fd);
    if (status) {
        errbuf_set(err, "cannot listen on %s: %s", name, uv_strerror(status));
        close(fd);
        return -1;
    }
    listener->poll.data = listener;
    ml->nlisteners++;
    return 0;
}

/* One address. 0, -1 with the reason, or 1 when the machine does not have an optional address. */
static int listen_tcp(struct main_loop *ml, const char *address, const char *port, bool with_tls, struct errbuf *err)
{
    struct tcp_socket tcp;
    int status = tcp_bind(address, port, &tcp, err);
    return status ? status : add_listener(ml, tcp.fd, tcp.name, with_tls, err);
}

/* Removes a socket file that a crash has left behind; keeps one with a listener, and any other file. */
static int remove_stale_socket(const struct sockaddr_un *addr, struct errbuf *err)
{
    struct stat st;
    if (lstat(addr->sun_path, &st) != 0)
        return 0;
    if (!S_ISSOCK(st.st_mode)) {
        errbuf_set(err, "unixsocket %s exists and is not a socket", addr->sun_path);
        return -1;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool used = fd >= 0 && connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0;
    if (fd >= 0)
        close(fd);
    if (used) {
        errbuf_set(err, "unixsocket %s is in use by another process", addr->sun_path);
        return -1;
    }
    unlink(addr->sun_path);
    return 0;
}

static int listen_unix(struct main_loop *ml, const char *path, mode_t mode, struct errbuf *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(addr.sun_path)) {
        errbuf_set(err, "unixsocket %s: the path has more than %zu bytes", path, sizeof(addr.sun_path) - 1);
        return -1;
    }
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

/* All addresses of `bind`. *port_out: the port, if there is any of them. */
static int listen_port(struct main_loop *ml, int number, bool with_tls, int *port_out, struct errbuf *err)
{
    const struct config *config = server_config(ml->server);
    char port[16];
    snprintf(port, sizeof(port), "%d", number);
    for (size_t i = 0; number && i < config->network.bind.count; i++) {
        int status = listen_tcp(ml, config->network.bind.items[i], port, with_tls, err);
        if (status < 0)
            return -1;
        if (status == 0)
            *port_out = number;
    }
    return 0;
}

int main_loop_listen(struct main_loop *ml, struct errbuf *err)
{
    const struct config *config = server_config(ml->server);
    struct process_facts *process = &ml->server->process;
    if (listen_port(ml, (int)config->network.port, false, &process->port, err) != 0 ||
        listen_port(ml, (int)config->tls.port, true, &process->tls_port, err) != 0)
        return -1;
    if (config->network.unixsocket[0] &&
        listen_unix(ml, config->network.unixsocket, (mode_t)config->network.unixsocketperm, err) != 0)
        return -1;
    if (ml->nlisteners == 0) {
        errbuf_set(err, "there is nothing to listen on: set 'port' or 'tls-port', and 'bind', or 'unixsocket'");
        return -1;
    }
    return 0;
}
