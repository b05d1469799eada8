#include "tcp_bind.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void write_name(const char *address, const char *port, char name_out[TCP_NAME_SIZE])
{
    const char *host = address + (address[0] == '-');
    snprintf(name_out, TCP_NAME_SIZE, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

int tcp_bind(const char *address, const char *port, struct tcp_socket *socket_out, struct errbuf *err)
{
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *ai;
    bool optional = address[0] == '-';
    const char *host = address + optional, *node = host;
    if (strcmp(host, "*") == 0) {
        hints.ai_family = AF_INET;
        node = NULL;
    } else if (strcmp(host, "::*") == 0) {
        hints.ai_family = AF_INET6;
        node = NULL;
    }
    char *name = socket_out->name;
    write_name(address, port, name);
    int status = getaddrinfo(node, port, &hints, &ai);
    if (status)
        return errbuf_fail(err, optional ? 1 : -1, "cannot listen on %s: %s", name, gai_strerror(status));
    int one = 1, cause = 0;
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (ai->ai_family == AF_INET6)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    }
    if (fd < 0 || bind(fd, ai->ai_addr, ai->ai_addrlen) != 0)
        cause = errno;
    freeaddrinfo(ai);
    if (cause) {
        errbuf_set(err, "cannot listen on %s: %s", name, strerror(cause));
        if (fd >= 0)
            close(fd);
        bool absent = cause == EADDRNOTAVAIL || cause == EAFNOSUPPORT || cause == EPROTONOSUPPORT || cause == ENOTSUP;
        return optional && absent ? 1 : -1;
    }
    socket_out->fd = fd;
    return 0;
}

bool tcp_is_loopback(const struct sockaddr_storage *address)
{
    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    if (address->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
    return address->ss_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(in6) || (IN6_IS_ADDR_V4MAPPED(in6) && in6->s6_addr[12] == 127));
}
