/* Unions and other filters that replace a filter while clients add to it. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"

CLIENT_SUITE(the_daemon, client, merges, "--threads", "3");

#define ADDERS 4
#define ITEMS  6000
#define BATCH  40

static _Atomic int wins[ITEMS];
static _Atomic int progress[ADDERS];
static _Atomic bool merging_done;

/* Adds all items in order, in pipelines of single adds or in batches, to the current filter of the name. */
static void *adder(void *arg)
{
    size_t me = (size_t)arg;
    redisContext *c = client_open(the_daemon.port);
    for (int first = 0; first < ITEMS; first += BATCH) {
        for (int i = 0; i < BATCH; i++)
            redisAppendCommand(c, me % 2 ? "BF.ADD f x%d" : "BF.MADD f x%d", first + i);
        for (int i = 0; i < BATCH; i++) {
            redisReply *reply = NULL;
            cr_assert_eq(redisGetReply(c, (void **)&reply), REDIS_OK);
            long long one = me % 2 ? reply->integer : reply->elements == 1 ? reply->element[0]->integer : -1;
            cr_assert(one == 0 || one == 1, "%s", reply->str);
            atomic_fetch_add(&wins[first + i], (int)one);
            freeReplyObject(reply);
        }
        atomic_store(&progress[me], first + BATCH);
    }
    redisFree(c);
    return NULL;
}

static int slowest(void)
{
    int least = ITEMS;
    for (int i = 0; i < ADDERS; i++) {
        int p = atomic_load(&progress[i]);
        least = p < least ? p : least;
    }
    return least;
}

/* Unions replace the filter repeatedly, some of them inside transactions. Each item has exactly one winner, and
 * acknowledged items are there at every moment. */
static void merge_while_others_add(const char *capacity, const char *window)
{
    static const char *const names[] = {"f", "g"};
    pthread_t threads[ADDERS];
    int merges = 0;
    for (int i = 0; i < 2; i++) {
        if (window)
            expect(client, "+OK", "BF.RESERVE %s 0.0000001 %s WINDOW %s PARTS 50", names[i], capacity, window);
        else
            expect(client, "+OK", "BF.RESERVE %s 0.0000001 %s", names[i], capacity);
    }
    client_for_items(client, "BF.MADD", "g", "g", 100);
    expect(client, "+OK", "BF.MERGE f g"); /* while there is room for all of it in the first layer */
    for (size_t i = 0; i < ADDERS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, adder, (void *)i), 0);
    while (slowest() < ITEMS || merges < 20) {
        int before = slowest();
        merges++;
        expect(client, "+OK", "BF.MERGE f g");
        if (before > 0)
            cr_assert_eq(client_for_items(client, "BF.MEXISTS", "f", "x", before), before, "after merge %d", merges);
    }
    for (size_t i = 0; i < ADDERS; i++)
        pthread_join(threads[i], NULL);
    int without = 0;
    for (int i = 0; i < ITEMS; i++) {
        cr_assert_leq(wins[i], 1, "x%d was won %d times", i, wins[i]);
        without += wins[i] == 0;
    }
    cr_assert_leq(without, 3); /* some that seemed to be present before */
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "f", "x", ITEMS), ITEMS);
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "f", "g", 100), 100);
}

DAEMON_TEST(the_daemon, merges, merges_lose_no_add_and_no_winner)
{
    merge_while_others_add("2000", NULL); /* in the log until it has grown for the second time */
}

/* Parts take items for 11 s: the union always has the items of both. */
DAEMON_TEST(the_daemon, merges, merges_of_windows_lose_no_add_and_no_winner)
{
    merge_while_others_add("20000", "600");
}

DAEMON_TEST(the_daemon, merges, merges_of_large_filters_lose_no_add_and_no_winner)
{
    merge_while_others_add("20000", NULL); /* in files */
}

static void *destroyer(void *arg)
{
    redisContext *c = client_open(the_daemon.port);
    static const char *const commands[] = {"BF.CLEAR f",
                                           "DEL f",
                                           "RENAME f h",
                                           "COPY g f REPLACE",
                                           "FLUSHALL",
                                           "BF.MERGE f g",
                                           "BF.MERGE g f",
                                           "BF.RESERVE f 0.0000001 2000",
                                           "BF.RESERVE g 0.0000001 2000"};
    for (unsigned n = (unsigned)(size_t)arg; !atomic_load(&merging_done); n = n * 5 + 3)
        freeReplyObject(redisCommand(c, commands[n % (sizeof(commands) / sizeof(commands[0]))])); /* with any reply */
    redisFree(c);
    return NULL;
}

/* Without effect: its counts continue, WATCH and the log see no change. Also of a window, and of a large filter. */
DAEMON_TEST(the_daemon, merges, a_union_that_adds_nothing_changes_nothing)
{
    static const char *const shapes[] = {"CAPACITY 100 EXPANSION 2",        "CAPACITY 2000000 ERROR 0.001",
                                         "CAPACITY 500 WINDOW 600 PARTS 3", "CAPACITY 40 LAYOUT redisbloom",
                                         "CAPACITY 100 LAYOUT blocked",     "CAPACITY 500 LAYOUT blocked WINDOW 600"};
    redisContext *other = client_open(the_daemon.port);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        expect(client, "+OK", "FLUSHALL");
        char command[128];
        snprintf(command, sizeof(command), "BF.INSERT f %s ITEMS a b c", shapes[i]);
        expect(client, "[:1,:1,:1]", command);
        snprintf(command, sizeof(command), "BF.INSERT g %s ITEMS b", shapes[i]);
        expect(client, "[:1]", command);
        expect(client, "+OK", "BF.MERGE f g");
        expect(client, "[:1,:0]", "BF.MEXISTS f a z");
        const char *const nothing[] = {"BF.MERGE f f", "BF.MERGE f g", "BF.MERGE f g f g"};
        for (size_t j = 0; j < sizeof(nothing) / sizeof(nothing[0]); j++) {
            expect(client, "+OK", "WATCH f");
            expect(other, "+OK", nothing[j]);
            expect(client, "+OK", "MULTI");
            expect(client, "+QUEUED", "BF.INFO f HITS");
            expect(client, "[[:1]]", "EXEC");
        }
        expect(other, "[:1]", "BF.INFO f MISSES");
        expect(client, "+OK", "WATCH f");
        expect(other, ":1", "BF.ADD g new");
        expect(other, "+OK", "BF.MERGE f g");
        expect(client, "+OK", "MULTI");
        expect(client, "+QUEUED", "BF.EXISTS f new");
        expect(client, "nil", "EXEC");
        expect(client, ":1", "BF.EXISTS f new");
    }
}

/* All commands that replace filters under their names, at the same time: no crash, no endless wait, and every reply
 * is a known one. */
DAEMON_TEST(the_daemon, merges, replacements_at_the_same_time)
{
    pthread_t adders[ADDERS], destroyers[3];
    char why[256];
    expect(client, "+OK", "CONFIG SET bf-initial-size 2000");
    expect(client, "+OK", "CONFIG SET bf-error-rate 0.0000001");
    atomic_store(&merging_done, false);
    for (size_t i = 0; i < 3; i++)
        cr_assert_eq(pthread_create(&destroyers[i], NULL, destroyer, (void *)(i + 1)), 0);
    for (size_t i = 0; i < ADDERS; i++)
        cr_assert_eq(pthread_create(&adders[i], NULL, adder, (void *)i), 0);
    for (int i = 0; i < 200; i++) {
        snprintf(why, sizeof(why), "%s", client_ask(client, "BF.MERGE f g"));
        cr_assert(strcmp(why, "+OK") == 0 || strncmp(why, "-ERR not found", 14) == 0 ||
                      strncmp(why, "-ERR the filter was deleted", 27) == 0 || strncmp(why, "-ERR the union", 14) == 0,
                  "%s", why);
    }
    for (size_t i = 0; i < ADDERS; i++)
        pthread_join(adders[i], NULL);
    atomic_store(&merging_done, true);
    for (size_t i = 0; i < 3; i++)
        pthread_join(destroyers[i], NULL);
    expect(client, "+PONG", "PING");
}

/* Merges into one filter take turns: none fails because another one has changed the filter meanwhile. */
DAEMON_TEST(the_daemon, merges, merges_into_one_filter_take_turns)
{
    enum { CLIENTS = 14, EACH = 20 };
    redisContext *busy[CLIENTS];
    expect(client, "+OK", "BF.RESERVE a 0.001 20000");
    expect(client, "+OK", "BF.RESERVE b 0.001 20000");
    client_for_items(client, "BF.MADD", "b", "b", 1000);
    for (int i = 0; i < CLIENTS; i++) {
        busy[i] = client_open(the_daemon.port);
        for (int n = 0; n < EACH; n++)
            redisAppendCommand(busy[i], "BF.MERGE a b");
        for (int done = 0; !done;)
            cr_assert_eq(redisBufferWrite(busy[i], &done), REDIS_OK);
    }
    for (int i = 0; i < CLIENTS; i++) {
        for (int n = 0; n < EACH; n++) {
            redisReply *reply;
            cr_assert_eq(redisGetReply(busy[i], (void **)&reply), REDIS_OK);
            cr_assert_eq(reply->type, REDIS_REPLY_STATUS, "%s", reply->str);
            freeReplyObject(reply);
        }
        redisFree(busy[i]);
    }
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "a", "b", 1000), 1000);
}

/* Merges wait until every worker has let go of the filter, also when the workers end and other jobs return to them. */
DAEMON_TEST(the_daemon, merges, the_end_in_the_middle_of_merges)
{
    enum { CLIENTS = 12, EACH = 20 };
    redisContext *busy[CLIENTS];
    expect(client, "+OK", "BF.RESERVE a 0.001 5000000");
    expect(client, "+OK", "BF.RESERVE b 0.001 5000000");
    for (int i = 0; i < CLIENTS; i++) {
        busy[i] = client_open(the_daemon.port);
        for (int n = 0; n < EACH; n++)
            redisAppendCommand(busy[i], i % 3 ? "BF.MERGE a b" : "COPY b copy:%d REPLACE", i);
        int done = 0;
        while (!done)
            cr_assert_eq(redisBufferWrite(busy[i], &done), REDIS_OK);
    }
    redisReply *reply;
    cr_assert_eq(redisGetReply(busy[1], (void **)&reply), REDIS_OK);
    freeReplyObject(reply);
    freeReplyObject(redisCommand(client, "SHUTDOWN NOSAVE"));
    daemon_wait(&the_daemon);
    for (int i = 0; i < CLIENTS; i++)
        redisFree(busy[i]);
}
