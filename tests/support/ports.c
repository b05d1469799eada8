#include "ports.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST = 2000, COUNT = 10000, HELD = 64 }; /* below those of ports.py */

static int held[HELD]; /* sockets + 1 */
static unsigned asked;

/* Takes the name until the process ends or the socket is closed; -1 if it is taken. */
static int take_name(int port)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int len = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "bloomery-test-port-%d", port);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_geq(fd, 0);
    if (bind(fd, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool is_free(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    cr_assert_geq(fd, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); /* as servers do: ended connections are no hindrance */
    bool is = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    close(fd);
    return is;
}

int port_claim(void)
{
    static unsigned next;

    if (asked == 0)
        next = (unsigned)getpid() * 32;
    for (unsigned tries = 0; tries < COUNT; tries++) {
        int port = FIRST + (int)(next++ % COUNT), fd = take_name(port);
        if (fd < 0)
            continue;
        if (!is_free(port)) {
            close(fd);
            continue;
        }
        int *slot = &held[asked++ % HELD];
        if (*slot)
            close(*slot - 1);
        *slot = fd + 1;
        return port;
    }
    cr_assert_fail("no port from %d to %d is free", FIRST, FIRST + COUNT - 1);
    return 0;
}
