/* The daemon ends at random moments under load from several clients, also during saves. Acknowledged changes are
 * there as the policy promises, every count equals the number of present items, a transaction is there as a whole or
 * not at all, and `bloomery check` finds no error in the files.
 *
 * It ends by kill -9, after which the kernel has all written data; or by a power failure, after which the disk has
 * all synced data and any part of the rest: each write and each change of a name may be there or not, and a write in
 * part. For that the process is killed as well, and its file operations, up to some operation, are made into a
 * directory as a disk might have it (disk_trace.h).
 *
 * BLOOMERY_KILL_ROUNDS=<n> plays n rounds of each test instead of those that a run of all tests has time for (a
 * third of them under sanitizers), BLOOMERY_KILL_SEED=<n> plays with the same random numbers again (the clients'
 * timing remains). */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "environment.h"
#include "lateness.h"
#include "log_clients.h"
#include "power.h"
#include "rng.h"
#include "traffic.h"

#define KEEP_ROUNDS 5 /* before it starts from empty data */
#define SECOND_NS   INT64_C(1000000000)
#define NEVER_NS    (INT64_MAX / 2)

static struct daemon daemon_under_test;
static struct daemon probe; /* started on disk images from before the end */
static struct power power;
static struct rng rng;

static void discard(void)
{
    daemon_discard(&daemon_under_test);
    daemon_discard(&probe);
    power_detach(&power);
}

TestSuite(kill, .fini = discard, .timeout = 3000);

struct game {
    const char *policy;
    unsigned rounds;
    unsigned min_ms, max_ms; /* of traffic in a round */
    bool small_log;          /* it is cut continuously */
    bool no_log;             /* and other filters are created, deleted and renamed */
    unsigned delay_ms;       /* of a sync; power failures only */
    unsigned images;         /* power failures tried before the last */
    struct traffic_options traffic;
};

static const char *const *arguments(const struct game *game)
{
    static const char *args[] = {
        "--threads", "3", "--appendfsync", NULL, "--appendonly", NULL, NULL, "200kb", "--auto-aof-rewrite-percentage",
        "1",         NULL};

    args[3] = game->policy;
    args[5] = game->no_log ? "no" : "yes";
    args[6] = game->small_log ? "--auto-aof-rewrite-min-size" : NULL;
    return args;
}

/* The traffic continues for a random time, then the process is killed. Returns the time of the kill. */
static int64_t run_and_kill(const struct game *game, struct traffic *traffic)
{
    traffic_start(traffic, daemon_under_test.port);
    usleep(1000 * (useconds_t)(game->min_ms +
                               rng_below(&rng, game->max_ms - game->min_ms))); /* the random part is the moment */
    int64_t killed_ns = traffic_now_ns();
    daemon_kill(&daemon_under_test);
    traffic_end(traffic);
    return killed_ns;
}

static void expect_files_whole(const struct daemon *daemon, const char *what)
{
    const char *output;

    cr_assert_eq(check_tool(daemon, &output), 0, "%s: %s", what, output);
}

static struct traffic *begin(const struct game *game, uint64_t *rounds_out)
{
    uint64_t seed = environment_number("BLOOMERY_KILL_SEED", (uint64_t)traffic_now_ns());

    *rounds_out = environment_number("BLOOMERY_KILL_ROUNDS", DAEMON_SANITIZED ? (game->rounds + 2) / 3 : game->rounds);
    printf("appendfsync %s, %llu rounds, seed %llu\n", game->policy, (unsigned long long)*rounds_out,
           (unsigned long long)seed);
    rng_init(&rng, seed);
    return traffic_create(&game->traffic, rng_next(&rng));
}

/* ---- kill -9 ---- */

/* Until the daemon is gone. */
static void *come_and_go(void *client)
{
    static const char *const commands[] = {"BF.ADD other:%u x", "RENAME other:%u other:renamed", "DEL other:%u"};
    redisReply *reply;

    for (unsigned i = 0; (reply = redisCommand(client, commands[i % 3], i * i % 7)); i++)
        freeReplyObject(reply);
    redisFree(client);
    return NULL;
}

static void play_kills(const struct game *game)
{
    uint64_t rounds;
    struct traffic *traffic = begin(game, &rounds);
    char what[64];

    daemon_start(&daemon_under_test, arguments(game));
    for (uint64_t round = 0; round < rounds; round++) {
        if (round % KEEP_ROUNDS == 0)
            traffic_reset(traffic, daemon_under_test.port);
        snprintf(what, sizeof(what), "round %llu", (unsigned long long)round);
        pthread_t thread;
        if (game->no_log)
            cr_assert_eq(pthread_create(&thread, NULL, come_and_go, client_open(daemon_under_test.port)), 0);
        int64_t killed_ns = run_and_kill(game, traffic);
        if (game->no_log)
            pthread_join(thread, NULL);
        expect_files_whole(&daemon_under_test, what);
        daemon_restart(&daemon_under_test);
        traffic_adopt(traffic, daemon_under_test.port, killed_ns, what);
    }
    free(traffic);
    daemon_deinit(&daemon_under_test);
}

Test(kill, always_loses_nothing)
{
    play_kills(&(struct game){"always", 20, 1, 250, .traffic = {5, 0, 4, 0, true, KEEPER_SAVES, 0}});
}

Test(kill, always_loses_nothing_of_single_adds)
{
    play_kills(&(struct game){"always", 10, 20, 250, .traffic = {6, 1, 0, 0, false, KEEPER_REWRITES, 0}});
}

Test(kill, always_loses_nothing_of_pipelines_while_the_log_is_cut)
{
    play_kills(
        &(struct game){"always", 10, 20, 250, .small_log = true, .traffic = {6, 33, 0, 0, true, KEEPER_NONE, 0}});
}

Test(kill, transactions_are_there_or_not)
{
    play_kills(&(struct game){"always", 10, 1, 250, .traffic = {6, 0, 1, 0, true, KEEPER_SAVES, 0}});
}

/* With any policy, the file of pending records has all records that are not in the log yet. */
Test(kill, everysec_loses_nothing)
{
    play_kills(&(struct game){"everysec", 20, 1, 250, .traffic = {5, 0, 4, 0, true, KEEPER_SAVES, 0}});
}

Test(kill, no_loses_nothing)
{
    play_kills(&(struct game){"no", 20, 1, 250, .traffic = {5, 0, 4, 0, true, KEEPER_SAVES, 0}});
}

/* Saves follow one another. */
Test(kill, without_a_log_nothing_that_was_saved_is_lost)
{
    play_kills(&(struct game){"no", 20, 20, 170, .no_log = true,
                              .traffic = {4, 0, 0, 200, false, KEEPER_SAVES_ALONE, NEVER_NS}});
}

/* ---- power failures ---- */

/* A second, and a margin; and what the machine was late. */
#define EVERYSEC_GRACE_NS (5 * SECOND_NS / 2)

static int64_t late_ns(const struct game *game)
{
    return game->traffic.grace_ns == EVERYSEC_GRACE_NS ? lateness_ms() * 1000000 : 0;
}

static int by_size(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;

    return (x > y) - (x < y);
}

/* Power failures at some moments since `since_ns`, each tried on a separate daemon. */
static void try_images(const struct game *game, const struct traffic *traffic, struct disk_trace *trace,
                       int64_t since_ns, int64_t killed_ns, uint64_t round)
{
    size_t count = disk_trace_count(trace), first = 0, at[16];
    char what[200];

    cr_assert_leq(game->images, sizeof(at) / sizeof(*at));
    while (first < count && disk_trace_began_ns(trace, first) < since_ns)
        first++;
    for (unsigned i = 0; i < game->images; i++)
        at[i] = first + (size_t)rng_below(&rng, count - first + 1);
    qsort(at, game->images, sizeof(*at), by_size);
    daemon_prepare(&probe);
    for (unsigned i = 0; i < game->images; i++) {
        int64_t crash_ns = disk_trace_began_ns(trace, at[i]);

        disk_trace_play(trace, at[i]);
        crash_fs_destroy(power_image(&power, trace, &probe, rng_next(&rng)));
        snprintf(what, sizeof(what), "round %llu, operation %zu of %zu, %s", (unsigned long long)round, at[i], count,
                 power.what);
        expect_files_whole(&probe, what);
        daemon_start(&probe, arguments(game));
        traffic_check(traffic, probe.port, (crash_ns < killed_ns ? crash_ns : killed_ns) - late_ns(game), what);
        daemon_kill(&probe);
    }
}

static void play_power_failures(const struct game *game)
{
    uint64_t rounds;
    struct traffic *traffic = begin(game, &rounds);
    char what[200];

    power_attach(&power, &daemon_under_test);
    daemon_start(&daemon_under_test, arguments(game));
    lateness_watch(daemon_under_test.dir);
    for (uint64_t round = 0; round < rounds; round++) {
        bool anew = round % KEEP_ROUNDS == 0;

        if (anew)
            traffic_reset(traffic, daemon_under_test.port);
        atomic_store(&disk->delay_ms, (int)game->delay_ms);
        /* If no earlier state is kept, there is no earlier moment to check. */
        int64_t since_ns = anew ? traffic_now_ns() : 0, killed_ns = run_and_kill(game, traffic);
        atomic_store(&disk->delay_ms, 0);
        struct disk_trace *trace = power_trace(&power);
        try_images(game, traffic, trace, since_ns, killed_ns, round);
        power_end(&power, trace, &daemon_under_test, rng_next(&rng));
        snprintf(what, sizeof(what), "round %llu, %s", (unsigned long long)round, power.what);
        expect_files_whole(&daemon_under_test, what);
        daemon_restart(&daemon_under_test);
        traffic_adopt(traffic, daemon_under_test.port, killed_ns - late_ns(game), what);
    }
    lateness_end();
    free(traffic);
    daemon_deinit(&daemon_under_test);
}

Test(kill, a_power_failure_under_always_loses_nothing)
{
    play_power_failures(&(struct game){"always", 12, 1, 120, .delay_ms = 1, .images = 3,
                                       .traffic = {5, 0, 4, 0, true, KEEPER_SAVES, 0}});
}

Test(kill, a_power_failure_under_always_loses_nothing_while_the_log_is_cut)
{
    play_power_failures(&(struct game){"always", 8, 1, 120, .small_log = true, .images = 3,
                                       .traffic = {5, 0, 4, 0, true, KEEPER_NONE, 0}});
}

Test(kill, a_power_failure_under_everysec_loses_a_second_at_most)
{
    play_power_failures(&(struct game){"everysec", 2, 3000, 4500, .images = 6,
                                       .traffic = {4, 0, 4, 10000, true, KEEPER_NONE, EVERYSEC_GRACE_NS}});
}

/* The changes before the request of a save or a WAITAOF. */
Test(kill, a_power_failure_under_everysec_loses_nothing_that_was_saved)
{
    play_power_failures(
        &(struct game){"everysec", 5, 1, 200, .images = 3, .traffic = {4, 0, 4, 500, true, KEEPER_SAVES, NEVER_NS}});
}

Test(kill, a_power_failure_under_everysec_loses_nothing_that_was_waited_for)
{
    play_power_failures(
        &(struct game){"everysec", 5, 1, 200, .images = 3, .traffic = {4, 0, 4, 500, true, KEEPER_WAITS, NEVER_NS}});
}

Test(kill, a_power_failure_under_no_loses_nothing_that_was_saved)
{
    play_power_failures(
        &(struct game){"no", 5, 1, 200, .images = 3, .traffic = {4, 0, 4, 500, true, KEEPER_SAVES, NEVER_NS}});
}

/* ---- starts that are interrupted ---- */

/* Each start in turn is killed while it reads the log, or in its first save; every other one by a power failure. */
static void kill_starts(unsigned count, uint64_t round)
{
    char what[200];

    for (unsigned i = 0; i < count; i++) {
        redisContext *client = NULL;
        useconds_t pause = (useconds_t)rng_below(&rng, i % 3 ? 40000 : 8000);

        atomic_store(&disk->read_ms, (int)rng_below(&rng, 8));
        if (i % 3) {
            daemon_launch(&daemon_under_test);
            power_await(&power);
        } else {
            client = client_restart(&daemon_under_test);
            expect(client, "+Background saving started", "BGSAVE");
        }
        usleep(pause);
        daemon_kill(&daemon_under_test);
        if (client)
            redisFree(client);
        if (i % 2)
            power_fail(&power, &daemon_under_test, rng_next(&rng));
        else
            power_stays(&power, &daemon_under_test);
        snprintf(what, sizeof(what), "round %llu, start %u, %s", (unsigned long long)round, i, power.what);
        expect_files_whole(&daemon_under_test, what);
    }
    atomic_store(&disk->read_ms, 0);
}

/* With a log of several segments, some of them numbered again after a torn end. */
DAEMON_TEST(daemon_under_test, kill, starts_that_are_killed_one_after_the_other_change_nothing)
{
    const struct game game = {"always", 4, 30, 150, .traffic = {5, 0, 4, 0, true, KEEPER_NONE, 0}};
    uint64_t rounds;
    struct traffic *traffic = begin(&game, &rounds);
    char what[64];

    power_attach(&power, &daemon_under_test);
    daemon_start(&daemon_under_test, arguments(&game));
    traffic_reset(traffic, daemon_under_test.port);
    for (uint64_t round = 0; round < rounds; round++) {
        int64_t killed_ns = run_and_kill(&game, traffic);
        power_fail(&power, &daemon_under_test, rng_next(&rng));
        kill_starts(8, round);
        snprintf(what, sizeof(what), "round %llu", (unsigned long long)round);
        daemon_restart(&daemon_under_test);
        traffic_adopt(traffic, daemon_under_test.port, killed_ns, what);
    }
    free(traffic);
}
