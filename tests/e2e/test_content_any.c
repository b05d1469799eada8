/* Several clients restore, copy, merge, add to, rename and delete filters in any order, with saves at any moment,
 * and kill -9 or a power failure in the middle. With appendfsync always each filter afterwards has exactly its state
 * from before, except for the one unanswered command, which has taken place or has not.
 *
 * BLOOMERY_CONTENT_ROUNDS=<n> plays n rounds, BLOOMERY_CONTENT_SEED=<n> the same commands again. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "environment.h"
#include "power.h"
#include "rng.h"
#include "wait.h"

#define PLAYERS 4
#define NAMES   4 /* of each player: no other player uses them */
#define ITEMS   200
#define ROUNDS  (DAEMON_SANITIZED ? 3 : 6)

static struct daemon the_daemon;
static struct power power;

static void discard(void)
{
    power_detach(&power);
    daemon_discard(&the_daemon);
}

TestSuite(content_any, .fini = discard, .timeout = 3000);

/* The state of a filter. With a rate of 1e-9 an item that was not added is absent. */
struct state {
    bool exists, large, expires;
    bool in[ITEMS];
    int count;
    int slack; /* BF.CARD may be less by this much: of a union that has not been counted yet */
};

struct player {
    pthread_t thread;
    unsigned number;
    struct rng rng;
    struct state before[NAMES], after[NAMES]; /* after the last answered command, and after the unanswered one */
    char command[100];                        /* the unanswered one */
    uint64_t commands;
};

static struct player players[PLAYERS];
static char failure[400]; /* of a player: Criterion's own checks are for the test's thread */
static _Atomic bool failed;

#define demand(ok, ...)                                      \
    do {                                                     \
        if (!(ok) && !atomic_exchange(&failed, true))        \
            snprintf(failure, sizeof(failure), __VA_ARGS__); \
    } while (0)

static _Atomic unsigned connected;

static void name_of(const struct player *player, unsigned n, char name[16])
{
    snprintf(name, 16, "%u:%u", player->number, n);
}

/* ---- one command: `after` is the state after it ---- */

static redisReply *send(struct player *player, redisContext *c, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static redisReply *send(struct player *player, redisContext *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(player->command, sizeof(player->command), fmt, args);
    va_end(args);
    return redisCommand(c, player->command);
}

static redisReply *add(struct player *player, redisContext *c, unsigned n)
{
    struct state *filter = &player->after[n];
    unsigned item = (unsigned)rng_below(&player->rng, ITEMS);
    if (!filter->exists) {
        *filter = (struct state){.exists = true, .large = rng_below(&player->rng, 3) == 0};
        return send(player, c, "BF.RESERVE %u:%u 0.000000001 %s", player->number, n, filter->large ? "20000" : "60");
    }
    filter->count += !filter->in[item];
    filter->in[item] = true;
    return send(player, c, "BF.ADD %u:%u item:%u", player->number, n, item);
}

static redisReply *restore(struct player *player, redisContext *c, unsigned from, unsigned to)
{
    char name[16];
    name_of(player, to, name);
    if (!player->after[from].exists)
        return redisCommand(c, "PING");
    redisReply *dump = redisCommand(c, "DUMP %u:%u", player->number, from);
    if (!dump)
        return NULL; /* `after` does not differ yet */
    player->after[to] = player->after[from];
    player->after[to].expires = rng_below(&player->rng, 2);
    snprintf(player->command, sizeof(player->command), "RESTORE %u to %s", from, name);
    redisReply *reply = redisCommand(c, "RESTORE %s %s %b REPLACE", name, player->after[to].expires ? "100000000" : "0",
                                     dump->str, (size_t)dump->len);
    freeReplyObject(dump);
    return reply;
}

static redisReply *merge(struct player *player, redisContext *c, unsigned to, unsigned from)
{
    struct state *a = &player->after[to], *b = &player->after[from];
    if (!b->exists || (a->exists && a->large != b->large))
        return redisCommand(c, "PING");
    int most = a->count > b->count ? a->count : b->count, sum = a->exists ? a->count + b->count : b->count;
    bool made = !a->exists;
    *a = (struct state){.exists = true, .large = b->large, .expires = a->expires};
    for (unsigned i = 0; i < ITEMS; i++)
        a->in[i] = b->in[i] || (!made && player->before[to].in[i]);
    a->count = sum;
    a->slack = sum - most;
    return send(player, c, "BF.MERGE %u:%u %u:%u", player->number, to, player->number, from);
}

static redisReply *move(struct player *player, redisContext *c, unsigned from, unsigned to)
{
    if (!player->after[from].exists || from == to)
        return redisCommand(c, "PING");
    player->after[to] = player->after[from];
    player->after[from] = (struct state){.exists = false};
    return send(player, c, "RENAME %u:%u %u:%u", player->number, from, player->number, to);
}

static redisReply *copy(struct player *player, redisContext *c, unsigned from, unsigned to)
{
    if (!player->after[from].exists || from == to)
        return redisCommand(c, "PING");
    player->after[to] = player->after[from];
    return send(player, c, "COPY %u:%u %u:%u REPLACE", player->number, from, player->number, to);
}

static redisReply *delete (struct player *player, redisContext *c, unsigned n)
{
    player->after[n] = (struct state){.exists = false};
    return send(player, c, "DEL %u:%u", player->number, n);
}

static redisReply *play(struct player *player, redisContext *c)
{
    unsigned a = (unsigned)rng_below(&player->rng, NAMES), b = (unsigned)rng_below(&player->rng, NAMES);
    switch (rng_below(&player->rng, 20)) {
    case 0:
    case 1:
        return restore(player, c, a, b);
    case 2:
    case 3:
        return copy(player, c, a, b);
    case 4:
    case 5:
        return merge(player, c, a, b);
    case 6:
        return move(player, c, a, b);
    case 7:
        return delete (player, c, a);
    default:
        return add(player, c, a);
    }
}

/* The count of a union is its own estimate. false: the daemon is gone. */
static bool settle_count(struct player *player, redisContext *c)
{
    for (unsigned n = 0; n < NAMES; n++) {
        struct state *filter = &player->after[n];
        if (!filter->exists || !filter->slack)
            continue;
        redisReply *reply = redisCommand(c, "BF.CARD %u:%u", player->number, n);
        if (!reply)
            return false;
        demand(reply->integer <= filter->count && reply->integer >= filter->count - filter->slack,
               "%s: %u:%u counts %lld, not %d less %d at most", player->command, player->number, n, reply->integer,
               filter->count, filter->slack);
        filter->count = (int)reply->integer;
        filter->slack = 0;
        freeReplyObject(reply);
    }
    return true;
}

static void *play_until_the_end(void *arg)
{
    struct player *player = arg;
    redisContext *c = client_open(the_daemon.port);
    redisReply *reply;
    atomic_fetch_add(&connected, 1);
    for (;;) {
        memcpy(player->after, player->before, sizeof(player->after));
        if (!(reply = play(player, c)))
            break;
        if (reply->type == REDIS_REPLY_ERROR) {
            demand(strstr(reply->str, "the union would be too full") != NULL, "%s: %s", player->command, reply->str);
            memcpy(player->after, player->before, sizeof(player->after));
        }
        freeReplyObject(reply);
        bool alive = settle_count(player, c);
        memcpy(player->before, player->after, sizeof(player->before));
        player->commands++;
        if (!alive)
            break;
    }
    redisFree(c);
    return NULL;
}

static void *save_until_the_end(void *arg)
{
    struct timespec pause = {.tv_nsec = 3 * 1000 * 1000};
    redisContext *c = client_open(the_daemon.port);
    redisReply *reply;
    (void)arg;
    atomic_fetch_add(&connected, 1);
    while ((reply = redisCommand(c, "SAVE"))) {
        freeReplyObject(reply);
        nanosleep(&pause, NULL);
    }
    redisFree(c);
    return NULL;
}

/* ---- the state afterwards ---- */

/* The daemon's state of a filter; NULL if it has none. */
static void read_state(redisContext *c, const struct player *player, unsigned n, struct state *state)
{
    static char items[ITEMS][16];
    const char *argv[ITEMS + 2] = {"BF.MEXISTS"};
    char name[16];
    memset(state, 0, sizeof(*state));
    name_of(player, n, name);
    state->exists = client_number(c, "EXISTS %s", name) == 1;
    if (!state->exists)
        return;
    state->count = (int)client_number(c, "BF.CARD %s", name);
    state->expires = client_number(c, "PTTL %s", name) > 0;
    argv[1] = name;
    for (unsigned i = 0; i < ITEMS; i++) {
        snprintf(items[i], sizeof(items[i]), "item:%u", i);
        argv[i + 2] = items[i];
    }
    redisReply *reply = redisCommandArgv(c, ITEMS + 2, argv, NULL);
    cr_assert(reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == ITEMS);
    for (unsigned i = 0; i < ITEMS; i++)
        state->in[i] = reply->element[i]->integer == 1;
    freeReplyObject(reply);
}

static bool same(const struct state *is, const struct state *expected)
{
    if (is->exists != expected->exists)
        return false;
    return !is->exists || (is->count <= expected->count && is->count >= expected->count - expected->slack &&
                           is->expires == expected->expires && memcmp(is->in, expected->in, sizeof(is->in)) == 0);
}

/* All filters of the player are as before the unanswered command, or all as after it. */
static void compare(redisContext *c, struct player *player, uint64_t seed, unsigned round)
{
    struct state is[NAMES];
    bool as_before = true, as_after = true;
    for (unsigned n = 0; n < NAMES; n++) {
        read_state(c, player, n, &is[n]);
        as_before = as_before && same(&is[n], &player->before[n]);
        as_after = as_after && same(&is[n], &player->after[n]);
    }
    for (unsigned n = 0; n < NAMES && !as_before && !as_after; n++)
        printf("%u:%u: there %d count %d expires %d; before: %d %d %d%s; after: %d %d %d%s\n", player->number, n,
               is[n].exists, is[n].count, is[n].expires, player->before[n].exists, player->before[n].count,
               player->before[n].expires, same(&is[n], &player->before[n]) ? "" : " (differs)", player->after[n].exists,
               player->after[n].count, player->after[n].expires, same(&is[n], &player->after[n]) ? "" : " (differs)");
    cr_assert(as_before || as_after, "seed %llu, round %u: after '%s' of player %u filters are not what they were",
              (unsigned long long)seed, round, player->command, player->number);
    for (unsigned n = 0; n < NAMES; n++) {
        is[n].large = (as_before ? player->before : player->after)[n].large;
        player->before[n] = is[n];
    }
}

static void play_rounds(bool power_fails)
{
    const char *const args[] = {"--threads", "3", "--appendfsync", "always", NULL};
    uint64_t rounds = environment_number("BLOOMERY_CONTENT_ROUNDS", ROUNDS);
    uint64_t seed = environment_number("BLOOMERY_CONTENT_SEED", (uint64_t)time(NULL));
    struct rng rng;
    signal(SIGPIPE, SIG_IGN); /* a dump may be under way when the daemon is killed */
    rng_init(&rng, seed);
    memset(players, 0, sizeof(players));
    for (unsigned p = 0; p < PLAYERS; p++) {
        players[p].number = p;
        rng_init(&players[p].rng, rng_next(&rng));
    }
    if (power_fails)
        power_attach(&power, &the_daemon);
    daemon_start(&the_daemon, args);
    for (unsigned round = 0; round < rounds; round++) {
        pthread_t saver;
        atomic_store(&connected, 0);
        for (unsigned p = 0; p < PLAYERS; p++)
            cr_assert_eq(pthread_create(&players[p].thread, NULL, play_until_the_end, &players[p]), 0);
        cr_assert_eq(pthread_create(&saver, NULL, save_until_the_end, NULL), 0);
        wait_until(atomic_load(&connected) >= PLAYERS + 1);
        usleep((useconds_t)(10000 + rng_below(&rng, DAEMON_SANITIZED ? 800000 : 250000)));
        daemon_kill(&the_daemon);
        for (unsigned p = 0; p < PLAYERS; p++)
            pthread_join(players[p].thread, NULL);
        pthread_join(saver, NULL);
        cr_assert_not(atomic_load(&failed), "seed %llu, round %u: %s", (unsigned long long)seed, round, failure);
        if (power_fails)
            power_fail(&power, &the_daemon, rng_next(&rng));
        redisContext *c = client_restart(&the_daemon);
        for (unsigned p = 0; p < PLAYERS; p++)
            compare(c, &players[p], seed, round);
        redisFree(c);
    }
    uint64_t commands = 0;
    for (unsigned p = 0; p < PLAYERS; p++)
        commands += players[p].commands;
    printf("seed %llu: %llu commands\n", (unsigned long long)seed, (unsigned long long)commands);
    daemon_deinit(&the_daemon);
}

Test(content_any, kill_leaves_what_was_answered)
{
    play_rounds(false);
}

Test(content_any, a_power_failure_leaves_what_was_answered)
{
    play_rounds(true);
}
