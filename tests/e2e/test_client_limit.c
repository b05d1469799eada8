/* The memory of clients has a limit of its own, maxmemory-clients: it is never taken from filters, and beyond it the
 * client with the most memory is closed. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "tmpdir.h"
#include "wait.h"
#include "wire.h"

#define MB ((long long)1 << 20)

DAEMON_SUITE(the_daemon, client_limit, "--threads", "2");

/* ---- clients that hold memory ---- */

static const char zeros[1 << 20];

/* A client with rights to BF.EXISTS only, in the middle of a command with a last argument of 512 MB. */
static void open_half(struct wire *wire, const char *name)
{
    char text[256];
    wire_open(wire, the_daemon.port);
    expect_ask(wire, "AUTH stranger pass", "+OK");
    snprintf(text, sizeof(text), "CLIENT SETNAME %s", name);
    expect_ask(wire, text, "+OK");
    cr_assert(wire_send_text(wire, "*3\r\n$9\r\nBF.EXISTS\r\n$1\r\nf\r\n$536870912\r\n"));
}

static void make_stranger(redisContext *client)
{
    expect(client, "+OK", "ACL SETUSER stranger on >pass ~* +bf.exists +client|setname");
}

/* Sends this many bytes; the daemon takes them, however slowly. False: it has closed the connection. */
static bool send_some(const struct wire *wire, size_t bytes)
{
    struct pollfd polled = {.fd = wire->fd, .events = POLLOUT};
    while (bytes > 0) {
        cr_assert_eq(poll(&polled, 1, WIRE_PATIENCE_MS), 1, "%zu bytes are not taken", bytes);
        ssize_t n = send(wire->fd, zeros, bytes < sizeof(zeros) ? bytes : sizeof(zeros), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            return false;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool is_closed(const struct wire *wire)
{
    char byte;
    ssize_t n = recv(wire->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

static long long evicted(redisContext *client)
{
    return client_info(client, "stats", "evicted_clients");
}

static long long held(redisContext *client)
{
    return client_info(client, "memory", "mem_clients_normal");
}

/* Waits until the clients hold at least, or at most, this much memory. */
static void wait_until_held(redisContext *client, long long least, long long most)
{
    long long now = held(client);
    for (int i = 0; i < 3000 && (now < least || now > most); i++) {
        usleep(10000);
        now = held(client);
    }
    cr_assert(now >= least && now <= most, "%lld bytes", now);
}

/* Waits until all clients together have sent this many bytes that are not yet a command. */
static void wait_until_arrived(redisContext *client, long long bytes)
{
    long long arrived = 0;
    for (int i = 0; i < 3000 && arrived < bytes; i++, usleep(10000)) {
        redisReply *list = redisCommand(client, "CLIENT LIST");
        arrived = 0;
        for (const char *at = list->str; (at = strstr(at, " qbuf=")); at++)
            arrived += strtoll(at + 6, NULL, 10);
        freeReplyObject(list);
    }
    cr_assert_geq(arrived, bytes);
}

static void wait_until_evicted(redisContext *client, long long n)
{
    for (int i = 0; i < 3000 && evicted(client) < n; i++)
        usleep(10000);
    cr_assert_eq(evicted(client), n);
}

/* ---- filters lose nothing ---- */

/* 150 MB of an unfinished command caused refusals of all clients' adds. */
CLIENT_TEST(the_daemon, client_limit, half_a_command_refuses_nobody_s_adds)
{
    struct wire half;
    expect(client, "+OK", "CONFIG SET maxmemory 100mb");
    expect(client, "+OK", "BF.RESERVE f 0.001 30000000"); /* 57 MB */
    make_stranger(client);
    open_half(&half, "greedy");
    bool open = true;
    for (int i = 0; i < 150 && open; i++) {
        open = send_some(&half, sizeof(zeros));
        expect(client, ":1", "BF.ADD f %d", i);
    }
    wait_until_evicted(client, 1);
    wait_until_held(client, 0, MB);
    const char *log = strstr(daemon_output(&the_daemon), "client id=");
    cr_assert(log && strstr(log, "addr=127.0.0.1:") && strstr(log, "name=greedy user=stranger closed: it uses ") &&
                  strstr(log, "maxmemory-clients allows 67 MB"),
              "%s", log);
}

/* One client of 400 MB caused the eviction of all filters, and ten clients held 3 GB. */
CLIENT_TEST(the_daemon, client_limit, ten_clients_evict_no_filter)
{
    enum { FILTERS = 8, CLIENTS = 10 };
    struct wire halves[CLIENTS];
    bool open[CLIENTS];
    long long most = 0;
    expect(client, "+OK", "CONFIG SET maxmemory 100mb maxmemory-policy reload");
    for (int i = 0; i < FILTERS; i++) {
        expect(client, "+OK", "BF.RESERVE f%d 0.001 3000000", i); /* 6 MB */
        expect(client, ":1", "BF.ADD f%d x", i);
    }
    expect(client, "+OK", "SAVE");
    make_stranger(client);
    for (int i = 0; i < CLIENTS; i++) {
        open_half(&halves[i], "one");
        open[i] = true;
    }
    for (int round = 0; round < 400; round++) {
        for (int i = 0; i < CLIENTS; i++)
            open[i] = open[i] && send_some(&halves[i], sizeof(zeros));
        expect(client, "[:1,:0]", "BF.MEXISTS f%d x y", round % FILTERS);
        expect(client, ":1", "BF.ADD f%d %d", round % FILTERS, round);
        most = held(client) > most ? held(client) : most;
    }
    cr_expect_geq(evicted(client), CLIENTS);
    cr_expect_leq(most, 64 * MB + CLIENTS * 2 * MB);
    cr_expect_eq(client_info(client, "bf", "bf_evictions"), 0);
    cr_expect_eq(client_info(client, "bf", "bf_away_filters"), 0);
    for (int i = 0; i < CLIENTS; i++)
        wire_close(&halves[i]);
}

/* ---- the closed client ---- */

CLIENT_TEST(the_daemon, client_limit, the_largest_is_closed_first)
{
    /* MB; buffers may have twice the size of their bytes, so the second is the largest at any time, then the fifth */
    static const int sizes[] = {5, 40, 3, 7, 18};
    enum { CLIENTS = sizeof(sizes) / sizeof(sizes[0]) };
    struct wire halves[CLIENTS], last;
    make_stranger(client);
    expect(client, "+OK", "CONFIG SET maxmemory-clients 160mb");
    for (int i = 0; i < CLIENTS; i++) {
        open_half(&halves[i], "one");
        cr_assert(send_some(&halves[i], (size_t)sizes[i] << 20));
    }
    wait_until_arrived(client, 73 * MB);
    cr_assert_eq(evicted(client), 0);

    expect(client, "+OK", "CONFIG SET maxmemory-clients %lld", held(client) - MB);
    wait_until_evicted(client, 1);
    wait_until(is_closed(&halves[1])); /* it is counted before */
    for (int i = 0; i < CLIENTS; i++)
        cr_expect_eq(is_closed(&halves[i]), i == 1, "client %d", i);

    /* A small client that connects later stays, too. */
    open_half(&last, "last");
    expect(client, "+OK", "CONFIG SET maxmemory-clients %lld", held(client) - MB);
    wait_until_evicted(client, 2);
    wait_until(is_closed(&halves[4]));
    for (int i = 0; i < CLIENTS; i++)
        cr_expect_eq(is_closed(&halves[i]), i == 1 || i == 4, "client %d", i);
    cr_expect(!is_closed(&last));
    for (int i = 0; i < CLIENTS; i++)
        wire_close(&halves[i]);
}

/* Idle connections do not count: their number has a separate limit. */
DAEMON_TEST(the_daemon, client_limit, idle_clients_stay)
{
    enum { IDLE = 300 };
    redisContext *client = client_open(the_daemon.port), *idle[IDLE];
    struct wire half;
    make_stranger(client);
    expect(client, "+OK", "CONFIG SET maxmemory-clients 1"); /* it is 128 kb then */
    cr_assert_eq(client_info(client, "memory", "maxmemory_clients"), 128 * 1024);
    for (int i = 0; i < IDLE; i++) {
        idle[i] = client_open(the_daemon.port);
        expect(idle[i], "+PONG", "PING");
    }
    cr_assert_gt(held(client), 128 * 1024);
    open_half(&half, "half");
    (void)send_some(&half, sizeof(zeros));
    wait_until_evicted(client, 1);
    for (int i = 0; i < IDLE; i++) {
        expect(idle[i], "+PONG", "PING");
        redisFree(idle[i]);
    }
}

CLIENT_TEST(the_daemon, client_limit, no_evict_stays)
{
    struct wire stays, goes;
    expect(client, "+OK", "CONFIG SET maxmemory-clients 16mb");
    wire_open(&stays, the_daemon.port);
    wire_open(&goes, the_daemon.port);
    expect_ask(&stays, "CLIENT NO-EVICT on", "+OK");
    cr_assert(wire_send_text(&stays, "*2\r\n$4\r\nECHO\r\n$100000000\r\n"));
    cr_assert(send_some(&stays, 32 * sizeof(zeros)));
    wait_until_held(client, 32 * MB, INT32_MAX);
    cr_assert(!is_closed(&stays));
    cr_assert_eq(evicted(client), 0);
    cr_assert(wire_send_text(&goes, "*2\r\n$4\r\nECHO\r\n$100000000\r\n"));
    cr_assert(send_some(&goes, 4 * sizeof(zeros)));
    wait_until_held(client, 36 * MB, INT32_MAX);
    cr_assert_eq(evicted(client), 0); /* a client that stays does not count against the others */
    (void)send_some(&goes, 32 * sizeof(zeros));
    wait_until_evicted(client, 1);
    cr_assert(!is_closed(&stays));
    wire_close(&goes);

    /* After NO-EVICT off it can be closed again like the others. */
    wire_close(&stays);
    wire_open(&stays, the_daemon.port);
    expect_ask(&stays, "CLIENT NO-EVICT on", "+OK");
    expect_ask(&stays, "CLIENT NO-EVICT off", "+OK");
    cr_assert(wire_send_text(&stays, "*2\r\n$4\r\nECHO\r\n$100000000\r\n"));
    (void)send_some(&stays, 32 * sizeof(zeros));
    wait_until_evicted(client, 2);
}

/* ---- memory that counts ---- */

#define NAME 60000

static const char *name_of(int i)
{
    static char name[NAME + 1];
    snprintf(name, sizeof(name), "%06d", i);
    memset(name + 6, 'n', NAME - 6);
    return name;
}

/* Repeats the command until the connection is gone; the replies are ignored. */
static void repeat_until_closed(redisContext *client, const char *format)
{
    for (int i = 0; i < 2000; i++)
        if (client_ask(client, format, name_of(i))[0] == '(')
            return;
    cr_assert_fail("%s", format);
}

DAEMON_TEST(the_daemon, client_limit, queues_and_subscriptions_count)
{
    redisContext *client = client_open(the_daemon.port), *other;
    int n = 0;
    expect(client, "+OK", "BF.RESERVE f 0.01 100");
    expect(client, "+OK", "CONFIG SET maxmemory-clients 2mb");
    static const char *const commands[] = {"BF.EXISTS %s x", "WATCH %s", "SUBSCRIBE %s"};
    static const char *const first[] = {"MULTI", "PING", "PING"};
    for (; n < 3; n++) {
        other = client_open(the_daemon.port);
        cr_assert_neq(client_ask(other, first[n])[0], '-');
        repeat_until_closed(other, commands[n]);
        wait_until_evicted(client, n + 1);
        redisFree(other);
    }
    expect(client, "+OK", "CONFIG SET maxmemory-clients 16mb");
    expect(client, ":1", "BF.ADD f x");
}

/* A client that does not read: replies, and messages to a subscriber. */
CLIENT_TEST(the_daemon, client_limit, replies_and_messages_count)
{
    struct wire reader;
    expect(client, "+OK", "CONFIG SET maxmemory-clients 4mb");
    expect(client, "+OK", "CONFIG SET reply-buffer-high-water 64mb");
    wire_open(&reader, the_daemon.port);
    for (int i = 0; i < 200 && !is_closed(&reader); i++) {
        if (!wire_send_text(&reader, "*2\r\n$4\r\nECHO\r\n$1048576\r\n") || !send_some(&reader, sizeof(zeros)) ||
            !wire_send_text(&reader, "\r\n"))
            break;
    }
    wait_until_evicted(client, 1);
    wire_close(&reader);

    wire_open(&reader, the_daemon.port);
    expect_ask(&reader, "SUBSCRIBE news", "[\"subscribe\",\"news\",:1]");
    for (int i = 0; i < 1000 && client_number(client, "PUBLISH news %b", zeros, (size_t)100000) == 1; i++)
        ;
    wait_until_evicted(client, 2);
}

/* KEYS is closed while it runs, before its reply is complete. */
DAEMON_TEST(the_daemon, client_limit, a_running_keys_counts)
{
    enum { N = DAEMON_SANITIZED ? 1000 : 3000 }; /* 60 or 180 MB of names */
    redisContext *client = client_open(the_daemon.port), *other = client_open(the_daemon.port);
    for (int i = 0; i < N; i++)
        expect(client, "+OK", "BF.RESERVE %s 0.01 10", name_of(i));
    expect(client, "+OK", "CONFIG SET maxmemory-clients 8mb");
    cr_expect_eq(client_ask(other, "KEYS *")[0], '(');
    wait_until_evicted(client, 1);
    wait_until_held(client, 0, MB); /* the job has ended, too */
    const char *log = strstr(daemon_output(&the_daemon), "closed: it uses ");
    cr_assert_not_null(log);
    cr_expect_lt(strtod(log + strlen("closed: it uses "), NULL), 160, "%s", log);
}

/* ---- strangers ---- */

/* A client without the password gets an error for each word that it sends, and reads none of the errors. */
CLIENT_TEST(the_daemon, client_limit, strangers_hold_little)
{
    struct wire stranger;
    static char pings[60000];
    for (size_t i = 0; i + 6 <= sizeof(pings); i += 6)
        memcpy(pings + i, "PING\r\n", 6);
    expect(client, "+OK", "CONFIG SET requirepass secret");
    long long before = held(client), most = 0;
    wire_open(&stranger, the_daemon.port);
    for (int i = 0; i < 1000 && !is_closed(&stranger); i++) {
        (void)send(stranger.fd, pings, sizeof(pings), MSG_DONTWAIT | MSG_NOSIGNAL);
        usleep(1000);
        most = held(client) > most ? held(client) : most;
    }
    cr_expect_leq(most - before, 256 * 1024, "%lld bytes", most - before);
    for (int i = 0; i < 3000 && client_info(client, "stats", "client_output_buffer_limit_disconnections") == 0; i++)
        usleep(10000);
    cr_expect_eq(client_info(client, "stats", "client_output_buffer_limit_disconnections"), 1);
}

/* ---- the setting ---- */

CLIENT_TEST(the_daemon, client_limit, percentages_and_bytes)
{
    expect(client, "[\"maxmemory-clients\",\"auto\"]", "CONFIG GET maxmemory-clients");
    long long machine = client_info(client, "memory", "maxmemory_clients");
    cr_expect(machine >= 64 * MB && machine <= sysconf(_SC_PHYS_PAGES) * (long long)sysconf(_SC_PAGESIZE) / 4);
    expect(client, "+OK", "CONFIG SET maxmemory 1gb");
    cr_expect_eq(client_info(client, "memory", "maxmemory_clients"), 256 * MB);
    expect(client, "+OK", "CONFIG SET maxmemory 1mb");
    cr_expect_eq(client_info(client, "memory", "maxmemory_clients"), 64 * MB);
    expect(client, "+OK", "CONFIG SET maxmemory 1gb maxmemory-clients 5%%");
    expect(client, "[\"maxmemory-clients\",\"5%\"]", "CONFIG GET maxmemory-clients");
    cr_expect_eq(client_info(client, "memory", "maxmemory_clients"), 1024 * MB / 100 * 5 + 1024 * MB % 100 * 5 / 100);
    expect(client, "+OK", "CONFIG SET maxmemory-clients 100%%");
    cr_expect_eq(client_info(client, "memory", "maxmemory_clients"), 1024 * MB);
    expect(client, "+OK", "CONFIG SET maxmemory-clients 64mb");
    expect(client, "[\"maxmemory-clients\",\"67108864\"]", "CONFIG GET maxmemory-clients");
    cr_expect_eq(client_info(client, "memory", "maxmemory_clients"), 64 * MB);
    expect(client, "+OK", "CONFIG SET maxmemory-clients 0%%");
    expect(client, "[\"maxmemory-clients\",\"0\"]", "CONFIG GET maxmemory-clients");
    cr_expect_eq(client_info(client, "memory", "maxmemory_clients"), 0);
    expect(
        client,
        "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-clients') - percentage argument must be less "
        "or equal to 100",
        "CONFIG SET maxmemory-clients 101%%");
    expect(client,
           "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-clients') - argument must be a memory or "
           "percent value",
           "CONFIG SET maxmemory-clients -5%%");
    expect(client, "+OK", "CONFIG SET maxmemory-clients AUTO");
    expect(client, "[\"maxmemory-clients\",\"auto\"]", "CONFIG GET maxmemory-clients");
    expect(client,
           "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a memory value",
           "CONFIG SET maxmemory 5%%");
}

/* As in a redis.conf, and written back into it. */
static struct daemon own;
TestSuite(client_limit_file, .timeout = 3000);

DAEMON_TEST(own, client_limit_file, is_read_and_rewritten)
{
    daemon_prepare(&own);
    snprintf(own.file, sizeof(own.file), "%s/redis.conf", own.dir);
    file_write_text(own.file, "# clients\nmaxmemory 1gb\nmaxmemory-clients 10%\n");
    redisContext *client = client_start(&own, NULL);
    expect(client, "[\"maxmemory-clients\",\"10%\"]", "CONFIG GET maxmemory-clients");
    expect(client, "+OK", "CONFIG SET maxmemory-clients 20%%");
    expect(client, "+OK", "CONFIG REWRITE");
    client = client_after_stop(client, &own, NULL);
    expect(client, "[\"maxmemory-clients\",\"20%\"]", "CONFIG GET maxmemory-clients");
    expect(client, "+OK", "CONFIG SET maxmemory-clients 64mb");
    expect(client, "+OK", "CONFIG REWRITE");
    client = client_after_stop(client, &own, NULL);
    expect(client, "[\"maxmemory-clients\",\"67108864\"]", "CONFIG GET maxmemory-clients");
}
