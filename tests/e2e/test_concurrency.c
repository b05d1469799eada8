/* Many clients on many workers at once: one winner per item, one winner per creation, swaps without a gap, no loss
 * during growth, one slow client alone. ThreadSanitizer can watch the daemon during these tests. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "wait.h"

#define PORT (daemon_under_test.port)

DAEMON_SUITE(daemon_under_test, concurrency, "--threads", "4");

#define CLIENTS 8

static void run_clients(void *(*fn)(void *))
{
    pthread_t threads[CLIENTS];
    for (size_t i = 0; i < CLIENTS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, fn, (void *)i), 0);
    for (size_t i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
}

/* ---- one winner per item ---- */

#define ITEMS    6000
#define PIPELINE 50

static _Atomic int wins[ITEMS];

/* Each client adds all items, from its own starting point and in batches of its own kind. */
static void *add_all(void *arg)
{
    size_t me = (size_t)arg;
    redisContext *client = client_open(PORT);
    for (int done = 0; done < ITEMS; done += PIPELINE) {
        int first = (done + (int)(me / 2) * PIPELINE) % ITEMS;
        if (me % 2 == 0) {
            for (int i = 0; i < PIPELINE; i++)
                redisAppendCommand(client, "BF.ADD grows item:%d", first + i);
            for (int i = 0; i < PIPELINE; i++) {
                redisReply *reply = NULL;
                cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK);
                cr_assert_eq(reply->type, REDIS_REPLY_INTEGER, "%s", reply->str);
                atomic_fetch_add(&wins[first + i], (int)reply->integer);
                freeReplyObject(reply);
            }
        } else {
            char words[PIPELINE][32];
            const char *argv[PIPELINE + 2] = {"BF.MADD", "grows"};
            for (int i = 0; i < PIPELINE; i++) {
                sprintf(words[i], "item:%d", first + i);
                argv[i + 2] = words[i];
            }
            redisReply *reply = redisCommandArgv(client, PIPELINE + 2, argv, NULL);
            cr_assert_not_null(reply);
            cr_assert_eq(reply->elements, PIPELINE);
            for (int i = 0; i < PIPELINE; i++)
                atomic_fetch_add(&wins[first + i], (int)reply->element[i]->integer);
            freeReplyObject(reply);
        }
    }
    redisFree(client);
    return NULL;
}

/* An item has at most one winner, and none only if it seemed to be present before (a false positive). All items are
 * present afterwards; the filter's count is the number of winners. The filter grows several times meanwhile. */
CLIENT_TEST(daemon_under_test, concurrency, an_item_has_one_winner)
{
    expect(client, "+OK", "BF.RESERVE grows 0.0001 100");
    run_clients(add_all);
    long long sum = 0;
    for (int i = 0; i < ITEMS; i++) {
        cr_expect_leq(wins[i], 1, "item:%d was won %d times", i, wins[i]);
        sum += wins[i];
        expect(client, ":1", "BF.EXISTS grows item:%d", i);
    }
    cr_expect_geq(sum, ITEMS - 20, "%lld of %d items were won", sum, ITEMS);
    cr_expect_eq(client_number(client, "BF.CARD grows"), sum);
}

/* ---- one winner per creation ---- */

static _Atomic int reserved[200];
static pthread_barrier_t barrier;

static void *reserve_all(void *arg)
{
    (void)arg;
    redisContext *client = client_open(PORT);
    for (int i = 0; i < 200; i++) {
        pthread_barrier_wait(&barrier);
        redisReply *reply = redisCommand(client, "BF.RESERVE race:%d 0.01 100", i);
        cr_assert_not_null(reply);
        if (reply->type == REDIS_REPLY_STATUS)
            atomic_fetch_add(&reserved[i], 1);
        else
            cr_expect_str_eq(reply->str, "ERR item exists");
        freeReplyObject(reply);
    }
    redisFree(client);
    return NULL;
}

DAEMON_TEST(daemon_under_test, concurrency, a_filter_is_created_once)
{
    pthread_barrier_init(&barrier, NULL, CLIENTS);
    run_clients(reserve_all);
    for (int i = 0; i < 200; i++)
        cr_expect_eq(reserved[i], 1, "race:%d was created %d times", i, reserved[i]);
}

/* ---- swap, delete, recreate ---- */

static _Atomic bool going;

static void *query_live(void *arg)
{
    (void)arg;
    redisContext *client = client_open(PORT);
    while (atomic_load(&going)) {
        for (int i = 0; i < 20; i++) {
            redisAppendCommand(client, "BF.EXISTS live always");
            redisAppendCommand(client, "BF.MEXISTS live always always");
            redisAppendCommand(client, "BF.CARD live");
        }
        for (int i = 0; i < 60; i++) {
            redisReply *reply = NULL;
            cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK);
            if (reply->type == REDIS_REPLY_INTEGER)
                cr_expect_geq(reply->integer, 1, "'always' was absent for a moment");
            else
                cr_expect_eq(reply->element[1]->integer, 1, "'always' was absent for a moment");
            freeReplyObject(reply);
        }
    }
    redisFree(client);
    return NULL;
}

static void *churn(void *arg)
{
    unsigned state = (unsigned)(size_t)arg;
    redisContext *client = client_open(PORT);
    while (atomic_load(&going)) {
        static const char *const commands[] = {"BF.ADD churn:%u x",
                                               "BF.MADD churn:%u a b c d e f g h",
                                               "DEL churn:%u",
                                               "BF.EXISTS churn:%u x",
                                               "BF.INFO churn:%u",
                                               "RENAME churn:%u churn:0",
                                               "UNLINK churn:%u",
                                               "SCAN %u",
                                               "BF.RESERVE churn:%u 0.001 100000",
                                               "BF.INSERT churn:%u CAPACITY 10 ITEMS 1 2 3 4 5 6 7 8 9 10 11 12"};
        unsigned which = (unsigned)rand_r(&state) % 10;
        redisReply *reply = redisCommand(client, commands[which], (unsigned)rand_r(&state) % 8);
        cr_assert_not_null(reply, "%s: %s", commands[which], client->errstr);
        freeReplyObject(reply);
    }
    redisFree(client);
    return NULL;
}

static void *mixed(void *arg)
{
    return (size_t)arg % 2 ? churn(arg) : query_live(arg);
}

static void *swap_many(void *arg)
{
    redisContext *client = arg;
    for (int i = 0; i < 600; i++) {
        expect(client, "+OK", "BF.RESERVE next 0.01 %d", 100 + i * 50);
        expect(client, ":1", "BF.ADD next always");
        expect(client, "+OK", "RENAME next live");
    }
    atomic_store(&going, false);
    return NULL;
}

/* A filter that is rebuilt under another name and swapped in by RENAME is never absent, while other filters are
 * deleted, recreated and renamed. */
CLIENT_TEST(daemon_under_test, concurrency, a_swap_shows_no_gap)
{
    pthread_t swapper;
    expect(client, ":1", "BF.ADD live always");
    atomic_store(&going, true);
    cr_assert_eq(pthread_create(&swapper, NULL, swap_many, client), 0);
    run_clients(mixed);
    pthread_join(swapper, NULL);
}

/* FLUSHALL, SAVE and KEYS while others work: the daemon stays intact and the others are answered. */
CLIENT_TEST(daemon_under_test, concurrency, whole_server_commands_under_load)
{
    pthread_t thread[4];
    atomic_store(&going, true);
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < 12; i++) {
        expect(client, "+OK", "SAVE");
        freeReplyObject(redisCommand(client, "KEYS *"));
        freeReplyObject(redisCommand(client, "CLIENT LIST"));
        if (i % 4 == 0)
            expect(client, "+OK", "FLUSHALL");
    }
    atomic_store(&going, false);
    for (size_t i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
}

static void *shut_down(void *arg)
{
    redisContext *client = client_open(PORT);
    (void)arg;
    pthread_barrier_wait(&barrier);
    redisReply *reply = redisCommand(client, "SHUTDOWN");
    cr_expect_null(reply, "SHUTDOWN answered");
    redisFree(client);
    return NULL;
}

/* All clients that send SHUTDOWN see the end, also those that send it while the daemon ends. */
DAEMON_TEST(daemon_under_test, concurrency, many_shutdowns_are_one)
{
    pthread_barrier_init(&barrier, NULL, CLIENTS);
    run_clients(shut_down);
    daemon_wait(&daemon_under_test);
}

/* ---- long batches ---- */

#define BATCHES     12
#define BATCH_ITEMS 6000 /* several slices */

static _Atomic bool acked[CLIENTS][BATCHES * BATCH_ITEMS];
static _Atomic long ones, cut, adders;

static void add_long_batch(redisContext *client, size_t me, int batch)
{
    static _Thread_local char items[BATCH_ITEMS][24];
    static _Thread_local const char *argv[BATCH_ITEMS + 2] = {"BF.MADD", "f"};
    for (int i = 0; i < BATCH_ITEMS; i++) {
        sprintf(items[i], "%zu:%d", me, batch * BATCH_ITEMS + i);
        argv[i + 2] = items[i];
    }
    redisReply *reply = redisCommandArgv(client, BATCH_ITEMS + 2, argv, NULL);
    cr_assert_not_null(reply, "%s", client->errstr);
    size_t n = reply->type == REDIS_REPLY_ARRAY ? reply->elements : 0;
    if (n && reply->element[n - 1]->type == REDIS_REPLY_ERROR) {
        n--;
        atomic_fetch_add(&cut, 1);
    }
    cr_assert(n < BATCH_ITEMS || reply->elements == BATCH_ITEMS);
    for (size_t i = 0; i < n; i++) {
        cr_assert_eq(reply->element[i]->type, REDIS_REPLY_INTEGER);
        atomic_fetch_add(&ones, (long)reply->element[i]->integer);
        atomic_store(&acked[me][(size_t)batch * BATCH_ITEMS + i], true);
    }
    freeReplyObject(reply);
}

static void *add_or_rename(void *arg)
{
    size_t me = (size_t)arg;
    redisContext *client = client_open(PORT);
    for (int i = 0; me < CLIENTS - 2 && i < BATCHES; i++)
        add_long_batch(client, me, i);
    if (me < CLIENTS - 2 && atomic_fetch_sub(&adders, 1) == 1)
        atomic_store(&going, false);
    while (me == CLIENTS - 2 && atomic_load(&going)) {
        expect(client, "+OK", "RENAME f g");
        expect(client, "+OK", "RENAME g f");
        usleep(1000);
    }
    while (me == CLIENTS - 1 && atomic_load(&going)) {
        freeReplyObject(redisCommand(client, "COPY f h REPLACE"));
        freeReplyObject(redisCommand(client, "RENAME h i"));
        freeReplyObject(redisCommand(client, "DEL i"));
    }
    redisFree(client);
    return NULL;
}

static void expect_acked(redisContext *client, size_t c)
{
    int asked = 0;
    for (int i = 0; i < BATCHES * BATCH_ITEMS; i++) {
        if (atomic_load(&acked[c][i]) && ++asked)
            redisAppendCommand(client, "BF.EXISTS f %d:%d", (int)c, i);
        if (asked < 1000 && i < BATCHES * BATCH_ITEMS - 1)
            continue;
        for (; asked; asked--)
            cr_assert_str_eq(client_reply(client), ":1");
    }
}

/* A filter is repeatedly renamed for a moment while batches are added to it in slices. Each batch ends at a rename,
 * with an error, or continues. The filter has all acknowledged items, and no others. */
CLIENT_TEST(daemon_under_test, concurrency, long_batches_while_their_filter_is_renamed)
{
    expect(client, "+OK", "CONFIG SET bf-auto-create no");
    expect(client, "+OK", "BF.RESERVE f 0.0000001 1000");
    atomic_store(&going, true);
    atomic_store(&adders, CLIENTS - 2);
    run_clients(add_or_rename);
    cr_expect_eq(client_number(client, "BF.CARD f"), atomic_load(&ones));
    printf("%ld items, %ld batches cut\n", atomic_load(&ones), atomic_load(&cut));
    for (size_t c = 0; c < CLIENTS; c++)
        expect_acked(client, c);
}

/* ---- connections ---- */

/* Connections are spread evenly over the workers: their numbers differ by at most one. */
DAEMON_TEST(daemon_under_test, concurrency, connections_are_spread_evenly)
{
    redisContext *clients[40];
    for (int i = 0; i < 40; i++) {
        clients[i] = client_open(PORT);
        expect(clients[i], "+PONG", "PING");
    }
    redisReply *reply = redisCommand(clients[0], "INFO clients");
    cr_assert_not_null(reply);
    const char *field = strstr(reply->str, "worker_connections:");
    cr_assert_not_null(field, "%s", reply->str);
    int n[4];
    cr_assert_eq(sscanf(field, "worker_connections:%d,%d,%d,%d", &n[0], &n[1], &n[2], &n[3]), 4, "%s", field);
    for (int i = 0; i < 4; i++)
        cr_expect(n[i] == 10, "worker %d has %d of 40 connections", i, n[i]);
    freeReplyObject(reply);
    for (int i = 0; i < 40; i++)
        redisFree(clients[i]);
}

/* The calls of BF.MEXISTS so far. */
static int calls(redisContext *client)
{
    const char *call = "cmdstat_bf.mexists:calls=", *at = strstr(client_ask(client, "INFO commandstats"), call);
    return at ? atoi(at + strlen(call)) : 0;
}

/* The daemon stops reading from a client that sends without reading its replies; others do not notice. When the client
 * reads at last it gets every reply. A stop lasts for a tick, then pending replies may have twice as many bytes
 * (reply-buffer-high-water): so all commands may have run, but not in the time of four ticks. */
DAEMON_TEST(daemon_under_test, concurrency, a_slow_reader_stalls_nobody)
{
    enum { COMMANDS = 60, BATCH = 100000 };
    const int own_buffer = 1 << 18; /* the system's own may grow to 32 MB, and hold all replies */
    redisContext *slow = client_open(PORT), *quick = client_open(PORT);
    size_t size = BATCH * 7 + 64, len;
    char *command = malloc(size);
    cr_assert_eq(setsockopt(slow->fd, SOL_SOCKET, SO_RCVBUF, &own_buffer, sizeof(own_buffer)), 0);
    len = (size_t)sprintf(command, "*%d\r\n$10\r\nBF.MEXISTS\r\n$1\r\nf\r\n", BATCH + 2);
    for (int i = 0; i < BATCH; i++, len += 7)
        memcpy(command + len, "$1\r\nx\r\n", 7);

    /* Written without waiting until the system takes no more, and no command is run any more. */
    cr_assert_eq(fcntl(slow->fd, F_SETFL, O_NONBLOCK), 0);
    size_t sent = 0, total = len * COMMANDS;
    double began = wait_clock(), changed = began;
    for (int ran = 0, now; ran < COMMANDS && wait_clock() < changed + 0.05; ran = now) {
        ssize_t n = sent < total ? send(slow->fd, command + sent % len, len - sent % len, 0) : 0;
        sent += n > 0 ? (size_t)n : 0;
        now = calls(quick);
        cr_expect(now < COMMANDS || wait_clock() > began + 0.4, "%d commands of a client that reads nothing ran", now);
        if (n > 0 || now != ran)
            changed = wait_clock();
    }

    size_t want = (size_t)COMMANDS * (BATCH * 4 + strlen("*100000\r\n")), got = 0;
    while (got < want) {
        static char sink[1 << 16];
        ssize_t n = recv(slow->fd, sink, sizeof(sink), 0);
        got += n > 0 ? (size_t)n : 0;
        cr_assert(n != 0, "closed after %zu of %zu bytes of replies", got, want);
        n = sent < total ? send(slow->fd, command + sent % len, len - sent % len, 0) : 0;
        sent += n > 0 ? (size_t)n : 0;
    }
    cr_expect_eq(got, want);
    expect(quick, "+PONG", "PING");
    free(command);
}
