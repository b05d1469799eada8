/* A process that is killed right after a reply loses no acknowledged change, with any appendfsync: records not yet
 * written to the log are in the file of pending records. Only a crash of the machine may lose them. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "log_clients.h"
#include "tmpdir.h"

#define ROUNDS 6

static struct daemon the_daemon;

static void discard(void)
{
    daemon_discard(&the_daemon);
}

TestSuite(kill_at_once, .fini = discard, .timeout = 3000);

static const char *const policies[] = {"everysec", "no", "always"};

static void begin(const char *policy)
{
    const char *const args[] = {"--appendfsync", policy, "--threads", "2", NULL};
    discard();
    memset(&the_daemon, 0, sizeof(the_daemon));
    daemon_start(&the_daemon, args);
}

/* 0 ms after the last reply. */
static redisContext *kill_at_once(redisContext *client)
{
    const char *output;
    kill(the_daemon.pid, SIGKILL);
    client_kill(client, &the_daemon);
    cr_assert_eq(check_tool(&the_daemon, &output), 0, "%s", output);
    daemon_restart(&the_daemon);
    return client_open(the_daemon.port);
}

Test(kill_at_once, single_adds_survive)
{
    for (int p = 0; p < 3; p++) {
        begin(policies[p]);
        redisContext *client = client_open(the_daemon.port);
        int items = 0;
        expect(client, "+OK", "BF.RESERVE f 0.0000001 100");
        for (int round = 0; round < ROUNDS; round++) {
            for (int i = 0; i <= 40 * round; i++, items++)
                expect(client, ":1", "BF.ADD f item:%d", items);
            client = kill_at_once(client);
            cr_assert_eq(client_number(client, "BF.CARD f"), items, "%s, round %d", policies[p], round);
            for (int i = 0; i < items; i++)
                expect(client, ":1", "BF.EXISTS f item:%d", i);
        }
        redisFree(client);
    }
}

/* More than a chunk of the file, and more than the frame under way. */
Test(kill_at_once, batches_survive)
{
    for (int p = 0; p < 2; p++) {
        begin(policies[p]);
        redisContext *client = client_open(the_daemon.port);
        expect(client, "+OK", "BF.RESERVE f 0.0000001 1000 EXPANSION 4");
        int items = 0;
        for (int round = 0; round < ROUNDS; round++) {
            for (int batch = 0; batch < 8 * round + 1; batch++) {
                char command[40000] = "BF.MADD f";
                size_t len = strlen(command);
                for (int i = 0; i < 1000; i++, items++)
                    len += (size_t)snprintf(command + len, sizeof(command) - len, " %d:%d", items, p);
                cr_assert(client_ask(client, command)[0] == '[');
            }
            client = kill_at_once(client);
            cr_assert_eq(client_number(client, "BF.CARD f"), items, "%s, round %d", policies[p], round);
            for (int i = 0; i < items; i += 7)
                expect(client, ":1", "BF.EXISTS f %d:%d", i, p);
        }
        redisFree(client);
    }
}

Test(kill_at_once, changes_of_filters_survive)
{
    for (int p = 0; p < 3; p++) {
        begin(policies[p]);
        redisContext *client = client_open(the_daemon.port);
        for (int round = 0; round < ROUNDS; round++) {
            expect(client, "+OK", "BF.RESERVE made%d 0.001 5000", round);
            client = kill_at_once(client);
            expect(client, ":1", "EXISTS made%d", round);
            expect(client, ":1", "BF.ADD made%d x", round);
            expect(client, ":1", "PEXPIREAT made%d 95617584000000", round);
            client = kill_at_once(client);
            expect(client, ":95617584000000", "PEXPIRETIME made%d", round);
            expect(client, "+OK", "RENAME made%d renamed", round);
            client = kill_at_once(client);
            expect(client, "[\"renamed\"]", "KEYS *");
            expect(client, ":1", "BF.EXISTS renamed x");
            expect(client, ":1", "COPY renamed copy");
            expect(client, ":1", "BF.ADD copy y");
            client = kill_at_once(client);
            expect(client, "[:1,:1]", "BF.MEXISTS copy x y");
            expect(client, ":2", "DEL renamed copy");
            client = kill_at_once(client);
            expect(client, ":0", "DBSIZE");
        }
        redisFree(client);
    }
}

/* Long names make control records that continue from one chunk of the file to the next. */
Test(kill_at_once, many_large_control_records_survive)
{
    enum { NAME = 50000, FILTERS = 25 };
    static char name[NAME + 1];
    begin("no");
    redisContext *client = client_open(the_daemon.port);
    for (int i = 0; i < FILTERS; i++) {
        memset(name, 'a' + i, NAME);
        expect(client, ":1", "BF.ADD %s %d", name, i);
    }
    client = kill_at_once(client);
    expect(client, ":25", "DBSIZE");
    for (int i = 0; i < FILTERS; i++) {
        memset(name, 'a' + i, NAME);
        expect(client, ":1", "BF.EXISTS %s %d", name, i);
    }
}

/* The clients continue sending during the kill: all acknowledged items are there, and BF.CARD counts them exactly. */
Test(kill_at_once, writers_in_full_swing_lose_nothing)
{
    for (int p = 0; p < 2; p++) {
        static struct writers writers;
        begin(policies[p]);
        for (int round = 0; round < 4; round++) {
            memset(&writers, 0, sizeof(writers));
            redisContext *client = client_open(the_daemon.port);
            client_ask(client, "DEL w");
            redisFree(client);
            writers_start(&writers, the_daemon.port, 4, 1u << 2 * round);
            usleep(30000 + 20000 * (useconds_t)round);
            daemon_kill(&the_daemon);
            writers_join(&writers);
            daemon_restart(&the_daemon);
            writers_check(&writers, the_daemon.port);
        }
    }
}

/* A kill during the start, which has taken over the pending records, before or after its first writes. */
Test(kill_at_once, starts_that_are_killed_lose_and_repeat_nothing)
{
    begin("no");
    redisContext *client = client_open(the_daemon.port);
    for (int i = 0; i < 100; i++)
        expect(client, ":1", "BF.ADD f item:%d", i);
    kill(the_daemon.pid, SIGKILL);
    client_kill(client, &the_daemon);
    for (int i = 0; i < 20; i++) {
        daemon_launch(&the_daemon);
        usleep((useconds_t)(i * 2500 * (DAEMON_SANITIZED ? 10 : 1)));
        daemon_kill(&the_daemon);
    }
    client = client_restart(&the_daemon);
    expect(client, ":100", "BF.CARD f");
    for (int i = 0; i < 100; i++)
        expect(client, ":1", "BF.EXISTS f item:%d", i);
}

/* Records that the end has written are no longer pending. */
Test(kill_at_once, a_clean_end_leaves_no_file)
{
    begin("everysec");
    redisContext *client = client_open(the_daemon.port);
    expect(client, ":1", "BF.ADD f x");
    redisFree(client);
    cr_assert(file_exists(tmp_path(the_daemon.data, "log/00000001.pending").text));
    daemon_stop(&the_daemon);
    cr_assert(!file_exists(tmp_path(the_daemon.data, "log/00000001.pending").text));
}
