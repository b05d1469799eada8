/* The log switched on and off at run time: its validity over time, and the result at a start. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "log_clients.h"
#include "wait.h"

DAEMON_SUITE_IDLE(daemon_under_test, log_switch);

#define PORT (daemon_under_test.port)

static const char *const off[] = {"--appendonly", "no", NULL};

/* Switched off and on again at run time; the content of the following save counts. */
DAEMON_TEST(daemon_under_test, log_switch, what_the_next_save_has_counts)
{
    redisContext *client = client_start(&daemon_under_test, off);
    expect(client, ":1", "BF.ADD f 1");
    expect(client, "+OK", "CONFIG SET appendonly yes");
    daemon_wait_output(&daemon_under_test, "saved 1 filter");
    expect(client, "+OK", "CONFIG SET appendfsync always");
    expect(client, ":1", "BF.ADD f 2");
    expect(client, ":1", "BF.ADD made-later 3");
    client = client_after_kill(client, &daemon_under_test, NULL); /* with appendonly no: the log is read all the same */
    expect(client, "[:1,:1]", "BF.MEXISTS f 1 2");
    expect(client, ":2", "BF.CARD f");
    expect(client, ":1", "BF.EXISTS made-later 3");
    expect(client, ":1", "DEL made-later");
    expect(client, "+OK", "CONFIG SET appendonly yes");
    daemon_wait_output(&daemon_under_test, "saved 1 filter");
    expect(client, ":1", "BF.ADD f 3");
    expect(client, "+OK", "CONFIG SET appendonly no");
    expect(client, ":1", "DEL f");
    wait_for_reply(PORT, "+OK", "SAVE");
    client = client_after_kill(client, &daemon_under_test, NULL);
    expect(client, ":0", "EXISTS f");
}

/* Switching a log on at run time begins with a save. It is tried until it succeeds, and INFO says that it is
 * awaited. */
DAEMON_TEST(daemon_under_test, log_switch, on_tries_its_save_again)
{
    redisContext *client = client_start(&daemon_under_test, off);
    expect(client, ":1", "BF.ADD f 1");
    daemon_block_saves(&daemon_under_test);
    expect(client, "+OK", "CONFIG SET appendonly yes");
    daemon_wait_output(&daemon_under_test, "saving failed");
    cr_assert_eq(info_number(PORT, "persistence", "aof_rewrite_scheduled"), 1);
    daemon_unblock_saves(&daemon_under_test);
    daemon_wait_output(&daemon_under_test, "saved 1 filter");
    wait_until(info_number(PORT, "persistence", "aof_rewrite_scheduled") == 0);
    expect(client, ":1", "BF.ADD f 2");
    expect(client, "[:1,:0]", "WAITAOF 1 0 0");
    client = client_after_kill(client, &daemon_under_test, NULL);
    expect(client, "[:1,:1]", "BF.MEXISTS f 1 2");
}

static void send_all(redisContext *client)
{
    for (int done = 0; !done;)
        cr_assert_eq(redisBufferWrite(client, &done), REDIS_OK);
}

static void wait_for_blocked(int count)
{
    wait_until(info_number(PORT, "clients", "blocked_clients") == count);
}

/* WAITAOF waits for that save, too, up to its timeout; without a client to answer it ends. */
DAEMON_TEST(daemon_under_test, log_switch, waitaof_waits_for_the_save_that_the_log_needs)
{
    redisReply *reply = NULL;
    daemon_start(&daemon_under_test, off);
    redisContext *client = client_open(PORT), *other = client_open(PORT), *third = client_open(PORT);
    expect(client, ":1", "BF.ADD a x");
    daemon_block_saves(&daemon_under_test);
    expect(client, "+OK", "CONFIG SET appendonly yes");
    expect(client, "[:0,:0]", "WAITAOF 1 0 1");
    expect(client, "[:0,:0]", "WAITAOF 1 1 1");
    cr_assert_eq(redisAppendCommand(other, "WAITAOF 1 0 0"), REDIS_OK);
    cr_assert_eq(redisAppendCommand(third, "WAITAOF 1 0 0"), REDIS_OK);
    send_all(other);
    send_all(third);
    wait_for_blocked(2);
    redisFree(third);
    wait_for_blocked(1);
    daemon_unblock_saves(&daemon_under_test);
    cr_assert_eq(redisGetReply(other, (void **)&reply), REDIS_OK);
    cr_assert(reply->type == REDIS_REPLY_ARRAY && reply->element[0]->integer == 1 && reply->element[1]->integer == 0);
    freeReplyObject(reply);
    wait_until(strcmp(client_ask(client, "WAITAOF 1 1 100"), "[:1,:0]") == 0); /* a sync may take longer */

    /* A log that is switched off meanwhile ends the wait; nor does a wait keep the daemon from ending. */
    cr_assert_eq(redisAppendCommand(other, "WAITAOF 1 1 0"), REDIS_OK);
    send_all(other);
    wait_for_blocked(1);
    expect(client, "+OK", "CONFIG SET appendonly no");
    cr_assert_eq(redisGetReply(other, (void **)&reply), REDIS_OK);
    cr_assert_eq(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
    expect(client, "+OK", "CONFIG SET appendonly yes");
    cr_assert_eq(redisAppendCommand(other, "WAITAOF 1 1 0"), REDIS_OK);
    send_all(other);
    wait_for_blocked(1);
    daemon_stop(&daemon_under_test);
}

/* Waits until the log has been written to; returns its bytes then. */
static long long wait_for_more_written(long long than)
{
    long long written;
    wait_until((written = info_number(PORT, "persistence", "aof_written_bytes")) > than);
    return written;
}

/* Killed before that save: changes that were not logged may contradict the later logged ones, so the previous save
 * counts, and no client was told otherwise. */
DAEMON_TEST(daemon_under_test, log_switch, on_without_its_save)
{
    redisContext *client = client_start(&daemon_under_test, off);
    expect(client, ":1", "BF.ADD a x");
    expect(client, "+OK", "SAVE");
    expect(client, "+OK", "RENAME a b");
    daemon_block_saves(&daemon_under_test);
    expect(client, "+OK", "CONFIG SET appendonly yes");
    long long written = wait_for_more_written(0);
    expect(client, ":1", "BF.ADD a y");
    expect(client, "[:0,:0]", "WAITAOF 1 0 1");
    wait_for_more_written(written); /* the record is in the log, but no client is told */
    client_kill(client, &daemon_under_test);
    daemon_unblock_saves(&daemon_under_test);
    client = client_start(&daemon_under_test, NULL);
    expect(client, "[\"a\"]", "KEYS *");
    expect(client, "[:1,:0]", "BF.MEXISTS a x y");
    cr_assert(strstr(daemon_output(&daemon_under_test), "1 changes of filters are left out") != NULL);
    /* Changes logged from here on belong to that state. */
    expect(client, ":1", "BF.ADD a z");
    expect(client, "+OK", "RENAME a c");
    expect(client, "[:1,:0]", "WAITAOF 1 0 0");
    for (int again = 0; again < 2; again++) {
        client = client_after_kill(client, &daemon_under_test, NULL);
        expect(client, "[\"c\"]", "KEYS *");
        expect(client, "[:1,:0,:1]", "BF.MEXISTS c x y z");
        expect(client, ":2", "BF.CARD c");
    }
}

static void change_filters(redisContext *client, unsigned step)
{
    client_ask(client, "BF.RESERVE a 0.00000001 4 EXPANSION 2");
    for (unsigned i = 0; i < 12; i++)
        client_ask(client, "BF.ADD a %u:%u", step, i);
    switch (rand() % 6) {
    case 0:
        client_ask(client, "RENAME a b");
        break;
    case 1:
        client_ask(client, "DEL a");
        break;
    case 2:
        client_ask(client, "BF.CLEAR a");
        break;
    case 3:
        client_ask(client, "COPY a b REPLACE");
        break;
    default:
        break;
    }
}

/* The count equals the number of present items. */
static void expect_sound(redisContext *client, const char *name)
{
    unsigned present = 0;
    for (unsigned step = 0; step < 40; step++)
        for (unsigned i = 0; i < 12; i++)
            present += strcmp(client_ask(client, "BF.EXISTS %s %u:%u", name, step, i), ":1") == 0;
    long card = strtol(client_ask(client, "BF.CARD %s", name) + 1, NULL, 10);
    cr_assert_eq(card, (long)present, "%s: %ld items counted, %u there", name, card, present);
}

/* Without a log the counts of a save may be ahead of its bits by adds during the save: here there are none. */
static void switch_log(redisContext *client, bool on)
{
    client_ask(client, "CONFIG SET appendonly %s", on ? "yes" : "no");
    wait_until(on || !info_number(PORT, "persistence", "rdb_bgsave_in_progress"));
}

/* Random changes: filters are renamed, copied, created again, emptied and grow, and the daemon is killed, mostly
 * while saves fail. It starts without help each time. All changes before a successful WAITAOF or SAVE are there, and
 * no item is counted twice. */
DAEMON_TEST(daemon_under_test, log_switch, on_and_off_and_killed)
{
    const char *const always[] = {"--appendfsync", "always", NULL};
    const char *const off_always[] = {"--appendonly", "no", "--appendfsync", "always", NULL};
    srand(20);
    for (unsigned step = 0; step < 40; step++) {
        redisContext *client = client_start(&daemon_under_test, rand() % 2 ? off_always : always);
        expect_sound(client, "a");
        expect_sound(client, "b");
        bool blocked = rand() % 3 != 0;
        if (blocked)
            daemon_block_saves(&daemon_under_test);
        for (int i = 1 + rand() % 4; i > 0; i--) {
            change_filters(client, step);
            switch_log(client, rand() % 2);
            if (rand() % 2)
                client_ask(client, "SAVE");
        }
        change_filters(client, step);
        client_ask(client, "BF.ADD c %u", step);
        bool kept = strncmp(client_ask(client, "WAITAOF 1 0 1"), "[:1", 3) == 0 ||
                    strcmp(client_ask(client, "SAVE"), "+OK") == 0;
        client_kill(client, &daemon_under_test);
        if (blocked)
            daemon_unblock_saves(&daemon_under_test);
        if (!kept)
            continue;
        client = client_start(&daemon_under_test, off_always);
        expect(client, ":1", "BF.EXISTS c %u", step);
        client_kill(client, &daemon_under_test);
    }
    daemon_start(&daemon_under_test, always);
}
