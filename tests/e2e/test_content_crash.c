/* kill -9 while filters are replaced by unions of themselves and clients add to them. BLOOMERY_COUNT_ROUNDS=<n> plays n
 * rounds of the test of counts. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "environment.h"
#include "wait.h"

#define ADDERS 4

static redisContext *client;

DAEMON_SUITE_IDLE(the_daemon, content_crash);

static _Atomic unsigned connected; /* threads of the round: the daemon is killed only after all are connected */

static redisContext *connect_thread(void)
{
    redisContext *c = client_open(the_daemon.port);
    atomic_fetch_add(&connected, 1);
    return c;
}

static _Atomic int acknowledged[ADDERS]; /* adds answered to each, since the first start of the daemon */

/* Adds its own items until the daemon is gone. */
static void *adder_until_the_end(void *arg)
{
    size_t me = (size_t)arg;
    redisContext *c = connect_thread();
    for (;;) {
        redisReply *reply = redisCommand(c, "BF.ADD f own%d-%d", (int)me, atomic_load(&acknowledged[me]));
        if (!reply)
            break;
        cr_assert_eq(reply->type, REDIS_REPLY_INTEGER, "%s", reply->str);
        freeReplyObject(reply);
        atomic_fetch_add(&acknowledged[me], 1);
    }
    redisFree(c);
    return NULL;
}

/* Repeats a command until the daemon is gone. */
static void *repeater_until_the_end(void *command)
{
    redisContext *c = connect_thread();
    redisReply *reply;
    while ((reply = redisCommand(c, command)))
        freeReplyObject(reply);
    redisFree(c);
    return NULL;
}

static int acknowledged_in_all(void)
{
    int sum = 0;
    for (int i = 0; i < ADDERS; i++)
        sum += atomic_load(&acknowledged[i]);
    return sum;
}

/* Kills during adds, merges and saves, three times: with appendfsync always all acknowledged items are there
 * afterwards. */
static void crash_among_merges(const char *capacity)
{
    static const char *const args[] = {"--threads", "3", "--appendfsync", "always", NULL};
    static char merge[] = "BF.MERGE f g", save[] = "SAVE";
    client = client_start(&the_daemon, args);
    expect(client, "+OK", "BF.RESERVE f 0.000001 %s", capacity);
    expect(client, "+OK", "BF.RESERVE g 0.000001 %s", capacity);
    expect(client, "[:1,:1,:1]", "BF.MADD g a b c");
    for (int round = 1; round <= 3; round++) {
        pthread_t threads[ADDERS + 2];
        atomic_store(&connected, 0);
        for (size_t i = 0; i < ADDERS; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, adder_until_the_end, (void *)i), 0);
        cr_assert_eq(pthread_create(&threads[ADDERS], NULL, repeater_until_the_end, merge), 0);
        cr_assert_eq(pthread_create(&threads[ADDERS + 1], NULL, repeater_until_the_end, save), 0);
        wait_until(atomic_load(&connected) >= ADDERS + 2 && acknowledged_in_all() >= 600 * round);
        client_kill(client, &the_daemon);
        for (int i = 0; i < ADDERS + 2; i++)
            pthread_join(threads[i], NULL);
        client = client_restart(&the_daemon);
        for (int i = 0; i < ADDERS; i++)
            for (int n = 0; n < acknowledged[i]; n++)
                expect(client, ":1", "BF.EXISTS f own%d-%d", i, n);
    }
    redisFree(client);
}

DAEMON_TEST(the_daemon, content_crash, a_crash_among_merges_loses_nothing)
{
    crash_among_merges("500"); /* in the log, since they grow as well */
}

DAEMON_TEST(the_daemon, content_crash, a_crash_among_merges_of_large_filters_loses_nothing)
{
    crash_among_merges("50000"); /* in files */
}

/* ---- counts ---- */

#define COUNTED 3 /* filters "c0", "c1", ... */

static _Atomic long long counted[COUNTED]; /* adds answered 1, since the first start of the daemon */
static _Atomic unsigned next_item;
static _Atomic int too_low; /* how often a filter reported fewer */

/* Single adds and batches, to one filter after the other. */
static void *counting_adder(void *arg)
{
    redisContext *c = connect_thread();
    redisReply *reply;
    char command[2000];
    (void)arg;
    for (;;) {
        unsigned from = atomic_fetch_add(&next_item, 32), f = from / 32 % COUNTED, n = from / 96 % 2 ? 32 : 1;
        int len = snprintf(command, sizeof(command), "BF.MADD c%u", f);
        for (unsigned i = 0; i < n; i++)
            len += snprintf(command + len, sizeof(command) - (size_t)len, " item:%u", from + i);
        if (!(reply = redisCommand(c, command)))
            break;
        for (size_t i = 0; i < reply->elements; i++)
            atomic_fetch_add(&counted[f],
                             reply->element[i]->type == REDIS_REPLY_INTEGER && reply->element[i]->integer == 1);
        freeReplyObject(reply);
    }
    redisFree(c);
    return NULL;
}

/* The count of a filter, by BF.CARD and BF.INFO in turns; -1 when the daemon is gone. */
static long long count_of(redisContext *c, unsigned f, bool info)
{
    redisReply *reply = info ? redisCommand(c, "BF.INFO c%u ITEMS", f) : redisCommand(c, "BF.CARD c%u", f);
    if (!reply)
        return -1;
    const redisReply *number =
        reply->type == REDIS_REPLY_ARRAY && reply->elements ? reply->element[reply->elements - 1] : reply;
    long long count = number->type == REDIS_REPLY_INTEGER ? number->integer : -2;
    freeReplyObject(reply);
    return count;
}

static void *counter(void *arg)
{
    redisContext *c = connect_thread();
    (void)arg;
    for (unsigned i = 0;; i++) {
        long long least = atomic_load(&counted[i % COUNTED]), count = count_of(c, i % COUNTED, i / COUNTED % 2);
        if (count == -1)
            break;
        atomic_fetch_add(&too_low, count < least);
    }
    redisFree(c);
    return NULL;
}

/* A filter never reports fewer items than it has answered 1 to, while it grows, is merged with other growing
 * filters, is saved, and is brought back after kill -9. */
DAEMON_TEST(the_daemon, content_crash, no_filter_counts_less_than_was_added_to_it)
{
    static const char *const args[] = {"--threads", "3", "--appendfsync", "always", "--bf-merge-overfull", "yes", NULL};
    static char merges[][40] = {"BF.MERGE c0 c1", "BF.MERGE c1 c2 c0", "BF.MERGE c2 c2 c2"}, save[] = "SAVE";
    unsigned rounds = (unsigned)environment_number("BLOOMERY_COUNT_ROUNDS", DAEMON_SANITIZED ? 3 : 6);
    client = client_start(&the_daemon, args);
    for (unsigned f = 0; f < COUNTED; f++) /* small enough for the log at first, then no longer */
        expect(client, "+OK", "BF.RESERVE c%u 0.0000001 300", f);
    for (unsigned round = 1; round <= rounds; round++) {
        pthread_t threads[8];
        unsigned n = 0;
        atomic_store(&connected, 0);
        for (int i = 0; i < 3; i++)
            cr_assert_eq(pthread_create(&threads[n++], NULL, counting_adder, NULL), 0);
        cr_assert_eq(pthread_create(&threads[n++], NULL, counter, NULL), 0);
        for (int i = 0; i < 3; i++)
            cr_assert_eq(pthread_create(&threads[n++], NULL, repeater_until_the_end, merges[i]), 0);
        cr_assert_eq(pthread_create(&threads[n++], NULL, repeater_until_the_end, save), 0);
        wait_until(atomic_load(&connected) >= n && atomic_load(&counted[0]) >= 700 * round);
        client_kill(client, &the_daemon);
        for (unsigned i = 0; i < n; i++)
            pthread_join(threads[i], NULL);
        client = client_restart(&the_daemon);
        for (unsigned f = 0; f < COUNTED; f++)
            for (int info = 0; info < 2; info++) {
                long long count = count_of(client, f, info), least = atomic_load(&counted[f]);
                cr_assert_geq(count, least, "round %u: filter c%u counts %lld of %lld", round, f, count, least);
            }
    }
    cr_assert_eq(atomic_load(&too_low), 0, "%d times while the daemon ran", atomic_load(&too_low));
}

/* ---- exact counts ---- */

#define EXACT_MAX 9000 /* items of a round, below the filter's capacity */

/* Adds batches of items that no other thread adds, until there are enough or the daemon is gone. */
static void *adder_of_new_items(void *filter)
{
    redisContext *c = connect_thread();
    char command[1000];
    unsigned from;
    while ((from = atomic_fetch_add(&next_item, 32)) < EXACT_MAX) {
        int len = snprintf(command, sizeof(command), "BF.MADD %s", (const char *)filter);
        for (unsigned i = 0; i < 32; i++)
            len += snprintf(command + len, sizeof(command) - (size_t)len, " item:%u", from + i);
        redisReply *reply = redisCommand(c, command);
        if (!reply)
            break;
        freeReplyObject(reply);
    }
    redisFree(c);
    return NULL;
}

/* Unions replace a filter during adds, and a crash loses the records that the log thread has not written. The count
 * after the start is the number of present items. */
static void count_exactly(const char *rate)
{
    static const char *const args[] = {"--threads", "3", "--appendfsync", "no", NULL};
    unsigned rounds = (unsigned)environment_number("BLOOMERY_COUNT_ROUNDS", DAEMON_SANITIZED ? 3 : 8);
    daemon_start(&the_daemon, args);
    for (unsigned round = 0; round < rounds; round++) {
        pthread_t threads[4];
        char filter[16], merge[64];
        client = client_open(the_daemon.port);
        snprintf(filter, sizeof(filter), "f%u", round);
        snprintf(merge, sizeof(merge), "BF.MERGE f%u g%u", round, round);
        expect(client, "+OK", "BF.RESERVE %s %s 10000", filter, rate);
        expect(client, "+OK", "BF.RESERVE g%u %s 10000", round, rate);
        atomic_store(&connected, 0);
        atomic_store(&next_item, 0);
        for (int i = 0; i < 3; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, adder_of_new_items, filter), 0);
        cr_assert_eq(pthread_create(&threads[3], NULL, repeater_until_the_end, merge), 0);
        wait_until(atomic_load(&connected) >= 4 && atomic_load(&next_item) >= EXACT_MAX / rounds * (round + 1));
        client_kill(client, &the_daemon);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        client = client_restart(&the_daemon);
        long long card = client_number(client, "BF.CARD %s", filter);
        long long there = client_for_items(client, "BF.MEXISTS", filter, "item:", EXACT_MAX + 200);
        cr_assert_eq(card, there, "round %u: %lld items are counted and %lld there", round, card, there);
        redisFree(client);
    }
}

DAEMON_TEST(the_daemon, content_crash, what_a_crash_leaves_of_a_union_is_counted_exactly)
{
    count_exactly("0.00000001"); /* in the log */
}

DAEMON_TEST(the_daemon, content_crash, what_a_crash_leaves_of_a_large_union_is_counted_exactly)
{
    count_exactly("0.00000000000001"); /* in files */
}
