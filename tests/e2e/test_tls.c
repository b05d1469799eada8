/* Connections with TLS: they work like plain ones, and clients of other protocols do not disturb the others. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "client.h"
#include "daemon.h"
#include "wait.h"
#include "wire.h"
#include "wire_tls.h"

static struct daemon the_daemon;

static void start(void)
{
    const char *const args[] = {"--threads", "1", "--tls-auth-clients", "no", NULL};
    daemon_prepare(&the_daemon);
    tls_make_files(the_daemon.dir);
    the_daemon.with_tls = true;
    daemon_start(&the_daemon, args);
}

static void discard(void)
{
    daemon_discard(&the_daemon);
}

TestSuite(tls, .init = start, .fini = discard, .timeout = 3000);

static void open_tls(struct wire *wire)
{
    const char *why = NULL;
    cr_assert(wire_open_tls(wire, the_daemon.tls_port, NULL, &why), "%s", why);
}

static void fill(char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (char)(i * 7 + i / 251);
}

/* Commands of each kind are answered; arguments and replies of any size arrive unchanged, also those that are
 * collected where they are read. */
DAEMON_TEST(the_daemon, tls, everything_is_answered)
{
    static const size_t sizes[] = {1, 16383, 16384, 16385, 65536, 200000, 7 << 20};
    struct wire wire;
    char *bytes = malloc(9 << 20), head[64];
    cr_assert(bytes);
    fill(bytes, 9 << 20);
    open_tls(&wire);
    expect_ask(&wire, "PING", "+PONG");
    expect_ask(&wire, "BF.ADD f a", ":1");
    expect_ask(&wire, "BF.EXISTS f a", ":1");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct word words[] = {{"ECHO", 4}, {bytes, sizes[i]}};
        struct lines lines = {NULL, 0, 0};
        cr_assert(wire_send_command(&wire, words, 2));
        cr_assert_eq(wire_reply(&wire, WIRE_PATIENCE_MS, &lines), WIRE_OK);
        snprintf(head, sizeof(head), "$%zu", sizes[i]);
        cr_assert_str_eq(lines.items[0], head);
        struct lines expected = {NULL, 0, 0};
        lines_add(&expected, bytes, sizes[i]);
        cr_assert_eq(strcmp(lines.items[1], expected.items[0]), 0, "%zu bytes came back changed", sizes[i]);
        lines_deinit(&lines);
        lines_deinit(&expected);
    }
    struct word add[] = {{"BF.MADD", 7}, {"f", 1}, {bytes, 9 << 20}, {"b", 1}};
    cr_assert(wire_send_command(&wire, add, 4));
    expect_text(&wire, "[:1,:1]");
    add[0] = (struct word){"BF.MEXISTS", 10};
    cr_assert(wire_send_command(&wire, add, 4));
    expect_text(&wire, "[:1,:1]");
    free(bytes);
}

/* The replies to a pipeline leave together: one write for all replies of one turn, which takes a millisecond. */
DAEMON_TEST(the_daemon, tls, replies_of_a_turn_are_one_write)
{
    char pipeline[100 * 32];
    struct wire wire;
    size_t len = 0;
    for (int i = 0; i < 100; i++)
        len += (size_t)snprintf(pipeline + len, sizeof(pipeline) - len, "BF.ADD f item:%d\r\n", i);
    open_tls(&wire);
    expect_ask(&wire, "PING", "+PONG");
    long long before = info_number(the_daemon.port, "stats", "total_writes_processed");
    cr_assert(wire_send(&wire, pipeline, len));
    for (int i = 0; i < 100; i++)
        expect_text(&wire, ":1");
    long long writes = info_number(the_daemon.port, "stats", "total_writes_processed") - before;
    cr_assert_leq(writes, 20, "%lld writes", writes); /* 2 where nothing else runs: the other is INFO's */
}

/* A client that writes more than it reads is served as without TLS: no reply is lost, and they come in order. */
DAEMON_TEST(the_daemon, tls, a_client_that_reads_late_gets_everything)
{
    enum { PIPELINE = 400 }; /* 16 MB, more than both sockets hold */
    char word[40000];
    struct wire wire;
    memset(word, 'x', sizeof(word));
    open_tls(&wire);
    for (int i = 0; i < PIPELINE; i++) {
        struct word words[] = {{"ECHO", 4}, {word, sizeof(word) - (size_t)i}};
        cr_assert(wire_send_command(&wire, words, 2));
    }
    for (int i = 0; i < PIPELINE; i++) {
        struct lines lines = {NULL, 0, 0};
        cr_assert_eq(wire_reply(&wire, WIRE_PATIENCE_MS, &lines), WIRE_OK);
        cr_assert_eq(strlen(lines.items[1]), sizeof(word) - (size_t)i);
        lines_deinit(&lines);
    }
    expect_ask(&wire, "PING", "+PONG");
}

/* A client that has ended its side of TLS still gets its replies, and then the end. */
DAEMON_TEST(the_daemon, tls, a_client_that_ends_its_side_gets_its_replies)
{
    struct wire wire;
    open_tls(&wire);
    cr_assert(wire_send_text(&wire, "BF.ADD f a\r\nSAVE\r\nPING\r\nhalf a com"));
    wire_tls_end(&wire);
    expect_text(&wire, ":1");
    expect_text(&wire, "+OK");
    expect_text(&wire, "+PONG");
    cr_assert(wire_closes(&wire, WIRE_PATIENCE_MS));
    wire_close(&wire);

    open_tls(&wire);
    cr_assert(wire_send_text(&wire, "PING\r\n"));
    cr_assert_eq(shutdown(wire.fd, SHUT_WR), 0); /* of TCP alone */
    expect_text(&wire, "+PONG");
    cr_assert(wire_closes(&wire, WIRE_PATIENCE_MS));
}

/* Messages, MONITOR, transactions, CLIENT LIST and CLIENT KILL. */
DAEMON_TEST(the_daemon, tls, messages_and_monitors_reach_it)
{
    struct wire subscriber, monitor, other;
    open_tls(&subscriber);
    open_tls(&monitor);
    open_tls(&other);
    expect_ask(&subscriber, "SUBSCRIBE news", "[\"subscribe\",\"news\",:1]");
    expect_ask(&monitor, "MONITOR", "+OK");
    expect_ask(&other, "PUBLISH news hello", ":1");
    expect_text(&subscriber, "[\"message\",\"news\",\"hello\"]");
    cr_assert(strstr(wire_text(&monitor), "PUBLISH"));
    expect_ask(&other, "MULTI", "+OK");
    expect_ask(&other, "BF.ADD f a", "+QUEUED");
    expect_ask(&other, "EXEC", "[:1]");
    cr_assert(strstr(wire_ask(&other, "CLIENT LIST"), "cmd=subscribe"));
    expect_ask(&other, "CLIENT KILL TYPE pubsub", ":1");
    cr_assert(wire_closes(&subscriber, WIRE_PATIENCE_MS));
    cr_assert(strstr(wire_ask(&other, "HELLO 3"), "proto"));
}

/* A client without TLS on this port can read why it is closed; a client with TLS on the other port is named in the
 * log. */
DAEMON_TEST(the_daemon, tls, the_wrong_port_is_named)
{
    const char *why = NULL;
    struct wire wire = wire_to(the_daemon.tls_port);
    expect_ask(&wire, "PING", "-ERR this port accepts connections with TLS only (redis-cli --tls)");
    cr_assert(wire_closes(&wire, WIRE_PATIENCE_MS));
    wire_close(&wire);
    daemon_wait_output(&the_daemon, "it does not speak TLS");
    cr_assert(!wire_open_tls(&wire, the_daemon.port, NULL, &why));
    daemon_wait_output(&the_daemon, "it speaks TLS, and this port does not; use tls-port");
}

/* The reason and the end of the connection are read even if the daemon closes with unread input, which makes the
 * system reset the connection. */
DAEMON_TEST(the_daemon, tls, the_wrong_port_is_named_to_a_client_that_goes_on_sending)
{
    static char commands[256 << 10];
    char text[256];
    size_t len = 0;
    ssize_t n;
    struct wire wire = wire_to(the_daemon.tls_port);
    memset(commands, '\n', sizeof(commands));
    cr_assert_gt(send(wire.fd, commands, sizeof(commands), MSG_NOSIGNAL | MSG_DONTWAIT), (ssize_t)sizeof(commands) / 2);
    while ((n = recv(wire.fd, text + len, sizeof(text) - 1 - len, 0)) > 0)
        len += (size_t)n;
    cr_assert_eq(n, 0, "%s", strerror(errno));
    text[len] = 0;
    cr_assert(strstr(text, "accepts connections with TLS only"), "%s", text);
}

/* Hostile beginnings: silence, a byte, a first message that is announced as huge, or damaged. Each ends only its own
 * connection. */
DAEMON_TEST(the_daemon, tls, hostile_handshakes_end_alone)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *says;
    } cases[] = {
#define BYTES(text) (text), sizeof(text) - 1
        {BYTES("\x16\x03\x01\x00\x05\x01\xff\xff\xff\x03"), "its first message is too long"},
        {BYTES("\x16\x03\x01\x00\x05\x02\x00\x00\x01\x03"), "its first message is not a ClientHello"},
        {BYTES("\x16\x03\x01\x00\x00\x01\x00\x00\x01\x03"), "its TLS handshake failed"},
        {BYTES("\x16\x03\x01\xff\xff\x01\x00\x20\x00\x03"), "its TLS handshake failed"},
        {BYTES("\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03"), "its TLS handshake failed"},
    };
    struct wire good, bad, slow[3];
    char drain[256];
    open_tls(&good);
    for (size_t i = 0; i < 3; i++)
        wire_open(&slow[i], the_daemon.tls_port);
    cr_assert(wire_send(&slow[1], "\x16", 1));
    cr_assert(wire_send(&slow[2], "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        wire_open(&bad, the_daemon.tls_port);
        cr_assert(wire_send(&bad, cases[i].bytes, cases[i].len));
        while (recv(bad.fd, drain, sizeof(drain), 0) > 0)
            ; /* an alert */
        daemon_wait_output(&the_daemon, cases[i].says);
        expect_ask(&good, "PING", "+PONG");
        wire_close(&bad);
    }
    expect_ask(&good, "CONFIG SET tls-handshake-timeout 1", "+OK"); /* only now, when no other handshake may be late */
    for (size_t i = 0; i < 3; i++) {
        cr_assert(wire_closes(&slow[i], WIRE_PATIENCE_MS));
        wire_close(&slow[i]);
    }
    daemon_wait_output(&the_daemon, "it exceeded tls-handshake-timeout");
    cr_assert_geq(info_number(the_daemon.port, "stats", "tls_failed_connections"), 8);
    expect_ask(&good, "PING", "+PONG");
}

/* Damaged records and floods of messages without data end an established connection. */
DAEMON_TEST(the_daemon, tls, hostile_records_end_the_connection)
{
    struct wire wire, good;
    char drain[256];
    open_tls(&good);
    open_tls(&wire);
    expect_ask(&wire, "PING", "+PONG");
    cr_assert_eq(send(wire.fd, "\x17\x03\x03\x00\x20 this is not what we have agreed on", 40, MSG_NOSIGNAL), 40);
    while (recv(wire.fd, drain, sizeof(drain), 0) > 0)
        ;
    wire_close(&wire);
    daemon_wait_output(&the_daemon, "a record was damaged in transit");

    open_tls(&wire);
    cr_assert(wire_tls_update_keys(&wire, 20));
    expect_ask(&wire, "PING", "+PONG");
    wire_tls_update_keys(&wire, 200);
    wire_send_text(&wire, "PING\r\n");
    while (recv(wire.fd, drain, sizeof(drain), 0) > 0)
        ;
    wire_close(&wire);
    daemon_wait_output(&the_daemon, "it sends too many messages without data");
    expect_ask(&good, "PING", "+PONG");
}

/* A crowd that connects at once: all succeed, others are served meanwhile, and the memory is given back. */
DAEMON_TEST(the_daemon, tls, a_crowd_gets_through)
{
    enum { CROWD = 100 };
    static struct wire crowd[CROWD];
    struct wire other;
    open_tls(&other);
    expect_ask(&other, "PING", "+PONG");
    long long before = info_number(the_daemon.port, "memory", "mem_clients_normal");
    for (int i = 0; i < CROWD; i++) {
        open_tls(&crowd[i]);
        if (i % 10 == 0)
            expect_ask(&other, "PING", "+PONG");
    }
    for (int i = 0; i < CROWD; i++)
        expect_ask(&crowd[i], "PING", "+PONG");
    cr_assert_gt(info_number(the_daemon.port, "memory", "mem_clients_normal"), before + CROWD * 10000);
    for (int i = 0; i < CROWD; i++)
        wire_close(&crowd[i]);
    cr_assert_eq(info_number(the_daemon.port, "stats", "tls_handshakes"), CROWD + 1);
    wait_until(info_number(the_daemon.port, "memory", "mem_clients_normal") <= before + 50000);
}

/* A session continues in the next connection, by TLS 1.3 and 1.2. */
DAEMON_TEST(the_daemon, tls, sessions_are_resumed)
{
    static const char *const protocols[] = {"TLSv1.3", "TLSv1.2"};
    for (size_t i = 0; i < 2; i++) {
        struct wire_tls_options options = {.protocol = protocols[i]};
        const char *why = NULL;
        struct wire wire;
        cr_assert(wire_open_tls(&wire, the_daemon.tls_port, &options, &why), "%s", why);
        expect_ask(&wire, "PING", "+PONG");
        options.session = wire_tls_session(&wire);
        cr_assert(options.session);
        wire_tls_end(&wire);
        wire_close(&wire);
        cr_assert(wire_open_tls(&wire, the_daemon.tls_port, &options, &why), "%s", why);
        cr_assert(wire_tls_resumed(&wire));
        expect_ask(&wire, "PING", "+PONG");
        wire_close(&wire);
        wire_tls_forget(options.session);
    }
    cr_assert_eq(info_number(the_daemon.port, "stats", "tls_resumed_handshakes"), 2);
}
