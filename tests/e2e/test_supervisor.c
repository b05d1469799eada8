/* The daemon under a supervisor with sd_notify(3)'s protocol, like systemd: a socket of the test receives its
 * messages. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "supervisor.h"

#define PATIENCE_MS 300000
#define WATCHDOG_MS 400

static struct daemon the_daemon;
static int receiver = -1;
static char message[512];

static void discard(void)
{
    daemon_discard(&the_daemon);
    if (receiver >= 0)
        close(receiver);
    receiver = -1;
}

TestSuite(supervisor, .fini = discard, .timeout = 3000);

/* A socket with an abstract name of this process. */
static void listen_abstract(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64];
    int len = snprintf(name, sizeof(name), "@bloomery-test-%d", (int)getpid());

    memcpy(address.sun_path + 1, name + 1, (size_t)len - 1);
    receiver = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(receiver, 0);
    cr_assert_eq(
        bind(receiver, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)len)),
        0);
    setenv("NOTIFY_SOCKET", name, 1);
}

/* And one with a path. */
static void listen_path(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    cr_assert_lt(strlen(path), sizeof(address.sun_path));
    strcpy(address.sun_path, path);
    receiver = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(receiver, 0);
    cr_assert_eq(bind(receiver, (struct sockaddr *)&address, sizeof(address)), 0);
    setenv("NOTIFY_SOCKET", path, 1);
}

static void watch(int64_t ms)
{
    char text[32];

    snprintf(text, sizeof(text), "%lld", (long long)ms * 1000);
    setenv("WATCHDOG_USEC", text, 1);
}

/* Whether a message has arrived within the time; it is in `message`. */
static bool receive(int ms)
{
    struct pollfd pollfd = {.fd = receiver, .events = POLLIN};

    if (poll(&pollfd, 1, ms) != 1)
        return false;
    ssize_t n = recv(receiver, message, sizeof(message) - 1, 0);
    cr_assert_geq(n, 0);
    message[n] = '\0';
    return true;
}

static bool has_line(const char *line)
{
    size_t len = strlen(line);

    for (const char *at = message; (at = strstr(at, line)); at += len) {
        if ((at == message || at[-1] == '\n') && (at[len] == '\n' || at[len] == '\0'))
            return true;
    }
    return false;
}

static void wait_for(const char *line)
{
    do
        cr_assert(receive(PATIENCE_MS), "'%s' has not come", line);
    while (!has_line(line));
}

DAEMON_TEST(the_daemon, supervisor, hears_of_the_start_of_life_and_of_the_end)
{
    listen_abstract();
    watch(WATCHDOG_MS);
    daemon_start(&the_daemon, NULL);
    wait_for("READY=1");
    for (int i = 0; i < 3; i++)
        wait_for("WATCHDOG=1");
    daemon_stop(&the_daemon);
    wait_for("STOPPING=1");
}

DAEMON_TEST(the_daemon, supervisor, a_path_is_as_good_as_an_abstract_name)
{
    char path[400];

    daemon_prepare(&the_daemon);
    snprintf(path, sizeof(path), "%s/notify", the_daemon.dir);
    listen_path(path);
    daemon_start(&the_daemon, NULL);
    wait_for("READY=1");
    cr_assert_not(receive(2 * WATCHDOG_MS), "without a watchdog: %s", message);
}

/* A refused end is not announced, and the watchdog's time stays the same. */
DAEMON_TEST(the_daemon, supervisor, a_failed_end_is_not_announced)
{
    static const char *const no_log[] = {"--appendonly", "no", NULL};

    listen_abstract();
    watch(WATCHDOG_MS);
    redisContext *client = client_start(&the_daemon, no_log);
    expect(client, ":1", "BF.ADD f x");
    daemon_block_saves(&the_daemon);
    const char *reply = client_ask(client, "SHUTDOWN SAVE");
    cr_assert(strncmp(reply, "-ERR", 4) == 0, "%s", reply);
    char again[64];
    snprintf(again, sizeof(again), "WATCHDOG_USEC=%d", WATCHDOG_MS * 1000);
    do {
        cr_assert(receive(PATIENCE_MS));
        cr_assert_not(has_line("STOPPING=1"));
    } while (!has_line(again));
    wait_for("WATCHDOG=1");
    daemon_unblock_saves(&the_daemon);
}

/* A loop that does not tick any more: no sign of life, and the supervisor restarts the daemon. */
Test(supervisor, no_sign_of_life_while_a_loop_stands_still)
{
    struct supervisor supervisor;

    listen_abstract();
    watch(1000);
    supervisor_init(&supervisor);
    supervisor_alive(&supervisor, 10000, 9900);
    cr_assert(receive(0) && has_line("WATCHDOG=1"));
    supervisor_alive(&supervisor, 10100, 10000);
    cr_assert_not(receive(0), "twice within half of the time");
    supervisor_alive(&supervisor, 11000, 10000);
    cr_assert_not(receive(0), "a loop has not ticked for a second");
    supervisor_alive(&supervisor, 11000, 10900);
    cr_assert(receive(0));
    supervisor_deinit(&supervisor);
}

Test(supervisor, a_long_start_asks_for_more_time)
{
    struct supervisor supervisor;

    listen_abstract();
    supervisor_init(&supervisor);
    supervisor_loading(&supervisor, 1000, 0);
    cr_assert(receive(0) && has_line("EXTEND_TIMEOUT_USEC=60000000") && has_line("STATUS=Loading: 0 %"), "%s", message);
    supervisor_loading(&supervisor, 1100, 1);
    cr_assert_not(receive(0));
    supervisor_loading(&supervisor, 8000, 42);
    cr_assert(receive(0) && has_line("STATUS=Loading: 42 %"));
    supervisor_deinit(&supervisor);
}

Test(supervisor, nonsense_in_the_environment_is_no_supervisor)
{
    static const char *const sockets[] = {"", "relative",
                                          ("/a/path/that/is/longer/than/a/socket/may/have/"
                                           "0123456789012345678901234567890123456789012345678901234567890123456789")};
    static const char *const times[] = {"", "-1", "0", "1x", "99999999999999999999"};
    struct supervisor supervisor;

    for (size_t i = 0; i < sizeof(sockets) / sizeof(*sockets); i++) {
        setenv("NOTIFY_SOCKET", sockets[i], 1);
        supervisor_init(&supervisor);
        cr_assert_eq(supervisor.fd, -1, "%s", sockets[i]);
        supervisor_ready(&supervisor);
    }
    listen_abstract();
    for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++) {
        setenv("WATCHDOG_USEC", times[i], 1);
        supervisor_init(&supervisor);
        cr_assert_eq(supervisor.watchdog_ms, 0, "%s", times[i]);
        supervisor_deinit(&supervisor);
    }
    watch(1000);
    setenv("WATCHDOG_PID", "1", 1);
    supervisor_init(&supervisor);
    cr_assert_eq(supervisor.watchdog_ms, 0);
    supervisor_deinit(&supervisor);
}
