/* No argument can forge a reply: any command with any arguments gets one well-formed reply, and the next reply is
 * that of the next command. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "wire.h"

DAEMON_SUITE(the_daemon, hostile, "--threads", "2");

#define WORD(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

static const struct word hostile[] = {
    WORD("\r\n+FORGED\r\n"),
    WORD("x\r\n$6\r\nFORGED\r\n"),
    WORD("\n:1\n-FORGED\r"),
    WORD("\r\n*1\r\n+FORGED\r\n'%s%n\0\r\n+FORGED\r\n"),
    WORD("\x01\x1b[2J\x7f\xff\xfe\r+FORGED"),
    WORD(""),
};
static const struct word harmless[] = {WORD("f"),  WORD("1"), WORD("0.01"), WORD("ITEMS"),
                                       WORD("ON"), WORD("2"), WORD("ID")};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Commands that end the connection, that answer more or less than once, or late. */
static bool left_out(const char *name)
{
    static const char *const names[] = {"shutdown",     "quit",         "monitor",     "multi",       "exec",
                                        "client|reply", "client|pause", "client|kill", "debug|sleep", "wait",
                                        "waitaof",      "reset",        "hello",       "sync",        "psync"};
    for (size_t i = 0; i < COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return strstr(name, "subscribe") != NULL;
}

/* Sends a command with arguments of the requested kinds. Returns the number of words. */
static size_t random_words(const char *name, unsigned *state, struct word *words)
{
    const char *bar = strchr(name, '|');
    size_t n = 0, args = (size_t)rand_r(state) % 7;
    words[n++] = (struct word){name, bar ? (size_t)(bar - name) : strlen(name)};
    if (bar)
        words[n++] = (struct word){bar + 1, strlen(bar + 1)};
    while (args--) {
        if (rand_r(state) % 3)
            words[n++] = hostile[(size_t)rand_r(state) % COUNT(hostile)];
        else
            words[n++] = harmless[(size_t)rand_r(state) % COUNT(harmless)];
    }
    return n;
}

static void expect_reply(struct wire *wire, const char *name, const char *wanted)
{
    struct lines lines = {0};
    enum wire_status status = wire_reply(wire, WIRE_PATIENCE_MS, &lines);
    cr_assert_eq(status, WIRE_OK, "%s: %s", name,
                 status == WIRE_CLOSED ? "the connection was closed" : "no whole reply");
    for (size_t i = 0; i < lines.count; i++)
        cr_assert(lines.items[i][0] == '\0' || strncmp(lines.items[i] + 1, "FORGED", 6) != 0, "%s: %s", name,
                  lines.items[i]);
    if (wanted)
        cr_assert_str_eq(lines.items[lines.count - 1], wanted, "%s", name);
    lines_deinit(&lines);
}

/* Plays every command several times, alone and in a transaction. */
static void play(const redisReply *names, int protocol)
{
    struct wire wire;
    unsigned state = 99 + (unsigned)protocol;
    wire_open(&wire, the_daemon.port);
    if (protocol == 3)
        wire_ask(&wire, "HELLO 3");
    for (size_t i = 0; i < names->elements; i++) {
        const char *name = names->element[i]->str;
        for (int times = 0; times < 12 && !left_out(name); times++) {
            struct word words[16];
            char mark[32];
            size_t n = random_words(name, &state, words);
            bool transaction = times % 4 == 3 && strcmp(name, "discard") != 0;
            if (transaction) {
                cr_assert(wire_send_text(&wire, "MULTI\r\n"));
                expect_reply(&wire, name, "+OK");
            }
            cr_assert(wire_send_command(&wire, words, n));
            expect_reply(&wire, name, NULL);
            if (transaction) {
                cr_assert(wire_send_text(&wire, "EXEC\r\n"));
                expect_reply(&wire, name, NULL);
            }
            snprintf(mark, sizeof(mark), "mark-%zu-%d", i, times);
            cr_assert(wire_send_command(&wire, (struct word[]){WORD("ECHO"), {mark, strlen(mark)}}, 2));
            expect_reply(&wire, name, mark);
        }
    }
    wire_close(&wire);
}

/* A Prometheus that was pointed at this port comes every few seconds: it costs one line an hour. */
DAEMON_TEST(the_daemon, hostile, http_requests_cost_one_line)
{
    for (int i = 0; i < 20; i++) {
        struct wire wire = wire_to(the_daemon.port);
        cr_assert(wire_send_text(&wire, "GET /metrics HTTP/1.1\r\nHost: localhost:6379\r\nAccept: */*\r\n\r\n"));
        cr_assert_eq(wire_text(&wire)[0], '-'); /* of GET, which could be a command */
        cr_assert(wire_closes(&wire, 60000));
        wire_close(&wire);
    }
    const char *first = strstr(daemon_output(&the_daemon), "sent an HTTP request");
    cr_assert_not_null(first, "%s", daemon_output(&the_daemon));
    cr_expect_null(strstr(first + 1, "sent an HTTP request"), "%s", first);
}

CLIENT_TEST(the_daemon, hostile, no_argument_forges_a_reply)
{
    redisReply *names = redisCommand(client, "COMMAND LIST"),
               *subs = redisCommand(client, "COMMAND LIST FILTERBY PATTERN *|*");
    cr_assert(names && subs && names->elements > 50 && subs->elements > 30);
    for (int protocol = 2; protocol <= 3; protocol++) {
        play(names, protocol);
        play(subs, protocol);
    }
    freeReplyObject(names);
    freeReplyObject(subs);
}

/* Names of unknown commands and subcommands are repeated without bytes that could break the line. */
DAEMON_TEST(the_daemon, hostile, unknown_names_are_repeated_without_control_characters)
{
    static const struct {
        struct word words[3];
        size_t n;
        const char *reply;
    } cases[] = {
        {{WORD("NO\r\nSUCH"), WORD("a\r\n+OK\r\n"), WORD("\tb\x7f")},
         3,
         "-ERR unknown command 'NO  SUCH', with args beginning with: 'a  +OK  ' ' b ' "},
        {{WORD("CLIENT"), WORD("\r\n+OK")}, 2, "-ERR unknown subcommand '  +OK'. Try CLIENT HELP."},
        {{WORD("NO\0SUCH"), WORD("x\0y")}, 2, "-ERR unknown command 'NO', with args beginning with: 'x' "},
        {{WORD("CLIENT"), WORD("KILL"), WORD("a\r\nb")}, 3, "-ERR No such client"},
        {{WORD("CLIENT"), WORD("SETNAME"), WORD("a\nb")},
         3,
         "-ERR Client names cannot contain spaces, newlines or special characters."},
    };
    struct wire wire = wire_to(the_daemon.port);
    for (size_t i = 0; i < COUNT(cases); i++) {
        cr_assert(wire_send_command(&wire, cases[i].words, cases[i].n));
        cr_expect_str_eq(wire_text(&wire), cases[i].reply);
    }
}
