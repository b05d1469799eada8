/* kill -9 while filters are replaced by unions of themselves and clients add to them. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"

#define ADDERS 4

static struct daemon the_daemon;
static redisContext *client;

static void discard(void)
{
    daemon_discard(&the_daemon);
}

TestSuite(content_crash, .fini = discard, .timeout = 300);

static _Atomic int acknowledged[ADDERS]; /* adds answered to each, since the daemon was started first */

/* Adds items of its own until the daemon is gone. */
static void *adder_until_the_end(void *arg)
{
    size_t me = (size_t)arg;
    redisContext *c = client_open(the_daemon.port);
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

/* Sends a command again and again until the daemon is gone. */
static void *repeater_until_the_end(void *command)
{
    redisContext *c = client_open(the_daemon.port);
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

/* While adds, merges and saves go on, three times: with appendfsync always, everything that was answered is there afterwards. */
DAEMON_TEST(the_daemon, content_crash, a_crash_among_merges_loses_nothing)
{
    static const char *const args[] = {"--threads", "3", "--appendfsync", "always", NULL};
    static char merge[] = "BF.MERGE f g", save[] = "SAVE";
    daemon_start(&the_daemon, args);
    client = client_open(the_daemon.port);
    expect(client, "+OK", "BF.RESERVE f 0.000001 500");
    expect(client, "+OK", "BF.RESERVE g 0.000001 500");
    expect(client, "[:1,:1,:1]", "BF.MADD g a b c");
    for (int round = 1; round <= 3; round++) {
        pthread_t threads[ADDERS + 2];
        for (size_t i = 0; i < ADDERS; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, adder_until_the_end, (void *)i), 0);
        cr_assert_eq(pthread_create(&threads[ADDERS], NULL, repeater_until_the_end, merge), 0);
        cr_assert_eq(pthread_create(&threads[ADDERS + 1], NULL, repeater_until_the_end, save), 0);
        while (acknowledged_in_all() < 600 * round)
            usleep(1000);
        redisFree(client);
        daemon_kill(&the_daemon);
        for (int i = 0; i < ADDERS + 2; i++)
            pthread_join(threads[i], NULL);
        daemon_restart(&the_daemon);
        client = client_open(the_daemon.port);
        for (int i = 0; i < ADDERS; i++)
            for (int n = 0; n < acknowledged[i]; n++)
                expect(client, ":1", "BF.EXISTS f own%d-%d", i, n);
    }
    redisFree(client);
}
