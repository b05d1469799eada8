/* Under appendfsync always no reply to a write leaves before the disk has it, with any other events of the loop. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "disk_control.h"
#include "tmpdir.h"
#include "wire.h"

#define CROWD 1300 /* more than libuv gets from the kernel at a time: then it asks again, in the same iteration */
#define PIECE 65536

DISK_SUITE(the_daemon, log_replies);

static int connect_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert(fd >= 0 && strlen(path) < sizeof(address.sun_path));
    strcpy(address.sun_path, path);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void send_all(int fd, const char *text, size_t len)
{
    cr_assert_eq(send(fd, text, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* Until the daemon has read all sent bytes. */
static void wait_until_read(int fd)
{
    int unread = 1;

    while (unread)
        cr_assert_eq(ioctl(fd, TIOCOUTQ, &unread), 0);
}

static bool some_stay(redisContext *other)
{
    const char *line = strstr(client_ask(other, "CLIENT LIST"), " name=slow ");

    cr_assert_not_null(line);
    return strtol(strstr(line, " omem=") + strlen(" omem="), NULL, 10) > 0;
}

/* Sends queries without reading the replies until some stay in the daemon. Returns the size of all replies. */
static size_t fill(int fd, redisContext *other)
{
    static char command[PIECE + 64], reply[64];
    size_t len = (size_t)sprintf(command, "*2\r\n$4\r\nECHO\r\n$%d\r\n", PIECE), total = 0;

    memset(command + len, 'e', PIECE);
    memcpy(command + len + PIECE, "\r\n", 3);
    do {
        send_all(fd, command, len + PIECE + 2);
        wait_until_read(fd);
        total += (size_t)sprintf(reply, "$%d\r\n", PIECE) + PIECE + 2;
        expect(other, "+PONG", "PING"); /* the iteration has ended */
    } while (!some_stay(other));
    return total;
}

struct taken {
    size_t bytes;
    char tail[4]; /* the last of them */
};

/* Takes the bytes available now. False: none. */
static bool take(int fd, struct taken *taken)
{
    static char bytes[1 << 20];
    ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    for (ssize_t i = n < 4 ? 0 : n - 4; i < n; i++) {
        memmove(taken->tail, taken->tail + 1, sizeof(taken->tail) - 1);
        taken->tail[3] = bytes[i];
    }
    taken->bytes += n > 0 ? (size_t)n : 0;
    return n > 0;
}

static void stop_the_daemon(void)
{
    int status;

    cr_assert_eq(kill(the_daemon.pid, SIGSTOP), 0);
    cr_assert_eq(waitpid(the_daemon.pid, &status, WUNTRACED), the_daemon.pid);
    cr_assert(WIFSTOPPED(status));
}

/* The daemon reads a client's command, and the client reads the replies in its way: the loop, with more events than
 * it gets at a time, learns in the same iteration that the client is writable. The reply is not due yet. */
DAEMON_TEST(the_daemon, log_replies, wait_for_the_disk_when_a_client_becomes_writable_in_the_iteration_of_its_write)
{
    static struct wire crowd[CROWD];
    struct rlimit limit;
    struct taken taken = {0};
    char query[3000] = "BF.MEXISTS f";
    size_t before;

    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < CROWD + 200)
        cr_skip_test("not enough descriptors");
    disk_attach();
    daemon_prepare(&the_daemon);
    struct tmp_path path = tmp_path(the_daemon.dir, "socket");
    const char *const args[] = {
        "--threads", "1", "--appendfsync", "always", "--reply-buffer-high-water", "16mb", "--unixsocket",
        path.text,   NULL};
    redisContext *other = client_start(&the_daemon, args);
    expect(other, ":1", "BF.ADD f old");
    for (int i = 0; i < CROWD; i++)
        wire_open(&crowd[i], the_daemon.port);
    while (strlen(query) < sizeof(query) - 20)
        strcat(query, " anything");
    strcat(query, "\r\n");

    int slow = connect_unix(path.text);
    send_all(slow, "CLIENT SETNAME slow\r\n", 21);
    before = strlen("+OK\r\n") + fill(slow, other);
    disk->hold_syncs = 1;
    stop_the_daemon();
    send_all(slow, "BF.ADD f new\r\n", 14);
    for (int i = 0; i < CROWD; i++)
        cr_assert(wire_send_text(&crowd[i], query));
    cr_assert_eq(kill(the_daemon.pid, SIGCONT), 0);
    wait_until_read(slow);
    while (take(slow, &taken))
        ;
    for (int i = 0; i < CROWD; i++)
        cr_assert_eq(wire_text(&crowd[i])[0], '[');
    while (take(slow, &taken))
        ;
    cr_assert_leq(taken.bytes, before, "the reply has not waited");

    disk->hold_syncs = 0;
    while (taken.bytes < before + 4) {
        struct pollfd wait = {.fd = slow, .events = POLLIN};
        cr_assert_eq(poll(&wait, 1, WIRE_PATIENCE_MS), 1);
        cr_assert(take(slow, &taken));
    }
    cr_assert_eq(memcmp(taken.tail, ":1\r\n", 4), 0);
    expect(other, ":1", "BF.EXISTS f new");
    close(slow);
    for (int i = 0; i < CROWD; i++)
        wire_close(&crowd[i]);
}
