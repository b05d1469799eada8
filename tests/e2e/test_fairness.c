/* No connection makes the others wait, however much work it requests, and commands that run in slices reply as if
 * they ran at once. The tests check the order of events, not durations. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "text.h"
#include "wait.h"
#include "wire.h"

DAEMON_SUITE(the_daemon, fairness, "--threads", "1"); /* all clients are on the same worker */

/* Adds the command `name f item-0 item-1 ...`. */
static void add_batch(struct text *text, const char *name, int n)
{
    text_print(text, "*%d\r\n$%zu\r\n%s\r\n$1\r\nf\r\n", n + 2, strlen(name), name);
    for (int i = 0; i < n; i++) {
        char item[32];
        int len = snprintf(item, sizeof(item), "item-%d", i);
        text_print(text, "$%d\r\n%s\r\n", len, item);
    }
}

static size_t ones(const struct lines *reply)
{
    size_t n = 0;
    for (size_t i = 1; i < reply->count; i++)
        n += strcmp(reply->items[i], ":1") == 0;
    return n;
}

/* Batches of all sizes around that of a slice answer each item, in order, and the commands after them wait their
 * turn. */
DAEMON_TEST(the_daemon, fairness, batches_of_any_size_answer_in_order)
{
    static const int sizes[] = {1, 2045, 2046, 2047, 2048, 2049, 4096, 4097, 20000};
    struct wire wire = wire_to(the_daemon.port);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct text text = {0};
        struct lines lines = {0};
        char expected[32];
        cr_assert_str_eq(wire_ask(&wire, "FLUSHALL"), "+OK");
        cr_assert_str_eq(wire_ask(&wire, "BF.RESERVE f 0.0000001 30000"), "+OK");
        add_batch(&text, "BF.MADD", sizes[i]);
        add_batch(&text, "BF.MEXISTS", sizes[i]);
        add_batch(&text, "BF.MADD", sizes[i]);
        text_print(&text, "BF.CARD f\r\nPING\r\n");
        cr_assert(wire_send(&wire, text.data, text.len));
        snprintf(expected, sizeof(expected), "*%d", sizes[i]);
        for (int command = 0; command < 3; command++) {
            cr_assert_eq(wire_reply(&wire, WIRE_PATIENCE_MS, &lines), WIRE_OK);
            cr_expect_eq(lines.count, (size_t)sizes[i] + 1);
            cr_expect_str_eq(lines.items[0], expected);
            cr_expect_eq(ones(&lines), command < 2 ? (size_t)sizes[i] : 0, "%d items, command %d", sizes[i], command);
            lines_truncate(&lines, 0);
        }
        snprintf(expected, sizeof(expected), ":%d", sizes[i]);
        cr_expect_str_eq(wire_text(&wire), expected);
        cr_expect_str_eq(wire_text(&wire), "+PONG");
        lines_deinit(&lines);
        free(text.data);
    }
}

/* An add that is refused in a later slice ends the array there, and so does one in the first. */
DAEMON_TEST(the_daemon, fairness, a_full_filter_ends_a_long_batch)
{
    static const int capacities[] = {100, 5000};
    for (int i = 0; i < 2; i++) {
        struct text text = {0};
        struct lines lines = {0};
        char line[64];
        struct wire wire = wire_to(the_daemon.port);
        wire_ask(&wire, "FLUSHALL");
        snprintf(line, sizeof(line), "BF.RESERVE f 0.0000001 %d NONSCALING", capacities[i]);
        cr_assert_str_eq(wire_ask(&wire, line), "+OK");
        add_batch(&text, "BF.MADD", 20000);
        cr_assert(wire_send(&wire, text.data, text.len));
        cr_assert_eq(wire_reply(&wire, WIRE_PATIENCE_MS, &lines), WIRE_OK);
        cr_expect_eq(lines.count, (size_t)capacities[i] + 2);
        cr_expect_str_eq(lines.items[lines.count - 1], "-ERR non scaling filter is full");
        cr_expect_str_eq(wire_ask(&wire, "PING"), "+PONG");
        lines_deinit(&lines);
        free(text.data);
        wire_close(&wire);
    }
}

/* Sends a long batch; another client reads the filter's count until it shows some of the items, but not all. */
static bool seen_in_the_middle(struct wire *wire, redisContext *other, const struct text *batch, long long n)
{
    cr_assert(wire_send(wire, batch->data, batch->len));
    for (;;) {
        long long items = client_number(other, "BF.CARD f");
        if (items > 0)
            return items < n;
    }
}

/* While a batch of hundreds of thousands of items is added, another client of the same worker is served. If it
 * deletes or replaces the filter, the rest of the batch is not added to any filter, and the reply says so. */
static void change_in_the_middle(bool replace)
{
    enum { ITEMS = 100000, ATTEMPTS = 50 };
    struct text batch = {0};
    redisContext *other = client_open(the_daemon.port);
    bool seen = false;
    struct wire wire = wire_to(the_daemon.port);
    add_batch(&batch, "BF.MADD", ITEMS);
    for (int attempt = 0; attempt < ATTEMPTS && !seen; attempt++) {
        struct lines lines = {0};
        expect(other, "+OK", "FLUSHALL");
        expect(other, "+OK", "BF.RESERVE f 0.000001 %d", ITEMS + 1000);
        seen = seen_in_the_middle(&wire, other, &batch, ITEMS);
        expect(other, "+OK", "MULTI");
        expect(other, "+QUEUED", "DEL f");
        if (replace)
            expect(other, "+QUEUED", "BF.RESERVE f 0.000001 %d", ITEMS + 1000);
        expect(other, replace ? "[:1,+OK]" : "[:1]", "EXEC");
        cr_assert_eq(wire_reply(&wire, WIRE_PATIENCE_MS, &lines), WIRE_OK);
        if (lines.count < ITEMS) {
            cr_expect_str_eq(lines.items[lines.count - 1],
                             "-ERR the filter was deleted or replaced before all items were added");
            expect(other, replace ? ":1" : ":0", "EXISTS f");
            expect(other, ":0", "BF.CARD f");
        } else {
            seen = false; /* the batch ended before the DEL */
        }
        lines_deinit(&lines);
    }
    cr_expect(seen, "%d batches, and nobody was served in the middle of any", ATTEMPTS);
    free(batch.data);
    wire_close(&wire);
    redisFree(other);
}

DAEMON_TEST(the_daemon, fairness, a_filter_is_deleted_in_the_middle_of_a_batch)
{
    change_in_the_middle(false);
}

DAEMON_TEST(the_daemon, fairness, a_filter_is_replaced_in_the_middle_of_a_batch)
{
    change_in_the_middle(true);
}

/* Conditions that refuse a batch at its beginning do not interrupt it: a memory limit that is passed meanwhile lets
 * it end. CLIENT PAUSE holds it at its current position. */
CLIENT_TEST(the_daemon, fairness, settings_change_in_the_middle_of_a_batch)
{
    enum { ITEMS = DAEMON_SANITIZED ? 20000 : 100000, ATTEMPTS = 50 };
    struct text batch = {0};
    int seen = 0;
    struct wire wire = wire_to(the_daemon.port);
    add_batch(&batch, "BF.MADD", ITEMS);
    for (int attempt = 0; attempt < ATTEMPTS && seen < 4; attempt++) {
        struct lines lines = {0};
        expect(client, "+OK", "FLUSHALL");
        expect(client, "+OK", "BF.RESERVE f 0.000001 %d", ITEMS + 1000);
        bool middle = seen_in_the_middle(&wire, client, &batch, ITEMS);
        if (attempt % 2) {
            expect(client, "+OK", "CONFIG SET maxmemory 1");
        } else {
            expect(client, "+OK", "CLIENT PAUSE 600000 WRITE");
            long long before = client_number(client, "BF.CARD f");
            for (int i = 0; i < 20; i++)
                cr_assert_eq(client_number(client, "BF.CARD f"), before, "it goes on in spite of the pause");
            middle &= before < ITEMS;
            expect(client, "+OK", "CLIENT UNPAUSE");
        }
        seen += middle;
        cr_assert_eq(wire_reply(&wire, WIRE_PATIENCE_MS, &lines), WIRE_OK);
        cr_assert_eq(lines.count, ITEMS + 1);
        cr_assert_geq(ones(&lines), ITEMS - 10);
        lines_deinit(&lines);
        expect(client, "+OK", "CONFIG SET maxmemory 0");
    }
    cr_expect_eq(seen, 4, "%d of %d batches were seen in their middle", seen, ATTEMPTS);
    free(batch.data);
}

/* The connection may end in the middle of a batch. */
CLIENT_TEST(the_daemon, fairness, a_client_goes_away_in_the_middle_of_its_batch)
{
    struct text batch = {0};
    add_batch(&batch, "BF.MADD", 100000);
    for (int i = 0; i < 10; i++) {
        struct wire wire = wire_to(the_daemon.port);
        cr_assert(wire_send(&wire, batch.data, i % 2 ? batch.len : batch.len / 2));
        wire_close(&wire);
        expect(client, "+PONG", "PING");
    }
    free(batch.data);
}

/* Long lists of names are processed in the same way. */
CLIENT_TEST(the_daemon, fairness, long_lists_of_names)
{
    enum { NAMES = 5000 };
    const char **argv = malloc((NAMES + 1) * sizeof(*argv));
    for (int i = 0; i < NAMES; i++) {
        cr_assert_geq(asprintf((char **)&argv[i + 1], "name-%d", i), 0);
        redisAppendCommand(client, "BF.RESERVE %s 0.01 10", argv[i + 1]);
    }
    client_skip(client, NAMES);
    static const char *const commands[] = {"EXISTS", "TOUCH", "DEL", "UNLINK"};
    for (int i = 0; i < 4; i++) {
        argv[0] = commands[i];
        redisReply *reply = redisCommandArgv(client, NAMES + 1, argv, NULL);
        cr_assert(reply);
        cr_expect_eq(reply->integer, i < 3 ? NAMES : 0, "%s: %lld", commands[i], reply->integer);
        freeReplyObject(reply);
    }
    expect(client, ":0", "DBSIZE");
    for (int i = 0; i < NAMES; i++)
        free((char *)argv[i + 1]);
    free(argv);
}

/* Replies far larger than their commands (COMMAND DOCS, a hundred times and more in one write) come one after the
 * other as they are read, and another client is served before the last of them. */
CLIENT_TEST(the_daemon, fairness, small_commands_with_large_replies)
{
    enum { N = 100 };
    struct text text = {0};
    struct lines lines = {0};
    size_t length = 0;
    struct wire greedy = wire_to(the_daemon.port);
    for (int i = 0; i < N; i++)
        text_print(&text, i % 10 ? "COMMAND DOCS\r\n" : "ECHO 1234567\r\n");
    cr_assert(wire_send(&greedy, text.data, text.len));
    for (int i = 0; i < 20; i++) /* no reply has been read: they fill the sockets and wait */
        expect(client, "+PONG", "PING");
    for (int i = 0; i < N; i++) {
        cr_assert_eq(wire_reply(&greedy, WIRE_PATIENCE_MS, &lines), WIRE_OK, "reply %d", i);
        if (i % 10 == 0)
            cr_expect_str_eq(lines.items[1], "1234567", "reply %d", i);
        else
            cr_expect_eq(lines.count, length = length ? length : lines.count, "reply %d", i);
        lines_truncate(&lines, 0);
    }
    cr_expect_gt(length, 5000);
    lines_deinit(&lines);
    free(text.data);
}

/* A stream of commands that is cut anywhere, far longer than one read, is answered as a whole: parts of commands
 * move between the buffers while others are on their way through the pipeline. */
DAEMON_TEST(the_daemon, fairness, a_stream_that_is_cut_anywhere)
{
    enum { N = 30000 };
    unsigned state = 4711;
    struct text text = {0};
    struct wire wire;
    char item[1024];
    memset(item, 'z', sizeof(item));
    wire_open(&wire, the_daemon.port);
    cr_assert_str_eq(wire_ask(&wire, "BF.RESERVE f 0.0000001 100000"), "+OK");
    cr_assert_str_eq(wire_ask(&wire, "CONFIG SET reply-buffer-high-water 64mb"), "+OK");
    for (int i = 0; i < N; i++) {
        int len = snprintf(item, sizeof(item), "%d", i / 2); /* added, then queried */
        item[len] = 'z';
        len = 16 + (i / 2 * 37) % 500;
        text_print(&text, "*3\r\n$%d\r\n%s\r\n$1\r\nf\r\n$%d\r\n%.*s\r\n", i % 2 ? 9 : 6,
                   i % 2 ? "BF.EXISTS" : "BF.ADD", len, len, item);
    }
    for (size_t at = 0; at < text.len;) {
        size_t n = 1 + (size_t)rand_r(&state) % (rand_r(&state) % 3 ? 150000 : 700);
        n = n < text.len - at ? n : text.len - at;
        cr_assert(wire_send(&wire, text.data + at, n));
        at += n;
    }
    for (int i = 0; i < N; i++)
        cr_assert_str_eq(wire_text(&wire), ":1", "command %d", i);
    free(text.data);
}

/* reply-buffer-limit applies to connections that were open before it was set. */
CLIENT_TEST(the_daemon, fairness, the_reply_limit_follows_its_setting)
{
    struct lines lines = {0};
    struct wire wire = wire_to(the_daemon.port);
    for (int i = 0; i < 3; i++) {
        expect(client, "+OK", "CONFIG SET reply-buffer-high-water 16kb reply-buffer-limit %s",
               i == 1 ? "16kb" : "256mb");
        cr_assert(wire_send_text(&wire, "COMMAND DOCS\r\n"));
        cr_expect_eq(wire_reply(&wire, WIRE_PATIENCE_MS, &lines), i == 1 ? WIRE_CLOSED : WIRE_OK, "%d", i);
        if (i == 1) {
            wire_close(&wire);
            wire_open(&wire, the_daemon.port);
            cr_expect_str_eq(wire_ask(&wire, "PING"), "+PONG");
        }
    }
    lines_deinit(&lines);
}

/* Large deferred replies, behind others and alone, arrive whole; errors of deferred commands are counted with their
 * command. */
CLIENT_TEST(the_daemon, fairness, deferred_replies)
{
    enum { NAMES = 3000 };
    for (int i = 0; i < NAMES; i++)
        redisAppendCommand(client, "BF.RESERVE a-long-enough-name-of-a-filter-%d 0.01 10", i);
    for (int i = 0; i < 4; i++)
        redisAppendCommand(client, i % 2 ? "PING" : "KEYS *");
    for (int i = 0; i < NAMES + 4; i++) {
        redisReply *reply = NULL;
        cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK);
        if (i >= NAMES && (i - NAMES) % 2 == 0)
            cr_expect_eq(reply->elements, NAMES);
        freeReplyObject(reply);
    }
    expect(client, "-ERR No such client", "CLIENT KILL 1.2.3.4:5");
    redisReply *reply = redisCommand(client, "INFO commandstats");
    const char *line = strstr(reply->str, "cmdstat_client|kill:");
    cr_assert(line, "%s", reply->str);
    cr_expect(strstr(line, "failed_calls=1"), "%s", line);
    freeReplyObject(reply);
}

/* The nice value of the daemon's thread of this name, false if there is none. */
static bool find_niceness(const char *wanted, int *nice_out)
{
    char path[300], line[1024];
    bool found = false;
    struct dirent *entry;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)the_daemon.pid);
    DIR *threads = opendir(path);
    cr_assert_not_null(threads);
    while (!found && (entry = readdir(threads))) {
        snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)the_daemon.pid, entry->d_name);
        FILE *file = fopen(path, "r");
        char *name = file && fgets(line, sizeof(line), file) ? strchr(line, '(') : NULL;
        char *end = name ? strrchr(name, ')') : NULL;
        if (file)
            fclose(file);
        if (!end || (size_t)(end - name - 1) != strlen(wanted) || memcmp(name + 1, wanted, strlen(wanted)) != 0)
            continue;
        found = true;
        cr_assert_eq(sscanf(end + 1, " %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %d", nice_out),
                     1);
    }
    closedir(threads);
    return found;
}

/* The same with a wait; threads that have just been started have no name yet. */
static int niceness(const char *wanted)
{
    int nice = 0;
    wait_until(find_niceness(wanted, &nice));
    return nice;
}

/* Background work yields to workers and to the log, and each thread has its name. */
DAEMON_TEST(the_daemon, fairness, background_threads_give_way)
{
    static const char *const background[] = {"saver", "expirer", "reclaimer"};
    int own = getpriority(PRIO_PROCESS, 0);
    cr_expect_eq(niceness("worker 0"), own);
    cr_expect_eq(niceness("log"), own);
    cr_expect_eq(niceness("notifier"), own);
    for (size_t i = 0; i < sizeof(background) / sizeof(background[0]); i++)
        cr_expect_eq(niceness(background[i]), own + 10 < 19 ? own + 10 : 19, "%s", background[i]);
}

/* This many commands, each for another item. */
static void add_pipeline(struct text *text, const char *command, const char *filter, int n)
{
    for (int i = 0; i < n; i++)
        text_print(text, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$10\r\nitem-%05d\r\n", strlen(command), command,
                   strlen(filter), filter, i);
}

static void send_pipeline(struct wire *wire, const char *command, const char *filter, int n)
{
    struct text text = {0};
    add_pipeline(&text, command, filter, n);
    cr_assert(wire_send(wire, text.data, text.len));
    for (int i = 0; i < n; i++)
        cr_assert_neq(wire_text(wire)[0], '\0');
    free(text.data);
}

/* Iterations of the worker's loop: after each of them other clients get their replies. */
static long long iterations(void)
{
    return info_number(the_daemon.port, "stats", "eventloop_cycles");
}

/* Single commands are paid for like batches: an iteration has 16,384 units of work (work.h), and the pipeline and the
 * last turn some more. Counted, not measured. */
DAEMON_TEST(the_daemon, fairness, pipelines_of_single_commands_are_bounded_in_work)
{
    static const struct {
        const char *command, *filter;
        int n;
        long long work; /* of each, at least */
    } rows[] = {
        {"CF.ADD", "full", 100, 65535 / 8},
        {"BF.EXISTS", "deep", 5000, 150},
        {"BF.ADD", "deep", 5000, 150},
        {"BF.ADD", "fresh", 1500, 16 * 15},
    };
    enum { ITERATION = 2 * 16384 };
    redisContext *c = client_open(the_daemon.port);
    struct wire wire = wire_to(the_daemon.port);
    expect(c, "+OK", "CF.RESERVE full 16000 MAXITERATIONS 65535 EXPANSION 0");
    send_pipeline(&wire, "CF.ADD", "full", 15000);
    expect(c, "+OK", "BF.RESERVE deep 0.01 50 EXPANSION 1");
    client_for_items(c, "BF.MADD", "deep", "item-", 8000);
    expect(c, "+OK", "BF.RESERVE fresh 0.00001 100000000");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        long long before = iterations();
        send_pipeline(&wire, rows[i].command, rows[i].filter, rows[i].n);
        cr_expect_geq(iterations() - before, rows[i].n * rows[i].work / ITERATION, "%s: %lld", rows[i].command,
                      iterations() - before);
    }
    wire_close(&wire);
    redisFree(c);
}

/* A run of repeated commands has 32 places, although more items of 65 to 127 units of work would be affordable at once:
 * young filters with four to seven bits an item, and deep ones. */
DAEMON_TEST(the_daemon, fairness, a_run_of_repeated_commands_has_no_more_items_than_places)
{
    enum { COMMANDS = 1000, CAPACITY = 50 };
    static const char *const rates[] = {"0.06", "0.03", "0.02", "0.01"};
    static const int layers[] = {65, 80, 100, 127};
    redisContext *c = client_open(the_daemon.port);
    struct wire wire = wire_to(the_daemon.port);
    for (int i = 0; i < 4; i++) {
        char young[] = {'y', (char)('0' + i), 0}, deep[] = {'d', (char)('0' + i), 0};
        expect(c, "+OK", "BF.RESERVE %s %s 10000000", young, rates[i]);
        expect(c, "+OK", "BF.RESERVE %s 0.0001 %d EXPANSION 1", deep, CAPACITY);
        client_for_items(c, "BF.MADD", deep, "x", (layers[i] - 1) * CAPACITY + CAPACITY / 2);
        long long before = client_number(c, "BF.CARD %s", deep);
        send_pipeline(&wire, "BF.EXISTS", deep, COMMANDS);
        cr_expect_eq(client_number(c, "BF.CARD %s", deep), before);
        send_pipeline(&wire, "BF.ADD", young, COMMANDS);
        for (int item = 0; item < COMMANDS; item++)
            expect(c, ":1", "BF.EXISTS %s item-%05d", young, item);
        cr_expect_geq(client_number(c, "BF.CARD %s", young), COMMANDS - 1);
    }
    wire_close(&wire);
    redisFree(c);
}

/* Many clients at once are bounded like one: those for which a round has no more work are read in the next one. */
DAEMON_TEST(the_daemon, fairness, rounds_of_many_clients_are_bounded_in_work)
{
    enum { CLIENTS = 40, COMMANDS = 100, LAYERS = 150 };
    struct wire wires[CLIENTS];
    struct text text = {0};
    redisContext *c = client_open(the_daemon.port);
    expect(c, "+OK", "BF.RESERVE deep 0.01 50 EXPANSION 1");
    client_for_items(c, "BF.MADD", "deep", "item-", 8000);
    add_pipeline(&text, "BF.EXISTS", "deep", COMMANDS);
    for (int i = 0; i < CLIENTS; i++)
        wires[i] = wire_to(the_daemon.port);
    long long before = iterations();
    cr_assert_eq(kill(the_daemon.pid, SIGSTOP), 0); /* so that all of them are readable at one moment */
    for (int i = 0; i < CLIENTS; i++)
        cr_assert(wire_send(&wires[i], text.data, text.len));
    cr_assert_eq(kill(the_daemon.pid, SIGCONT), 0);
    for (int i = 0; i < CLIENTS; i++) {
        for (int j = 0; j < COMMANDS; j++)
            cr_assert_neq(wire_text(&wires[i])[0], '\0');
        wire_close(&wires[i]);
    }
    cr_expect_geq(iterations() - before, CLIENTS * COMMANDS * LAYERS / (2 * 16384), "%lld", iterations() - before);
    free(text.data);
    redisFree(c);
}
