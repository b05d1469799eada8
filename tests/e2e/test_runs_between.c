/* Conditions between a run of commands and its replies (server/run/pipeline.h): missing rights, replies switched off,
 * the end of the connection, the form of a command, and counters and watchers. Each of these treats a run as its
 * commands. */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon.h"
#include "rng.h"
#include "text.h"
#include "wire.h"

DAEMON_SUITE_IDLE(the_daemon, runs_between);

static void add_command(struct text *text, const char *command, struct word name, struct word item)
{
    text_print(text, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n", strlen(command), command, name.len);
    text_add(text, name.ptr, name.len);
    text_print(text, "\r\n$%zu\r\n", item.len);
    text_add(text, item.ptr, item.len);
    text_print(text, "\r\n");
}

/* The items are numbers of two digits, from `first` on. */
static void add_run(struct text *text, const char *command, const char *name, unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++) {
        char item[8];
        int len = snprintf(item, sizeof(item), "%02u", i);
        add_command(text, command, (struct word){name, strlen(name)}, (struct word){item, (size_t)len});
    }
}

static void send_all(struct wire *wire, struct text *text)
{
    cr_assert(wire_send(wire, text->data, text->len));
    free(text->data);
    *text = (struct text){0};
}

static void expect(struct wire *wire, const char *reply, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        cr_assert_str_eq(wire_text(wire), reply, "reply %u of %u", i, n);
}

/* One worker: it compares a connection's commands with those that the others have sent. */
static void start(const char *option, const char *value)
{
    const char *const args[] = {"--threads", "1", "--bf-error-rate", "0.0000001", option, value, NULL};
    daemon_start(&the_daemon, args);
}

static void expect_info(struct wire *wire, const char *section, const char *line)
{
    char command[64];
    snprintf(command, sizeof(command), "INFO %s", section);
    const char *info = wire_ask(wire, command);
    cr_assert(strstr(info, line), "no '%s' in %s", line, info);
}

DAEMON_TEST(the_daemon, runs_between, nobody_borrows_the_authentication_of_another_connection)
{
    struct wire known = {0}, unknown = {0};
    struct text text = {0};
    start(NULL, NULL);
    wire_open(&known, the_daemon.port);
    cr_assert_str_eq(wire_ask(&known, "CONFIG SET requirepass secret"), "+OK");
    wire_open(&unknown, the_daemon.port);
    add_run(&text, "BF.ADD", "f", 10, 40);
    add_run(&text, "BF.EXISTS", "f", 10, 40);
    send_all(&known, &text);
    expect(&known, ":1", 80);
    add_run(&text, "BF.EXISTS", "f", 10, 40);
    add_run(&text, "BF.ADD", "f", 50, 40);
    text_print(&text, "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n");
    add_run(&text, "BF.EXISTS", "f", 10, 40);
    add_run(&text, "BF.EXISTS", "f", 50, 40);
    send_all(&unknown, &text);
    expect(&unknown, "-NOAUTH Authentication required.", 80);
    expect(&unknown, "+OK", 1);
    expect(&unknown, ":1", 40);
    expect(&unknown, ":0", 40);
}

DAEMON_TEST(the_daemon, runs_between, those_who_want_no_replies_or_only_messages)
{
    struct wire wire = {0};
    struct text text = {0};
    start(NULL, NULL);
    wire_open(&wire, the_daemon.port);
    add_run(&text, "BF.ADD", "f", 10, 5);
    text_print(&text, "*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$4\r\nSKIP\r\n");
    add_run(&text, "BF.ADD", "f", 15, 5);
    text_print(&text, "*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\n");
    add_run(&text, "BF.ADD", "f", 20, 40);
    text_print(&text, "*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$2\r\nON\r\n");
    add_run(&text, "BF.EXISTS", "f", 9, 51);
    text_print(&text, "SUBSCRIBE channel\r\n");
    add_run(&text, "BF.EXISTS", "f", 10, 40);
    text_print(&text, "UNSUBSCRIBE channel\r\n");
    add_run(&text, "BF.EXISTS", "f", 10, 50);
    send_all(&wire, &text);
    expect(&wire, ":1", 5 + 4);
    expect(&wire, "+OK", 1);
    expect(&wire, ":0", 1);
    expect(&wire, ":1", 50);
    expect(&wire, "[\"subscribe\",\"channel\",:1]", 1);
    expect(
        &wire,
        "-ERR Can't execute 'bf.exists': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in "
        "this context",
        40);
    expect(&wire, "[\"unsubscribe\",\"channel\",:0]", 1);
    expect(&wire, ":1", 50);
}

/* Commands before it are answered, commands after it do not run. */
DAEMON_TEST(the_daemon, runs_between, the_end_of_a_connection)
{
    static const char *const ends[][2] = {
        {"*1\r\n$4\r\nQUIT\r\n", "+OK"},
        {"*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$x2\r\n", "-ERR Protocol error: invalid bulk length"},
        {"*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n!2\r\n", "-ERR Protocol error: expected '$', got '!'"},
    };
    struct wire wire = {0};
    start(NULL, NULL);
    for (unsigned i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        struct text text = {0};
        wire_open(&wire, the_daemon.port);
        text_print(&text, "DEL f\r\n");
        add_run(&text, "BF.ADD", "f", 10, 40);
        text_print(&text, "%s", ends[i][0]);
        add_run(&text, "BF.ADD", "f", 50, 40);
        send_all(&wire, &text);
        expect(&wire, i ? ":1" : ":0", 1);
        expect(&wire, ":1", 40);
        expect(&wire, ends[i][1], 1);
        cr_assert(wire_closes(&wire, WIRE_PATIENCE_MS));
        wire_close(&wire);
        wire_open(&wire, the_daemon.port);
        cr_assert_str_eq(wire_ask(&wire, "BF.CARD f"), ":40");
        wire_close(&wire);
    }
}

/* Replies that exceed reply-buffer-limit in the middle of a run end its connection; others' runs continue. */
DAEMON_TEST(the_daemon, runs_between, too_many_replies_end_their_connection_only)
{
    static const char full[] = "-ERR non scaling filter is full";
    struct wire wire = {0}, other = {0};
    struct text text = {0};
    start(NULL, NULL);
    wire_open(&other, the_daemon.port);
    cr_assert_str_eq(wire_ask(&other, "CONFIG SET reply-buffer-high-water 16kb reply-buffer-limit 16kb"), "+OK");
    cr_assert_str_eq(wire_ask(&other, "BF.RESERVE full 0.0000001 1 NONSCALING"), "+OK");
    cr_assert_str_eq(wire_ask(&other, "BF.ADD full x"), ":1");
    for (unsigned round = 1; round <= 8; round++) {
        char line[80];
        wire_open(&wire, the_daemon.port);
        for (unsigned i = 0; i < 40; i++)
            add_run(&text, "BF.ADD", "full", 10, 60);
        send_all(&wire, &text);
        add_run(&text, "BF.ADD", "f", 10, 60);
        add_run(&text, "BF.EXISTS", "f", 10, 60);
        send_all(&other, &text);
        expect(&other, round == 1 ? ":1" : ":0", 60);
        expect(&other, ":1", 60);
        const char *reply = wire_text(&wire);
        for (unsigned i = 0; i < 2400 && strcmp(reply, full) == 0; i++)
            reply = wire_text(&wire);
        cr_assert_str_eq(reply, "(closed)");
        wire_close(&wire);
        snprintf(line, sizeof(line), "client_output_buffer_limit_disconnections:%u\\x0d", round);
        expect_info(&other, "stats", line);
    }
}

/* A run of each kind on a filter in quarantine, between runs on a good one: with errors, with "maybe", and after the
 * filter's deletion. */
DAEMON_TEST(the_daemon, runs_between, a_filter_in_quarantine)
{
    struct wire wire = {0};
    struct text text = {0};
    char error[1000];
    start("--save-pack-limit", "0");
    wire_open(&wire, the_daemon.port);
    cr_assert_str_eq(wire_ask(&wire, "BF.ADD good x"), ":1");
    cr_assert_str_eq(wire_ask(&wire, "BF.ADD bad x"), ":1");
    cr_assert_str_eq(wire_ask(&wire, "SAVE"), "+OK");
    wire_close(&wire);
    daemon_kill(&the_daemon);
    daemon_damage_layer(&the_daemon, "bad", 8);
    daemon_restart(&the_daemon);
    wire_open(&wire, the_daemon.port);
    snprintf(error, sizeof(error), "%s", wire_ask(&wire, "BF.MEXISTS bad x"));
    cr_assert(strstr(error, "quarantined"), "%s", error);
    for (unsigned maybe = 0; maybe < 2; maybe++) {
        add_run(&text, "BF.EXISTS", "good", 10, 40);
        add_run(&text, "BF.EXISTS", "bad", 10, 40);
        add_run(&text, "BF.ADD", "bad", 10, 40);
        add_run(&text, "BF.ADD", "good", 10, 40);
        add_run(&text, "BF.EXISTS", "bad", 10, 1);
        add_run(&text, "BF.EXISTS", "good", 10, 40);
        text_print(&text, "CONFIG SET quarantined-filters maybe\r\n");
        send_all(&wire, &text);
        expect(&wire, maybe ? ":1" : ":0", 40);
        expect(&wire, maybe ? ":1" : error, 40);
        expect(&wire, error, 40);
        expect(&wire, maybe ? ":0" : ":1", 40);
        expect(&wire, maybe ? ":1" : error, 1);
        expect(&wire, ":1", 40);
        expect(&wire, "+OK", 1);
    }
    const char *info = wire_ask(&wire, "INFO commandstats");
    cr_assert(strstr(info, "cmdstat_bf.add:calls=160,") && strstr(info, "failed_calls=80"), "%s", info);
    cr_assert(strstr(info, "cmdstat_bf.exists:calls=242,") && strstr(info, "failed_calls=41"), "%s", info);
    expect_info(&wire, "stats", "keyspace_hits:243\\x0d");
    add_run(&text, "BF.EXISTS", "bad", 10, 40);
    text_print(&text, "DEL bad\r\n");
    add_run(&text, "BF.EXISTS", "bad", 10, 40);
    add_run(&text, "BF.ADD", "bad", 10, 40);
    add_run(&text, "BF.EXISTS", "bad", 10, 40);
    send_all(&wire, &text);
    expect(&wire, ":1", 40);
    expect(&wire, ":1", 1);
    expect(&wire, ":0", 40);
    expect(&wire, ":1", 80);
}

/* ---- the form of a command ---- */

#define NAMES 9

static const size_t lengths[] = {0, 1, 2, 9, 10, 11, 98, 99, 100, 101, 998, 999, 1000, 1001, 5000, 70000, 200000};
#define LENGTHS (sizeof(lengths) / sizeof(*lengths))
#define COMMON  (LENGTHS - 2) /* the last two are rare */

static char bytes[200000];

/* One of two connections, each with its own filters. */
struct player {
    struct wire wire;
    struct text sent, expected;
    size_t done;
    char names[NAMES][310];
    struct word words[NAMES];
    bool has[NAMES][LENGTHS];
};

/* Names that look like requests, and names that are too long to be compared. */
static void make_names(struct player *player, const char *suffix)
{
    static const char *const texts[] = {"", "1", "$", "a\r\n$3", "x\r\n$3\r\nabc\r\n", "\r\n"};
    static const size_t sizes[] = {220, 221, 300};
    for (size_t i = 0; i < NAMES; i++) {
        if (i < 6) {
            strcpy(player->names[i], texts[i]);
        } else {
            memset(player->names[i], '7', sizes[i - 6]);
        }
        strcat(player->names[i], suffix);
        player->words[i] = (struct word){player->names[i], strlen(player->names[i])};
    }
}

static void play_run(struct player *player, struct rng *rng)
{
    static const char *const commands[] = {"BF.EXISTS", "BF.ADD", "bf.exists", "Bf.aDD"};
    size_t name = rng_below(rng, NAMES), which = rng_below(rng, 4), most = rng_below(rng, 20) ? COMMON : LENGTHS;
    bool add_it = which % 2;
    for (size_t n = 1 + rng_below(rng, 40); n > 0; n--) {
        size_t item = rng_below(rng, most);
        add_command(&player->sent, commands[which], player->words[name], (struct word){bytes, lengths[item]});
        text_print(&player->expected, ":%d\r\n", player->has[name][item] != add_it);
        player->has[name][item] |= add_it;
    }
}

static void expect_answers(struct player *player)
{
    struct lines got = {0};
    const char *line = player->expected.data;
    for (unsigned n = 0; *line; n++, line = strchr(line, '\n') + 1) {
        lines_truncate(&got, 0);
        cr_assert_eq(wire_reply(&player->wire, WIRE_PATIENCE_MS, &got), WIRE_OK, "%u replies", n);
        cr_assert(strncmp(got.items[0], line, 2) == 0, "reply %u is '%s' instead of '%.2s'", n, got.items[0], line);
    }
    lines_deinit(&got);
}

/* Items of lengths around all limits, with line ends and digits inside, on two connections that take turns at any
 * byte. */
DAEMON_TEST(the_daemon, runs_between, items_and_names_that_look_like_requests)
{
    static struct player players[2];
    struct rng rng;
    start(NULL, NULL);
    rng_init(&rng, 1);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = "\r\n$3\r\n*3\r\n1"[i % 11];
    for (unsigned i = 0; i < 2; i++) {
        make_names(&players[i], i ? "8" : "");
        wire_open(&players[i].wire, the_daemon.port);
        for (unsigned n = 0; n < 200; n++)
            play_run(&players[i], &rng);
    }
    while (players[0].done + players[1].done < players[0].sent.len + players[1].sent.len) {
        struct player *player = &players[rng_below(&rng, 2)];
        size_t left = player->sent.len - player->done, n = 1 + rng_below(&rng, rng_below(&rng, 3) ? 3000 : 100000);
        n = n < left ? n : left;
        cr_assert(wire_send(&player->wire, player->sent.data + player->done, n));
        player->done += n;
    }
    for (unsigned i = 0; i < 2; i++) {
        expect_answers(&players[i]);
        wire_close(&players[i].wire);
        free(players[i].sent.data);
        free(players[i].expected.data);
    }
}

/* ---- counters and watchers ---- */

/* A filter that is full in the middle of a run, and a missing filter, with each form of the reply. */
DAEMON_TEST(the_daemon, runs_between, counters_count_commands)
{
    struct wire wire = {0};
    struct text text = {0};
    start("--bf-auto-create", "no");
    wire_open(&wire, the_daemon.port);
    cr_assert_str_eq(wire_ask(&wire, "BF.RESERVE f 0.0000001 10 NONSCALING"), "+OK");
    add_run(&text, "BF.ADD", "f", 10, 10);
    add_run(&text, "BF.ADD", "f", 15, 40);
    add_run(&text, "BF.EXISTS", "f", 10, 35);
    add_run(&text, "BF.ADD", "none", 10, 34);
    add_run(&text, "BF.EXISTS", "none", 10, 36);
    text_print(&text, "CONFIG SET bf-missing-filter-reply null\r\n");
    add_run(&text, "BF.EXISTS", "none", 10, 33);
    text_print(&text, "CONFIG SET bf-missing-filter-reply error\r\n");
    add_run(&text, "BF.EXISTS", "none", 10, 65);
    send_all(&wire, &text);
    expect(&wire, ":1", 10);
    expect(&wire, ":0", 5);
    expect(&wire, "-ERR non scaling filter is full", 35);
    expect(&wire, ":1", 10);
    expect(&wire, ":0", 25);
    expect(&wire, "-ERR not found", 34);
    expect(&wire, ":0", 36);
    expect(&wire, "+OK", 1);
    expect(&wire, "nil", 33);
    expect(&wire, "+OK", 1);
    expect(&wire, "-ERR not found", 65);
    cr_assert(strstr(wire_ask(&wire, "INFO commandstats"), "cmdstat_bf.add:calls=84,"));
    cr_assert(strstr(wire_ask(&wire, "INFO commandstats"), "cmdstat_bf.exists:calls=169,"));
    cr_assert(strstr(wire_ask(&wire, "INFO commandstats"), "rejected_calls=0,failed_calls=69"));
    cr_assert(strstr(wire_ask(&wire, "INFO commandstats"), "rejected_calls=0,failed_calls=65"));
    expect_info(&wire, "errorstats", "errorstat_ERR:count=134\\x0d");
    expect_info(&wire, "stats", "keyspace_hits:35\\x0d");
    expect_info(&wire, "stats", "keyspace_misses:134\\x0d");
}

DAEMON_TEST(the_daemon, runs_between, monitor_and_slowlog_see_each_command)
{
    struct wire wire = {0}, monitor = {0};
    struct text text = {0};
    start(NULL, NULL);
    wire_open(&wire, the_daemon.port);
    wire_open(&monitor, the_daemon.port);
    add_run(&text, "BF.ADD", "f", 10, 2);
    send_all(&wire, &text);
    expect(&wire, ":1", 2);
    cr_assert_str_eq(wire_ask(&monitor, "MONITOR"), "+OK");
    add_run(&text, "BF.ADD", "f", 20, 40);
    send_all(&wire, &text);
    expect(&wire, ":1", 40);
    for (unsigned i = 20; i < 60; i++) {
        char end[40];
        snprintf(end, sizeof(end), "\"BF.ADD\" \"f\" \"%02u\"", i);
        const char *line = wire_text(&monitor);
        cr_assert(strstr(line, end), "'%s' does not end with '%s'", line, end);
    }
    wire_close(&monitor);
    cr_assert_str_eq(wire_ask(&wire, "CONFIG SET slowlog-log-slower-than 0"), "+OK");
    add_run(&text, "BF.EXISTS", "f", 20, 40);
    send_all(&wire, &text);
    expect(&wire, ":1", 40);
    const char *log = wire_ask(&wire, "SLOWLOG GET 40"); /* newest first */
    for (unsigned i = 20; i < 60; i++) {
        char words[40];
        snprintf(words, sizeof(words), "[\"BF.EXISTS\",\"f\",\"%02u\"]", i);
        cr_assert(strstr(log, words), "no '%s' in %s", words, log);
    }
}

/* The time of a whole batch is divided among its commands, which may differ in kind: the entry of each kind shows a
 * command of the batch. */
DAEMON_TEST(the_daemon, runs_between, slowlog_shows_commands_that_were_sent)
{
    struct wire wire = {0}, other = {0};
    struct text text = {0};
    char *large = calloc(1, 30000000), held[32];
    start("--slowlog-log-slower-than", "100");
    wire_open(&wire, the_daemon.port);
    wire_open(&other, the_daemon.port);
    add_command(&text, "BF.ADD", (struct word){"added", 5}, (struct word){large, 30000000});
    size_t most = text.len - 10; /* so that the rest arrives together with the next command */
    snprintf(held, sizeof(held), "qbuf=%zu ", most);
    add_command(&text, "BF.EXISTS", (struct word){"asked", 5}, (struct word){"x", 1});
    cr_assert(wire_send(&wire, text.data, most));
    while (!strstr(wire_ask(&other, "CLIENT LIST"), held))
        ;
    cr_assert(wire_send(&wire, text.data + most, text.len - most));
    expect(&wire, ":1", 1);
    expect(&wire, ":0", 1);
    const char *log = wire_ask(&other, "SLOWLOG GET");
    cr_assert(strstr(log, "[\"bf.add\",\"added\",\"\\x00"), "%s", log);
    cr_assert(strstr(log, "[\"bf.exists\",\"asked\",\"x\"]"), "%s", log);
    wire_close(&wire);
    wire_close(&other);
    free(large);
    free(text.data);
}
