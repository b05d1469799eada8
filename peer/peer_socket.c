/* Connects to an address within a time limit. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "peer_internal.h"

#define CANCEL_POLL_MS 100 /* the interval at which a wait checks for a cancellation */

int peer_wait(int fd, short events, const struct peer_limit *limit)
{
    struct pollfd polled = {.fd = fd, .events = events};
    for (;;) {
        int64_t left = limit->end_ms - clock_ms();
        if (limit->cancelled && atomic_load_explicit(limit->cancelled, memory_order_relaxed))
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
static int connect_socket(int family, const struct sockaddr *address, socklen_t len, const struct peer_limit *limit)
{
    int error = 0, fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t error_len = sizeof(error);
    if (fd < 0)
        return -errno;
    int status = connect(fd, address, len) == 0 ? 0 : -errno;
    if (status == -EINPROGRESS) {
        status = peer_wait(fd, POLLOUT, limit);
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

static int connect_unix(const char *path, const struct peer_limit *limit, struct errbuf *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path)) {
        errbuf_set(err, "the socket's path is longer than %zu bytes", sizeof(address.sun_path) - 1);
        return -ENAMETOOLONG;
    }
    strcpy(address.sun_path, path);
    int fd = connect_socket(AF_UNIX, (const struct sockaddr *)&address, sizeof(address), limit);
    if (fd < 0)
        errbuf_set(err, "cannot connect to %s: %s", path, strerror(-fd));
    return fd;
}

/* Tries one address after the other. Each gets an equal share of the time left, because the first may be silent. */
static int connect_one_of(const struct addrinfo *list, const struct peer_limit *limit)
{
    int fd = -EHOSTUNREACH;
    int64_t addresses = 0;
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        addresses++;
    for (const struct addrinfo *a = list; a && fd < 0 && fd != -ECANCELED; a = a->ai_next, addresses--) {
        struct peer_limit part = *limit;
        part.end_ms -= (limit->end_ms - clock_ms()) * (addresses - 1) / addresses;
        fd = connect_socket(a->ai_family, a->ai_addr, a->ai_addrlen, &part);
    }
    return fd;
}

static int connect_tcp(const struct peer_address *address, const struct peer_limit *limit, struct errbuf *err)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    int one = 1, gai = getaddrinfo(address->host, address->port, &hints, &list);
    if (gai != 0) {
        errbuf_set(err, "cannot find %s: %s", address->host, gai_strerror(gai));
        return -EHOSTUNREACH;
    }
    int fd = connect_one_of(list, limit);
    freeaddrinfo(list);
    if (fd < 0)
        errbuf_set(err, "cannot connect to %s port %s: %s", address->host, address->port, strerror(-fd));
    else
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

int peer_socket(const struct peer_address *address, const struct peer_limit *limit, struct errbuf *err)
{
    return address->unixpath ? connect_unix(address->unixpath, limit, err) : connect_tcp(address, limit, err);
}
