/* Signals at any moment of a start and of an end: SIGTERM and SIGINT end the daemon cleanly, also before it can
 * answer; SIGHUP never ends it. BLOOMERY_SIGNAL_ROUNDS=<n> plays n rounds of each test. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "environment.h"
#include "log_clients.h"
#include "rng.h"
#include "tmpdir.h"
#include "wait.h"

#define START_US (DAEMON_SANITIZED ? 400000 : 40000) /* about the duration of a start */

static struct daemon the_daemon;
static struct rng rng;
static uint64_t rounds;

static void begin(void)
{
    uint64_t seed = (uint64_t)time(NULL);

    rounds = environment_number("BLOOMERY_SIGNAL_ROUNDS", DAEMON_SANITIZED ? 10 : 40);
    printf("seed %llu\n", (unsigned long long)seed);
    rng_init(&rng, seed);
}

static void discard(void)
{
    daemon_discard(&the_daemon);
}

TestSuite(signals, .init = begin, .fini = discard, .timeout = 3000);

/* Some filters in a save, and some more in the log. */
static void fill(const char *const *args)
{
    redisContext *client = client_start(&the_daemon, args);
    for (int i = 0; i < 200; i++)
        expect(client, ":1", "BF.ADD f%d saved", i);
    expect(client, "+OK", "SAVE");
    for (int i = 0; i < 200; i++)
        expect(client, ":1", "BF.ADD f%d logged", i);
    client_kill(client, &the_daemon);
}

static void expect_filled(void)
{
    redisContext *client = client_open(the_daemon.port);
    for (int i = 0; i < 200; i++)
        expect(client, "[:1,:1]", "BF.MEXISTS f%d saved logged", i);
    redisFree(client);
}

/* Launches it with a mask that blocks the signals, as a careless supervisor may do: a signal before the program has
 * begun waits. */
static void launch_masked(void)
{
    sigset_t set, before;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &before);
    daemon_launch(&the_daemon);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* In every other round the signal comes at any moment from the program's very beginning, in the others from its
 * first output on, without an inherited mask. */
DAEMON_TEST(the_daemon, signals, a_start_can_be_ended_at_any_moment)
{
    const char *const args[] = {"--appendfsync", "always", NULL};
    const char *output;

    fill(args);
    for (uint64_t round = 0; round < rounds; round++) {
        if (round % 2) {
            launch_masked();
        } else {
            daemon_launch(&the_daemon);
            daemon_wait_output(&the_daemon, ", data in ");
        }
        usleep((useconds_t)rng_below(&rng, round % 3 ? START_US / 4 : START_US));
        cr_assert_eq(kill(the_daemon.pid, round % 4 < 2 ? SIGTERM : SIGINT), 0);
        daemon_wait(&the_daemon);
        cr_assert_eq(check_tool(&the_daemon, &output), 0, "round %llu: %s", (unsigned long long)round, output);
    }
    daemon_restart(&the_daemon);
    expect_filled();
}

/* Until the log has the text, or the daemon has ended. The signals come ever less often: a main loop that is slower
 * than they come, as on a busy machine, would never get to its end. */
static void hang_up_until(const char *text)
{
    siginfo_t info = {.si_pid = 0};
    double patience = wait_clock() + WAIT_PATIENCE_S;
    unsigned pause_us = 500;

    while (!strstr(daemon_output(&the_daemon), text)) {
        cr_assert_lt(wait_clock(), patience, "it goes on:\n%s", daemon_output(&the_daemon));
        cr_assert_eq(waitid(P_PID, (id_t)the_daemon.pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
        if (info.si_pid)
            return;
        kill(the_daemon.pid, SIGHUP);
        usleep((useconds_t)rng_below(&rng, pause_us++));
    }
}

/* A log rotated during a start or an end: the daemon continues, and in the end writes to the new file. */
DAEMON_TEST(the_daemon, signals, a_log_can_be_rotated_at_any_moment)
{
    daemon_prepare(&the_daemon);
    struct tmp_path log = tmp_path(the_daemon.dir, "log"), rotated = tmp_path(the_daemon.dir, "log.1");
    const char *const args[] = {"--logfile", log.text, "--appendfsync", "always", "--save", "3600 1", NULL};

    fill(args);
    for (uint64_t round = 0; round < rounds; round++) {
        launch_masked();
        hang_up_until("ready: listening");
        cr_assert_eq(rename(log.text, rotated.text), 0);
        kill(the_daemon.pid, SIGHUP);
        the_daemon.log_start = 0;
        wait_until(access(log.text, F_OK) == 0);
        kill(the_daemon.pid, SIGTERM);
        hang_up_until("nobody says this");
        daemon_wait(&the_daemon);
        cr_assert_not_null(strstr(daemon_output(&the_daemon), "bye"));
    }
    daemon_restart(&the_daemon);
    expect_filled();
}
