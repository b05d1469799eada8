#include "traffic.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

#define MAX_BATCH 24

int64_t traffic_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- adders ---- */

static void send_add(redisContext *context, struct traffic_adder *adder, unsigned n)
{
    redisAppendCommand(context, "BF.ADD k%u %u:%u", n % TRAFFIC_FILTERS, adder->number, n);
    adder->answers[n] = SENT;
}

static void take_answer(struct traffic_adder *adder, unsigned n, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_INTEGER)
        return;
    adder->answers[n] = reply->integer ? ANSWERED_1 : ANSWERED_0;
    adder->answered_ns[n] = traffic_now_ns();
}

/* A pipeline of adds. False when the daemon is gone. */
static bool run_adds(redisContext *context, struct traffic_adder *adder)
{
    unsigned pipeline = adder->all->options.pipeline;
    unsigned from = adder->sent, n = pipeline ? pipeline : 1 + (unsigned)rng_below(&adder->rng, MAX_BATCH);
    redisReply *reply;

    adder->sent += n;
    for (unsigned i = 0; i < n; i++)
        send_add(context, adder, from + i);
    for (unsigned i = 0; i < n; i++) {
        if (redisGetReply(context, (void **)&reply) != REDIS_OK)
            return false;
        take_answer(adder, from + i, reply);
        freeReplyObject(reply);
    }
    return true;
}

/* One add to each filter, all or none. */
static bool run_exec(redisContext *context, struct traffic_adder *adder)
{
    unsigned from = adder->sent;
    redisReply *reply = NULL;

    adder->sent += TRAFFIC_FILTERS;
    adder->in_exec[from] = 1;
    redisAppendCommand(context, "MULTI");
    for (unsigned i = 0; i < TRAFFIC_FILTERS; i++)
        send_add(context, adder, from + i);
    redisAppendCommand(context, "EXEC");
    for (unsigned i = 0; i < TRAFFIC_FILTERS + 1; i++) {
        if (redisGetReply(context, (void **)&reply) != REDIS_OK)
            return false;
        freeReplyObject(reply);
    }
    if (redisGetReply(context, (void **)&reply) != REDIS_OK)
        return false;
    bool ok = reply->type == REDIS_REPLY_ARRAY && reply->elements == TRAFFIC_FILTERS;
    for (unsigned i = 0; ok && i < TRAFFIC_FILTERS; i++)
        take_answer(adder, from + i, reply->element[i]);
    freeReplyObject(reply);
    return ok;
}

static redisContext *connect_patiently(const struct traffic *traffic)
{
    struct timeval patience = {.tv_sec = 120};
    redisContext *context = redisConnectWithTimeout("127.0.0.1", traffic->port, patience);

    if (context && !context->err) {
        redisSetTimeout(context, patience);
        return context;
    }
    redisFree(context);
    return NULL;
}

static void *adder_main(void *arg)
{
    struct traffic_adder *adder = arg;
    const struct traffic_options *options = &adder->all->options;
    redisContext *context = connect_patiently(adder->all);
    unsigned room = options->pipeline > MAX_BATCH ? options->pipeline : MAX_BATCH;
    bool alive = context != NULL;

    while (alive && !atomic_load(&adder->all->stopping) && adder->sent + room < TRAFFIC_ITEMS) {
        bool exec = options->transactions && rng_below(&adder->rng, options->transactions) == 0;
        alive = exec ? run_exec(context, adder) : run_adds(context, adder);
        if (options->pause_us)
            usleep(options->pause_us);
    }
    redisFree(context);
    return NULL;
}

/* ---- the mover ---- */

/* The state of a life after each of its steps: the number of items in the filters "a<n>", "b<n>", "c<n>"; -1: none. */
#define STEPS      9
#define LIFE_ITEMS 40 /* of all its adds */
static const int lives[STEPS + 1][3] = {
    {-1, -1, -1}, {0, -1, -1}, {5, -1, -1}, {-1, 5, -1},  {-1, 30, -1},
    {-1, 30, 30}, {-1, 30, 0}, {-1, -1, 0}, {-1, -1, 10}, {-1, -1, -1},
};

static bool run_move(redisContext *context, unsigned life, unsigned step)
{
    char command[512];
    int len = 0, items = step == 1 ? 5 : step == 3 ? 25 : 10;
    redisReply *reply;

    switch (step) {
    case 0:
        /* The copy of every fourth is too large to be in the log. */
        snprintf(command, sizeof(command), "BF.RESERVE a%u 0.0000000001 %s", life, life % 4 == 3 ? "20000" : "20");
        break;
    case 1:
    case 3:
    case 7:
        len = snprintf(command, sizeof(command), "BF.MADD %c%u", step == 1 ? 'a' : step == 3 ? 'b' : 'c', life);
        for (int i = 0; i < items; i++)
            len += snprintf(command + len, sizeof(command) - (size_t)len, " %u-%d", step, i);
        break;
    case 2:
        snprintf(command, sizeof(command), "RENAME a%u b%u", life, life);
        break;
    case 4:
        snprintf(command, sizeof(command), "COPY b%u c%u", life, life);
        break;
    case 5:
        snprintf(command, sizeof(command), "BF.CLEAR c%u", life);
        break;
    case 6:
        snprintf(command, sizeof(command), "DEL b%u", life);
        break;
    default:
        snprintf(command, sizeof(command), "DEL c%u", life);
    }
    reply = redisCommand(context, command);
    bool ok = reply && reply->type != REDIS_REPLY_ERROR;
    freeReplyObject(reply);
    return ok;
}

static void *mover_main(void *arg)
{
    struct traffic *traffic = arg;
    redisContext *context = connect_patiently(traffic);
    bool alive = context != NULL;

    while (alive && !atomic_load(&traffic->stopping) && traffic->moves < TRAFFIC_MOVES) {
        unsigned move = traffic->moves++;
        alive = run_move(context, move / STEPS, move % STEPS);
        traffic->moved_ns[move] = alive ? traffic_now_ns() : INT64_MAX;
        if (traffic->options.pause_us)
            usleep(traffic->options.pause_us);
    }
    redisFree(context);
    return NULL;
}

/* ---- the keeper ---- */

static void *keeper_main(void *arg)
{
    static const char *const commands[] = {[KEEPER_SAVES] = "SAVE",
                                           [KEEPER_SAVES_ALONE] = "SAVE",
                                           [KEEPER_WAITS] = "WAITAOF 1 0 0",
                                           [KEEPER_REWRITES] = "BGREWRITEAOF"};
    struct traffic *traffic = arg;
    redisContext *context = connect_patiently(traffic);

    while (context && !atomic_load(&traffic->stopping)) {
        int64_t began = traffic_now_ns();
        redisReply *reply = redisCommand(context, commands[traffic->options.keeper]);
        if (!reply)
            break;
        if (reply->type != REDIS_REPLY_ERROR && traffic->options.keeper != KEEPER_REWRITES &&
            traffic->keeps < TRAFFIC_KEEPS) {
            traffic->kept[traffic->keeps].began_ns = began;
            traffic->kept[traffic->keeps++].ended_ns = traffic_now_ns();
        }
        freeReplyObject(reply);
        usleep(3000 + traffic->options.pause_us);
    }
    redisFree(context);
    return NULL;
}

/* ---- all of them ---- */

struct traffic *traffic_create(const struct traffic_options *options, uint64_t seed)
{
    struct traffic *traffic = calloc(1, sizeof(*traffic));
    struct rng rng;

    cr_assert_not_null(traffic);
    rng_init(&rng, seed);
    traffic->options = *options;
    for (unsigned a = 0; a < TRAFFIC_ADDERS; a++)
        rng_init(&traffic->adders[a].rng, rng_next(&rng));
    return traffic;
}

void traffic_start(struct traffic *traffic, int port)
{
    traffic->port = port;
    traffic->keeps = 0;
    atomic_store(&traffic->stopping, false);
    for (unsigned a = 0; a < traffic->options.adders; a++) {
        struct traffic_adder *adder = &traffic->adders[a];

        adder->all = traffic;
        adder->number = a;
        cr_assert_eq(pthread_create(&adder->thread, NULL, adder_main, adder), 0);
    }
    if (traffic->options.moves)
        cr_assert_eq(pthread_create(&traffic->mover, NULL, mover_main, traffic), 0);
    if (traffic->options.keeper)
        cr_assert_eq(pthread_create(&traffic->keeper, NULL, keeper_main, traffic), 0);
}

void traffic_end(struct traffic *traffic)
{
    atomic_store(&traffic->stopping, true);
    for (unsigned a = 0; a < traffic->options.adders; a++)
        pthread_join(traffic->adders[a].thread, NULL);
    if (traffic->options.moves)
        pthread_join(traffic->mover, NULL);
    if (traffic->options.keeper)
        pthread_join(traffic->keeper, NULL);
}

/* ---- checks ---- */

static void ask_presence(redisContext *context, const struct traffic_adder *adder, bool *present)
{
    for (unsigned from = 0; from < adder->sent; from += 5000) {
        unsigned to = adder->sent - from < 5000 ? adder->sent : from + 5000;
        for (unsigned n = from; n < to; n++)
            redisAppendCommand(context, "BF.EXISTS k%u %u:%u", n % TRAFFIC_FILTERS, adder->number, n);
        for (unsigned n = from; n < to; n++) {
            redisReply *reply = NULL;
            cr_assert_eq(redisGetReply(context, (void **)&reply), REDIS_OK);
            cr_assert_eq(reply->type, REDIS_REPLY_INTEGER, "%s", reply->str ? reply->str : "?");
            present[n] = reply->integer == 1;
            freeReplyObject(reply);
        }
    }
}

/* A save without a log runs while items are added: it may have some bits of a lost item, and later items may set the
 * others. Then the lost item is a false positive. */
static void check_adder(redisContext *context, struct traffic_adder *adder, int64_t promised_ns, bool adopt,
                        uint64_t *counts, const char *what)
{
    static bool present[TRAFFIC_ITEMS];
    bool in_part = adder->all->options.keeper == KEEPER_SAVES_ALONE;

    ask_presence(context, adder, present);
    for (unsigned n = 0; n < adder->sent; n++) {
        bool answered = adder->answers[n] == ANSWERED_0 || adder->answers[n] == ANSWERED_1;

        cr_assert(present[n] || !answered || adder->answered_ns[n] > promised_ns,
                  "%s: adder %u, item %u of %u: lost, answered %.1f ms before", what, adder->number, n, adder->sent,
                  (double)(promised_ns - adder->answered_ns[n]) / 1e6);
        if (in_part && adder->answers[n] == LOST)
            continue;
        cr_assert(!present[n] || adder->answers[n] != LOST, "%s: adder %u, item %u: it had been lost", what,
                  adder->number, n);
        if (adder->in_exec[n]) {
            for (unsigned i = 1; i < TRAFFIC_FILTERS; i++)
                cr_assert_eq(present[n], present[n + i], "%s: adder %u, item %u: half a transaction", what,
                             adder->number, n);
        }
        counts[n % TRAFFIC_FILTERS] += present[n] && adder->answers[n] != ANSWERED_0;
        if (!adopt || adder->answers[n] == ANSWERED_0)
            continue;
        adder->answers[n] = present[n] ? ANSWERED_1 : LOST;
        adder->answered_ns[n] = 0;
    }
}

static bool is_step(const int *found, const int *step, bool exact)
{
    for (int i = 0; i < 3; i++) {
        if ((found[i] < 0) != (step[i] < 0) || found[i] > step[i] || (exact && found[i] != step[i]))
            return false;
    }
    return true;
}

/* The file of pending records was copied front to back: it may lack a RENAME, and have the adds that followed it. */
static bool is_copied_step(const int *found, const int *step)
{
    for (int i = 0; i < 3; i++) {
        if ((found[i] < 0) != (step[i] < 0) || found[i] < step[i] || found[i] > LIFE_ITEMS)
            return false;
    }
    return true;
}

/* An unanswered BF.MADD may be there in part. */
static bool is_between(const int *found, const int *step, const int *next)
{
    for (int i = 0; i < 3; i++) {
        if ((found[i] < 0) != (step[i] < 0) || (found[i] < 0) != (next[i] < 0) || found[i] < step[i] ||
            found[i] > next[i])
            return false;
    }
    return true;
}

static const char *const letters[] = {"a", "b", "c"};

/* -1: there is no such filter. */
static int items_of(redisContext *context, int letter, unsigned life)
{
    if (client_number(context, "EXISTS %s%u", letters[letter], life) == 0)
        return -1;
    return (int)client_number(context, "BF.CARD %s%u", letters[letter], life);
}

/* At most one life is under way; its number and its steps are between the promised and the sent ones. The latest
 * adds may be lost although later changes of the filter are there, unless a sync was awaited. Returns the number of
 * complete steps, and in `half_out` whether the next step is there in part. */
static unsigned check_moves(redisContext *context, const struct traffic *traffic, int64_t promised_ns, bool *half_out,
                            const char *what)
{
    unsigned promised = 0, life = 0, under_way = 0, first;
    bool exact = traffic->options.grace_ns == 0;
    int found[3] = {-1, -1, -1};

    *half_out = false;
    while (promised < traffic->moves && traffic->moved_ns[promised] != INT64_MAX &&
           traffic->moved_ns[promised] <= promised_ns)
        promised++;
    first = promised / STEPS;
    for (unsigned l = first; l <= traffic->moves / STEPS; l++) {
        int now[3];
        for (int i = 0; i < 3; i++)
            now[i] = items_of(context, i, l);
        if (is_step(now, lives[0], true))
            continue;
        memcpy(found, now, sizeof(found));
        life = l;
        under_way++;
    }
    cr_assert_leq(under_way, 1u, "%s: %u lives at a time", what, under_way);
    long long filters = TRAFFIC_FILTERS + (found[0] >= 0) + (found[1] >= 0) + (found[2] >= 0);
    cr_assert_eq(client_number(context, "DBSIZE"), filters, "%s: %s", what, client_ask(context, "KEYS *"));
    for (unsigned move = promised; move <= traffic->moves; move++) {
        bool here = under_way ? move / STEPS == life : move / STEPS >= first;
        const int *step = lives[move % STEPS];
        if (here && (traffic->options.copied ? is_copied_step(found, step) : is_step(found, step, exact)))
            return move;
        if (here && (move < traffic->moves || traffic->half_moved) &&
            is_between(found, step, lives[move % STEPS + 1])) {
            *half_out = true;
            return move;
        }
    }
    cr_assert_fail("%s: filters a%u, b%u, c%u have %d, %d, %d items after %u (of %u) moves", what, life, life, life,
                   found[0], found[1], found[2], promised, traffic->moves);
    return 0;
}

static unsigned check_all(struct traffic *traffic, int port, int64_t crash_ns, bool adopt, const char *what)
{
    redisContext *context = client_open(port);
    uint64_t counts[TRAFFIC_FILTERS] = {0};
    int64_t promised_ns = crash_ns - traffic->options.grace_ns;

    for (unsigned k = 0; k < traffic->keeps; k++) {
        if (traffic->kept[k].ended_ns <= crash_ns && traffic->kept[k].began_ns > promised_ns)
            promised_ns = traffic->kept[k].began_ns;
    }
    for (unsigned a = 0; a < traffic->options.adders; a++)
        check_adder(context, &traffic->adders[a], promised_ns, adopt, counts, what);
    for (unsigned f = 0; f < TRAFFIC_FILTERS; f++) {
        long long card = client_number(context, "BF.CARD k%u", f);
        cr_assert(card == (long long)counts[f] ||
                      (traffic->options.keeper == KEEPER_SAVES_ALONE && card > (long long)counts[f]),
                  "%s: BF.CARD k%u is %lld, and %llu items are there", what, f, card, (unsigned long long)counts[f]);
    }
    bool half = false;
    unsigned moves = traffic->options.moves ? check_moves(context, traffic, promised_ns, &half, what) : 0;
    redisFree(context);
    if (adopt)
        traffic->half_moved = half;
    return moves;
}

void traffic_check(const struct traffic *traffic, int port, int64_t crash_ns, const char *what)
{
    check_all((struct traffic *)traffic, port, crash_ns, false, what);
}

void traffic_adopt(struct traffic *traffic, int port, int64_t crash_ns, const char *what)
{
    traffic->moves = check_all(traffic, port, crash_ns, true, what); /* the mover continues from there */
    traffic->keeps = 0;
    for (unsigned move = 0; move < traffic->moves; move++)
        traffic->moved_ns[move] = 0;
}

/* A save that is already running may be older. */
static void save(redisContext *context)
{
    for (const char *reply = client_ask(context, "SAVE"); strcmp(reply, "+OK") != 0;
         reply = client_ask(context, "SAVE")) {
        cr_assert(strstr(reply, "in progress") != NULL, "%s", reply);
        usleep(2000);
    }
}

void traffic_reset(struct traffic *traffic, int port)
{
    redisContext *context = client_open(port);

    expect(context, "+OK", "FLUSHALL");
    for (unsigned f = 0; f < TRAFFIC_FILTERS; f++)
        expect(context, "+OK", "BF.RESERVE k%u 0.0000000001 %u EXPANSION 2", f, 100 + 1000 * f);
    save(context);
    redisFree(context);
    for (unsigned a = 0; a < TRAFFIC_ADDERS; a++) {
        struct traffic_adder *adder = &traffic->adders[a];

        adder->sent = 0;
        memset(adder->answers, NOT_SENT, sizeof(adder->answers));
        memset(adder->in_exec, 0, sizeof(adder->in_exec));
    }
    traffic->moves = 0;
    traffic->half_moved = false;
    traffic->keeps = 0;
}
