/* The capacity that the kernel and a load generator leave of a machine: a server that only receives, counts the
 * commands by their '*', and sends as many ":1\r\n". One thread, epoll, one recv and one send per readable connection.
 * Any server that reads and answers over sockets has these costs; all others are its own. scripts/bench runs it beside
 * the real ones. It is not RESP: a '*' within an argument yields one reply too many.
 *
 * With a FILE it is the floor of a log that is synced before each reply, in the simplest way: it receives from all
 * readable clients, writes as many bytes as Bloomery's log takes, waits for fdatasync(), and sends to all of them. The
 * file has all its blocks beforehand and is written to in a circle, which is the least work for a file system.
 *
 *   bench_floor PORT [FILE]     listens on 127.0.0.1 until it is killed */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
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
#define LOG_SIZE   (64 * 1024 * 1024)
#define LOG_RECORD 17 /* bytes of Bloomery's log per added item */

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

/* The load generator requests INFO before and after a run: the CPU time of the server. */
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
    for (size_t i = 0; i < len; i++) /* gcc vectorises it */
        count += bytes[i] == '*';
    return count;
}

/* 0: there is nothing to send. */
static size_t receive(int fd)
{
    ssize_t n = recv(fd, input, sizeof(input), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        close(fd);
        return 0;
    }
    static const char question[] = "*2\r\n$4\r\nINFO\r\n";
    if ((size_t)n < sizeof(question) - 1 || memcmp(input, question, sizeof(question) - 1) != 0)
        return count_commands(input, (size_t)n);
    static char info[512];
    size_t len = answer_info(info, sizeof(info));
    if (send(fd, info, len, MSG_NOSIGNAL) != (ssize_t)len)
        close(fd);
    return 0;
}

static void answer(int fd, size_t commands)
{
    size_t len = commands * 4;
    if (len && send(fd, output, len, MSG_NOSIGNAL) != (ssize_t)len)
        close(fd); /* a client that reads its replies does not get here */
}

/* ---- the log ---- */

static int make_log(const char *path)
{
    static char zeros[1024 * 1024];
    int log = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (off_t at = 0; log >= 0 && at < LOG_SIZE; at += (off_t)sizeof(zeros))
        if (pwrite(log, zeros, sizeof(zeros), at) != (ssize_t)sizeof(zeros))
            return -1;
    return log >= 0 && fsync(log) == 0 ? log : -1;
}

static int sync_commands(int log, size_t commands)
{
    static char records[INPUT_SIZE * LOG_RECORD];
    static off_t at;
    size_t len = commands * LOG_RECORD < sizeof(records) ? commands * LOG_RECORD : sizeof(records);
    if (at + (off_t)len > LOG_SIZE)
        at = 0;
    if (pwrite(log, records, len, at) != (ssize_t)len)
        return -1;
    at += (off_t)len;
    return fdatasync(log);
}

/* ---- the loop ---- */

static int serve(int epoll, int listener, int log)
{
    struct epoll_event events[EVENTS];
    size_t commands[EVENTS], all = 0;
    int n = epoll_wait(epoll, events, EVENTS, -1);
    if (n < 0 && errno != EINTR)
        return fail("bench_floor: epoll");
    for (int i = 0; i < n; i++) {
        commands[i] = 0;
        if (events[i].data.fd == listener)
            take_client(epoll, listener);
        else
            commands[i] = receive(events[i].data.fd);
        all += commands[i];
        if (log < 0)
            answer(events[i].data.fd, commands[i]);
    }
    if (log < 0 || all == 0)
        return 0;
    if (sync_commands(log, all) != 0)
        return fail("bench_floor: log");
    for (int i = 0; i < n; i++)
        answer(events[i].data.fd, commands[i]);
    return 0;
}

int main(int argc, char **argv)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), epoll = epoll_create1(EPOLL_CLOEXEC), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    unsigned long port = argc == 2 || argc == 3 ? strtoul(argv[1], NULL, 10) : 0;
    if (port == 0 || port > 65535) {
        fprintf(stderr, "usage: bench_floor PORT [FILE]\n");
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
    int log = argc == 3 ? make_log(argv[2]) : -1;
    if (argc == 3 && log < 0)
        return fail("bench_floor: log");
    while (serve(epoll, listener, log) == 0)
        ;
    return 1;
}
