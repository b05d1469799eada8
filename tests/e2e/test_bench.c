/* `bloomery bench` against the daemon: the report equals the requests that the daemon has received. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "program.h"

static char output[8192]; /* of the last run */

DAEMON_SUITE(the_daemon, bench, "--save", "");

/* Runs it; its exit status. */
static int run(const char *arguments)
{
    return program_run(output, sizeof(output), "'%s' bench --port %d %s", BLOOMERY_TOOL_PATH, the_daemon.port,
                       arguments);
}

static double field(const char *name)
{
    char key[64];
    snprintf(key, sizeof(key), "\"%s\":", name);
    const char *at = strstr(output, key);
    cr_assert(at, "%s is not in %s", name, output);
    return strtod(at + strlen(key), NULL);
}

CLIENT_TEST(the_daemon, bench, every_request_is_sent_and_answered_once)
{
    cr_assert_eq(run("add --reserve 100000:0.0001 --requests 30001 --connections 7 --pipeline 13 --threads 3 --json -"),
                 0, "%s", output);
    cr_expect_eq(field("requests"), 30001);
    cr_expect_eq(field("ones") + field("zeros"), 30001);
    cr_expect_eq((double)client_number(client, "BF.CARD bench"), field("ones"));
    cr_expect_geq(field("p99"), field("p50"));

    /* The same items are present in a second run, others are absent. */
    cr_assert_eq(run("exists --items 30001 --requests 20000 --pipeline 5 --json -"), 0, "%s", output);
    cr_expect_eq(field("ones"), 20000);
    cr_assert_eq(run("exists --items 30001 --requests 20000 --hits 0 --resp 3 --json -"), 0, "%s", output);
    cr_expect_lt(field("ones"), 100);
    cr_assert_eq(run("mexists --items 1000 --batch 50 --requests 100 --order zipf:1.1 --json -"), 0, "%s", output);
    cr_expect_eq(field("ones"), 5000);
}

DAEMON_TEST(the_daemon, bench, loads_the_filter_it_asks)
{
    cr_assert_eq(run("exists --reserve 20000 --load --items 12345 --size 3-40 --requests 5000 --json -"), 0, "%s",
                 output);
    cr_expect_eq(field("ones"), 5000);
}

/* Never more requests than are due, however fast the daemon is (requests due during the warm-up may be late). */
DAEMON_TEST(the_daemon, bench, a_rate_is_kept)
{
    cr_assert_eq(run("ping --rate 2000 --time 1 --warmup 0.1 --connections 4 --pipeline 64 --json -"), 0, "%s", output);
    cr_expect(field("requests") > 0 && field("requests") <= 2300, "%s", output);
}

/* A stopped daemon answers nothing. A latency measured from the due times shows all requests late, not only the few
 * under way. */
DAEMON_TEST(the_daemon, bench, a_stall_is_charged_to_all_requests_due_meanwhile)
{
    char stop[128];
    snprintf(stop, sizeof(stop), "(sleep 0.7; kill -STOP %d; sleep 1; kill -CONT %d) &", (int)the_daemon.pid,
             (int)the_daemon.pid);
    cr_assert_eq(system(stop), 0);
    cr_assert_eq(run("ping --rate 1000 --time 4 --warmup 0.2 --connections 2 --json -"), 0, "%s", output);
    cr_expect_gt(field("p90"), 100000, "%s", output); /* 1 of 4 s was lost: the slowest tenth waited long */
    cr_expect_gt(field("max"), 800000, "%s", output);
}

/* The generator's own lateness is reported apart from the daemon's latency. */
DAEMON_TEST(the_daemon, bench, its_own_lateness_is_reported)
{
    cr_assert_eq(run("ping --rate 1000 --time 1 --warmup 0 --connections 2 --json -"), 0, "%s", output);
    cr_expect_geq(field("lateness_max"), field("lateness_p50"), "%s", output);
    cr_expect_eq(field("left_out"), 0, "%s", output);
    cr_assert_eq(run("ping --rate 1000 --spin --time 1 --warmup 0 --connections 2 --json -"), 0, "%s", output);
    cr_expect_geq(field("lateness_max"), field("lateness_p50"), "%s", output);
    cr_assert_eq(run("ping --rate 1000 --time 0.5"), 0, "%s", output);
    program_said(output, "late itself");
    cr_assert_eq(run("ping --requests 100 --json -"), 0, "%s", output);
    cr_expect(!strstr(output, "lateness"), "%s", output);
    cr_expect_eq(run("ping --spin --requests 100"), 2);
    program_said(output, "--spin needs a --rate");
}

DAEMON_TEST(the_daemon, bench, errors_fail_and_are_shown)
{
    cr_expect_eq(run("\"BF.CARD\" --requests 10"), 1);
    program_said(output, "wrong number of arguments");
    cr_expect_eq(run("nosuch --time 300 --warmup 300"), 1); /* ends immediately: the suite's limit is shorter */
    program_said(output, "the server replied: ERR unknown command 'nosuch'");
    cr_expect_null(strstr(output, "throughput"), "%s", output);
    cr_expect_eq(run("exists --connections 2 --threads 3"), 2);
    cr_expect_eq(run("exists --pipeline 0"), 2);
    cr_expect_eq(run("exists --order up"), 2);
    cr_expect_eq(run("exists --requests 5 --json /nowhere/file"), 1);
    daemon_stop(&the_daemon);
    cr_expect_eq(run("ping --requests 1"), 1);
    program_said(output, "cannot connect");
}

/* Without a password, and with a wrong one: nothing is measured. */
CLIENT_TEST(the_daemon, bench, a_missing_password_ends_it_at_once)
{
    expect(client, "+OK", "CONFIG SET requirepass secret");
    cr_expect_eq(run("exists --time 300"), 1);
    program_said(output, "NOAUTH");
    cr_expect_eq(run("exists --time 300 --password wrong"), 1);
    program_said(output, "WRONGPASS");
    cr_expect_eq(run("ping --requests 10 --password secret"), 0, "%s", output);
}

/* A reserved and loaded filter takes as many items as fit, or the message names both options. */
DAEMON_TEST(the_daemon, bench, items_fit_into_what_is_reserved)
{
    cr_assert_eq(run("exists --reserve 10000 --load --requests 1000 --json -"), 0, "%s", output);
    cr_expect_eq(field("ones"), 1000);
    cr_assert_eq(run("exists --reserve 7 --load --requests 100 --json -"), 0, "%s", output);
    cr_expect_eq(field("ones"), 100);
    cr_expect_eq(run("exists --reserve 10000 --load --items 20000"), 2);
    program_said(output, "--load with --items 20000 needs a --reserve of at least 20000");
}

DAEMON_TEST(the_daemon, bench, reports_for_people)
{
    char arguments[400], command[1024];
    snprintf(arguments, sizeof(arguments), "add --requests 1000 --hdr %s/hdr", the_daemon.dir);
    cr_assert_eq(run(arguments), 0, "%s", output);
    cr_expect(strstr(output, "throughput") && strstr(output, "p99.9") && strstr(output, "the limit"), "%s", output);
    snprintf(command, sizeof(command), "grep -q 'TotalCount' %s/hdr && grep -q 'Total count    =         1000' %s/hdr",
             the_daemon.dir, the_daemon.dir);
    cr_expect_eq(system(command), 0);
}
