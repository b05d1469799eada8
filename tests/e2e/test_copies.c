/* The data directory is copied while a daemon writes to it, by people who do not read the section on backups in
 * docs/FORMAT.md. A copy that `bloomery check` calls whole has everything acknowledged before it began. A daemon
 * refuses any other copy or quarantines its filters, with a message that names the remedy. No filter is missing
 * silently.
 *
 * BLOOMERY_COPY_ROUNDS=<n> plays n rounds instead of those that a run of all tests has time for. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "environment.h"
#include "log_clients.h"
#include "rng.h"
#include "traffic.h"

#define COPIES 5 /* of a round */

static struct daemon daemon_under_test;
static struct daemon probe; /* started on the copies */
static struct rng rng;

static void discard(void)
{
    daemon_discard(&daemon_under_test);
    daemon_discard(&probe);
}

TestSuite(copies, .fini = discard, .timeout = 3000);

/* $1 is the data directory, $2 the copy. Files disappear meanwhile, and cp complains about them. */
static const char *const ways[] = {
    "cp -r $1 $2",
    "mkdir $2; for f in $(ls $1); do cp -r $1/$f $2; done",
    "mkdir $2; for f in $(ls -r $1); do cp -r $1/$f $2; done",
    "cp -a $1 $2; cp -au $1/. $2",
    "mkdir $2; for f in filters MANIFEST log; do cp -r $1/$f $2; done",
    "mkdir $2; cp $1/MANIFEST* $2; sleep 0.05; cp -r $1/log $1/filters $2",
    "cp -rl $1 $2; rm -rf $2/log $2/LOCK; cp -r $1/log $2",
};
#define WAYS (sizeof(ways) / sizeof(*ways))

struct copy {
    char path[300];
    const char *way;
    int64_t began_ns;
};

static void take_copy(struct copy *copy, unsigned number)
{
    char command[4096];

    copy->way = ways[rng_below(&rng, WAYS)];
    snprintf(copy->path, sizeof(copy->path), "%s/copy-%u", daemon_under_test.dir, number);
    snprintf(command, sizeof(command), "set -- %s %s; { %s; } 2>/dev/null", daemon_under_test.data, copy->path,
             copy->way);
    copy->began_ns = traffic_now_ns();
    (void)!system(command);
}

/* Whether all items are there and served. */
static bool try_copy(const struct copy *copy, const struct traffic *traffic, const char *const *args, unsigned round)
{
    char command[4096], what[400];
    const char *output;

    daemon_prepare(&probe);
    snprintf(command, sizeof(command), "rm -rf %s && mv %s %s", probe.data, copy->path, probe.data);
    cr_assert_eq(system(command), 0);
    snprintf(what, sizeof(what), "round %u, %s", round, copy->way);
    bool whole = check_tool(&probe, &output) == 0;
    if (!daemon_try(&probe, args)) {
        cr_assert(!whole, "%s: 'bloomery check' says that it is whole:\n%s", what, daemon_output(&probe));
        cr_assert(strstr(daemon_output(&probe), "--aof-load-damaged") || strstr(daemon_output(&probe), "copy again") ||
                      strstr(daemon_output(&probe), "has lost its MANIFEST"),
                  "%s: it does not say what to do:\n%s", what, daemon_output(&probe));
        daemon_discard(&probe);
        return false;
    }
    bool quarantined = !strstr(daemon_output(&probe), "; 0 quarantined");
    cr_assert(!quarantined || strstr(daemon_output(&probe), "quarantined: "), "%s: nobody says so", what);
    cr_assert(!quarantined || !whole, "%s: filters are in quarantine:\n%s", what, daemon_output(&probe));
    if (!quarantined)
        traffic_check(traffic, probe.port, copy->began_ns, what);
    daemon_deinit(&probe);
    return !quarantined;
}

static void play(const char *const *args, const struct traffic_options *options, unsigned rounds)
{
    struct traffic *traffic = traffic_create(options, environment_number("BLOOMERY_COPY_SEED", 1));
    struct copy copies[COPIES];
    unsigned good = 0;

    traffic->options.copied = true;
    rng_init(&rng, environment_number("BLOOMERY_COPY_SEED", (uint64_t)traffic_now_ns()));
    rounds = (unsigned)environment_number("BLOOMERY_COPY_ROUNDS", DAEMON_SANITIZED ? 2 : rounds);
    daemon_start(&daemon_under_test, args);
    for (unsigned round = 0; round < rounds; round++) {
        traffic_reset(traffic, daemon_under_test.port);
        traffic_start(traffic, daemon_under_test.port);
        for (unsigned i = 0; i < COPIES; i++) {
            usleep((useconds_t)rng_below(&rng, 60000));
            take_copy(&copies[i], i);
        }
        traffic_end(traffic);
        for (unsigned i = 0; i < COPIES; i++)
            good += try_copy(&copies[i], traffic, args, round);
    }
    printf("%u of %u copies could be used\n", good, rounds * COPIES);
    free(traffic);
    daemon_deinit(&daemon_under_test);
}

Test(copies, with_a_log)
{
    static const char *const args[] = {"--threads", "2", "--appendfsync", "always", NULL};

    play(args, &(struct traffic_options){4, 0, 4, 500, true, KEEPER_NONE, 0}, 4);
}

/* Also with separate files. */
Test(copies, with_a_log_while_saves_go_on)
{
    static const char *const args[] = {"--threads", "2", "--appendfsync", "always", "--save-pack-limit", "2000", NULL};

    play(args, &(struct traffic_options){4, 0, 4, 500, true, KEEPER_SAVES, 0}, 5);
}

Test(copies, with_a_log_that_is_cut_all_the_time)
{
    static const char *const args[] = {"--threads",
                                       "2",
                                       "--appendfsync",
                                       "always",
                                       "--auto-aof-rewrite-min-size",
                                       "200kb",
                                       "--auto-aof-rewrite-percentage",
                                       "1",
                                       NULL};

    play(args, &(struct traffic_options){5, 24, 0, 0, true, KEEPER_NONE, 0}, 3);
}

/* The items saved before the copy began. */
Test(copies, without_a_log_while_saves_go_on)
{
    static const char *const args[] = {"--threads", "2", "--appendonly", "no", NULL};

    play(args, &(struct traffic_options){4, 0, 0, 500, false, KEEPER_SAVES_ALONE, INT64_MAX / 2}, 3);
}

/* A directory is copied over that of another daemon, which was killed with records pending. They are not taken for the
 * copied directory's, even if its log ends with their frame. */
Test(copies, over_another_directory)
{
    static const char *const args[] = {"--threads", "1", "--appendfsync", "always", NULL};
    char command[4096];

    redisContext *client = client_start(&daemon_under_test, args);
    expect(client, ":1", "BF.ADD mine a");
    client = client_after_kill(client, &daemon_under_test, args);
    expect(client, ":1", "BF.ADD mine b");
    client_kill(client, &daemon_under_test);
    for (int frames = 0; frames < 10; frames++) {
        client = client_start(&probe, args);
        for (int i = 0; i < frames; i++)
            expect(client, ":1", "BF.ADD theirs %d", i);
        expect(client, "+OK", "CONFIG SET appendfsync everysec");
        expect(client, ":1", "BF.ADD pending x");
        client_kill(client, &probe);
        snprintf(command, sizeof(command), "cp -a %s/. %s/", daemon_under_test.data, probe.data);
        cr_assert_eq(system(command), 0);
        if (daemon_try(&probe, args)) {
            client = client_open(probe.port);
            expect(client, ":0", "EXISTS theirs pending");
            expect(client, "[:1,:1]", "BF.MEXISTS mine a b");
            redisFree(client);
        }
        daemon_deinit(&probe);
    }
}
