/* More workers than processors, and all activities at once: filters come and go, settings change, clients are killed
 * and paused, saves and the log continue. Surviving clients get their replies in order, and a final kill -9 loses
 * nothing. Under ThreadSanitizer the test also finds data races of the daemon.
 *
 * BLOOMERY_TOGETHER_SECONDS=<n> sets its duration, BLOOMERY_TOGETHER_SEED=<n> its random numbers. */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "client.h"
#include "daemon.h"
#include "environment.h"
#include "log_clients.h"
#include "rng.h"

DAEMON_SUITE(the_daemon, together, "--threads", "8", "--appendfsync", "always", "--enable-debug-command", "yes",
             "--notify-keyspace-events", "KEA");

#define CLIENTS  9
#define ADMINS   2
#define FILTERS  6
#define PIPELINE 12
#define LONG     3000 /* items of a command that is run in slices */

/* '#' is a filter's number, '@' an item's; more than one command is a transaction. */
static const char *const work[] = {
    "BF.ADD f# @",
    "BF.ADD f# @",
    "BF.EXISTS f# @",
    "BF.EXISTS f# @",
    "BF.MADD f# @ @ @ @ @ @ @ @",
    "BF.MEXISTS f# @ @ @ @",
    "BF.INSERT f# CAPACITY 20 ITEMS @ @ @",
    "BF.RESERVE f# 0.001 500",
    "BF.RESERVE f# 0.0001 50000 NONSCALING",
    "BF.MERGE f# f# f#",
    "BF.MERGE u# f# u#",
    "BF.CLEAR f#",
    "BF.INFO f#",
    "BF.CARD f#",
    "BF.QUERY @ f# f# f#",
    "COPY f# f# REPLACE",
    "RENAME f# f#",
    "RENAME u# f#",
    "DEL f# u#",
    "UNLINK f#",
    "PEXPIRE f# 3",
    "EXPIRE u# 100",
    "PERSIST u#",
    "TTL f#",
    "DUMP f#",
    "BF.SCANDUMP f# 0",
    "SCAN 0 COUNT 3",
    "KEYS *",
    "RANDOMKEY",
    "DBSIZE",
    "PUBLISH news @",
    "WAITAOF 1 0 20",
    "WATCH f#;MULTI;BF.ADD f# @;BF.CLEAR u#;RENAME f# f#;EXEC",
    "MULTI;BF.MADD f# @ @ @ @;DEL f# u#;BF.ADD f# @;EXEC",
    "MULTI;RENAME f# u#;BF.ADD f# @;EXEC",
};

static const char *const orders[] = {
    "CONFIG SET appendfsync everysec",
    "CONFIG SET appendfsync no",
    "CONFIG SET appendfsync always",
    "CONFIG SET appendonly no",
    "CONFIG SET appendonly yes",
    "CONFIG SET maxmemory 1mb",
    "CONFIG SET maxmemory 0",
    "CONFIG SET bf-auto-create no",
    "CONFIG SET bf-auto-create yes",
    "CONFIG SET bf-initial-size 7 bf-error-rate 0.02",
    "CONFIG SET save-pack-limit 0",
    "CONFIG SET save-pack-limit 16kb auto-aof-rewrite-percentage 1 auto-aof-rewrite-min-size 64kb",
    "CONFIG SET reply-buffer-high-water 16kb",
    "CONFIG SET reply-buffer-high-water 1mb",
    "CONFIG SET slowlog-log-slower-than 0",
    "CONFIG SET slowlog-log-slower-than 10000",
    "CONFIG SET notify-keyspace-events KEA",
    "CONFIG SET notify-keyspace-events \"\"",
    "CONFIG SET loglevel warning",
    "CONFIG SET loglevel notice",
    "CONFIG GET *",
    "CONFIG RESETSTAT",
    "FLUSHALL",
    "CLIENT KILL TYPE normal SKIPME yes",
    "CLIENT KILL TYPE pubsub",
    "CLIENT PAUSE 5 ALL",
    "CLIENT PAUSE 5 WRITE",
    "CLIENT UNPAUSE",
    "CLIENT LIST",
    "INFO everything",
    "MEMORY USAGE f",
    "SLOWLOG GET 10",
    "LATENCY LATEST",
    "SAVE",
    "BGSAVE SCHEDULE",
    "BGREWRITEAOF",
    "SCAN 0 COUNT 1000",
};

static _Atomic bool ends;
static _Atomic long killed, answered;

/* ---- one client ---- */

struct worker {
    pthread_t thread;
    struct rng rng;
    redisContext *client;
    unsigned sent;       /* pending replies */
    unsigned long token; /* the same for all of a pipeline */
};

static void send_line(struct worker *me, const char *template)
{
    char line[400];
    size_t len = 0;

    for (const char *at = template; *at; at++) {
        if (*at == '#')
            len += (size_t)snprintf(line + len, sizeof(line) - len, "%u", (unsigned)rng_below(&me->rng, FILTERS));
        else if (*at == '@')
            len += (size_t)snprintf(line + len, sizeof(line) - len, "i%u", (unsigned)rng_below(&me->rng, 5000));
        else
            line[len++] = *at;
        cr_assert_lt(len, sizeof(line) - 20);
    }
    line[len] = '\0';
    redisAppendCommand(me->client, line);
    me->sent++;
}

static void send_work(struct worker *me, const char *template)
{
    char part[400];

    while (*template) {
        size_t len = strcspn(template, ";");
        snprintf(part, sizeof(part), "%.*s", (int)len, template);
        send_line(me, part);
        template += len + (template[len] == ';');
    }
}

static void send_long(struct worker *me)
{
    static _Thread_local char items[LONG][12];
    static _Thread_local const char *argv[LONG + 2];
    unsigned first = (unsigned)rng_below(&me->rng, 5000);

    argv[0] = rng_below(&me->rng, 3) ? "BF.MADD" : "BF.MEXISTS";
    argv[1] = rng_below(&me->rng, 2) ? "f0" : "f1";
    for (unsigned i = 0; i < LONG; i++) {
        snprintf(items[i], sizeof(items[i]), "i%u", first + i);
        argv[i + 2] = items[i];
    }
    redisAppendCommandArgv(me->client, LONG + 2, argv, NULL);
    me->sent++;
}

/* A pipeline between two tokens: their replies are in the right places, or the connection has been killed. */
static bool play(struct worker *me)
{
    redisReply *reply;
    char token[32];
    bool good = true;

    snprintf(token, sizeof(token), "token-%lu", ++me->token);
    me->sent = 0;
    redisAppendCommand(me->client, "ECHO %s", token);
    for (unsigned i = 0; i < PIPELINE; i++) {
        if (rng_below(&me->rng, 16) == 0)
            send_long(me);
        else
            send_work(me, work[rng_below(&me->rng, sizeof(work) / sizeof(work[0]))]);
    }
    redisAppendCommand(me->client, "ECHO %s", token);
    for (unsigned i = 0; i < me->sent + 2; i++) {
        if (redisGetReply(me->client, (void **)&reply) != REDIS_OK) {
            cr_assert(me->client->err == REDIS_ERR_EOF || me->client->err == REDIS_ERR_IO, "%s", me->client->errstr);
            return false;
        }
        if (i == 0 || i == me->sent + 1)
            good = reply->type == REDIS_REPLY_STRING && strcmp(reply->str, token) == 0;
        cr_assert(good, "reply %u is '%s', not %s", i, reply->str ? reply->str : "", token);
        freeReplyObject(reply);
        atomic_fetch_add(&answered, 1);
    }
    return true;
}

static void *client_main(void *arg)
{
    struct worker *me = arg;

    me->client = client_open(the_daemon.port);
    while (!atomic_load(&ends)) {
        if (play(me))
            continue;
        atomic_fetch_add(&killed, 1);
        redisFree(me->client);
        me->client = client_open(the_daemon.port);
    }
    redisFree(me->client);
    return NULL;
}

/* ---- listeners, admins ---- */

/* Reads messages until it is killed, then listens again, to another source. */
static void *listener_main(void *arg)
{
    static const char *const ways[] = {"PSUBSCRIBE __key*", "MONITOR", "SUBSCRIBE news"};
    (void)arg;
    for (unsigned way = 0; !atomic_load(&ends); way++) {
        char sink[4096];
        time_t until = time(NULL) + 1;
        redisContext *client = client_open(the_daemon.port);
        struct pollfd wait = {.fd = client->fd, .events = POLLIN};
        int written;
        redisAppendCommand(client, ways[way % 3]);
        redisBufferWrite(client, &written);
        while (!atomic_load(&ends) && time(NULL) <= until &&
               (poll(&wait, 1, 50) == 0 || recv(client->fd, sink, sizeof(sink), 0) > 0))
            ;
        redisFree(client);
    }
    return NULL;
}

static void *admin_main(void *arg)
{
    struct worker *me = arg;
    redisContext *client = client_open(the_daemon.port);

    while (!atomic_load(&ends)) {
        redisReply *reply = redisCommand(client, orders[rng_below(&me->rng, sizeof(orders) / sizeof(orders[0]))]);
        if (reply) {
            freeReplyObject(reply);
        } else {
            redisFree(client);
            client = client_open(the_daemon.port);
        }
        poll(NULL, 0, (int)rng_below(&me->rng, 20));
    }
    redisFree(client);
    return NULL;
}

/* ---- the end ---- */

static void count_all(redisContext *client, long long counts[2 * FILTERS])
{
    for (int i = 0; i < 2 * FILTERS; i++)
        counts[i] = client_number(client, "BF.CARD %s%d", i % 2 ? "u" : "f", i / 2);
}

/* The present state is there after a kill -9, too. */
static void expect_to_survive(void)
{
    long long before[2 * FILTERS], after[2 * FILTERS];
    const char *output;
    redisContext *client = client_open(the_daemon.port);

    expect(client, "+OK", "CLIENT UNPAUSE");
    expect(client, "+OK", "CONFIG SET appendonly yes appendfsync always maxmemory 0 bf-auto-create yes");
    wait_for_reply(the_daemon.port, "+OK", "SAVE");
    for (int i = 0; i < 2 * FILTERS; i++)
        client_ask(client, "PERSIST %s%d", i % 2 ? "u" : "f", i / 2);
    for (int i = 0; i < FILTERS; i++)
        client_ask(client, "BF.ADD f%d last", i);
    count_all(client, before);
    client_kill(client, &the_daemon);
    cr_assert_eq(check_tool(&the_daemon, &output), 0, "%s", output);
    client = client_restart(&the_daemon);
    count_all(client, after);
    for (int i = 0; i < 2 * FILTERS; i++)
        cr_expect_eq(after[i], before[i], "%s%d had %lld items, and has %lld", i % 2 ? "u" : "f", i / 2, before[i],
                     after[i]);
    redisFree(client);
}

DAEMON_TEST(the_daemon, together, everything)
{
    static struct worker workers[CLIENTS + ADMINS + 2];
    unsigned n = sizeof(workers) / sizeof(workers[0]);

    uint64_t seed = environment_number("BLOOMERY_TOGETHER_SEED", (uint64_t)time(NULL));

    printf("seed %llu\n", (unsigned long long)seed);
    for (unsigned i = 0; i < n; i++) {
        rng_init(&workers[i].rng, seed + i);
        workers[i].token = i * 1000000ul;
        cr_assert_eq(pthread_create(&workers[i].thread, NULL,
                                    i < CLIENTS            ? client_main
                                    : i < CLIENTS + ADMINS ? admin_main
                                                           : listener_main,
                                    &workers[i]),
                     0);
    }
    poll(NULL, 0, (int)environment_number("BLOOMERY_TOGETHER_SECONDS", 4) * 1000);
    atomic_store(&ends, true);
    for (unsigned i = 0; i < n; i++)
        pthread_join(workers[i].thread, NULL);
    printf("%ld replies, %ld connections killed\n", atomic_load(&answered), atomic_load(&killed));
    cr_assert_gt(atomic_load(&answered), 100);
    expect_to_survive();
}
