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

/* Whether the port is shared with sockets that share it as well (tcp_share()). */
enum tcp_sharing { TCP_ALONE, TCP_SHARED };

/* Binds a socket to an address: IPv4, IPv6, "*" (all IPv4) or "::*" (all IPv6). With a '-' in front the address is
 * optional. 0; -1 with the reason in `err`; or 1 when this machine does not have the optional address. */
int tcp_bind(const char *address, const char *port, enum tcp_sharing sharing, struct tcp_socket *socket_out,
             struct errbuf *err);

/* Shares a socket's port with this user's shared ones, or ends that: checked when a socket is bound and listens. */
void tcp_share(int fd, bool yes);

/* The name of a socket with this address and port. */
void tcp_name(const char *address, const char *port, char name_out[TCP_NAME_SIZE]);

/* Whether an IPv4 or IPv6 address is of this machine alone: 127.0.0.0/8, also mapped into IPv6, and ::1. */
bool tcp_is_loopback(const struct sockaddr_storage *address);
