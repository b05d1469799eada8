/* Random commands in several databases against the daemon and a model of exact sets, with restarts, kill -9 and
 * power failures between: no acknowledged item is absent afterwards, counts are equal, false positives are within
 * the rate.
 *
 * BLOOMERY_MODEL_ROUNDS=<n> plays n rounds instead of the few that a run of all tests has time for,
 * BLOOMERY_MODEL_SEED=<n> plays one again. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "client.h"
#include "daemon.h"
#include "environment.h"
#include "lateness.h"
#include "model.h"
#include "power.h"

#define ROUNDS     6
#define MAX_STEPS  400  /* of a round */
#define HORIZON_MS 2500 /* everysec: the permitted loss, and a margin; and what the machine was late */

static struct daemon daemon_under_test;
static struct model model;
static struct power power;

static void discard(void)
{
    power_detach(&power);
    daemon_discard(&daemon_under_test);
}

TestSuite(model, .fini = discard, .timeout = 3000);

enum loss { LOSES_ALL_SINCE_SAVE, LOSES_NOTHING, LOSES_THE_LAST };

/* Ends the daemon by a kill or a stop, noted in the model's history. True: it was killed. */
static bool end(bool power_fails)
{
    char *history = model.history[model.changes % MODEL_HISTORY];

    if (rng_below(&model.rng, 3) == 0) {
        model.when = "after a stop";
        daemon_stop(&daemon_under_test);
    } else {
        model.when = "after a kill";
        daemon_kill(&daemon_under_test);
    }
    bool killed = model.when[8] == 'k';
    snprintf(history, 64, "%s", killed ? "kill -9" : "stop");
    if (power_fails) {
        power_fail(&power, &daemon_under_test, rng_next(&model.rng));
        snprintf(history, 64, "%s", power.what);
    }
    model.changes++;
    return killed;
}

static void play(const char *const *args, uint64_t ci_rounds, enum loss loss_of_kill, enum loss loss_of_stop,
                 bool power_fails)
{
    uint64_t rounds = environment_number("BLOOMERY_MODEL_ROUNDS", ci_rounds);
    uint64_t first = environment_number("BLOOMERY_MODEL_SEED", (uint64_t)model_now_ms());
    redisContext *client;

    model_init(&model, first);
    model.without_log = loss_of_kill == LOSES_ALL_SINCE_SAVE;
    if (power_fails)
        power_attach(&power, &daemon_under_test);
    daemon_start(&daemon_under_test, args);
    lateness_watch(daemon_under_test.dir);
    for (uint64_t round = 0; round < rounds; round++) {
        client = model_connect(&model, daemon_under_test.port);
        model.when = "at run time";
        for (uint64_t left = rng_below(&model.rng, MAX_STEPS); left > 0; left--)
            model_step(&model, client);
        model.when = "before the end";
        model_check(&model, client);
        redisFree(client);

        enum loss loss = loss_of_kill;
        int64_t killed_ms = model_now_ms();
        if (!end(power_fails))
            loss = loss_of_stop;
        daemon_restart(&daemon_under_test);
        client = model_connect(&model, daemon_under_test.port);
        if (loss == LOSES_ALL_SINCE_SAVE)
            model_revert(&model);
        if (loss == LOSES_THE_LAST)
            model_reconcile(&model, client, killed_ms - HORIZON_MS - lateness_ms());
        model_check(&model, client);
        redisFree(client);
    }
    model_finish(&model);
    lateness_end();
    daemon_deinit(&daemon_under_test);
    printf("seed %llu: %llu commands, %llu of %llu queries were false positives, at most %.0f expected; the machine "
           "was late by %lld ms\n",
           (unsigned long long)first, (unsigned long long)model.commands, (unsigned long long)model.present,
           (unsigned long long)model.asked, model.expected, (long long)lateness_ms());
}

Test(model, without_a_log_the_last_save_comes_back)
{
    static const char *const args[] = {"--appendonly", "no", "--threads", "2", NULL};
    play(args, ROUNDS, LOSES_ALL_SINCE_SAVE, LOSES_ALL_SINCE_SAVE, false);
}

Test(model, with_appendfsync_always_nothing_is_lost)
{
    static const char *const args[] = {"--appendonly", "yes", "--appendfsync", "always", "--threads", "2", NULL};
    play(args, ROUNDS, LOSES_NOTHING, LOSES_NOTHING, false);
}

Test(model, with_appendfsync_everysec_the_last_second_is_lost_at_most)
{
    static const char *const args[] = {"--appendonly", "yes", "--appendfsync", "everysec", "--threads", "2", NULL};
    play(args, ROUNDS, LOSES_THE_LAST, LOSES_NOTHING, false);
}

/* Data in the kernel is not lost by the end of the process. */
Test(model, with_appendfsync_no_the_last_moment_is_lost_at_most)
{
    static const char *const args[] = {"--appendonly", "yes", "--appendfsync", "no", "--threads", "2", NULL};
    play(args, ROUNDS, LOSES_THE_LAST, LOSES_NOTHING, false);
}

static const char *const log_is_cut[] = {"--appendonly",
                                         "yes",
                                         "--appendfsync",
                                         "always",
                                         "--threads",
                                         "1",
                                         "--auto-aof-rewrite-min-size",
                                         "4096",
                                         "--auto-aof-rewrite-percentage",
                                         "1",
                                         NULL};

/* The log causes saves continuously. */
Test(model, a_log_that_is_cut_all_the_time_loses_nothing)
{
    play(log_is_cut, ROUNDS / 2, LOSES_NOTHING, LOSES_NOTHING, false);
}

Test(model, without_a_log_the_last_save_survives_a_power_failure)
{
    static const char *const args[] = {"--appendonly", "no", "--threads", "2", NULL};
    play(args, ROUNDS, LOSES_ALL_SINCE_SAVE, LOSES_ALL_SINCE_SAVE, true);
}

Test(model, with_appendfsync_always_everything_survives_a_power_failure)
{
    static const char *const args[] = {"--appendonly", "yes", "--appendfsync", "always", "--threads", "2", NULL};
    play(args, 2 * ROUNDS, LOSES_NOTHING, LOSES_NOTHING, true);
}

Test(model, with_appendfsync_everysec_the_last_second_is_lost_by_a_power_failure_at_most)
{
    static const char *const args[] = {"--appendonly", "yes", "--appendfsync", "everysec", "--threads", "2", NULL};
    play(args, 2 * ROUNDS, LOSES_THE_LAST, LOSES_NOTHING, true);
}

Test(model, a_log_that_is_cut_all_the_time_survives_a_power_failure)
{
    play(log_is_cut, ROUNDS, LOSES_NOTHING, LOSES_NOTHING, true);
}
