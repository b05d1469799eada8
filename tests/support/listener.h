/* listener: a socket that waits for a test's client. accept() and the reads of its connections end after 60 s with
 * EAGAIN, so that a client that never comes fails its test instead of holding it up. */
#pragma once

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

/* On a free port of 127.0.0.1. */
static inline int listener_open(int *port_out)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = 60};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, len), 0);
    cr_assert_eq(listen(fd, 8), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    *port_out = ntohs(address.sin_port);
    return fd;
}
