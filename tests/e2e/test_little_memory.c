/* Filters of every kind in 4 MB, under each policy: a model of what was acknowledged. Writes may be refused for lack of
 * memory, but a refusal passes when filters are deleted; queries are never refused, and each acknowledged item is there
 * for ever, also after a restart.
 *
 * BLOOMERY_LITTLE_ROUNDS=<n> plays n rounds, BLOOMERY_LITTLE_SEED=<n> with the same random numbers. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client.h"
#include "daemon.h"
#include "environment.h"
#include "rng.h"
#include "wait.h"

#define FILTERS 24
#define BATCH   2000
#define STEPS   (DAEMON_SANITIZED ? 40 : 100)
#define LIMIT   (4LL << 20)

DAEMON_SUITE_IDLE(the_daemon, little_memory);

static const char *const policies[] = {"noeviction", "reload", "maybe"};

/* What a filter is made of, with a size; and the commands that add and ask. */
static const struct kind {
    const char *reserve, *add, *ask;
    int most; /* the largest size */
} kinds[] = {
    {"BF.RESERVE f%d 0.001 %d EXPANSION 1", "BF.MADD", "BF.MEXISTS", 1500000},
    {"BF.RESERVE f%d 0.01 %d EXPANSION 2", "BF.MADD", "BF.MEXISTS", 20000},
    {"BF.RESERVE f%d 0.001 %d NONSCALING", "BF.MADD", "BF.MEXISTS", 2000000},
    {"BF.RESERVE f%d 0.001 %d LAYOUT redisbloom", "BF.MADD", "BF.MEXISTS", 600000},
    {"BF.RESERVE f%d 0.001 %d LAYOUT blocked", "BF.MADD", "BF.MEXISTS", 600000},
    {"BF.RESERVE f%d 0.01 %d WINDOW 86400 PARTS 2", "BF.MADD", "BF.MEXISTS", 600000},
    {"CF.RESERVE f%d %d EXPANSION 2", "CF.INSERT", "CF.MEXISTS", 3000000},
    {"CF.RESERVE f%d %d ERROR 0.001", "CF.INSERT", "CF.MEXISTS", 1500000},
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static struct filter {
    const struct kind *kind; /* NULL: there is none */
    int sent;
    unsigned char there[1 << 18]; /* by the number of the item */
} filters[FILTERS];

static redisContext *client;

static bool is_oom(const char *reply)
{
    return strncmp(reply, "-OOM", 4) == 0 || strncmp(reply, "-Insufficient memory", 20) == 0;
}

static redisReply *send_batch(int f, const char *command, int from, int n)
{
    static char words[BATCH + 4][16];
    const char *argv[BATCH + 4];
    char name[16];
    int argc = 0;
    snprintf(name, sizeof(name), "f%d", f);
    argv[argc++] = command;
    argv[argc++] = name;
    if (strcmp(command, "CF.INSERT") == 0)
        argv[argc++] = "ITEMS";
    for (int i = 0; i < n; i++) {
        snprintf(words[i], sizeof(words[i]), "%d", from + i);
        argv[argc++] = words[i];
    }
    redisReply *reply = redisCommandArgv(client, argc, argv, NULL);
    cr_assert_not_null(reply, "%s: %s", command, client->errstr);
    return reply;
}

static void create(struct rng *rng, int f)
{
    const struct kind *kind = &kinds[rng_below(rng, KINDS)];
    int size = 1000 + (int)rng_below(rng, (uint64_t)(rng_below(rng, 3) ? kind->most / 10 : kind->most));
    const char *reply = client_ask(client, kind->reserve, f, size);
    cr_assert(strcmp(reply, "+OK") == 0 || is_oom(reply), "%s %d: %s", kind->reserve, size, reply);
    if (strcmp(reply, "+OK") != 0)
        return;
    filters[f].kind = kind;
    filters[f].sent = 0;
    memset(filters[f].there, 0, sizeof(filters[f].there));
}

/* An item whose add was answered with 1 or 0 is there. */
static void add(struct rng *rng, int f)
{
    struct filter *filter = &filters[f];
    int n = 1 + (int)rng_below(rng, BATCH), room = (int)sizeof(filter->there) - filter->sent;
    n = n < room ? n : room;
    if (n == 0)
        return;
    redisReply *reply = send_batch(f, filter->kind->add, filter->sent, n);
    if (reply->type == REDIS_REPLY_ERROR)
        cr_assert(strncmp(reply->str, "OOM", 3) == 0 || strstr(reply->str, "maximum expansions"), "%s", reply->str);
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
        const redisReply *one = reply->element[i];
        bool bloom = strcmp(filter->kind->add, "BF.MADD") == 0;
        filter->there[filter->sent + (int)i] = one->type == REDIS_REPLY_INTEGER && one->integer >= (bloom ? 0 : 1);
    }
    filter->sent += n;
    freeReplyObject(reply);
}

static void expect_all(int f)
{
    const struct filter *filter = &filters[f];
    for (int from = 0; from < filter->sent; from += BATCH) {
        int n = filter->sent - from < BATCH ? filter->sent - from : BATCH;
        redisReply *reply = send_batch(f, filter->kind->ask, from, n);
        cr_assert_eq(reply->type, REDIS_REPLY_ARRAY, "f%d (%s): %s", f, filter->kind->reserve, reply->str);
        for (int i = 0; i < n; i++)
            cr_assert(!filter->there[from + i] || reply->element[i]->integer == 1, "f%d (%s): item %d", f,
                      filter->kind->reserve, from + i);
        freeReplyObject(reply);
    }
}

static void delete (int f)
{
    expect(client, ":1", "DEL f%d", f);
    filters[f].kind = NULL;
}

static void step(struct rng *rng)
{
    int f = (int)rng_below(rng, FILTERS);
    if (!filters[f].kind)
        create(rng, f);
    else if (rng_below(rng, 40) == 0)
        delete (f);
    else if (rng_below(rng, 4) == 0)
        expect_all(f);
    else
        for (int i = 0; i < 5; i++)
            add(rng, f);
}

static void play(const char *policy, uint64_t seed)
{
    const char *const args[] = {"--threads", "2", "--maxmemory", "4mb", "--maxmemory-policy", policy, NULL};
    struct rng rng;
    rng_init(&rng, seed);
    daemon_start(&the_daemon, args);
    client = client_open(the_daemon.port);
    memset(filters, 0, sizeof(filters));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < STEPS; i++)
            step(&rng);
        if (round == 0)
            client = client_after_kill(client, &the_daemon, NULL);
        else
            client = client_after_stop(client, &the_daemon, NULL);
        for (int f = 0; f < FILTERS; f++)
            if (filters[f].kind)
                expect_all(f);
    }
    for (int f = 0; f < FILTERS; f++)
        if (filters[f].kind)
            delete (f);
    wait_until(client_info(client, "memory", "used_memory_dataset") < LIMIT / 4);
    wait_until(strcmp(client_ask(client, "BF.RESERVE f0 0.001 1000000"), "+OK") == 0);
    expect(client, ":1", "BF.ADD f0 x");
    expect(client, ":1", "DEL f0");
    client_stop(client, &the_daemon);
}

DAEMON_TEST(the_daemon, little_memory, what_was_acknowledged_stays_readable)
{
    uint64_t seed = environment_number("BLOOMERY_LITTLE_SEED", (uint64_t)time(NULL));
    for (unsigned i = 0; i < environment_number("BLOOMERY_LITTLE_ROUNDS", 3); i++) {
        printf("policy %s, seed %llu\n", policies[i % 3], (unsigned long long)seed + i);
        fflush(stdout);
        play(policies[i % 3], seed + i);
    }
}

/* A chain that grows until it is refused has room for all of its layers at once. */
DAEMON_TEST(the_daemon, little_memory, a_filter_grows_only_as_far_as_it_can_be_read_again)
{
    const char *const args[] = {"--threads", "1", "--maxmemory", "4mb", "--maxmemory-policy", "reload", NULL};
    daemon_start(&the_daemon, args);
    client = client_open(the_daemon.port);
    expect(client, "+OK", "BF.RESERVE f0 0.001 100000 EXPANSION 1");
    expect(client, "+OK", "BF.RESERVE f1 0.001 100000");
    filters[0].kind = &kinds[0];
    redisReply *reply = NULL;
    int sent = 0;
    do {
        freeReplyObject(reply);
        reply = send_batch(0, "BF.MADD", sent, BATCH);
        sent += BATCH;
        cr_assert_lt(sent, 10000000);
    } while (reply->type == REDIS_REPLY_ARRAY && reply->elements == BATCH &&
             reply->element[BATCH - 1]->type == REDIS_REPLY_INTEGER);
    cr_assert_gt(sent, 1000000, "%s", reply->str ? reply->str : "");
    freeReplyObject(reply);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 20; i++) { /* each evicts the other */
            expect(client, ":1", "BF.EXISTS f0 %d", i);
            expect(client, ":0", "BF.EXISTS f1 nothing%d", i);
        }
        client = client_after_stop(client, &the_daemon, NULL);
    }
}

/* Slots are never evicted: a cuckoo filter that would leave too little for the others is refused at once. */
DAEMON_TEST(the_daemon, little_memory, a_cuckoo_filter_leaves_room_for_the_filters_that_come_back)
{
    const char *const args[] = {"--threads", "1", "--maxmemory", "4mb", "--maxmemory-policy", "reload", NULL};
    daemon_start(&the_daemon, args);
    client = client_open(the_daemon.port);
    for (int i = 0; i < 3; i++)
        expect(client, "+OK", "BF.RESERVE f%d 0.001 550000", i); /* 1 MB each */
    const char *reply = client_ask(client, "CF.RESERVE c 3900000");
    cr_assert(is_oom(reply), "%s", reply);
    expect(client, "+OK", "CF.RESERVE c 2000000");
    for (int i = 0; i < 30; i++) {
        expect(client, ":1", "BF.ADD f%d %d", i % 3, i);
        expect(client, ":1", "CF.ADD c %d", i);
        expect(client, ":1", "BF.EXISTS f%d %d", i % 3, i);
    }
}

/* A save reads a cuckoo filter as it was, while clients change it: it takes no room from the filters, and nothing is
 * refused. */
DAEMON_TEST(the_daemon, little_memory, a_slow_save_of_a_cuckoo_filter_refuses_nothing)
{
    const char *const args[] = {"--threads", "1", "--maxmemory", "20mb", "--save-rate-limit", "4mb", NULL};
    daemon_start(&the_daemon, args);
    client = client_open(the_daemon.port);
    expect(client, "+OK", "CF.RESERVE c 14000000"); /* 16 MB */
    expect(client, "+OK", "BF.RESERVE b 0.000000001 100000");
    expect(client, "+Background saving started", "BGSAVE");
    int added = 0;
    do {
        expect(client, ":1", "BF.ADD b %d", added);
        expect(client, ":1", "CF.ADD c %d", added);
        if (added % 3 == 2)
            expect(client, ":1", "CF.DEL c %d", added);
        added++;
    } while (client_info(client, "persistence", "rdb_bgsave_in_progress") == 1);
    cr_expect_gt(added, 100);
    expect_has(client, "rdb_last_bgsave_status:ok", "INFO persistence");
    expect(client, ":1", "CF.ADD c after");
    client = client_after_kill(client, &the_daemon, NULL);
    for (int i = 0; i < added; i++)
        cr_assert(i % 3 == 2 || strcmp(client_ask(client, "CF.EXISTS c %d", i), ":1") == 0, "%d", i);
    char text[60];
    snprintf(text, sizeof(text), "Number of items inserted,:%d,", added - added / 3 + 1);
    expect_has(client, text, "CF.INFO c");
}
