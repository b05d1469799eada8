/* kill -9 under load, again and again: what was answered is there as the policy says, BF.CARD is exact, the files are whole.
 * BLOOMERY_KILL_ROUNDS sets how often (20). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "log_clients.h"

static struct daemon daemon_under_test;
#define PORT (daemon_under_test.port)

static void stop(void)
{
    daemon_discard(&daemon_under_test);
}

TestSuite(log_kill, .fini = stop, .timeout = 3000);

static unsigned rounds(void)
{
    const char *text = getenv("BLOOMERY_KILL_ROUNDS");

    return text ? (unsigned)strtoul(text, NULL, 10) : 20;
}

/* Some rounds save meanwhile, some with a log that wants to be cut all the time. */
static void kill_rounds(const char *policy, unsigned pipeline, bool transactions, double grace)
{
    const char *const args[] = {"--appendfsync", policy,       "--threads",           "3",
                                "--save",        "",           "--auto-aof-rewrite-min-size", "200kb",
                                "--auto-aof-rewrite-percentage", "1", NULL};
    unsigned n = rounds();
    struct writers *w = NULL;

    for (unsigned round = 0; round < n; round++) {
        const char *output;

        /* The first rounds go on from what the ones before have left; then it begins anew. */
        if (round % 5 == 0) {
            daemon_discard(&daemon_under_test);
            if (w)
                writers_free(w);
            w = calloc(1, sizeof(*w));
            cr_assert_not_null(w);
            w->transactions = transactions;
            daemon_start(&daemon_under_test, args);
        } else {
            daemon_restart(&daemon_under_test);
        }
        writers_start(w, PORT, 6, pipeline);
        usleep(20000 + (unsigned)rand() % 250000);
        if (round % 3 == 1) {
            redisContext *client = client_open(PORT);
            client_ask(client, "BGREWRITEAOF");
            redisFree(client);
            usleep((unsigned)rand() % 30000);
        }
        double killed = seconds_now();
        daemon_kill(&daemon_under_test);
        writers_join(w);
        cr_assert_eq(check_tool(&daemon_under_test, &output), 0, "round %u: %s", round, output);
        daemon_restart(&daemon_under_test);
        writers_check(w, PORT, grace == 0 ? 0 : killed - grace);
        daemon_kill(&daemon_under_test);
    }
    if (w)
        writers_free(w);
}

Test(log_kill, always_loses_nothing)
{
    kill_rounds("always", 1, false, 0);
}

Test(log_kill, always_loses_nothing_of_pipelines)
{
    kill_rounds("always", 32, false, 0);
}

Test(log_kill, transactions_are_there_or_not)
{
    kill_rounds("always", 20, true, 0);
}

Test(log_kill, everysec_loses_at_most_a_second)
{
    kill_rounds("everysec", 16, false, 1);
}

/* The process alone has died: the kernel has what it was given, and it is given it at once. */
Test(log_kill, no_loses_little)
{
    kill_rounds("no", 16, false, 1);
}
