/* Ten times more filters than memory, under both policies: clients add, query, rename, copy, clear, merge and
 * delete, in several databases, while saves run, bits leave and come back, and kills interrupt it. All acknowledged
 * items are there at any moment and after each kill; counts are exact; the bits in memory stay within the limit.
 *
 * BLOOMERY_RESIDENCY_ROUNDS=<n> plays n rounds of each test, BLOOMERY_RESIDENCY_SEED=<n> with the same random
 * numbers (the clients' timing remains). */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "environment.h"
#include "rng.h"

#define CLIENTS   4
#define FILTERS   160 /* each fourth has 108 kB and its own file, the others 29 kB and a place in a pack: 7.8 MB */
#define DATABASES 3
#define LIMIT     "1000kb" /* of which 250 kB are in use in addition to the bits */
#define MOST      1200000  /* plus the possible excess of commands that run at the same time */
#define BATCH     20
#define ROUND_MS  (DAEMON_SANITIZED ? 1500 : 700)

DAEMON_SUITE_IDLE(the_daemon, residency_hunt);

/* Item n of filter f is "n"; items below `answered` are there. Only one client adds to it. */
struct filter {
    _Atomic int answered;
    _Atomic int sent;
    long long ones; /* of the answered adds */
};

struct hunter {
    pthread_t thread;
    unsigned number;
    struct rng rng;
    redisContext *context;
    int database;
    _Atomic unsigned questions, lives;
    unsigned refused;
};

struct hunt {
    int port;
    _Atomic bool stopping;
    atomic_flag failed;
    char why[300];
    struct filter filters[FILTERS];
    struct hunter hunters[CLIENTS];
    pthread_t watcher, saver;
    long long most_bytes, looks;
};

static struct hunt hunt;

/* ---- in threads ---- */

static __attribute__((format(printf, 1, 2))) void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!atomic_flag_test_and_set(&hunt.failed))
        vsnprintf(hunt.why, sizeof(hunt.why), format, args);
    va_end(args);
    atomic_store(&hunt.stopping, true);
}

static bool goes_on(void)
{
    return !atomic_load(&hunt.stopping);
}

static redisContext *join(void)
{
    redisContext *context = redisConnectWithTimeout("127.0.0.1", hunt.port, (struct timeval){.tv_sec = 60});
    if (context && !context->err) {
        redisSetTimeout(context, (struct timeval){.tv_sec = 60});
        return context;
    }
    redisFree(context);
    return NULL;
}

/* NULL when the daemon is gone. */
static redisReply *take(struct hunter *hunter)
{
    redisReply *reply;
    if (redisGetReply(hunter->context, (void **)&reply) == REDIS_OK)
        return reply;
    atomic_store(&hunt.stopping, true);
    return NULL;
}

static redisReply *ask(struct hunter *hunter, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    redisvAppendCommand(hunter->context, format, args);
    va_end(args);
    return take(hunter);
}

/* The reply to the command is this number; without a command, the reply to an earlier one. */
static bool answers(struct hunter *hunter, long long expected, redisReply *reply, const char *what, int which)
{
    bool right = reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == expected;
    if (reply && !right)
        fail("client %u: %s %d: %s (%lld instead of %lld)", hunter->number, what, which, reply->str ? reply->str : "",
             reply->integer, expected);
    freeReplyObject(reply);
    return right;
}

static bool is_ok(struct hunter *hunter, redisReply *reply, const char *what)
{
    bool ok = reply && reply->type == REDIS_REPLY_STATUS;
    if (reply && !ok)
        fail("client %u: %s: %s", hunter->number, what, reply->str ? reply->str : "no status");
    freeReplyObject(reply);
    return ok;
}

static void enter(struct hunter *hunter, int database)
{
    if (hunter->database == database)
        return;
    hunter->database = database;
    is_ok(hunter, ask(hunter, "SELECT %d", database), "SELECT");
}

static void enter_of(struct hunter *hunter, int f)
{
    enter(hunter, f % DATABASES);
}

static int any(struct hunter *hunter, int below)
{
    return (int)rng_below(&hunter->rng, (uint64_t)below);
}

/* One of the client's own filters. */
static int own(struct hunter *hunter)
{
    return any(hunter, FILTERS / CLIENTS) * CLIENTS + (int)hunter->number;
}

static void add(struct hunter *hunter)
{
    int f = own(hunter);
    struct filter *filter = &hunt.filters[f];
    int from = atomic_load(&filter->answered);
    char command[BATCH * 12 + 64];
    int len = snprintf(command, sizeof(command), "BF.MADD f%d", f);
    for (int i = 0; i < BATCH; i++)
        len += snprintf(command + len, sizeof(command) - (size_t)len, " %d", from + i);
    enter_of(hunter, f);
    atomic_store(&filter->sent, from + BATCH);
    redisReply *reply = ask(hunter, command);
    if (!reply)
        return;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != BATCH)
        fail("client %u: BF.MADD f%d: %s", hunter->number, f, reply->str ? reply->str : "wrong reply");
    for (size_t i = 0; i < reply->elements; i++)
        filter->ones += reply->element[i]->integer;
    freeReplyObject(reply);
    atomic_store(&filter->answered, from + BATCH);
    if (any(hunter, 4) == 0)
        answers(hunter, filter->ones, ask(hunter, "BF.CARD f%d", f), "BF.CARD of filter", f);
}

/* In a pipeline: several commands on the same filter are a run of the pipeline. */
static void question(struct hunter *hunter)
{
    int f = any(hunter, FILTERS), answered = atomic_load(&hunt.filters[f].answered);
    int n = answered ? 1 + any(hunter, 12) : 0;
    enter_of(hunter, f);
    for (int i = 0; i < n; i++)
        redisAppendCommand(hunter->context, "BF.EXISTS f%d %d", f, any(hunter, answered));
    for (int i = 0; i < n; i++)
        answers(hunter, 1, take(hunter), "BF.EXISTS of filter", f);
    hunter->questions += (unsigned)n;
}

/* Several filters at once, all loaded before the first lookup: small ones, so that those of all clients fit
 * together. */
static void transaction(struct hunter *hunter)
{
    int database = any(hunter, DATABASES), n = 0, of[3];
    enter(hunter, database);
    for (int i = 0; i < 3; i++) {
        int f = any(hunter, FILTERS / DATABASES) * DATABASES + database;
        if (f % 4 && atomic_load(&hunt.filters[f].answered) > 0)
            of[n++] = f;
    }
    is_ok(hunter, ask(hunter, "MULTI"), "MULTI");
    for (int i = 0; i < n; i++)
        is_ok(hunter, ask(hunter, "BF.EXISTS f%d 0", of[i]), "QUEUED");
    redisReply *reply = ask(hunter, "EXEC");
    if (reply && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "EXECABORT", 9) != 0 &&
        strncmp(reply->str, "OOM", 3) == 0)
        hunter->refused++; /* the others' filters take the room that these need at once */
    else if (reply && (reply->type != REDIS_REPLY_ARRAY || reply->elements != (size_t)n))
        fail("client %u: EXEC: %s", hunter->number, reply->str ? reply->str : "wrong reply");
    for (size_t i = 0; reply && reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
        if (reply->element[i]->type != REDIS_REPLY_INTEGER || reply->element[i]->integer != 1)
            fail("client %u: BF.EXISTS f%d in EXEC: %s", hunter->number, of[i],
                 reply->element[i]->str ? reply->element[i]->str : "0");
    }
    freeReplyObject(reply);
}

/* All filters of the database, one after the other. */
static void find(struct hunter *hunter)
{
    int database = any(hunter, DATABASES), there = 0;
    for (int f = database; f < FILTERS; f += DATABASES)
        there += atomic_load(&hunt.filters[f].answered) > 0;
    enter(hunter, database);
    redisReply *reply = ask(hunter, "BF.FIND COUNT f* ITEMS 0");
    if (reply && (reply->type != REDIS_REPLY_ARRAY || reply->elements != 6 || reply->element[3]->elements != 1 ||
                  reply->element[3]->element[0]->integer < there || reply->element[5]->elements != 0))
        fail("client %u: BF.FIND: %lld of %d, unknown %s", hunter->number,
             reply->elements == 6 ? reply->element[3]->element[0]->integer : -1, there,
             reply->str                                            ? reply->str
             : reply->elements == 6 && reply->element[5]->elements ? reply->element[5]->element[1]->str
                                                                   : "none");
    freeReplyObject(reply);
}

/* Meanwhile the client's filter may be evicted. */
static void ask_others(struct hunter *hunter, int home)
{
    for (int i = any(hunter, 12); i > 0 && goes_on(); i--)
        question(hunter);
    enter(hunter, home);
}

/* The life of one of the client's own filters, with all possible changes on the way. */
static void live(struct hunter *hunter)
{
    unsigned c = hunter->number, n = hunter->lives++;
    int home = any(hunter, DATABASES), to = (home + 1) % DATABASES;
    enter(hunter, home);
    is_ok(hunter, ask(hunter, "BF.RESERVE a%u-%u 0.001 16000", c, n), "BF.RESERVE");
    answers(hunter, 1, ask(hunter, "BF.ADD a%u-%u x%u", c, n, n), "BF.ADD, life", (int)n);
    if (any(hunter, 2) == 0)
        answers(hunter, 1, ask(hunter, "EXPIRE a%u-%u 1000", c, n), "EXPIRE, life", (int)n);
    ask_others(hunter, home);
    is_ok(hunter, ask(hunter, "RENAME a%u-%u b%u-%u", c, n, c, n), "RENAME");
    answers(hunter, 1, ask(hunter, "COPY b%u-%u c%u-%u", c, n, c, n), "COPY, life", (int)n);
    answers(hunter, 1, ask(hunter, "BF.ADD c%u-%u y%u", c, n, n), "BF.ADD to a copy, life", (int)n);
    ask_others(hunter, home);
    is_ok(hunter, ask(hunter, "BF.MERGE d%u-%u b%u-%u c%u-%u", c, n, c, n, c, n), "BF.MERGE");
    is_ok(hunter, ask(hunter, "BF.CLEAR b%u-%u", c, n), "BF.CLEAR");
    answers(hunter, 2, ask(hunter, "BF.CARD d%u-%u", c, n), "BF.CARD of a union, life", (int)n);
    answers(hunter, 1, ask(hunter, "BF.EXISTS d%u-%u y%u", c, n, n), "BF.EXISTS of a union, life", (int)n);
    answers(hunter, 1, ask(hunter, "BF.EXISTS c%u-%u x%u", c, n, n), "BF.EXISTS of a copy, life", (int)n);
    answers(hunter, 1, ask(hunter, "BF.ADD b%u-%u x%u", c, n, n), "BF.ADD after BF.CLEAR, life", (int)n);
    answers(hunter, 1, ask(hunter, "MOVE d%u-%u %d", c, n, to), "MOVE, life", (int)n);
    answers(hunter, 2, ask(hunter, "DEL b%u-%u c%u-%u", c, n, c, n), "DEL, life", (int)n);
    enter(hunter, to);
    answers(hunter, 1, ask(hunter, "BF.EXISTS d%u-%u x%u", c, n, n), "BF.EXISTS after MOVE, life", (int)n);
    answers(hunter, 1, ask(hunter, "DEL d%u-%u", c, n), "DEL, life", (int)n);
}

static void *hunter_main(void *arg)
{
    struct hunter *hunter = arg;
    hunter->context = join();
    hunter->database = 0;
    while (hunter->context && goes_on()) {
        int what = any(hunter, 100);
        if (what < 25)
            add(hunter);
        else if (what < 85)
            question(hunter);
        else if (what < 90)
            transaction(hunter);
        else if (what < 92)
            find(hunter);
        else
            live(hunter);
    }
    redisFree(hunter->context);
    return NULL;
}

static void *saver_main(void *arg)
{
    redisContext *context = join();
    (void)arg;
    while (context && goes_on()) {
        redisReply *reply = redisCommand(context, "SAVE");
        if (!reply)
            break;
        freeReplyObject(reply);
        usleep(30000);
    }
    redisFree(context);
    return NULL;
}

static long long field(const char *info, const char *name)
{
    char line[64];
    snprintf(line, sizeof(line), "\n%s:", name);
    const char *at = strstr(info, line);
    return at ? atoll(at + strlen(line)) : -1;
}

/* Repeatedly samples the memory in use. */
static void *watcher_main(void *arg)
{
    redisContext *context = join();
    (void)arg;
    while (context && goes_on()) {
        redisReply *reply = redisCommand(context, "INFO bf");
        if (!reply)
            break;
        long long bytes = reply->type == REDIS_REPLY_STRING ? field(reply->str, "bf_bytes") : -1;
        hunt.most_bytes = bytes > hunt.most_bytes ? bytes : hunt.most_bytes;
        hunt.looks++;
        if (bytes < 0 || bytes > MOST)
            fail("there are %lld bytes of bits in memory, and the limit is " LIMIT, bytes);
        freeReplyObject(reply);
        usleep(1000);
    }
    redisFree(context);
    return NULL;
}

/* ---- the test's own functions ---- */

static void make_filters(redisContext *client)
{
    memset(&hunt.filters, 0, sizeof(hunt.filters));
    for (int f = 0; f < FILTERS; f++) {
        expect(client, "+OK", "SELECT %d", f % DATABASES);
        expect(client, "+OK", "BF.RESERVE f%d 0.001 %d", f, f % 4 ? 16000 : 60000);
    }
}

static unsigned questions(void)
{
    unsigned sum = 0;
    for (unsigned c = 0; c < CLIENTS; c++)
        sum += atomic_load(&hunt.hunters[c].questions);
    return sum;
}

static unsigned lives(void)
{
    unsigned sum = 0;
    for (unsigned c = 0; c < CLIENTS; c++)
        sum += atomic_load(&hunt.hunters[c].lives);
    return sum;
}

/* The round has had enough queries, however slow the machine is. */
static bool is_enough(unsigned questions_before, unsigned lives_before)
{
    return questions() >= questions_before + 100 && lives() >= lives_before + CLIENTS;
}

static void run_and_kill(void)
{
    unsigned asked = questions(), lived = lives();
    hunt.port = the_daemon.port;
    atomic_store(&hunt.stopping, false);
    for (unsigned c = 0; c < CLIENTS; c++)
        cr_assert_eq(pthread_create(&hunt.hunters[c].thread, NULL, hunter_main, &hunt.hunters[c]), 0);
    cr_assert_eq(pthread_create(&hunt.watcher, NULL, watcher_main, NULL), 0);
    cr_assert_eq(pthread_create(&hunt.saver, NULL, saver_main, NULL), 0);
    usleep(1000 * ROUND_MS); /* the random part is the moment */
    while (goes_on() && !is_enough(asked, lived))
        usleep(1000);
    daemon_kill(&the_daemon);
    for (unsigned c = 0; c < CLIENTS; c++)
        pthread_join(hunt.hunters[c].thread, NULL);
    pthread_join(hunt.watcher, NULL);
    pthread_join(hunt.saver, NULL);
    cr_assert_eq(hunt.why[0], '\0', "%s", hunt.why);
}

/* The adds answered before the kill are there; of the adds under way some may be. */
static void check_filters(redisContext *client)
{
    for (int f = 0; f < FILTERS; f++) {
        struct filter *filter = &hunt.filters[f];
        int answered = atomic_load(&filter->answered), sent = atomic_load(&filter->sent);
        expect(client, "+OK", "SELECT %d", f % DATABASES);
        long long card = client_number(client, "BF.CARD f%d", f);
        cr_assert(card >= filter->ones && card <= filter->ones + sent - answered, "f%d: %lld, %lld of %d answered", f,
                  card, filter->ones, answered);
        for (int n = 0; n < answered; n += 3)
            redisAppendCommand(client, "BF.EXISTS f%d %d", f, n);
        for (int n = 0; n < answered; n += 3)
            cr_assert_str_eq(client_reply(client), ":1", "f%d: item %d of %d is lost", f, n, answered);
        filter->ones = card;
        atomic_store(&filter->answered, sent);
        /* Missing items of the last batch are added, and counted. */
        for (int n = answered; n < sent; n++)
            filter->ones += client_number(client, "BF.ADD f%d %d", f, n);
    }
}

static void play(bool maybe)
{
    const char *const args[] = {"--threads",
                                "2",
                                "--maxmemory",
                                LIMIT,
                                "--maxmemory-policy",
                                maybe ? "maybe" : "reload",
                                "--lazy-load",
                                maybe ? "no" : "yes",
                                NULL};
    const char *const unlimited[] = {"--threads", "2", NULL};
    uint64_t rounds = environment_number("BLOOMERY_RESIDENCY_ROUNDS", 2);
    uint64_t seed = environment_number("BLOOMERY_RESIDENCY_SEED", (uint64_t)time(NULL));
    memset(&hunt, 0, sizeof(hunt));
    for (unsigned c = 0; c < CLIENTS; c++) {
        hunt.hunters[c].number = c;
        rng_init(&hunt.hunters[c].rng, seed + c);
    }
    redisContext *client = client_start(&the_daemon, args);
    make_filters(client);
    for (uint64_t round = 0; round < rounds; round++) {
        redisFree(client);
        run_and_kill();
        client = client_restart(&the_daemon);
        check_filters(client);
    }
    unsigned refused = 0;
    for (unsigned c = 0; c < CLIENTS; c++)
        refused += hunt.hunters[c].refused;
    printf("%s, %llu rounds, seed %llu: %u questions, %u lives, %u transactions refused; at most %lld bytes of bits\n",
           maybe ? "maybe" : "reload", (unsigned long long)rounds, (unsigned long long)seed, questions(), lives(),
           refused, hunt.most_bytes);
    client_stop(client, &the_daemon);
    daemon_start(&the_daemon, unlimited); /* every answer comes from the bits */
    client = client_open(the_daemon.port);
    check_filters(client);
    expect(client, "+OK", "SELECT 1");
    cr_expect_lt(client_for_items(client, "BF.MEXISTS", "f1", "absent", 1000), 50);
    redisFree(client);
}

DAEMON_TEST(the_daemon, residency_hunt, reload_with_ten_times_more_filters_than_memory)
{
    play(false);
}

DAEMON_TEST(the_daemon, residency_hunt, maybe_with_ten_times_more_filters_than_memory)
{
    play(true);
}
