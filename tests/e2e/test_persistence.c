/* Saves on request, by rule and at the end; restarts; kill -9; and the resources that a save takes. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "tmpdir.h"
#include "wait.h"

static struct daemon daemon_under_test;
#define PORT (daemon_under_test.port)

/* Effects of the saves alone: with the log nothing here would depend on them. */
static const char *const without_log[] = {"--appendonly", "no", NULL};

static void start(void)
{
    daemon_start(&daemon_under_test, without_log);
}

static void stop(void)
{
    daemon_discard(&daemon_under_test);
}

TestSuite(persistence, .init = start, .fini = stop, .timeout = 3000);

/* ---- restored filters ---- */

/* Scaled, fixed, empty and strangely named filters are there after SAVE and kill -9, with parameters and counts. */
CLIENT_TEST(daemon_under_test, persistence, save_and_kill)
{
    expect(client, "+OK", "BF.RESERVE scaled 0.001 100 EXPANSION 3");
    client_add_items(client, "scaled", 0, 5000);
    expect(client, "+OK", "BF.RESERVE fixed 0.01 1000 NONSCALING");
    client_add_items(client, "fixed", 0, 500);
    expect(client, "+OK", "BF.RESERVE empty 0.01 100");
    expect(client, ":1", "BF.ADD %b x", "a/b\0..%\xff", (size_t)7);
    expect(client, ":1", "BF.ADD %b x", "", (size_t)0);
    char name[3000];
    memset(name, 'n', sizeof(name));
    expect(client, ":1", "BF.ADD %b x", name, sizeof(name));
    long long scaled = client_number(client, "BF.CARD scaled"), fixed = client_number(client, "BF.CARD fixed");
    char *info = strdup(client_ask(client, "BF.INFO scaled"));
    expect(client, "+OK", "SAVE");
    client = client_after_kill(client, &daemon_under_test, NULL);
    expect(client, ":6", "DBSIZE");
    client_expect_items(client, "scaled", 0, 5000);
    client_expect_items(client, "fixed", 0, 500);
    cr_expect_eq(client_number(client, "BF.CARD scaled"), scaled);
    cr_expect_eq(client_number(client, "BF.CARD fixed"), fixed);
    expect(client, info, "BF.INFO scaled");
    expect(client, "[nil]", "BF.INFO fixed EXPANSION");
    expect(client, ":1", "BF.EXISTS %b x", "a/b\0..%\xff", (size_t)7);
    expect(client, ":1", "BF.EXISTS %b x", "", (size_t)0);
    expect(client, ":1", "BF.EXISTS %b x", name, sizeof(name));
    /* The loaded chain grows further and is saved again. */
    client_add_items(client, "scaled", 5000, 20000);
    expect(client, "+OK", "SAVE");
    redisFree(client);
    free(info);
    daemon_kill(&daemon_under_test);
    client = client_restart(&daemon_under_test);
    client_expect_items(client, "scaled", 0, 20000);
}

/* A record of a MANIFEST is independent of its predecessor's kind: a window behind a cuckoo filter could not be
 * loaded. With 600 filters in no order every kind follows every other one. */
CLIENT_TEST(daemon_under_test, persistence, filters_of_all_kinds_lie_behind_one_another)
{
    static const char *const kinds[][2] = {
        {"BF", "0.01 100"},
        {"BF", "0.01 100 NONSCALING"},
        {"BF", "0.01 100 LAYOUT redisbloom"},
        {"BF", "0.01 100 LAYOUT blocked"},
        {"BF", "0.01 1000 LAYOUT blocked WINDOW 604800"},
        {"BF", "0.01 100 KEYED"},
        {"BF", "0.01 1000 WINDOW 604800"},
        {"BF", "0.01 1000 WINDOW ITEMS 2000 PARTS 4 REFRESH KEYED"},
        {"CF", "1000"},
        {"CF", "1000 BUCKETSIZE 4 EXPANSION 2 MAXITERATIONS 500"},
        {"CF", "1000 ERROR 0.01"},
        {"CF", "1000 ERROR 0.001 KEYED"},
    };
    enum { KINDS = sizeof(kinds) / sizeof(kinds[0]), FILTERS = 600 };
    unsigned state = 3;
    char reserve[100], add[FILTERS][8], exists[FILTERS][12];
    for (int i = 0; i < FILTERS; i++) {
        const char *const *kind = kinds[rand_r(&state) % KINDS];
        snprintf(reserve, sizeof(reserve), "%s.RESERVE f%d %s", kind[0], i, kind[1]);
        expect(client, "+OK", reserve);
        snprintf(add[i], sizeof(add[i]), "%s.ADD", kind[0]);
        snprintf(exists[i], sizeof(exists[i]), "%s.EXISTS", kind[0]);
        expect(client, ":1", "%s f%d %d", add[i], i, i);
    }
    for (int round = 0; round < 3; round++) {
        expect(client, "+OK", "SAVE");
        client = client_after_kill(client, &daemon_under_test, NULL);
        expect(client, ":600", "DBSIZE");
        cr_assert_eq(client_info(client, "bf", "bf_quarantined_filters"), 0);
        for (int i = 0; i < FILTERS; i++) {
            expect(client, ":1", "%s f%d %d", exists[i], i, i);
            if (i % 5 == round) /* the next save keeps the records of most others */
                expect(client, ":1", "%s f%d again%d", add[i], i, round);
        }
    }
}

/* Deleted filters stay deleted, renamed filters have the new name, recreated filters the new content. */
CLIENT_TEST(daemon_under_test, persistence, delete_rename_recreate)
{
    client_add_items(client, "gone", 0, 10);
    client_add_items(client, "old", 0, 10);
    client_add_items(client, "again", 0, 10);
    expect(client, "+OK", "SAVE");
    expect(client, ":1", "DEL gone");
    expect(client, "+OK", "RENAME old new");
    expect(client, ":1", "DEL again");
    client_add_items(client, "again", 100, 110);
    expect(client, "+OK", "SAVE");
    client = client_after_kill(client, &daemon_under_test, NULL);
    expect(client, ":2", "DBSIZE");
    client_expect_items(client, "new", 0, 10);
    client_expect_items(client, "again", 100, 110);
    expect(client, ":10", "BF.CARD again");
}

/* BGSAVE runs beside all other work; LASTSAVE and INFO report it. */
CLIENT_TEST(daemon_under_test, persistence, bgsave)
{
    client_add_items(client, "f", 0, 1000);
    expect(client, "+OK", "BF.RESERVE empty 0.01 100");
    long long before = client_number(client, "LASTSAVE");
    sleep(1);
    expect(client, "+Background saving started", "BGSAVE");
    wait_until(client_number(client, "LASTSAVE") > before);
    const char *info = client_ask(client, "INFO persistence");
    cr_expect_not_null(strstr(info, "rdb_last_bgsave_status:ok"), "%s", info);
    cr_expect_not_null(strstr(info, "rdb_changes_since_last_save:0"), "%s", info);
    expect(client, "+OK", "BF.CLEAR empty"); /* this is no change */
    info = client_ask(client, "INFO persistence");
    cr_expect_not_null(strstr(info, "rdb_changes_since_last_save:0"), "%s", info);
}

/* A `save` rule starts saves; the rules can be changed at run time. */
CLIENT_TEST(daemon_under_test, persistence, save_rules)
{
    client_add_items(client, "f", 0, 1000); /* before the rule: on a slow machine a save could begin between them */
    expect(client, "+OK", "CONFIG SET save %s", "1 100");
    daemon_wait_output(&daemon_under_test, "saved 1 filter");
    client = client_after_kill(client, &daemon_under_test, NULL);
    client_expect_items(client, "f", 0, 1000);
}

/* SIGTERM, SIGINT and SHUTDOWN save when there are rules, and end with status 0. */
DAEMON_TEST(daemon_under_test, persistence, the_end_saves)
{
    const char *const args[] = {"--appendonly", "no", "--save", "3600 1000000", NULL};
    daemon_stop(&daemon_under_test);
    for (int how = 0; how < 4; how++) {
        char filter[16];
        sprintf(filter, "f%d", how);
        redisContext *client = client_start(&daemon_under_test, args);
        client_add_items(client, filter, 0, 100);
        if (how == 0) {
            daemon_stop(&daemon_under_test);
        } else if (how == 1) {
            kill(daemon_under_test.pid, SIGINT);
            daemon_wait(&daemon_under_test);
        } else {
            redisReply *reply = redisCommand(client, how == 2 ? "SHUTDOWN" : "SHUTDOWN NOSAVE");
            cr_expect_null(reply, "SHUTDOWN answered %s", reply ? reply->str : "");
            daemon_wait(&daemon_under_test);
        }
        redisFree(client);
    }
    redisContext *client = client_start(&daemon_under_test, args);
    for (int how = 0; how < 3; how++) {
        char filter[16];
        sprintf(filter, "f%d", how);
        client_expect_items(client, filter, 0, 100);
    }
    expect(client, ":0", "EXISTS f3");
}

#define ENDERS 6
#define ENOUGH 1000 /* items of each client before the end */

static _Atomic int acked[ENDERS]; /* items 0..acked-1 of each client were acknowledged */

/* On a busy machine the daemon may serve for its full 15 s after the signal: at full speed that would be millions of
 * items to look up afterwards. */
#define FAST_ITEMS 20000

static void *add_until_the_end(void *arg)
{
    size_t me = (size_t)arg;
    redisContext *client = client_open(PORT);
    for (;; acked[me] += 20) {
        redisReply *reply = NULL;
        int answered = 0;
        if (acked[me] >= FAST_ITEMS)
            usleep(1000);
        for (int i = 0; i < 20; i++)
            redisAppendCommand(client, "BF.ADD end:%d item:%d", (int)me, acked[me] + i);
        for (; answered < 20 && redisGetReply(client, (void **)&reply) == REDIS_OK; answered++)
            freeReplyObject(reply);
        if (answered < 20) {
            acked[me] += answered;
            break;
        }
    }
    redisFree(client);
    return NULL;
}

/* Clients add until the daemon, after SIGTERM, disconnects them: all acknowledged items are there after the next
 * start. */
DAEMON_TEST(daemon_under_test, persistence, the_end_loses_nothing_acknowledged)
{
    const char *const args[] = {"--appendonly", "no", "--save", "3600 1000000", "--threads", "3", NULL};
    pthread_t threads[ENDERS];
    daemon_stop(&daemon_under_test);
    daemon_start(&daemon_under_test, args);
    for (size_t i = 0; i < ENDERS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, add_until_the_end, (void *)i), 0);
    for (size_t i = 0; i < ENDERS; i++) /* on a busy machine a thread may begin late */
        wait_until(atomic_load(&acked[i]) >= ENOUGH);
    daemon_stop(&daemon_under_test);
    for (size_t i = 0; i < ENDERS; i++)
        pthread_join(threads[i], NULL);
    redisContext *client = client_start(&daemon_under_test, args);
    for (int i = 0; i < ENDERS; i++) {
        char filter[16];
        sprintf(filter, "end:%d", i);
        cr_expect_gt(acked[i], 0);
        client_expect_items(client, filter, 0, acked[i]);
    }
}

/* An end whose save fails is refused, except with FORCE. */
CLIENT_TEST(daemon_under_test, persistence, an_end_that_cannot_save_needs_force)
{
    client_add_items(client, "f", 0, 10);
    expect(client, "+OK", "SAVE");
    client_add_items(client, "f", 10, 20);
    daemon_block_saves(&daemon_under_test);
    const char *reply = client_ask(client, "SHUTDOWN SAVE");
    cr_assert(strncmp(reply, "-ERR Errors trying to SHUTDOWN: ", 32) == 0, "%s", reply);
    client_expect_items(client, "f", 0, 20);
    client_add_items(client, "f", 20, 30);
    expect(client, "(Server closed the connection)", "SHUTDOWN SAVE FORCE");
    redisFree(client);
    daemon_wait(&daemon_under_test);
    daemon_unblock_saves(&daemon_under_test);
    client = client_restart(&daemon_under_test);
    client_expect_items(client, "f", 0, 10);
    expect(client, ":10", "BF.CARD f");
}

/* ---- resources of a save ---- */

#if !DAEMON_SANITIZED /* sanitizers take additional memory for it */

static long status_kb(const char *field)
{
    char path[64], line[256];
    long value = -1;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)daemon_under_test.pid);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    while (value < 0 && fgets(line, sizeof(line), file)) {
        if (strncmp(line, field, strlen(field)) == 0)
            value = strtol(line + strlen(field), NULL, 10);
    }
    fclose(file);
    cr_assert_geq(value, 0, "%s", field);
    return value;
}

/* Then the process is the emulator's, and its memory includes translated code. */
static bool is_emulated(void)
{
    char link[64], exe[4096] = "", program[4096];
    snprintf(link, sizeof(link), "/proc/%d/exe", (int)daemon_under_test.pid);
    cr_assert_gt(readlink(link, exe, sizeof(exe) - 1), 0);
    cr_assert_not_null(realpath(BLOOMERYD_PATH, program));
    return strcmp(exe, program) != 0;
}

/* The filter is nine times as large as the save's limit of memory. It is loaded from its file first, so that its own
 * memory does not grow. */
CLIENT_TEST(daemon_under_test, persistence, a_save_takes_no_more_memory_than_it_may)
{
    char path[64];
    if (is_emulated())
        cr_skip_test("the memory of an emulator says nothing");
    expect(client, "+OK", "BF.RESERVE large 0.01 60000000");
    client_add_items(client, "large", 0, 1000);
    expect(client, "+OK", "SAVE");
    client = client_after_stop(client, &daemon_under_test, NULL);
    expect(client, "+OK", "CONFIG SET save-memory 8mb");
    expect(client, ":1", "BF.ADD large once-more");
    snprintf(path, sizeof(path), "/proc/%d/clear_refs", (int)daemon_under_test.pid);
    file_write_text(path, "5"); /* resets the peak */
    long before = status_kb("VmRSS:");
    expect(client, "+OK", "SAVE");
    long grown = status_kb("VmHWM:") - before;
    cr_expect_lt(grown, (8 + 2) * 1024, "%ld kB", grown);
}

#endif

/* At the slowest rate a save of two megabytes would take half an hour: it keeps the rate, and ends when the limit is
 * removed or when the process has to end. */
CLIENT_TEST(daemon_under_test, persistence, a_save_is_held_to_its_rate_until_somebody_is_in_a_hurry)
{
    expect(client, "+OK", "CONFIG SET save-rate-limit 1000");
    expect(client, "+OK", "BF.RESERVE large 0.01 2000000");
    client_add_items(client, "large", 0, 10);
    expect(client, "+Background saving started", "BGSAVE");
    expect(client, ":1", "BF.ADD small x");
    expect_has(client, "rdb_bgsave_in_progress:1", "INFO persistence");
    expect_has(client, "in progress", "SAVE");
    expect(client, "+OK", "CONFIG SET save-rate-limit 0");
    wait_until(!strstr(client_ask(client, "INFO persistence"), "rdb_bgsave_in_progress:1"));
    expect_has(client, "rdb_last_bgsave_status:ok", "INFO persistence");

    expect(client, "+OK", "CONFIG SET save-rate-limit 1000");
    expect(client, ":1", "BF.ADD large y");
    expect(client, "+Background saving started", "BGSAVE");
    redisAppendCommand(client, "SHUTDOWN SAVE");
    redisReply *reply = NULL;
    cr_expect_neq(redisGetReply(client, (void **)&reply), REDIS_OK, "the connection ends with the daemon");
    redisFree(client);
    daemon_wait(&daemon_under_test);
    client = client_restart(&daemon_under_test);
    expect(client, ":1", "BF.EXISTS large y");
}
