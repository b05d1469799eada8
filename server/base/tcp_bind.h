/* tcp_bind: sockets bound to the addresses of settings such as `bind`; addresses of clients. Thread: any. */
#pragma once

#include <stdbool.h>

#include "errbuf.h"

struct sockaddr_storage;

#define TCP_NAME_SIZE 128

struct tcp_socket {
    int fd;                   /* the caller's: nonblocking, bound, not listening yet */
    char name[TCP_NAME_SIZE]; /* "127.0.0.1:6379", "[::1]:6379" */
};

/* Binds a socket to an address: IPv4, IPv6, "*" (all IPv4) or "::*" (all IPv6). With a '-' in front the address is
 * optional. 0; -1 with the reason in `err`; or 1 when this machine does not have the optional address. */
int tcp_bind(const char *address, const char *port, struct tcp_socket *socket_out, struct errbuf *err);

/* Whether an IPv4 or IPv6 address is of this machine alone: 127.0.0.0/8, also mapped into IPv6, and ::1. */
bool tcp_is_loopback(const struct sockaddr_storage *address);
