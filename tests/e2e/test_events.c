/* Notifications from the server: keyspace events, and MONITOR. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon.h"
#include "wire.h"

DAEMON_SUITE(the_daemon, events, "--threads", "3");

/* ---- keyspace events ---- */

/* The events of both channels until `last` was seen on its key's channel, as "event name;..."; each comes on both, the
 * keyspace channel first. */
static const char *events_until(struct wire *sub, const char *last)
{
    static char text[2048];
    char expected[512], seen[512];
    text[0] = '\0';
    do {
        char event[64], name[64];
        const char *got = wire_text(sub);
        cr_assert_eq(sscanf(got, "[\"pmessage\",\"__key*\",\"__keyspace@0__:%63[^\"]\",\"%63[^\"]\"]", name, event), 2,
                     "%s", got);
        snprintf(expected, sizeof(expected), "[\"pmessage\",\"__key*\",\"__keyevent@0__:%s\",\"%s\"]", event, name);
        got = wire_text(sub);
        cr_assert_str_eq(got, expected);
        snprintf(seen, sizeof(seen), "%s %s", event, name);
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s;", seen);
    } while (strcmp(seen, last) != 0);
    return text;
}

/* Runs the commands, separated by '|', then deletes the filter "end"; its event ends the returned text. */
static const char *events_of(struct wire *sub, struct wire *client, const char *commands)
{
    char copy[512], *save = NULL;
    snprintf(copy, sizeof(copy), "%s", commands);
    for (char *command = strtok_r(copy, "|", &save); command; command = strtok_r(NULL, "|", &save))
        cr_assert_neq(wire_ask(client, command)[0], '-', "%s", command);
    wire_ask(client, "BF.ADD end x");
    expect_ask(client, "DEL end", ":1");
    const char *text = events_until(sub, "del end");
    char *end = strstr(text, "new end;bloom.reserve end;del end;");
    cr_assert_not_null(end, "%s", text);
    *end = '\0';
    return text;
}

#define expect_events(commands, expected)                                                                   \
    do {                                                                                                    \
        const char *text_got = events_of(&sub, &client, commands);                                          \
        cr_assert_str_eq(text_got, expected, "%s: got '%s' instead of '%s'", commands, text_got, expected); \
    } while (0)

DAEMON_TEST(the_daemon, events, what_happens_to_filters)
{
    struct wire client = wire_to(the_daemon.port), sub = wire_to(the_daemon.port);
    expect_ask(&client, "CONFIG SET notify-keyspace-events KEAn", "+OK");
    expect_ask(&sub, "PSUBSCRIBE __key*", "[\"psubscribe\",\"__key*\",:1]");
    expect_events("BF.ADD f x", "new f;bloom.reserve f;");
    expect_events("BF.ADD f y|BF.EXISTS f x|BF.MADD f 1 2 3|BF.EXISTS none x|TYPE f|EXISTS f g", "");
    expect_events("RENAME f g", "new g;rename_from f;rename_to g;");
    expect_events("COPY g h", "new h;copy_to h;");
    expect_events("COPY g h", "");
    expect_events("COPY g h REPLACE", "new h;copy_to h;");
    expect_events("RENAME g h", "new h;rename_from g;rename_to h;");
    expect_events("RENAME h h", "");
    expect_events("RENAMENX h i|DEL none", "new i;rename_from h;rename_to i;");
    expect_events("BF.CLEAR i", "bloom.clear i;");
    expect_events("BF.CLEAR i", "");
    expect_events("BF.MERGE m i", "new m;bloom.merge m;");
    expect_events("BF.MERGE m i", "");
    expect_events("BF.ADD i new|BF.MERGE m i", "bloom.merge m;");
    expect_events("DEL m none i", "del m;del i;");
    expect_events("BF.RESERVE t 0.01 10 TTL 1000", "new t;bloom.reserve t;expire t;");
    expect_events("UNLINK t", "del t;");
    expect_events("BF.ADD e x|EXPIRE e 1000|PEXPIRE e 900000|PERSIST e|PERSIST e",
                  "new e;bloom.reserve e;expire e;expire e;persist e;");
    expect_events("EXPIRE e -1|EXPIRE none 10", "del e;");
    expect_events("BF.ADD a x|FLUSHALL", "new a;bloom.reserve a;");
}

/* Once for each layer, once when the last item fits, whichever of several clients adds it. */
DAEMON_TEST(the_daemon, events, growth_and_fullness)
{
    struct wire client = wire_to(the_daemon.port), sub = wire_to(the_daemon.port), others[3];
    expect_ask(&client, "CONFIG SET notify-keyspace-events KEdgn", "+OK");
    expect_ask(&sub, "PSUBSCRIBE __key*", "[\"psubscribe\",\"__key*\",:1]");
    expect_events("BF.RESERVE s 0.001 2 EXPANSION 2|BF.MADD s 1 2", "new s;bloom.reserve s;");
    expect_events("BF.ADD s 3", "bloom.grow s;");
    expect_events("BF.MADD s 3 4 5 6", "");
    expect_events("BF.MADD s 7 8 9 10 11 12 13 14 15", "bloom.grow s;bloom.grow s;");
    expect_events("BF.RESERVE f 0.001 3 NONSCALING|BF.MADD f 1 2", "new f;bloom.reserve f;");
    expect_events("BF.ADD f 3", "bloom.full f;");
    wire_ask(&client, "BF.ADD f 4");
    expect_events("BF.EXISTS f 4", "");

    /* Three clients fill one filter at the same time. */
    expect_ask(&client, "BF.RESERVE many 0.0001 100 EXPANSION 1", "+OK");
    char *text = malloc(1000 * 32), *at = text;
    for (int i = 0; i < 1000; i++)
        at += sprintf(at, "BF.ADD many item:%d\r\n", i);
    for (int i = 0; i < 3; i++) {
        others[i] = wire_to(the_daemon.port);
        cr_assert(wire_send_text(&others[i], text));
    }
    for (int i = 0; i < 3; i++) {
        for (int n = 0; n < 1000; n++)
            wire_text(&others[i]);
        wire_close(&others[i]);
    }
    free(text);
    const char *seen = events_of(&sub, &client, "PING");
    size_t grown = 0;
    for (const char *p = seen; (p = strstr(p, "bloom.grow many;")); p++)
        grown++;
    /* 1000 items, or a false positive or two less, in layers of 100. */
    cr_assert_eq(grown, 9, "%s", seen);
}

/* Of three clients with the same items, the one that makes a layer often finds its item added by another. */
DAEMON_TEST(the_daemon, events, growth_by_who_comes_too_late)
{
    enum { FILTERS = 100, ITEMS = 100 };
    struct wire client = wire_to(the_daemon.port), sub = wire_to(the_daemon.port), others[3];
    char *text = malloc(FILTERS * ITEMS * 40), *at = text;
    for (int f = 0; f < FILTERS; f++) {
        char reserve[64];
        snprintf(reserve, sizeof(reserve), "BF.RESERVE late:%d 0.000001 10 EXPANSION 1", f);
        expect_ask(&client, reserve, "+OK");
        for (int i = 0; i < ITEMS; i++)
            at += sprintf(at, "BF.ADD late:%d item:%d\r\n", f, i);
    }
    expect_ask(&client, "CONFIG SET notify-keyspace-events Ed", "+OK");
    expect_ask(&sub, "SUBSCRIBE __keyevent@0__:bloom.grow", "[\"subscribe\",\"__keyevent@0__:bloom.grow\",:1]");
    for (int i = 0; i < 3; i++) {
        others[i] = wire_to(the_daemon.port);
        cr_assert(wire_send_text(&others[i], text));
    }
    for (int i = 0; i < 3; i++) {
        for (int n = 0; n < FILTERS * ITEMS; n++)
            wire_text(&others[i]);
        wire_close(&others[i]);
    }
    free(text);

    unsigned expected = 0, seen = 0;
    for (int f = 0; f < FILTERS; f++) {
        char info[64];
        snprintf(info, sizeof(info), "BF.INFO late:%d FILTERS", f);
        expected += (unsigned)atoi(wire_ask(&client, info) + 2) - 1;
    }
    cr_assert_gt(expected, FILTERS * 8);
    /* The events come in order: an event of another filter follows those of the growth. */
    expect_ask(&client, "BF.RESERVE end 0.01 1 EXPANSION 1", "+OK");
    wire_ask(&client, "BF.MADD end 1 2");
    const char *end = "[\"message\",\"__keyevent@0__:bloom.grow\",\"end\"]";
    while (strcmp(wire_text(&sub), end) != 0)
        seen++;
    cr_assert_eq(seen, expected);
}

/* Each letter has its own events and channels, and no others. */
DAEMON_TEST(the_daemon, events, the_setting_decides)
{
    struct wire client = wire_to(the_daemon.port), sub = wire_to(the_daemon.port);
    struct lines lines = {0};
    expect_ask(&client, "CONFIG GET notify-keyspace-events", "[\"notify-keyspace-events\",\"\"]");
    static const char *const settings[][2] = {
        {"KEA", "AKE"}, {"Kg$lshzxetdE", "AKE"}, {"xgEK", "gxKE"}, {"KEmn", "nKEm"}, {"E", "E"}, {"g", "g"},
        {"dK", "dK"}};
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        char command[128], expected[128];
        snprintf(command, sizeof(command), "CONFIG SET notify-keyspace-events %s", settings[i][0]);
        expect_ask(&client, command, "+OK");
        snprintf(expected, sizeof(expected), "[\"notify-keyspace-events\",\"%s\"]", settings[i][1]);
        expect_ask(&client, "CONFIG GET notify-keyspace-events", expected);
    }
    expect_ask(&client, "CONFIG SET notify-keyspace-events Kq",
               "-ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - Invalid event class "
               "character. Use 'Ag$lshzxeKEtmdn'.");
    expect_ask(&sub, "PSUBSCRIBE *", "[\"psubscribe\",\"*\",:1]");

    static const struct {
        const char *flags, *expected;
    } cases[] = {
        {"g", ""},
        {"E", ""},
        {"Eg", "[\"pmessage\",\"*\",\"__keyevent@0__:del\",\"f\"]"},
        {"Kg", "[\"pmessage\",\"*\",\"__keyspace@0__:f\",\"del\"]"},
        {"En", "[\"pmessage\",\"*\",\"__keyevent@0__:new\",\"f\"]"},
        {"Kd", "[\"pmessage\",\"*\",\"__keyspace@0__:f\",\"bloom.reserve\"]"},
        {"KEx", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char command[128];
        snprintf(command, sizeof(command), "CONFIG SET notify-keyspace-events %s", cases[i].flags);
        expect_ask(&client, command, "+OK");
        expect_ask(&client, "BF.ADD f x", ":1");
        expect_ask(&client, "DEL f", ":1");
        if (cases[i].expected[0])
            cr_assert_str_eq(wire_text(&sub), cases[i].expected, "%s", cases[i].flags);
        expect_ask(&client, "PUBLISH marker x", ":1");
        /* The marker may overtake an unwanted event, which the next read would then find. */
        cr_assert_str_eq(wire_text(&sub), "[\"pmessage\",\"*\",\"marker\",\"x\"]", "%s", cases[i].flags);
    }
    expect_ask(&client, "CONFIG SET notify-keyspace-events Eg", "+OK");
    expect_ask(&client, "BF.ADD f x", ":1");
    expect_ask(&client, "DEL f", ":1");
    cr_assert_str_eq(wire_text(&sub), cases[2].expected);
    cr_assert_eq(wire_reply(&sub, 50, &lines), WIRE_SILENCE);
    lines_deinit(&lines);
}

/* A name may have any bytes; the channel has them too, and no part of it can be taken for a reply. */
DAEMON_TEST(the_daemon, events, names_are_bytes)
{
    struct wire client = wire_to(the_daemon.port), sub = wire_to(the_daemon.port);
    const struct word words[] = {{"BF.ADD", 6}, {"a\r\n+b\0\"", 7}, {"x", 1}};
    expect_ask(&client, "CONFIG SET notify-keyspace-events KEn", "+OK");
    expect_ask(&sub, "PSUBSCRIBE __key*", "[\"psubscribe\",\"__key*\",:1]");
    wire_send_command(&client, words, 3);
    cr_assert_str_eq(wire_text(&client), ":1");
    cr_assert_str_eq(wire_text(&sub), "[\"pmessage\",\"__key*\",\"__keyspace@0__:a\\x0d\\x0a+b\\x00\"\",\"new\"]");
    cr_assert_str_eq(wire_text(&sub), "[\"pmessage\",\"__key*\",\"__keyevent@0__:new\",\"a\\x0d\\x0a+b\\x00\"\"]");
}

/* Expiry makes many events at once: all of them arrive, each once. */
DAEMON_TEST(the_daemon, events, expiry_of_many)
{
    struct wire client = wire_to(the_daemon.port), sub = wire_to(the_daemon.port);
    const int n = 3000;
    char *seen = calloc((size_t)n, 1), command[64];
    expect_ask(&client, "CONFIG SET notify-keyspace-events Ex", "+OK");
    expect_ask(&sub, "SUBSCRIBE __keyevent@0__:expired", "[\"subscribe\",\"__keyevent@0__:expired\",:1]");
    for (int i = 0; i < n; i++) {
        snprintf(command, sizeof(command), "BF.RESERVE %d 0.01 10 TTL 1", i);
        expect_ask(&client, command, "+OK");
    }
    for (int i = 0; i < n; i++) {
        int which = -1;
        const char *got = wire_text(&sub);
        cr_assert_eq(sscanf(got, "[\"message\",\"__keyevent@0__:expired\",\"%d\"]", &which), 1, "%s", got);
        cr_assert(which >= 0 && which < n && !seen[which], "%s", got);
        seen[which] = 1;
    }
    free(seen);
}

/* ---- MONITOR ---- */

/* The next line without its time, which must have the right form. */
static const char *monitor_line(struct wire *monitor)
{
    static char line[4096];
    int used = 0, seconds, microseconds, port;
    const char *got = wire_text(monitor);
    cr_assert_eq(sscanf(got, "+%d.%6d [0 127.0.0.1:%d] %n", &seconds, &microseconds, &port, &used), 3, "%s", got);
    cr_assert_gt(used, 0, "%s", got);
    snprintf(line, sizeof(line), "%s", got + used);
    return line;
}

#define expect_line(monitor, expected)                                                        \
    do {                                                                                      \
        const char *line_got = monitor_line(monitor);                                         \
        cr_assert_str_eq(line_got, expected, "got '%s' instead of '%s'", line_got, expected); \
    } while (0)

DAEMON_TEST(the_daemon, events, monitor_shows_commands)
{
    struct wire monitor = wire_to(the_daemon.port), client = wire_to(the_daemon.port);
    expect_ask(&monitor, "MONITOR", "+OK");
    expect_ask(&client, "PING", "+PONG");
    expect_line(&monitor, "\"PING\"");
    expect_ask(&client, "bf.Add f item", ":1");
    expect_line(&monitor, "\"bf.Add\" \"f\" \"item\"");
    const struct word odd[] = {{"BF.EXISTS", 9}, {"f", 1}, {"a\"b\\c\r\n\t\a\b\x01\xff", 12}};
    wire_send_command(&client, odd, 3);
    cr_assert_str_eq(wire_text(&client), ":0");
    expect_line(&monitor, "\"BF.EXISTS\" \"f\" \"a\\\\\"b\\\\\\\\c\\\\r\\\\n\\\\t\\\\a\\\\b\\\\x01\\\\xff\"");

    /* Not shown: commands that did not run, administration, and secrets. */
    wire_ask(&client, "NOSUCH x");
    wire_ask(&client, "BF.ADD f");
    wire_ask(&client, "CONFIG GET port");
    wire_ask(&client, "AUTH secret");
    wire_ask(&client, "AUTH default secret");
    wire_ask(&client, "HELLO 2 AUTH default secret SETNAME me");
    expect_line(&monitor, "\"AUTH\" \"(redacted)\"");
    expect_line(&monitor, "\"AUTH\" \"(redacted)\" \"(redacted)\"");
    expect_line(&monitor, "\"HELLO\" \"2\" \"AUTH\" \"(redacted)\" \"(redacted)\" \"(redacted)\" \"(redacted)\"");

    /* The commands of a transaction, when they run. */
    expect_ask(&client, "MULTI", "+OK");
    expect_ask(&client, "BF.EXISTS f item", "+QUEUED");
    expect_line(&monitor, "\"MULTI\"");
    expect_ask(&client, "EXEC", "[:1]");
    expect_line(&monitor, "\"BF.EXISTS\" \"f\" \"item\"");
    expect_line(&monitor, "\"EXEC\"");
    expect_ask(&client, "MULTI", "+OK");
    expect_line(&monitor, "\"MULTI\"");
    expect_ask(&client, "MONITOR", "+QUEUED");
    expect_ask(&client, "EXEC", "[-ERR MONITOR isn't allowed for DENY BLOCKING client]");
    expect_line(&monitor, "\"EXEC\"");

    cr_assert_not_null(strstr(wire_ask(&client, "CLIENT LIST"), " flags=O "));
    /* A monitor's own commands are shown as well. */
    wire_send_text(&monitor, "ECHO me\r\n");
    cr_assert_str_eq(wire_text(&monitor), "\"me\"");
    expect_line(&monitor, "\"ECHO\" \"me\"");
    wire_close(&monitor);
    expect_ask(&client, "PING", "+PONG");
}

/* Some as plain lines, most as arrays. Arrays that differ from the previous one in the item only take a short cut. */
static char *put_command(char *at, const char *name, int c, int i)
{
    char item[16];
    int len = snprintf(item, sizeof(item), "%d", i);
    if (c == 0)
        return at + sprintf(at, "%s f:%d %s\r\n", name, c, item);
    return at + sprintf(at, "*3\r\n$%zu\r\n%s\r\n$3\r\nf:%d\r\n$%d\r\n%s\r\n", strlen(name), name, c, len, item);
}

/* Pipelined adds and queries, which take a separate path, are shown in order, from all workers, before their
 * replies. */
DAEMON_TEST(the_daemon, events, monitor_shows_pipelines_in_order)
{
    enum { CLIENTS = 3, COMMANDS = 1500 };
    struct wire monitor = wire_to(the_daemon.port), clients[CLIENTS];
    int next[CLIENTS] = {0};
    expect_ask(&monitor, "MONITOR", "+OK");
    char *text = malloc(COMMANDS * 64);
    for (int c = 0; c < CLIENTS; c++) {
        char *at = text;
        clients[c] = wire_to(the_daemon.port);
        for (int i = 0; i < COMMANDS; i++)
            at = put_command(at, i % 30 ? "BF.ADD" : "BF.EXISTS", c, i);
        cr_assert(wire_send_text(&clients[c], text));
    }
    free(text);
    for (int n = 0; n < CLIENTS * COMMANDS; n++) {
        char command[32];
        int c, i;
        const char *line = monitor_line(&monitor);
        cr_assert_eq(sscanf(line, "\"%31[A-Z.]\" \"f:%d\" \"%d\"", command, &c, &i), 3, "%s", line);
        cr_assert_eq(i, next[c]++, "%s", line);
        cr_assert_str_eq(command, i % 30 ? "BF.ADD" : "BF.EXISTS");
    }
    for (int c = 0; c < CLIENTS; c++) {
        for (int i = 0; i < COMMANDS; i++)
            cr_assert_neq(wire_text(&clients[c])[0], '-');
        wire_close(&clients[c]);
    }
    /* A client that has a reply finds its command before all commands sent later. */
    struct wire a = wire_to(the_daemon.port), b = wire_to(the_daemon.port);
    for (int i = 0; i < 100; i++) {
        char command[32], expected[48];
        snprintf(command, sizeof(command), "ECHO %d", i);
        snprintf(expected, sizeof(expected), "\"ECHO\" \"%d\"", i);
        wire_ask(i % 2 ? &a : &b, command);
        expect_line(&monitor, expected);
    }
}

/* A monitor that does not read is disconnected; other clients notice nothing. */
DAEMON_TEST(the_daemon, events, a_slow_monitor_is_disconnected)
{
    struct wire slow = wire_to(the_daemon.port), client = wire_to(the_daemon.port);
    int small = 4096;
    char *item = malloc(100001);
    memset(item, 'x', 100000);
    item[100000] = '\0';
    const struct word set[] = {{"CONFIG", 6}, {"SET", 3}, {"client-output-buffer-limit", 26}, {"normal 1mb 0 0", 14}};
    setsockopt(slow.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    expect_ask(&slow, "MONITOR", "+OK");
    wire_send_command(&client, set, 4);
    cr_assert_str_eq(wire_text(&client), "+OK");
    for (int i = 0;; i++) {
        const struct word words[] = {{"BF.EXISTS", 9}, {"f", 1}, {item, 100000}};
        cr_assert_lt(i, 1000, "the slow monitor is still there");
        wire_send_command(&client, words, 3);
        cr_assert_str_eq(wire_text(&client), ":0");
        if (!strstr(wire_ask(&client, "CLIENT LIST"), " flags=O "))
            break;
    }
    free(item);
}

/* A line is bounded, and tells how much it leaves out. */
DAEMON_TEST(the_daemon, events, a_long_command_is_cut)
{
    struct wire monitor = wire_to(the_daemon.port), client = wire_to(the_daemon.port);
    size_t len = 3000000;
    char *item = malloc(len);
    struct lines lines = {0};
    memset(item, 'x', len);
    const struct word words[] = {{"BF.MEXISTS", 10}, {"f", 1}, {item, len}, {"y", 1}};
    expect_ask(&monitor, "MONITOR", "+OK");
    wire_send_command(&client, words, 4);
    cr_assert_str_eq(wire_text(&client), "[:0,:0]");
    cr_assert_eq(wire_reply(&monitor, WIRE_PATIENCE_MS, &lines), WIRE_OK);
    size_t shown = strlen(lines.items[0]);
    cr_assert(shown > 1000000 && shown < 1100000, "%zu", shown);
    cr_assert_not_null(strstr(lines.items[0] + shown - 100, " more bytes) ... (1 more arguments)"), "%s",
                       lines.items[0] + shown - 100);
    lines_deinit(&lines);
    free(item);
}
