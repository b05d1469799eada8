/* Channels between clients of several workers: the messages in both protocols, order, the commands allowed to a
 * subscriber, bounds. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon.h"
#include "wait.h"
#include "wire.h"

DAEMON_SUITE(the_daemon, pubsub, "--threads", "3");

static struct wire connect_wire(int resp)
{
    struct wire wire = wire_to(the_daemon.port);
    if (resp == 3)
        cr_assert_eq(strncmp(wire_ask(&wire, "HELLO 3"), "{", 1), 0);
    return wire;
}

/* No message from before the PING is pending. */
static void expect_quiet(struct wire *wire, const char *pong)
{
    expect_ask(wire, "PING", pong);
}

/* ---- forms of messages ---- */

DAEMON_TEST(the_daemon, pubsub, shapes_in_resp2)
{
    struct wire sub = connect_wire(2), pub = connect_wire(2);
    expect_ask(&sub, "SUBSCRIBE a b a", "[\"subscribe\",\"a\",:1]");
    expect_text(&sub, "[\"subscribe\",\"b\",:2]");
    expect_text(&sub, "[\"subscribe\",\"a\",:2]");
    expect_ask(&sub, "PSUBSCRIBE n* n*", "[\"psubscribe\",\"n*\",:3]");
    expect_text(&sub, "[\"psubscribe\",\"n*\",:3]");
    expect_ask(&sub, "SSUBSCRIBE s", "[\"ssubscribe\",\"s\",:1]");
    expect_ask(&pub, "PUBLISH a hello", ":1");
    expect_text(&sub, "[\"message\",\"a\",\"hello\"]");
    expect_ask(&pub, "PUBLISH news 1", ":1");
    expect_text(&sub, "[\"pmessage\",\"n*\",\"news\",\"1\"]");
    expect_ask(&pub, "SPUBLISH s 2", ":1");
    expect_text(&sub, "[\"smessage\",\"s\",\"2\"]");
    expect_ask(&pub, "SPUBLISH a 2", ":0");
    expect_ask(&pub, "PUBLISH s 2", ":0");

    /* Only these commands are allowed meanwhile. */
    expect_ask(&sub, "PING", "[\"pong\",\"\"]");
    expect_ask(&sub, "PING x", "[\"pong\",\"x\"]");
    expect_ask(
        &sub, "BF.ADD f x",
        "-ERR Can't execute 'bf.add': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this "
        "context");
    expect_ask(
        &sub, "CLIENT ID",
        "-ERR Can't execute 'client|id': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in "
        "this context");
    expect_ask(&sub, "UNSUBSCRIBE nothing", "[\"unsubscribe\",\"nothing\",:3]");
    expect_ask(&sub, "UNSUBSCRIBE", "[\"unsubscribe\",\"a\",:2]");
    expect_text(&sub, "[\"unsubscribe\",\"b\",:1]");
    expect_ask(&sub, "UNSUBSCRIBE", "[\"unsubscribe\",nil,:1]");
    expect_ask(&sub, "PUNSUBSCRIBE", "[\"punsubscribe\",\"n*\",:0]");
    expect_ask(&sub, "PING", "[\"pong\",\"\"]");
    expect_ask(&sub, "SUNSUBSCRIBE s", "[\"sunsubscribe\",\"s\",:0]");
    expect_ask(&sub, "SUNSUBSCRIBE", "[\"sunsubscribe\",nil,:0]");
    expect_ask(&sub, "PING", "+PONG");
    expect_ask(&sub, "BF.ADD f x", ":1");
}

DAEMON_TEST(the_daemon, pubsub, shapes_in_resp3)
{
    struct wire sub = connect_wire(3), pub = connect_wire(3);
    expect_ask(&sub, "SUBSCRIBE a", ">[\"subscribe\",\"a\",:1]");
    expect_ask(&sub, "PSUBSCRIBE *", ">[\"psubscribe\",\"*\",:2]");
    expect_ask(&pub, "PUBLISH a x", ":2");
    expect_text(&sub, ">[\"message\",\"a\",\"x\"]");
    expect_text(&sub, ">[\"pmessage\",\"*\",\"a\",\"x\"]");
    /* All commands are allowed, and a message from the client itself comes after the reply. */
    expect_ask(&sub, "PING", "+PONG");
    expect_ask(&sub, "BF.ADD f x", "#t");
    expect_ask(&sub, "PUBLISH b y", ":1");
    expect_text(&sub, ">[\"pmessage\",\"*\",\"b\",\"y\"]");
    expect_ask(&sub, "PUNSUBSCRIBE", ">[\"punsubscribe\",\"*\",:1]");
    expect_ask(&sub, "PUNSUBSCRIBE", ">[\"punsubscribe\",nil,:1]");
    /* A transaction's own subscription is answered in EXEC's array, its messages come after it. */
    expect_ask(&sub, "MULTI", "+OK");
    expect_ask(&sub, "SUBSCRIBE c", "+QUEUED");
    expect_ask(&sub, "PUBLISH c z", "+QUEUED");
    expect_ask(&sub, "EXEC", "[>[\"subscribe\",\"c\",:2],:1]");
    expect_text(&sub, ">[\"message\",\"c\",\"z\"]");
    expect_ask(&sub, "MULTI", "+OK");
    expect_ask(&sub, "SSUBSCRIBE c", "+QUEUED");
    expect_ask(&sub, "EXEC", "[-ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client]");
    expect_ask(&pub, "SPUBLISH c z", ":0");
}

/* RESET ends subscriptions and monitoring without a message; QUIT and a plain close end them, too. */
DAEMON_TEST(the_daemon, pubsub, reset_quit_and_close_leave)
{
    struct wire sub = connect_wire(2), other = connect_wire(2), pub = connect_wire(2);
    expect_ask(&sub, "SUBSCRIBE a", "[\"subscribe\",\"a\",:1]");
    expect_ask(&sub, "PSUBSCRIBE a*", "[\"psubscribe\",\"a*\",:2]");
    expect_ask(&pub, "PUBLISH a x", ":2");
    expect_text(&sub, "[\"message\",\"a\",\"x\"]");
    expect_text(&sub, "[\"pmessage\",\"a*\",\"a\",\"x\"]");
    expect_ask(&sub, "RESET", "+RESET");
    expect_ask(&pub, "PUBLISH a x", ":0");
    expect_quiet(&sub, "+PONG");
    expect_ask(&sub, "MONITOR", "+OK");
    expect_ask(&sub, "RESET", "+RESET");
    expect_ask(&pub, "PING", "+PONG");
    expect_quiet(&sub, "+PONG");

    expect_ask(&sub, "SUBSCRIBE a", "[\"subscribe\",\"a\",:1]");
    expect_ask(&other, "SUBSCRIBE a", "[\"subscribe\",\"a\",:1]");
    expect_ask(&sub, "QUIT", "+OK");
    cr_assert(wire_closes(&sub, WIRE_PATIENCE_MS));
    wire_close(&other);
    wait_until(strcmp(wire_ask(&pub, "PUBLISH a x"), ":0") == 0); /* the server has seen the end of the connection */
    expect_ask(&pub, "PUBSUB CHANNELS", "[]");
}

DAEMON_TEST(the_daemon, pubsub, what_is_asked_about_channels)
{
    struct wire a = connect_wire(2), b = connect_wire(2), c = connect_wire(2);
    expect_ask(&a, "SUBSCRIBE one", "[\"subscribe\",\"one\",:1]");
    expect_ask(&b, "SUBSCRIBE one", "[\"subscribe\",\"one\",:1]");
    expect_ask(&b, "SSUBSCRIBE shard", "[\"ssubscribe\",\"shard\",:1]");
    expect_ask(&a, "PSUBSCRIBE p*", "[\"psubscribe\",\"p*\",:2]");
    expect_ask(&b, "PSUBSCRIBE p*", "[\"psubscribe\",\"p*\",:2]");
    expect_ask(&c, "PUBSUB CHANNELS", "[\"one\"]");
    expect_ask(&c, "PUBSUB CHANNELS o?e", "[\"one\"]");
    expect_ask(&c, "PUBSUB CHANNELS x*", "[]");
    expect_ask(&c, "PUBSUB CHANNELS a b",
               "-ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.");
    expect_ask(&c, "PUBSUB NUMSUB one two", "[\"one\",:2,\"two\",:0]");
    expect_ask(&c, "PUBSUB NUMSUB", "[]");
    expect_ask(&c, "PUBSUB NUMPAT", ":1");
    expect_ask(&c, "PUBSUB SHARDCHANNELS", "[\"shard\"]");
    expect_ask(&c, "PUBSUB SHARDNUMSUB shard one", "[\"shard\",:1,\"one\",:0]");
    expect_ask(&c, "PUBSUB NONSENSE", "-ERR unknown subcommand 'NONSENSE'. Try PUBSUB HELP.");
    cr_assert_not_null(strstr(wire_ask(&c, "CLIENT LIST TYPE pubsub"), " flags=P db=0 sub=1 psub=1 ssub=1 "));
    cr_assert_null(strstr(wire_ask(&c, "CLIENT LIST TYPE normal"), " flags=P "));
}

/* CLIENT REPLY OFF silences replies, not messages, as in Redis. */
DAEMON_TEST(the_daemon, pubsub, messages_come_with_replies_off)
{
    struct wire sub = connect_wire(3), pub = connect_wire(2);
    wire_send_text(&sub, "CLIENT REPLY OFF\r\nSUBSCRIBE a\r\nPING\r\n");
    expect_text(&sub, ">[\"subscribe\",\"a\",:1]");
    expect_ask(&pub, "PUBLISH a x", ":1");
    expect_text(&sub, ">[\"message\",\"a\",\"x\"]");
    wire_send_text(&sub, "PING\r\nCLIENT REPLY ON\r\n");
    expect_text(&sub, "+OK");
}

/* A client that has the reply to CLIENT KILL finds the subscriptions of the killed client ended. */
DAEMON_TEST(the_daemon, pubsub, who_is_killed_is_not_counted)
{
    struct wire admin = connect_wire(2);
    for (int i = 0; i < 200; i++) {
        struct wire sub = connect_wire(3);
        char kill[64];
        snprintf(kill, sizeof(kill), "CLIENT KILL ID %s", wire_ask(&sub, "CLIENT ID") + 1);
        cr_assert_eq(strncmp(wire_ask(&sub, "SUBSCRIBE ch"), ">[\"subscribe\"", 13), 0);
        expect_ask(&admin, kill, ":1");
        expect_ask(&admin, "PUBLISH ch x", ":0");
        expect_ask(&admin, "PUBSUB NUMSUB ch", "[\"ch\",:0]");
        wire_close(&sub);
    }
}

/* ---- order ---- */

#define MANY 2000

static char *pipeline_of(int publisher, const char *channel)
{
    char *text = malloc(MANY * 64), *at = text;
    for (int i = 0; i < MANY; i++)
        at += sprintf(at, "PUBLISH %s %d:%d\r\n", channel, publisher, i);
    return text;
}

/* Two pipelines of two publishers: each subscriber sees each publisher's messages in order and without a gap, and
 * all subscribers, on any workers, see the same mixture. */
DAEMON_TEST(the_daemon, pubsub, one_order_for_all)
{
    struct wire subs[4], pubs[2];
    char *texts[2], *seen[4];
    for (int i = 0; i < 4; i++) {
        subs[i] = connect_wire(i % 2 ? 3 : 2);
        seen[i] = calloc(MANY * 2, 48);
        wire_ask(&subs[i], i < 2 ? "SUBSCRIBE ch" : "PSUBSCRIBE c?");
    }
    for (int i = 0; i < 2; i++) {
        pubs[i] = connect_wire(2);
        texts[i] = pipeline_of(i, "ch");
    }
    for (int i = 0; i < 2; i++)
        cr_assert(wire_send_text(&pubs[i], texts[i]));
    for (int i = 0; i < 2; i++)
        for (int n = 0; n < MANY; n++)
            expect_text(&pubs[i], ":4");
    for (int s = 0; s < 4; s++) {
        int next[2] = {0, 0};
        for (int n = 0; n < 2 * MANY; n++) {
            int publisher, number;
            const char *text = wire_text(&subs[s]), *payload = strrchr(text, ',');
            cr_assert_eq(sscanf(payload, ",\"%d:%d\"]", &publisher, &number), 2, "%s", text);
            cr_assert_eq(number, next[publisher]++, "%s", text);
            strcat(seen[s] + n * 12, publisher ? "1" : "0");
        }
    }
    for (int s = 1; s < 4; s++)
        cr_assert_eq(memcmp(seen[0], seen[s], MANY * 2 * 12), 0, "subscriber %d saw another order", s);
    for (int i = 0; i < 4; i++) {
        free(seen[i]);
        wire_close(&subs[i]);
    }
    for (int i = 0; i < 2; i++) {
        free(texts[i]);
        wire_close(&pubs[i]);
    }
}

/* A client that has seen the reply to a PUBLISH finds that every subscriber gets the message before the replies to
 * its later requests; and an acknowledged subscription gets every message from then on, and none from before. */
DAEMON_TEST(the_daemon, pubsub, a_message_comes_before_what_is_asked_later)
{
    struct wire pub = connect_wire(2);
    for (int round = 0; round < 200; round++) {
        struct wire sub = connect_wire(3), late = connect_wire(3);
        expect_ask(&sub, "SUBSCRIBE ch", ">[\"subscribe\",\"ch\",:1]");
        expect_ask(&pub, "PUBLISH ch 1", ":1");
        expect_ask(&late, "SUBSCRIBE ch", ">[\"subscribe\",\"ch\",:1]");
        cr_assert(wire_send_text(&sub, "PING\r\n"));
        expect_text(&sub, ">[\"message\",\"ch\",\"1\"]");
        expect_text(&sub, "+PONG");
        expect_ask(&pub, "PUBLISH ch 2", ":2");
        cr_assert(wire_send_text(&sub, "UNSUBSCRIBE\r\n"));
        expect_text(&sub, ">[\"message\",\"ch\",\"2\"]");
        expect_text(&sub, ">[\"unsubscribe\",\"ch\",:0]");
        expect_text(&late, ">[\"message\",\"ch\",\"2\"]");
        expect_ask(&late, "PING", "+PONG");
        wire_send_text(&late, "QUIT\r\n");
        expect_text(&late, "+OK");
        wire_close(&late);
        wire_close(&sub);
        wait_until(strcmp(wire_ask(&pub, "PUBSUB NUMSUB ch"), "[\"ch\",:0]") == 0);
    }
}

/* ---- bounds ---- */

static void publish_large(struct wire *pub, const char *channel, size_t len, const char *expected)
{
    char *payload = malloc(len);
    memset(payload, 'x', len);
    struct word words[] = {{"PUBLISH", 7}, {channel, strlen(channel)}, {payload, len}};
    cr_assert(wire_send_command(pub, words, 3));
    free(payload);
    if (expected)
        expect_text(pub, expected);
}

/* A subscriber that does not read is disconnected at the hard limit of its class; the others get everything. */
DAEMON_TEST(the_daemon, pubsub, a_slow_subscriber_is_disconnected)
{
    struct wire slow = connect_wire(2), good = connect_wire(2), pub = connect_wire(2);
    int small = 4096;
    expect_ask(&pub, "CONFIG SET client-output-buffer-limit pubsub",
               "-ERR CONFIG SET failed (possibly related to argument "
               "'client-output-buffer-limit') - Wrong number of arguments in buffer limit configuration.");
    const struct word words[] = {{"CONFIG", 6}, {"SET", 3}, {"client-output-buffer-limit", 26}, {"pubsub 1mb 0 0", 14}};
    wire_send_command(&pub, words, 4);
    expect_text(&pub, "+OK");
    setsockopt(slow.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    expect_ask(&slow, "SUBSCRIBE ch", "[\"subscribe\",\"ch\",:1]");
    expect_ask(&good, "SUBSCRIBE ch", "[\"subscribe\",\"ch\",:1]");
    int rounds = 0;
    for (;; rounds++) {
        cr_assert_lt(rounds, 1000, "the slow subscriber is still there");
        struct lines lines = {0};
        publish_large(&pub, "ch", 100000, NULL);
        cr_assert_eq(wire_reply(&pub, WIRE_PATIENCE_MS, &lines), WIRE_OK);
        bool both = strcmp(lines.items[0], ":2") == 0;
        lines_deinit(&lines);
        cr_assert_eq(wire_reply(&good, WIRE_PATIENCE_MS, &lines), WIRE_OK);
        cr_assert_eq(strlen(lines.items[6]), 100000);
        lines_deinit(&lines);
        if (!both)
            break;
    }
    cr_assert_gt(rounds, 10, "it had less than a megabyte");
    daemon_wait_output(&the_daemon, "client-output-buffer-limit");
}

/* The soft limit gives a subscriber time: it stays until its second is over. */
DAEMON_TEST(the_daemon, pubsub, the_soft_limit_counts_seconds)
{
    struct wire slow = connect_wire(2), pub = connect_wire(2);
    int small = 4096;
    const struct word words[] = {
        {"CONFIG", 6}, {"SET", 3}, {"client-output-buffer-limit", 26}, {"pubsub 0 100kb 1", 16}};
    wire_send_command(&pub, words, 4);
    expect_text(&pub, "+OK");
    setsockopt(slow.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    expect_ask(&slow, "SUBSCRIBE ch", "[\"subscribe\",\"ch\",:1]");
    double began = wait_clock();
    publish_large(&pub, "ch", 8000000, ":1");
    const char *receivers = wire_ask(&pub, "PUBLISH ch x");
    cr_assert(strcmp(receivers, ":1") == 0 || wait_clock() - began >= 1, "%s", receivers);
    wait_until(strcmp(wire_ask(&pub, "PUBSUB NUMSUB ch"), "[\"ch\",:0]") == 0);
    daemon_wait_output(&the_daemon, "soft client-output-buffer-limit");
}

/* Subscriptions of one client are bounded; each refused subscription has its own error and the others hold. */
DAEMON_TEST(the_daemon, pubsub, subscriptions_are_bounded)
{
    struct wire sub = connect_wire(3), pub = connect_wire(2);
    char command[64];
    int n = 0;
    expect_ask(&pub, "CONFIG SET client-subscriptions-limit 64kb", "+OK");
    do {
        cr_assert_lt(n, 1000, "there is no limit");
        snprintf(command, sizeof(command), "SUBSCRIBE channel:%d", n++);
    } while (strncmp(wire_ask(&sub, command), ">[\"subscribe\"", 13) == 0);
    cr_assert_gt(n, 100);
    expect_ask(&sub, command,
               "-ERR the subscriptions of this client would take more than client-subscriptions-limit (65536 "
               "bytes)");
    expect_ask(&pub, "PUBLISH channel:0 x", ":1");
    expect_text(&sub, ">[\"message\",\"channel:0\",\"x\"]");
    snprintf(command, sizeof(command), "PUBLISH channel:%d x", n - 1);
    expect_ask(&pub, command, ":0");
    cr_assert_eq(strncmp(wire_ask(&sub, "UNSUBSCRIBE channel:0"), ">[\"unsubscribe\"", 15), 0);
    snprintf(command, sizeof(command), "SUBSCRIBE channel:%d", n - 1);
    cr_assert_eq(strncmp(wire_ask(&sub, command), ">[\"subscribe\"", 13), 0);
}

static void ask_long(struct wire *wire, const char *command, char c, size_t len, const char *expected)
{
    char *name = malloc(len);
    memset(name, c, len);
    struct word words[] = {{command, strlen(command)}, {name, len}, {"x", 1}};
    wire_send_command(wire, words, strcmp(command, "PUBLISH") == 0 ? 3 : 2);
    const char *text = wire_text(wire);
    cr_assert_eq(strncmp(text, expected, strlen(expected)), 0, "%s of %zu bytes: %.100s", command, len, text);
    free(name);
}

DAEMON_TEST(the_daemon, pubsub, names_have_a_longest_length)
{
    struct wire wire = connect_wire(2);
    ask_long(&wire, "SUBSCRIBE", 'a', 128 * 1024, "[\"subscribe\"");
    ask_long(&wire, "SUBSCRIBE", 'a', 128 * 1024 + 1, "-ERR channel is longer than 131072 bytes");
    ask_long(&wire, "PSUBSCRIBE", 'a', 4096, "[\"psubscribe\"");
    ask_long(&wire, "PSUBSCRIBE", 'a', 4097, "-ERR pattern is longer than 4096 bytes");
    expect_ask(&wire, "RESET", "+RESET");
    ask_long(&wire, "PUBLISH", 'a', 128 * 1024, ":0");
    ask_long(&wire, "PUBLISH", 'a', 128 * 1024 + 1, "-ERR channel is longer than 131072 bytes");
}

/* Patterns made to be slow: only the publisher waits. */
DAEMON_TEST(the_daemon, pubsub, hostile_patterns_hold_up_nobody)
{
    struct wire sub = connect_wire(2), pub = connect_wire(2), others[3];
    char pattern[3000];
    for (int i = 0; i < 20; i++) {
        memset(pattern, 'a', sizeof(pattern));
        snprintf(pattern, sizeof(pattern), "*%d*", i);
        pattern[strlen(pattern)] = '?';
        memcpy(pattern + sizeof(pattern) - 2, "b", 2);
        struct word words[] = {{"PSUBSCRIBE", 10}, {pattern, sizeof(pattern) - 1}};
        wire_send_command(&sub, words, 2);
        cr_assert_eq(strncmp(wire_text(&sub), "[\"psubscribe\"", 13), 0);
    }
    for (int i = 0; i < 3; i++)
        others[i] = connect_wire(2);
    size_t len = 120000;
    char *channel = malloc(len + 1);
    for (size_t i = 0; i < len; i++)
        channel[i] = "0123456789a"[i % 11];
    struct word words[] = {{"PUBLISH", 7}, {channel, len}, {"x", 1}};
    wire_send_command(&pub, words, 3);
    for (int i = 0; i < 30; i++)
        expect_ask(&others[i % 3], "BF.EXISTS nothing x", ":0");
    expect_ask(&others[0], "SUBSCRIBE fast", "[\"subscribe\",\"fast\",:1]");
    expect_ask(&others[1], "PUBLISH fast y", ":1");
    expect_text(&others[0], "[\"message\",\"fast\",\"y\"]");
    expect_text(&pub, ":0");
    free(channel);
    for (int i = 0; i < 3; i++)
        wire_close(&others[i]);
}

/* Large messages at once, by several publishers, over this channel. */
static void publish_much(const char *channel)
{
    struct wire sub = connect_wire(2), pubs[4];
    const int each = 60;
    const size_t len = 200000;
    const struct word subscribe[] = {{"SUBSCRIBE", 9}, {channel, strlen(channel)}};
    wire_send_command(&sub, subscribe, 2);
    cr_assert_eq(strncmp(wire_text(&sub), "[\"subscribe\"", 12), 0);
    struct wire admin = connect_wire(2);
    const struct word set[] = {{"CONFIG", 6}, {"SET", 3}, {"client-output-buffer-limit", 26}, {"pubsub 0 0 0", 12}};
    wire_send_command(&admin, set, 4);
    expect_text(&admin, "+OK");
    for (int i = 0; i < 4; i++)
        pubs[i] = connect_wire(2);
    for (int n = 0; n < each; n++)
        for (int i = 0; i < 4; i++)
            publish_large(&pubs[i], channel, len, NULL);
    for (int n = 0; n < each * 4; n++) {
        struct lines lines = {0};
        cr_assert_eq(wire_reply(&sub, WIRE_PATIENCE_MS, &lines), WIRE_OK, "message %d", n);
        cr_assert_eq(strlen(lines.items[6]), len);
        lines_deinit(&lines);
    }
    for (int i = 0; i < 4; i++) {
        for (int n = 0; n < each; n++)
            expect_text(&pubs[i], ":1");
        wire_close(&pubs[i]);
    }
    wire_close(&admin);
    wire_close(&sub);
}

/* More than the loops take at once: publishers are slowed down, no byte is lost. */
DAEMON_TEST(the_daemon, pubsub, fast_publishers_wait)
{
    publish_much("ch");
}

/* The same where patterns are matched off the loops. */
DAEMON_TEST(the_daemon, pubsub, fast_publishers_to_a_costly_channel_wait)
{
    struct wire sub = connect_wire(2);
    char *channel = calloc(1, 1001), pattern[201];
    memset(channel, 'c', 1000);
    memset(pattern, 'd', sizeof(pattern));
    cr_assert(channel);
    pattern[0] = '*';
    pattern[200] = '\0';
    struct word words[] = {{"PSUBSCRIBE", 10}, {pattern, 200}};
    for (char last = 'd'; last < 'l'; last++) { /* 8 * 200 * 1000 steps */
        pattern[199] = last;
        wire_send_command(&sub, words, 2);
        cr_assert_eq(strncmp(wire_text(&sub), "[\"psubscribe\"", 13), 0);
    }
    publish_much(channel);
    free(channel);
}

/* A loop does not deliver a message with many receivers in one turn; input that arrives after it has the next turn. */
DAEMON_TEST(the_daemon, pubsub, much_is_delivered_in_turns)
{
    enum { PATTERNS = 200, MESSAGES = 3, LEN = 20000 };
    struct wire subs[3], pub = connect_wire(2);
    char *text = malloc(MESSAGES * (LEN + 64)), *at = text, *payload = malloc(LEN + 1);
    memset(payload, 'x', LEN);
    payload[LEN] = '\0';
    for (int s = 0; s < 3; s++) {
        subs[s] = connect_wire(2);
        for (int i = 0; i < PATTERNS; i++) {
            char command[64];
            snprintf(command, sizeof(command), "PSUBSCRIBE c[h%c%c]*", 'A' + i / 20, 'A' + i % 20);
            cr_assert_eq(strncmp(wire_ask(&subs[s], command), "[\"psubscribe\"", 13), 0, "%s", command);
        }
    }
    for (int n = 0; n < MESSAGES; n++)
        at += sprintf(at, "PUBLISH ch %s\r\n", payload);
    cr_assert(wire_send(&pub, text, (size_t)(at - text)));
    for (int s = 0; s < 3; s++) {
        for (int n = 0; n < MESSAGES * PATTERNS; n++) {
            struct lines lines = {0};
            cr_assert_eq(wire_reply(&subs[s], WIRE_PATIENCE_MS, &lines), WIRE_OK, "subscriber %d, message %d", s, n);
            lines_deinit(&lines);
        }
        wire_close(&subs[s]);
    }
    for (int n = 0; n < MESSAGES; n++)
        expect_text(&pub, ":600");
    free(text);
    free(payload);
}

/* The most common client. */
DAEMON_TEST(the_daemon, pubsub, redis_cli_subscribes)
{
    char command[256], line[256];
    snprintf(command, sizeof(command), "timeout 60 redis-cli -p %d subscribe ch 2>&1", the_daemon.port);
    FILE *cli = popen(command, "r");
    struct wire pub = connect_wire(2);
    cr_assert_not_null(cli);
    wait_until(strcmp(wire_ask(&pub, "PUBLISH ch hello"), ":1") == 0);
    bool found = false;
    while (!found && fgets(line, sizeof(line), cli))
        found = strstr(line, "hello") != NULL;
    cr_assert(found);
    daemon_stop(&the_daemon); /* this disconnects redis-cli; it retries until the pipe is closed */
    wire_close(&pub);
    (void)pclose(cli);
}

/* A subscriber whose user loses the right to its channel gets no message published after the reply, and is closed,
 * either idle or with commands under way. */
DAEMON_TEST(the_daemon, pubsub, a_right_that_is_taken_away_ends_subscriptions)
{
    enum { ROUNDS = 30, SUBSCRIBERS = 6 };
    struct wire admin = connect_wire(2);
    for (int round = 0; round < ROUNDS; round++) {
        struct wire subs[SUBSCRIBERS];
        expect_ask(&admin, "ACL SETUSER guest on nopass +@all ~* resetchannels &room", "+OK");
        for (int i = 0; i < SUBSCRIBERS; i++) {
            subs[i] = connect_wire(2);
            expect_ask(&subs[i], "AUTH guest x", "+OK");
            expect_ask(&subs[i], "SUBSCRIBE room", "[\"subscribe\",\"room\",:1]");
        }
        for (int i = 0; i < SUBSCRIBERS / 2; i++)
            cr_assert(wire_send_text(&subs[i], "PING\r\nPING\r\n"));
        expect_ask(&admin, "ACL SETUSER guest resetchannels", "+OK");
        cr_assert_neq(*wire_ask(&admin, "PUBLISH room secret"), '-');
        for (int i = 0; i < SUBSCRIBERS; i++) {
            const char *text;
            while (strcmp(text = wire_text(&subs[i]), "(closed)") != 0)
                cr_assert_str_eq(text, "[\"pong\",\"\"]", "round %d, subscriber %d: %s", round, i, text);
            wire_close(&subs[i]);
        }
    }
    struct wire own = connect_wire(3); /* it gets the reply first */
    expect_ask(&own, "AUTH guest x", "+OK");
    expect_ask(&own, "ACL SETUSER guest &room", "+OK");
    expect_ask(&own, "SUBSCRIBE room", ">[\"subscribe\",\"room\",:1]");
    expect_ask(&own, "ACL SETUSER guest resetchannels", "+OK");
    expect_text(&own, "(closed)");
}
