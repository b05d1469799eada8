/* Sockets: a connection to an address within a time limit. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "peer_internal.h"

#define CANCEL_POLL_MS 100 /* a wait looks so often whether it is cancelled */

int64_t peer_now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int peer_wait(int fd, short events, int64_t timeout_ms, const atomic_bool *cancelled)
{
    struct pollfd polled = {.fd = fd, .events = events};
    int64_t end = peer_now_ms() + timeout_ms;
    for (;;) {
        int64_t left = end - peer_now_ms();
        if (cancelled && atomic_load_explicit(cancelled, memory_order_relaxed))
            return -ECANCELED;
        if (left <= 0)
            return -ETIMEDOUT;
        if (left > CANCEL_POLL_MS)
            left = CANCEL_POLL_MS;
        int n = poll(&polled, 1, (int)left);
        if (n > 0)
            return polled.revents;
        if (n < 0 && errno != EINTR)
            return -errno;
    }
}

/* Connects a new socket. The socket, or -errno. */
static int connect_socket(int family, const struct sockaddr *address, socklen_t len, int64_t timeout_ms,
                          const atomic_bool *cancelled)
{
    int error = 0, fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t error_len = sizeof(error);
    if (fd < 0)
        return -errno;
    int status = connect(fd, address, len) == 0 ? 0 : -errno;
    if (status == -EINPROGRESS) {
        status = peer_wait(fd, POLLOUT, timeout_ms, cancelled);
        if (status > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_len) != 0)
            status = -errno;
        else if (status > 0)
            status = -error;
    }
    if (status == 0)
        return fd;
    close(fd);
    return status;
}

static int connect_unix(const char *path, int64_t timeout_ms, const atomic_bool *cancelled, struct errbuf *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path)) {
        errbuf_set(err, "the socket's path is longer than %zu bytes", sizeof(address.sun_path) - 1);
        return -ENAMETOOLONG;
    }
    strcpy(address.sun_path, path);
    int fd = connect_socket(AF_UNIX, (const struct sockaddr *)&address, sizeof(address), timeout_ms, cancelled);
    if (fd < 0)
        errbuf_set(err, "cannot connect to %s: %s", path, strerror(-fd));
    return fd;
}

static int connect_tcp(const struct peer_address *address, int64_t timeout_ms, const atomic_bool *cancelled,
                       struct errbuf *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    int one = 1, fd = -EHOSTUNREACH, status = getaddrinfo(address->host, address->port, &hints, &list);
    if (status != 0) {
        errbuf_set(err, "cannot find %s: %s", address->host, gai_strerror(status));
        return -EHOSTUNREACH;
    }
    for (const struct addrinfo *a = list; a && fd < 0 && fd != -ECANCELED; a = a->ai_next)
        fd = connect_socket(a->ai_family, a->ai_addr, a->ai_addrlen, timeout_ms, cancelled);
    freeaddrinfo(list);
    if (fd < 0)
        errbuf_set(err, "cannot connect to %s port %s: %s", address->host, address->port, strerror(-fd));
    else
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

int peer_socket(const struct peer_address *address, int64_t timeout_ms, const atomic_bool *cancelled,
                struct errbuf *err)
{
    return address->unixpath ? connect_unix(address->unixpath, timeout_ms, cancelled, err)
                             : connect_tcp(address, timeout_ms, cancelled, err);
}
