/* kill -9 of the daemon under load from several clients, at random moments, also during saves: what was answered is
 * there, every count is exactly that of the items that are, a transaction is there as a whole or not at all, and
 * `bloomery check` finds nothing wrong with what was left.
 *
 * BLOOMERY_KILL_ROUNDS=<n> plays n rounds per policy instead of the few that a run of all tests has time for. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "log_clients.h"
#include "model.h"
#include "rng.h"

#define ROUNDS      7 /* per policy: 21 in a run of all tests */
#define NCLIENTS    4
#define NFILTERS    3
#define MAX_SENT    60000 /* items of a client, from one FLUSHALL to the next */
#define MAX_BATCH   24
#define KEEP_ROUNDS 5    /* between FLUSHALLs */
#define HORIZON_MS  2500 /* everysec: what may be lost, and what a slow machine needs */

static struct daemon daemon_under_test;

static void discard(void)
{
    daemon_discard(&daemon_under_test);
}

TestSuite(kill, .fini = discard, .timeout = 3000);

enum answer { NOT_SENT, SENT, ANSWERED_0, ANSWERED_1, LOST };

/* Item n of client c is "c:n"; it goes to filter n % NFILTERS. */
struct client_thread {
    pthread_t thread;
    unsigned number;
    struct rng rng;
    unsigned sent;
    unsigned char answers[MAX_SENT];
    unsigned char in_exec[MAX_SENT]; /* item n begins a transaction of NFILTERS items */
    int64_t answered_ms[MAX_SENT];
};

static struct client_thread clients[NCLIENTS];
static atomic_bool stopping;

static void send_add(redisContext *context, struct client_thread *client, unsigned n)
{
    redisAppendCommand(context, "BF.ADD k%u %u:%u", n % NFILTERS, client->number, n);
    client->answers[n] = SENT;
}

static bool take_answer(redisContext *context, struct client_thread *client, unsigned n, const redisReply *from)
{
    redisReply *reply = NULL;

    if (!from) {
        if (redisGetReply(context, (void **)&reply) != REDIS_OK)
            return false;
        from = reply;
    }
    if (from->type == REDIS_REPLY_INTEGER) {
        client->answers[n] = from->integer ? ANSWERED_1 : ANSWERED_0;
        client->answered_ms[n] = model_now_ms();
    }
    freeReplyObject(reply);
    return true;
}

/* A pipeline of adds. False when the daemon is gone. */
static bool run_adds(redisContext *context, struct client_thread *client)
{
    unsigned from = client->sent, n = 1 + (unsigned)rng_below(&client->rng, MAX_BATCH);

    client->sent += n;
    for (unsigned i = 0; i < n; i++)
        send_add(context, client, from + i);
    for (unsigned i = 0; i < n; i++) {
        if (!take_answer(context, client, from + i, NULL))
            return false;
    }
    return true;
}

/* One add to each filter, all or none. */
static bool run_exec(redisContext *context, struct client_thread *client)
{
    unsigned from = client->sent;
    redisReply *reply = NULL;

    client->sent += NFILTERS;
    client->in_exec[from] = 1;
    redisAppendCommand(context, "MULTI");
    for (unsigned i = 0; i < NFILTERS; i++)
        send_add(context, client, from + i);
    redisAppendCommand(context, "EXEC");
    for (unsigned i = 0; i < NFILTERS + 1; i++) {
        if (redisGetReply(context, (void **)&reply) != REDIS_OK)
            return false;
        freeReplyObject(reply);
        reply = NULL;
    }
    if (redisGetReply(context, (void **)&reply) != REDIS_OK)
        return false;
    bool ok = reply->type == REDIS_REPLY_ARRAY && reply->elements == NFILTERS;
    for (unsigned i = 0; ok && i < NFILTERS; i++)
        take_answer(context, client, from + i, reply->element[i]);
    freeReplyObject(reply);
    return ok;
}

static void *run_client(void *arg)
{
    struct client_thread *client = arg;
    struct timeval patience = {.tv_sec = 30};
    redisContext *context = redisConnectWithTimeout("127.0.0.1", daemon_under_test.port, patience);
    bool alive = context && !context->err;

    while (alive && !atomic_load(&stopping) && client->sent + MAX_BATCH < MAX_SENT)
        alive = rng_below(&client->rng, 4) == 0 ? run_exec(context, client) : run_adds(context, client);
    if (context)
        redisFree(context);
    return NULL;
}

/* Saves one after the other. */
static void *run_saves(void *arg)
{
    redisContext *context = redisConnect("127.0.0.1", daemon_under_test.port);
    redisReply *reply = NULL;

    (void)arg;
    while (context && !context->err && !atomic_load(&stopping)) {
        redisAppendCommand(context, "BGSAVE");
        if (redisGetReply(context, (void **)&reply) != REDIS_OK)
            break;
        freeReplyObject(reply);
        usleep(3000);
    }
    if (context)
        redisFree(context);
    return NULL;
}

/* ---- what is there
 * ------------------------------------------------------------------------------------------------------------- */

static void ask_presence(redisContext *context, const struct client_thread *client, bool *present)
{
    for (unsigned from = 0; from < client->sent; from += 5000) {
        unsigned to = client->sent - from < 5000 ? client->sent : from + 5000;
        for (unsigned n = from; n < to; n++)
            redisAppendCommand(context, "BF.EXISTS k%u %u:%u", n % NFILTERS, client->number, n);
        for (unsigned n = from; n < to; n++) {
            redisReply *reply = NULL;
            cr_assert_eq(redisGetReply(context, (void **)&reply), REDIS_OK);
            cr_assert_eq(reply->type, REDIS_REPLY_INTEGER, "%s", reply->str ? reply->str : "?");
            present[n] = reply->integer == 1;
            freeReplyObject(reply);
        }
    }
}

/* What was answered later than the horizon may be lost, then for good. */
static void check_client(redisContext *context, struct client_thread *client, int64_t horizon_ms, uint64_t *counts)
{
    static bool present[MAX_SENT];

    ask_presence(context, client, present);
    for (unsigned n = 0; n < client->sent; n++) {
        bool answered = client->answers[n] == ANSWERED_0 || client->answers[n] == ANSWERED_1;

        cr_assert(present[n] || !answered || client->answered_ms[n] > horizon_ms, "client %u, item %u of %u: lost",
                  client->number, n, client->sent);
        if (client->in_exec[n] && client->answers[n] != LOST) {
            for (unsigned i = 1; i < NFILTERS; i++)
                cr_assert_eq(present[n], present[n + i], "client %u, item %u: half a transaction", client->number, n);
        }
        counts[n % NFILTERS] += present[n] && client->answers[n] != ANSWERED_0;
        if (client->answers[n] != ANSWERED_0)
            client->answers[n] = present[n] ? ANSWERED_1 : LOST;
    }
}

/* What the clients have been answered since the last FLUSHALL, and what was on its way. */
static void print_round(unsigned round)
{
    unsigned answers[LOST + 1] = {0};

    for (unsigned c = 0; c < NCLIENTS; c++) {
        for (unsigned n = 0; n < clients[c].sent; n++)
            answers[clients[c].answers[n]]++;
    }
    printf("round %u: %u answered 1, %u answered 0, %u unanswered, %u lost before\n", round, answers[ANSWERED_1],
           answers[ANSWERED_0], answers[SENT], answers[LOST]);
}

static void check_all(int64_t horizon_ms)
{
    redisContext *context = client_open(daemon_under_test.port);
    uint64_t counts[NFILTERS] = {0};

    for (unsigned c = 0; c < NCLIENTS; c++)
        check_client(context, &clients[c], horizon_ms, counts);
    for (unsigned f = 0; f < NFILTERS; f++)
        cr_assert_eq(client_number(context, "BF.CARD k%u", f), (long long)counts[f], "k%u", f);
    redisFree(context);
}

static void start_over(void)
{
    redisContext *context = client_open(daemon_under_test.port);

    expect(context, "+OK", "FLUSHALL");
    for (unsigned f = 0; f < NFILTERS; f++)
        expect(context, "+OK", "BF.RESERVE k%u 0.0000001 %u EXPANSION 2", f, 100 + 1000 * f);
    /* So that this is not lost either. */
    expect(context, "+OK", "SAVE");
    redisFree(context);
    for (unsigned c = 0; c < NCLIENTS; c++) {
        clients[c].sent = 0;
        memset(clients[c].answers, NOT_SENT, sizeof(clients[c].answers));
        memset(clients[c].in_exec, 0, sizeof(clients[c].in_exec));
    }
}

static void play(const char *policy, bool loses)
{
    const char *rounds_text = getenv("BLOOMERY_KILL_ROUNDS");
    const char *args[] = {"--appendonly", "yes", "--appendfsync", policy, "--threads", "2", NULL};
    unsigned rounds = rounds_text ? (unsigned)atoi(rounds_text) : ROUNDS;
    uint64_t seed = (uint64_t)model_now_ms();
    struct rng rng;

    printf("appendfsync %s, %u rounds, seed %llu\n", policy, rounds, (unsigned long long)seed);
    rng_init(&rng, seed);
    daemon_start(&daemon_under_test, args);
    for (unsigned round = 0; round < rounds; round++) {
        pthread_t saver;

        if (round % KEEP_ROUNDS == 0)
            start_over();
        atomic_store(&stopping, false);
        for (unsigned c = 0; c < NCLIENTS; c++) {
            clients[c].number = c;
            rng_init(&clients[c].rng, rng_next(&rng));
            cr_assert_eq(pthread_create(&clients[c].thread, NULL, run_client, &clients[c]), 0);
        }
        cr_assert_eq(pthread_create(&saver, NULL, run_saves, NULL), 0);
        usleep((useconds_t)(1000 + rng_below(&rng, 250000))); /* the moment of the kill is what is random here */
        int64_t killed_ms = model_now_ms();
        daemon_kill(&daemon_under_test);
        atomic_store(&stopping, true);
        for (unsigned c = 0; c < NCLIENTS; c++)
            pthread_join(clients[c].thread, NULL);
        pthread_join(saver, NULL);
        print_round(round);
        const char *output;
        cr_assert_eq(check_tool(&daemon_under_test, &output), 0, "round %u: %s", round, output);
        daemon_restart(&daemon_under_test);
        check_all(loses ? killed_ms - HORIZON_MS : INT64_MAX);
    }
    daemon_deinit(&daemon_under_test);
}

Test(kill, always_loses_nothing_that_was_answered)
{
    play("always", false);
}

Test(kill, everysec_loses_the_last_second_at_most)
{
    play("everysec", true);
}

Test(kill, no_loses_what_the_process_had_in_memory_at_most)
{
    play("no", true);
}

/* Found by the model: the adds to a filter that was created and deleted since the save came back in the next one, which
 * had got the same id after the crash. */
Test(kill, a_filter_created_after_a_crash_has_nothing_of_one_that_was_deleted_before_it)
{
    const char *const args[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    redisContext *context;

    daemon_start(&daemon_under_test, args);
    context = client_open(daemon_under_test.port);
    for (int i = 0; i < 50; i++)
        expect(context, "[:1]", "BF.INSERT old CAPACITY 1000 ERROR 0.000001 ITEMS %d", i);
    expect(context, ":1", "DEL old");
    redisFree(context);
    daemon_kill(&daemon_under_test);
    daemon_restart(&daemon_under_test);
    context = client_open(daemon_under_test.port);
    expect(context, "+OK", "BF.RESERVE new 0.000001 1000");
    expect(context, ":1", "BF.ADD new x");
    redisFree(context);
    daemon_kill(&daemon_under_test);
    daemon_restart(&daemon_under_test);
    context = client_open(daemon_under_test.port);
    expect(context, ":1", "BF.CARD new");
    expect(context, ":0", "BF.EXISTS new 7");
    redisFree(context);
    daemon_deinit(&daemon_under_test);
}
