/* The effect of a transaction after a crash: all of its changes, or none. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "program.h"
#include "tmpdir.h"

DAEMON_SUITE_IDLE(daemon_under_test, log_transactions);
#define PORT    (daemon_under_test.port)
#define SEGMENT (tmp_path(daemon_under_test.data, "log/00000001.log").text)

static const char *const always[] = {"--appendfsync", "always", "--threads", "1", NULL};

/* Keeps the current directory of a killed process; its log has one segment. Returns the segment's length. */
static size_t keep(void)
{
    char output[400];

    cr_assert_eq(
        program_run(output, sizeof(output), "mv %s %s/kept 2>&1", daemon_under_test.data, daemon_under_test.dir), 0,
        "%s", output);
    return log_end(tmp_path(daemon_under_test.dir, "kept/log/00000001.log").text);
}

/* Restores the directory, with the segment cut. */
static void put_back(size_t len)
{
    char output[400];

    cr_assert_eq(
        program_run(output, sizeof(output), "cd %s && rm -rf data && cp -a kept data 2>&1", daemon_under_test.dir), 0,
        "%s", output);
    file_truncate(SEGMENT, len);
    unlink(tmp_path(daemon_under_test.data, "log/00000001.pending").text); /* it has the bytes that are cut */
}

/* "before:2 moved:0 ... stays": the number of items of each filter, and whether the first expires. */
static void describe(char *text, size_t size)
{
    static const char *const filters[] = {"before", "moved", "deleted", "made", "grown", "copied"};
    redisContext *client = client_open(PORT);
    size_t len = 0;

    for (size_t i = 0; i < sizeof(filters) / sizeof(*filters); i++)
        len +=
            (size_t)snprintf(text + len, size - len, "%s%s ", filters[i], client_ask(client, "BF.CARD %s", filters[i]));
    snprintf(text + len, size - len, "%s", client_number(client, "TTL before") > 0 ? "expires" : "stays");
    redisFree(client);
}

/* One change of each kind. Afterwards the log is cut at each byte of the transaction. */
Test(log_transactions, a_log_cut_at_any_byte_has_all_of_it_or_nothing)
{
    static const char *const commands[] = {
        "BF.ADD before new",           "RENAME renamed moved", "DEL deleted",         "BF.RESERVE grown 0.0000001 2",
        "BF.MADD grown a b c d e f g", "BF.ADD made x",        "EXPIRE before 10000", "BF.CLEAR made",
        "BF.ADD copied more"};
    enum { COMMANDS = sizeof(commands) / sizeof(*commands) };
    char without[400], with[400], found[400];

    daemon_start(&daemon_under_test, always);
    redisContext *client = client_open(PORT);
    expect(client, ":1", "BF.ADD before x");
    expect(client, ":1", "BF.ADD renamed x");
    expect(client, ":1", "BF.ADD deleted x");
    describe(without, sizeof(without));
    size_t from = log_end(SEGMENT);
    expect(client, "+OK", "MULTI");
    for (size_t i = 0; i < COMMANDS; i++)
        expect(client, "+QUEUED", commands[i]);
    const char *reply = client_ask(client, "EXEC");
    cr_assert(reply[0] == '[' && !strchr(reply, '-'), "%s", reply);
    describe(with, sizeof(with));
    cr_assert_str_neq(with, without);
    client_kill(client, &daemon_under_test);

    size_t end = keep();
    /* The first bytes and the last ones of the frame, and every seventh of those between: in the tests of the log alone
     * every byte of a frame counts. */
    for (size_t at = from; at <= end; at += (at >= from + 16 || DAEMON_SANITIZED) && at + 14 < end ? 7 : 1) {
        put_back(at);
        daemon_start(&daemon_under_test, always);
        describe(found, sizeof(found));
        cr_assert_str_eq(found, at < end ? without : with, "cut at byte %zu of %zu to %zu", at, from, end);
        daemon_kill(&daemon_under_test);
    }
}

/* ---- long ones ---- */

#define PARTS 40
#define ITEMS 390

/* It adds items to two filters in turns. They are so small that it is no more work than a transaction may be. Other
 * changes in between, passed to the log at once, make the log write while the transaction runs. */
static void send_long(redisContext *client)
{
    char *command = malloc(64 + (size_t)ITEMS * 16);

    cr_assert_not_null(command);
    redisAppendCommand(client, "MULTI");
    for (int part = 0; part < PARTS; part++) {
        size_t len = (size_t)sprintf(command, "*%d\r\n$7\r\nBF.MADD\r\n$1\r\n%c\r\n", ITEMS + 2, part % 2 ? 'f' : 'g');
        for (int i = 0; i < ITEMS; i++)
            len += (size_t)sprintf(command + len, "$8\r\n%08d\r\n", part * ITEMS + i);
        redisAppendFormattedCommand(client, command, len);
        redisAppendCommand(client, "EXPIRE f %d", 100000 + part);
    }
    redisAppendCommand(client, "EXEC");
    free(command);
}

static redisContext *prepare(void)
{
    daemon_start(&daemon_under_test, always);
    redisContext *client = client_open(PORT);
    expect(client, "+OK", "BF.RESERVE f 0.0000001 10000");
    expect(client, "+OK", "BF.RESERVE g 0.0000001 10000");
    return client;
}

/* Whether all its changes are there, or none. */
static bool is_there(const char *what, size_t at)
{
    redisContext *client = client_open(PORT);
    long long f = client_number(client, "BF.CARD f"), g = client_number(client, "BF.CARD g"), half = PARTS / 2 * ITEMS;

    redisFree(client);
    cr_assert((f == half && g == half) || (f == 0 && g == 0), "%s %zu: %lld and %lld of %lld items", what, at, f, g,
              half);
    return f == half;
}

/* Those that came before the end of the connection: none is an error. Whether that of EXEC is among them. */
static bool read_replies(redisContext *client)
{
    bool done = false;

    for (redisReply *reply; redisGetReply(client, (void **)&reply) == REDIS_OK; freeReplyObject(reply)) {
        cr_assert_neq(reply->type, REDIS_REPLY_ERROR, "%s", reply->str);
        done |= reply->type == REDIS_REPLY_ARRAY;
    }
    return done;
}

Test(log_transactions, a_long_one_is_all_there_or_not_at_all_wherever_the_log_is_cut)
{
    enum { CUTS = 24 };
    redisContext *client = prepare();
    size_t from = log_end(SEGMENT);

    send_long(client);
    client_skip(client, 2 * PARTS + 2);
    client_kill(client, &daemon_under_test);
    size_t end = keep();
    for (size_t i = 0; i <= CUTS; i++) {
        size_t at = from + (end - from) * i / CUTS;
        put_back(at);
        daemon_start(&daemon_under_test, always);
        cr_assert_eq(is_there("cut at byte", at), i == CUTS);
        daemon_kill(&daemon_under_test);
    }
}

Test(log_transactions, a_long_one_is_all_there_or_not_at_all_whenever_the_process_is_killed)
{
    enum { ROUNDS = 24, STEP_MS = 2 };

    for (int round = 0; round < ROUNDS; round++) {
        redisContext *client = prepare();
        int done = 0;
        send_long(client);
        while (!done)
            cr_assert_eq(redisBufferWrite(client, &done), REDIS_OK);
        nanosleep(&(struct timespec){.tv_nsec = (long)round * STEP_MS * 1000000}, NULL);
        kill(daemon_under_test.pid, SIGKILL);
        bool acknowledged = read_replies(client);
        client = client_after_kill(client, &daemon_under_test, NULL);
        redisFree(client);
        bool there = is_there("killed in round", (size_t)round);
        cr_assert(there || !acknowledged, "killed in round %d: lost, although EXEC had replied", round);
        daemon_discard(&daemon_under_test);
    }
}
