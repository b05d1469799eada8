/* MULTI, EXEC, DISCARD, WATCH: Redis's guarantees. The replies themselves are compared with recorded ones in
 * test_corpus.c, long random sequences with a model in test_pipeline.c. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "wait.h"
#include "wire.h"

DAEMON_SUITE(the_daemon, transactions, "--threads", "3");

/* Every way to change a filter under WATCH makes EXEC reply null; reads, and changes of other filters, do not. */
DAEMON_TEST(the_daemon, transactions, watch_sees_every_change)
{
    static const struct {
        const char *change;
        bool touches;
    } cases[] = {
        {"BF.ADD w new%d", true},
        {"BF.ADD w old", false},
        {"BF.MADD w old new-b%d", true},
        {"BF.EXISTS w old", false},
        {"BF.INFO w", false},
        {"BF.ADD other x%d", false},
        {"DEL w", true},
        {"RENAME other w", true},
        {"RENAME w elsewhere", true},
        {"FLUSHALL", true},
        {"BF.RESERVE w 0.01 10", false},
        {"BF.INSERT w CAPACITY 10 ITEMS i%d", true},
        {"UNLINK w", true},
        {"RENAME other third", false},
        {"TTL w", false},
        {"COPY other w REPLACE", true},
        {"EXPIRE w 1000", true},
        {"PEXPIRE w 1", true},
        {"EXPIRE other 1000", false},
        {"PERSIST w", false},
        {"BF.CLEAR w", true},
        {"BF.CLEAR empty", false},
    };
    redisContext *a = client_open(the_daemon.port), *b = client_open(the_daemon.port);
    for (int i = 0; i < (int)(sizeof(cases) / sizeof(cases[0])); i++) {
        expect(b, "+OK", "FLUSHALL");
        expect(b, ":1", "BF.ADD w old");
        expect(b, ":1", "BF.ADD other o");
        expect(b, "+OK", "BF.RESERVE empty 0.01 100");
        expect(a, "+OK", "WATCH unrelated w empty");
        freeReplyObject(redisCommand(b, cases[i].change, i));
        expect(a, "+OK", "MULTI");
        expect(a, "+QUEUED", "PING");
        expect(a, "+QUEUED", "BF.EXISTS other o");
        const char *reply = client_ask(a, "EXEC");
        cr_expect_eq(strcmp(reply, "nil") == 0, cases[i].touches, "%s: EXEC replied %s", cases[i].change, reply);
    }
}

/* A restored state is no change, after any changes in between. */
DAEMON_TEST(the_daemon, transactions, watch_does_not_see_what_was_undone)
{
    redisContext *a = client_open(the_daemon.port), *b = client_open(the_daemon.port);
    expect(b, ":1", "BF.ADD w x");
    expect(b, ":1", "PEXPIREAT w 33177117420123");
    expect(a, "+OK", "WATCH w none");
    expect(b, "+OK", "RENAME w elsewhere");
    expect(b, "+OK", "RENAME elsewhere w");
    expect(b, ":1", "PERSIST w");
    expect(b, ":1", "PEXPIREAT w 33177117420123");
    expect(b, ":1", "BF.ADD none x");
    expect(b, ":1", "DEL none");
    expect(a, "+OK", "MULTI");
    expect(a, "+QUEUED", "BF.ADD w y");
    expect(a, "[:1]", "EXEC");
}

/* A watched filter that grows by other clients' adds has changed, too. */
DAEMON_TEST(the_daemon, transactions, watch_sees_growth)
{
    redisContext *a = client_open(the_daemon.port), *b = client_open(the_daemon.port);
    expect(b, "+OK", "BF.RESERVE g 0.001 10");
    expect(a, "+OK", "WATCH g");
    for (int i = 0; i < 100; i++)
        client_ask(b, "BF.ADD g %d", i);
    expect(b, "[:4]", "BF.INFO g FILTERS");
    expect(a, "+OK", "MULTI");
    expect(a, "+QUEUED", "BF.ADD g mine");
    expect(a, "nil", "EXEC");
}

/* EXEC, DISCARD, UNWATCH and RESET end a WATCH; a null is *-1 in RESP2 and _ in RESP3. */
CLIENT_TEST(the_daemon, transactions, watches_end)
{
    static const char *const ends[] = {"UNWATCH", "MULTI;EXEC", "MULTI;DISCARD", "RESET"};
    struct wire wire = wire_to(the_daemon.port);
    for (size_t i = 0; i < 4; i++) {
        char text[64], *rest = text, *word;
        wire_ask(&wire, "WATCH w");
        expect(client, ":1", "BF.ADD w x%d", (int)i);
        strcpy(text, ends[i]);
        if (strcmp(ends[i], "MULTI;EXEC") == 0) {
            wire_ask(&wire, "MULTI");
            cr_expect_str_eq(wire_ask(&wire, "EXEC"), "nil");
        } else {
            while ((word = strsep(&rest, ";")))
                wire_ask(&wire, word);
        }
        cr_expect_str_eq(wire_ask(&wire, "MULTI"), "+OK");
        wire_ask(&wire, "PING");
        cr_expect_str_eq(wire_ask(&wire, "EXEC"), "[+PONG]", "after %s", ends[i]);
    }
    wire_ask(&wire, "HELLO 3");
    wire_ask(&wire, "WATCH w");
    expect(client, ":1", "BF.ADD w more");
    wire_ask(&wire, "MULTI");
    wire_ask(&wire, "PING");
    struct lines lines = {0};
    wire_send_text(&wire, "EXEC\r\n");
    cr_assert_eq(wire_reply(&wire, WIRE_PATIENCE_MS, &lines), WIRE_OK);
    cr_assert_eq(lines.count, 1);
    cr_expect_str_eq(lines.items[0], "_");
    lines_deinit(&lines);
}

/* An error while queueing makes EXEC refuse the transaction: an unknown command or subcommand, a wrong number of
 * arguments, a command that is not allowed in transactions. A command that fails during EXEC does not stop the rest. */
CLIENT_TEST(the_daemon, transactions, errors_in_the_queue_and_when_it_runs)
{
    static const char *const refused[] = {"NOSUCH", "BF.ADD f",        "CONFIG NOSUCH",   "CLIENT",
                                          "SAVE",   "SHUTDOWN NOSAVE", "CLIENT REPLY OFF"};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        expect(client, "+OK", "MULTI");
        cr_expect_eq(client_ask(client, refused[i])[0], '-', "%s", refused[i]);
        expect(client, "+QUEUED", "BF.ADD f x");
        expect(client, "-EXECABORT Transaction discarded because of previous errors.", "EXEC");
        expect(client, ":0", "EXISTS f");
    }
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "BF.RESERVE f 0.01 nonsense");
    expect(client, "+QUEUED", "BF.ADD f x");
    expect(client, "+QUEUED", "RENAME none f");
    expect(client, "+QUEUED", "BF.EXISTS f x");
    expect(client, "[-ERR bad capacity,:1,-ERR no such key,:1]", "EXEC");
    expect(client, "-ERR EXEC without MULTI", "EXEC");
    expect(client, "-ERR DISCARD without MULTI", "DISCARD");
}

/* The log gets EXEC's records at its end: a wait for the disk inside would never end. */
CLIENT_TEST(the_daemon, transactions, nothing_waits_for_the_log_inside)
{
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "BF.ADD f one");
    expect(client, "+QUEUED", "WAITAOF 1 0 0");
    expect(client, "+QUEUED", "BF.ADD f two");
    expect(client, "[:1,[:0,:0],:1]", "EXEC");
    expect(client, "[:1,:0]", "WAITAOF 1 0 0");
}

/* redis-py's pipeline(): a thousand commands in one transaction; items that are longer than usual, and a batch that is
 * run in slices elsewhere. */
CLIENT_TEST(the_daemon, transactions, large_ones)
{
    enum { ADDS = 3000, BATCH = 5000 };
    char item[600];
    const char **argv = malloc((BATCH + 2) * sizeof(*argv));
    memset(item, 'x', sizeof(item));
    redisAppendCommand(client, "BF.RESERVE f 0.000001 100000");
    redisAppendCommand(client, "MULTI");
    for (int i = 0; i < ADDS; i++) {
        int len = snprintf(item, sizeof(item), "%d", i);
        item[len] = 'x';
        redisAppendCommand(client, "BF.ADD f %b", item, (size_t)(i % 600 + 8));
    }
    argv[0] = "BF.MADD";
    argv[1] = "f";
    for (int i = 0; i < BATCH; i++)
        cr_assert_geq(asprintf((char **)&argv[i + 2], "batch-%d", i), 0);
    redisAppendCommandArgv(client, BATCH + 2, argv, NULL);
    redisAppendCommand(client, "BF.CARD f");
    redisAppendCommand(client, "EXEC");
    redisReply *reply = NULL;
    for (int i = 0; i < ADDS + 4; i++) {
        cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK);
        cr_assert_str_eq(reply->str, i < 2 ? "OK" : "QUEUED");
        freeReplyObject(reply);
    }
    cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK);
    cr_assert_eq(reply->elements, ADDS + 2);
    for (int i = 0; i < ADDS; i++)
        cr_assert_eq(reply->element[i]->integer, 1);
    cr_assert_eq(reply->element[ADDS]->elements, BATCH);
    cr_assert_geq(reply->element[ADDS + 1]->integer, ADDS + BATCH - 3); /* less a false positive or two */
    freeReplyObject(reply);
    for (int i = 0; i < BATCH; i++)
        free((char *)argv[i + 2]);
    free(argv);
}

/* A queue that exceeds client-query-buffer-limit ends the connection, and nothing else; watched names count as well. */
CLIENT_TEST(the_daemon, transactions, the_queue_is_bounded)
{
    expect(client, "+OK", "CONFIG SET client-query-buffer-limit 1mb");
    for (int watch = 0; watch < 2; watch++) {
        redisContext *c = client_open(the_daemon.port);
        char *text = malloc(50000);
        redisReply *reply = NULL;
        int queued = 0;
        memset(text, 'y', 50000);
        if (!watch)
            expect(c, "+OK", "MULTI");
        while (queued < 100 && (reply = redisCommand(c, watch ? "WATCH %b" : "PING %b", text, (size_t)50000))) {
            freeReplyObject(reply);
            queued++;
        }
        cr_expect_gt(queued, 4, "%d", watch);
        cr_expect_lt(queued, 30, "%d", watch);
        free(text);
        redisFree(c);
    }
    expect(client, "+PONG", "PING");
}

/* Connections that close in any state of a transaction leave nothing behind. */
DAEMON_TEST(the_daemon, transactions, connections_may_end_at_any_time)
{
    static const char *const states[] = {"WATCH a b\r\n",
                                         "MULTI\r\n",
                                         "WATCH a\r\nMULTI\r\nBF.ADD a x\r\nBF.ADD b x\r\n",
                                         "MULTI\r\nBF.ADD a x\r\nBF.ADD b x\r\nEXEC\r\n",
                                         "MULTI\r\nKEYS *\r\nBF.ADD b x\r\nEXEC\r\nKEYS *\r\nMULTI\r\nPING\r\n",
                                         "MULTI\r\nBF.ADD a x\r\nQUIT\r\n"};
    for (int i = 0; i < 120; i++) {
        struct wire wire = wire_to(the_daemon.port);
        cr_assert(wire_send_text(&wire, states[i % 6]));
        wire_close(&wire);
    }
    redisContext *c = client_open(the_daemon.port);
    expect(c, "+PONG", "PING");
}

/* ---- isolation ---- */

enum { ROUNDS = 250, WRITERS = 2 };

static struct {
    _Atomic bool stop;
    _Atomic long seen[2]; /* pairs that were absent, and present */
} isolation;

/* Adds pairs of items, to one filter and to two; makes and removes pairs of filters. */
static void *write_pairs(void *arg)
{
    int who = *(int *)arg;
    redisContext *c = client_open(the_daemon.port);
    for (int i = 0; i < ROUNDS; i++) {
        redisAppendCommand(c, "MULTI");
        redisAppendCommand(c, "BF.ADD f p%d-%d", who, i);
        redisAppendCommand(c, "BF.MADD f q%d-%d r%d-%d", who, i, who, i);
        redisAppendCommand(c, "BF.ADD g p%d-%d", who, i);
        redisAppendCommand(c, i % 2 ? "DEL left%d" : "BF.RESERVE left%d 0.01 10", who);
        redisAppendCommand(c, i % 2 ? "DEL right%d" : "BF.RESERVE right%d 0.01 10", who);
        redisAppendCommand(c, "EXEC");
        client_skip(c, 7);
    }
    redisFree(c);
    return NULL;
}

static long long number(redisContext *c)
{
    redisReply *reply = NULL;
    cr_assert_eq(redisGetReply(c, (void **)&reply), REDIS_OK, "%s", c->errstr);
    long long value = reply->type == REDIS_REPLY_ARRAY ? 0 : reply->integer;
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++)
        value += reply->element[i]->integer;
    freeReplyObject(reply);
    return value;
}

/* Looks at pairs in all possible ways: one command, deferred commands, and transactions. */
static void *read_pairs(void *arg)
{
    (void)arg;
    redisContext *c = client_open(the_daemon.port);
    unsigned state = 7;
    while (!atomic_load(&isolation.stop)) {
        int who = rand_r(&state) % WRITERS, i = rand_r(&state) % ROUNDS;
        redisAppendCommand(c, "BF.MEXISTS f r%d-%d q%d-%d p%d-%d", who, i, who, i, who, i);
        redisAppendCommand(c, "EXISTS right%d left%d", who, who);
        long long items = number(c), filters = number(c);
        cr_assert(items == 0 || items == 3, "%lld of 3 items were seen", items);
        cr_assert(filters == 0 || filters == 2, "%lld of 2 filters were seen", filters);
        atomic_fetch_add(&isolation.seen[items == 3], 1);

        redisReply *keys = redisCommand(c, "KEYS *t%d", who);
        cr_assert(keys && (keys->elements == 0 || keys->elements == 2), "KEYS saw one of two");
        freeReplyObject(keys);

        redisAppendCommand(c, "MULTI");
        redisAppendCommand(c, "BF.EXISTS g p%d-%d", who, i);
        redisAppendCommand(c, "BF.EXISTS f r%d-%d", who, i);
        redisAppendCommand(c, "EXEC");
        client_skip(c, 3);
        items = number(c);
        cr_assert(items == 0 || items == 2, "a transaction saw %lld of 2 items", items);
    }
    redisFree(c);
    return NULL;
}

/* Ordinary commands, outside of all transactions, so that workers have work to be interrupted in. */
static void *make_noise(void *arg)
{
    (void)arg;
    redisContext *c = client_open(the_daemon.port);
    for (unsigned i = 0; !atomic_load(&isolation.stop); i++) {
        for (unsigned j = 0; j < 100; j++)
            redisAppendCommand(c, j & 1 ? "BF.ADD noise n%u" : "BF.EXISTS noise n%u", i * 100 + j);
        client_skip(c, 100);
    }
    redisFree(c);
    return NULL;
}

/* No client ever sees half of a transaction, on whichever worker it is. */
CLIENT_TEST(the_daemon, transactions, nobody_sees_half)
{
    pthread_t writers[WRITERS], others[4];
    int who[WRITERS];
    expect(client, "+OK", "BF.RESERVE f 0.0000001 10000");
    expect(client, "+OK", "BF.RESERVE g 0.0000001 10000");
    for (int i = 0; i < 4; i++)
        pthread_create(&others[i], NULL, i < 3 ? read_pairs : make_noise, NULL);
    for (int i = 0; i < WRITERS; i++) {
        who[i] = i;
        pthread_create(&writers[i], NULL, write_pairs, &who[i]);
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_join(writers[i], NULL);
    atomic_store(&isolation.stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(others[i], NULL);
    cr_assert_eq(client_number(client, "BF.CARD f"), WRITERS * ROUNDS * 3);
    cr_expect_gt(atomic_load(&isolation.seen[0]), 0);
    cr_expect_gt(atomic_load(&isolation.seen[1]), 0);
}

#define LONG_QUEUE 10
#define LONG_BATCH 1500

/* Queues a transaction that takes a while, with EXISTS f before and behind. */
static void queue_long(redisContext *c, const char **batch)
{
    redisAppendCommand(c, "MULTI");
    redisAppendCommand(c, "EXISTS f");
    for (int i = 0; i < LONG_QUEUE; i++)
        redisAppendCommandArgv(c, LONG_BATCH + 2, batch, NULL);
    redisAppendCommand(c, "EXISTS f");
    client_skip(c, LONG_QUEUE + 3);
}

/* Whether f was there both times. */
static bool exec_long(redisContext *c)
{
    redisReply *reply = redisCommand(c, "EXEC");
    cr_assert(reply && reply->elements == LONG_QUEUE + 2);
    bool before = reply->element[0]->integer, after = reply->element[LONG_QUEUE + 1]->integer;
    freeReplyObject(reply);
    cr_assert_eq(before, after, "it was there, and then it was not");
    return before;
}

/* The clock stands still: a filter that is there for the first command is there for the last, and gone after it. */
DAEMON_TEST(the_daemon, transactions, nothing_expires_in_the_middle)
{
    redisContext *c = client_open(the_daemon.port), *other = client_open(the_daemon.port);
    const char **batch = malloc((LONG_BATCH + 2) * sizeof(*batch));
    int in_the_middle = 0;
    batch[0] = "BF.MEXISTS";
    batch[1] = "g";
    for (int i = 0; i < LONG_BATCH; i++)
        batch[i + 2] = "some item or other";
    expect(c, ":1", "BF.ADD g x");
    queue_long(c, batch);
    double began = wait_clock();
    exec_long(c);
    double took_ms = (wait_clock() - began) * 1e3;
    for (int round = 0; round < 5000 && in_the_middle < 3; round++) {
        queue_long(c, batch);
        expect(other, ":1", "BF.ADD f x");
        expect(other, ":1", "PEXPIRE f %d", 1 + (int)(took_ms * (round % 10) / 10)); /* in the middle, more or less */
        bool was_there = exec_long(c);
        in_the_middle += was_there && client_number(other, "EXISTS f") == 0;
        client_ask(other, "DEL f");
    }
    cr_assert_eq(in_the_middle, 3);
    free(batch);
}

#define OTHERS                                                                                                       \
    3000 /* names that are watched, too: those that were watched last are compared first, so that this takes a while \
          */

/* Optimistic locking loses no update: each success has seen exactly the state before it. */
static void *increment(void *arg)
{
    redisContext *c = client_open(the_daemon.port);
    const char *argv[OTHERS + 2] = {"WATCH"};
    for (int i = 0; i < OTHERS; i++)
        argv[i + 1] = "none";
    argv[OTHERS + 1] = "counter";
    for (int done = 0; done < 50;) {
        redisAppendCommandArgv(c, OTHERS + 2, argv, NULL);
        redisAppendCommand(c, "BF.CARD counter");
        client_skip(c, 1);
        long long n = number(c);
        redisAppendCommand(c, "MULTI");
        redisAppendCommand(c, "BF.ADD counter n%lld", n);
        redisAppendCommand(c, "EXEC");
        client_skip(c, 2);
        redisReply *reply = NULL;
        cr_assert_eq(redisGetReply(c, (void **)&reply), REDIS_OK);
        if (reply->type == REDIS_REPLY_ARRAY) {
            cr_assert_eq(reply->element[0]->integer, 1, "n%lld was added by two", n);
            done++;
        }
        freeReplyObject(reply);
    }
    redisFree(c);
    return arg;
}

CLIENT_TEST(the_daemon, transactions, watch_is_optimistic_locking)
{
    pthread_t threads[4];
    expect(client, "+OK", "BF.RESERVE counter 0.0000001 1000");
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, increment, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    expect(client, ":200", "BF.CARD counter");
}

static _Atomic int transactions_done;

/* The end of the daemon and transactions stop the workers in the same order: the daemon ends. */
static void *until_the_end(void *connection)
{
    redisContext *c = connection;
    for (bool up = true; up;) {
        const char *const commands[] = {"MULTI", "BF.ADD f x", "BF.ADD g x", "SCAN 0", "EXEC"};
        for (int i = 0; i < 5; i++)
            redisAppendCommand(c, commands[i]);
        for (int i = 0; i < 5 && up; i++) {
            redisReply *reply = NULL;
            up = redisGetReply(c, (void **)&reply) == REDIS_OK;
            freeReplyObject(reply);
        }
        atomic_fetch_add(&transactions_done, up);
    }
    redisFree(c);
    return NULL;
}

DAEMON_TEST(the_daemon, transactions, a_shutdown_in_between)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, until_the_end, client_open(the_daemon.port));
    while (atomic_load(&transactions_done) < 50)
        sched_yield();
    redisContext *c = client_open(the_daemon.port);
    freeReplyObject(redisCommand(c, "SHUTDOWN SAVE"));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    redisFree(c);
    daemon_wait(&the_daemon);
}
