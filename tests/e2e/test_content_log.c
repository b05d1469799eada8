/* The storage of contents that come from elsewhere, and their state after a crash: small contents are in the log
 * until a save has them, large ones in files. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "program.h"
#include "wait.h"

CLIENT_SUITE(the_daemon, client, content_log, "--threads", "2", "--appendfsync", "always");

static void reserve(const char *name, bool large)
{
    expect(client, "+OK", "BF.RESERVE %s %s %s", name, large ? "0.000000001" : "0.001", large ? "20000" : "1000");
}

static void restore(const char *from, const char *to, const char *ttl, const char *how)
{
    redisReply *dump = redisCommand(client, "DUMP %s", from);
    cr_assert_eq(dump->type, REDIS_REPLY_STRING);
    char command[100];
    snprintf(command, sizeof(command), "RESTORE %s %s %%b %s", to, ttl, how);
    expect(client, "+OK", command, dump->str, (size_t)dump->len);
    freeReplyObject(dump);
}

static void load(const char *from, const char *to)
{
    long long iterator = 0;
    for (;;) {
        redisReply *chunk = redisCommand(client, "BF.SCANDUMP %s %lld", from, iterator);
        cr_assert(chunk->type == REDIS_REPLY_ARRAY && chunk->elements == 2);
        iterator = chunk->element[0]->integer;
        if (iterator)
            expect(client, "+OK", "BF.LOADCHUNK %s %lld %b", to, iterator, chunk->element[1]->str,
                   (size_t)chunk->element[1]->len);
        freeReplyObject(chunk);
        if (!iterator)
            break;
    }
}

static const char *const made[] = {"restored", "timed", "replaced", "copied", "loaded", "united", "merged"};
#define MADE (sizeof(made) / sizeof(made[0]))

/* Each source of contents. */
static void make_all(bool large)
{
    reserve("source", large);
    client_for_items(client, "BF.MADD", "source", "s", 300);
    expect(client, "+OK", "BF.RESERVE replaced 0.01 10");
    expect(client, ":1", "BF.ADD replaced old");
    reserve("merged", large);
    client_for_items(client, "BF.MADD", "merged", "m", 100);
    expect(client, ":1", "EXPIREAT merged 95617584000");
    restore("source", "restored", "0", "");
    restore("source", "timed", "95617584000000", "ABSTTL");
    restore("source", "replaced", "0", "REPLACE");
    expect(client, ":1", "COPY source copied");
    load("source", "loaded");
    expect(client, "+OK", "BF.MERGE united source");
    expect(client, "+OK", "BF.MERGE merged source");
}

/* All fields of INFO, and the counted bits. */
static char *describe(void)
{
    static char text[16384];
    size_t len = 0;
    for (size_t i = 0; i < MADE; i++) {
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s: %s", made[i],
                                client_ask(client, "BF.INFO %s", made[i]));
        len +=
            (size_t)snprintf(text + len, sizeof(text) - len, " %s", client_ask(client, "BF.INFO %s BITSSET", made[i]));
        len += (size_t)snprintf(text + len, sizeof(text) - len, " %s\n", client_ask(client, "PEXPIRETIME %s", made[i]));
    }
    return strdup(text);
}

static void expect_all(const char *described)
{
    char *now = describe();
    cr_assert_str_eq(now, described);
    free(now);
    for (size_t i = 0; i < MADE; i++)
        cr_assert_eq(client_for_items(client, "BF.MEXISTS", made[i], "s", 300), 300, "%s", made[i]);
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "merged", "m", 100), 100);
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "restored", "never", 300), 0);
    expect(client, ":0", "BF.EXISTS replaced old");
}

/* kill -9 repeatedly: after the contents were made; after adds to them; after a save. `bloomery check` finds the log
 * whole. */
static void survives(bool large)
{
    char output[2000];
    make_all(large);
    cr_assert_eq(daemon_layer_files(&the_daemon), large ? MADE : 0);
    char *described = describe();
    for (int i = 0; i < 2; i++) {
        client = client_after_kill(client, &the_daemon, NULL);
        expect_all(described);
    }
    free(described);
    for (size_t i = 0; i < MADE; i++)
        cr_assert_geq(client_for_items(client, "BF.MADD", made[i], "more", 900), 899); /* some of them grow */
    described = describe();
    for (int i = 0; i < 2; i++) {
        client = client_after_kill(client, &the_daemon, NULL);
        expect_all(described);
        for (size_t m = 0; m < MADE; m++)
            cr_assert_eq(client_for_items(client, "BF.MEXISTS", made[m], "more", 900), 900, "%s", made[m]);
    }
    client_kill(client, &the_daemon);
    if (*BLOOMERY_TOOL_PATH)
        cr_assert_eq(program_run(output, sizeof(output), "'%s' check %s 2>&1", BLOOMERY_TOOL_PATH, the_daemon.data), 0,
                     "%s", output);
    client = client_restart(&the_daemon);
    expect(client, "+OK", "SAVE");
    client = client_after_kill(client, &the_daemon, NULL);
    expect_all(described);
    free(described);
}

DAEMON_TEST(the_daemon, content_log, small_contents_make_no_file_and_survive)
{
    survives(false);
}

DAEMON_TEST(the_daemon, content_log, large_contents_are_in_files_and_survive)
{
    survives(true);
}

/* Unrecorded contents are not written either, until a save. */
DAEMON_TEST(the_daemon, content_log, without_a_log_contents_are_in_the_next_save_only)
{
    for (int large = 0; large < 2; large++) {
        expect(client, "+OK", "FLUSHALL");
        expect(client, "+OK", "CONFIG SET appendonly no");
        wait_until(strcmp(client_ask(client, "SAVE"), "+OK") == 0);
        make_all(large);
        cr_assert_eq(daemon_layer_files(&the_daemon), 0);
        expect(client, "+OK", "SAVE");
        char *described = describe();
        client = client_after_kill(client, &the_daemon, NULL);
        expect_all(described);
        free(described);
    }
}

/* Later names, times and replacements after the record hold; a replaced or deleted filter stays so. */
DAEMON_TEST(the_daemon, content_log, what_happens_to_them_afterwards_holds)
{
    for (int large = 0; large < 2; large++) {
        expect(client, "+OK", "FLUSHALL");
        reserve("a", large);
        client_for_items(client, "BF.MADD", "a", "a", 50);
        expect(client, ":1", "COPY a gone");
        expect(client, ":1", "DEL gone");
        expect(client, ":1", "COPY a moved");
        expect(client, "+OK", "RENAME moved there");
        expect(client, ":1", "BF.ADD there late");
        expect(client, ":1", "COPY a b");
        expect(client, ":1", "BF.ADD b x");
        expect(client, ":1", "COPY there b REPLACE");
        restore("a", "short", "3000000", "");
        expect(client, ":1", "PERSIST short");
        restore("a", "over", "1", "");
        expect(client, ":1", "COPY a emptied");
        expect(client, "+OK", "BF.CLEAR emptied");
        for (int again = 0; again < 2; again++) {
            client = client_after_kill(client, &the_daemon, NULL);
            expect(client, ":0", "EXISTS gone moved over");
            expect(client, ":51", "BF.CARD there");
            expect(client, ":51", "BF.CARD b");
            expect(client, "[:1,:0,:1]", "BF.MEXISTS b late x a7");
            expect(client, ":-1", "TTL short");
            expect(client, ":50", "BF.CARD short");
            expect(client, ":0", "BF.CARD emptied");
        }
    }
}
