/* What the kernel and a load generator leave of a machine: a server that does nothing but receive, count the commands
 * by their '*', and send as many ":1\r\n". One thread, epoll, one recv and one send per readable connection. Any server
 * that reads and answers over sockets has these costs; what is above them is its own. scripts/bench runs it beside the
 * real ones. It is not RESP: whoever sends a '*' within an argument gets one reply too many.
 *
 *   bench_floor PORT     listens on 127.0.0.1 until it is killed */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define INPUT_SIZE (64 * 1024)
#define EVENTS     128

static char input[INPUT_SIZE];
static char output[INPUT_SIZE * 4]; /* one reply per byte at most */

static int fail(const char *what)
{
    perror(what);
    return 1;
}

static int watch(int epoll, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static void take_client(int epoll, int listener)
{
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (watch(epoll, fd) != 0)
        close(fd);
}

/* The load generator asks for INFO before and after a run: how much CPU the server has used. */
static size_t answer_info(char *out, size_t size)
{
    struct rusage usage;
    char text[160];
    getrusage(RUSAGE_SELF, &usage);
    int len = snprintf(text, sizeof(text), "used_cpu_sys:%ld.%06ld\r\nused_cpu_user:%ld.%06ld\r\n",
                       (long)usage.ru_stime.tv_sec, (long)usage.ru_stime.tv_usec, (long)usage.ru_utime.tv_sec,
                       (long)usage.ru_utime.tv_usec);
    return (size_t)snprintf(out, size, "$%d\r\n%s\r\n", len, text);
}

static size_t count_commands(const char *bytes, size_t len)
{
    size_t count = 0;
    for (size_t i = 0; i < len; i++) /* gcc makes vector instructions of it */
        count += bytes[i] == '*';
    return count;
}

static void serve(int fd)
{
    static char info[512];
    ssize_t n = recv(fd, input, sizeof(input), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        close(fd);
        return;
    }
    static const char question[] = "*2\r\n$4\r\nINFO\r\n";
    const char *reply = output;
    size_t len = 4 * count_commands(input, (size_t)n);
    if ((size_t)n >= sizeof(question) - 1 && memcmp(input, question, sizeof(question) - 1) == 0) {
        reply = info;
        len = answer_info(info, sizeof(info));
    }
    if (send(fd, reply, len, MSG_NOSIGNAL) != (ssize_t)len)
        close(fd); /* nobody who reads what he asked for gets here */
}

int main(int argc, char **argv)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), epoll = epoll_create1(EPOLL_CLOEXEC), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event events[EVENTS];
    unsigned long port = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
    if (port == 0 || port > 65535) {
        fprintf(stderr, "usage: bench_floor PORT\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof(output); i += 4)
        memcpy(output + i, ":1\r\n", 4);
    address.sin_port = htons((uint16_t)port);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(listener, 512) != 0)
        return fail("bench_floor: cannot listen");
    if (watch(epoll, listener) != 0)
        return fail("bench_floor: epoll");
    for (;;) {
        int n = epoll_wait(epoll, events, EVENTS, -1);
        if (n < 0 && errno != EINTR)
            return fail("bench_floor: epoll");
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener)
                take_client(epoll, listener);
            else
                serve(events[i].data.fd);
        }
    }
}
