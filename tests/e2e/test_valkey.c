/* Filters in valkey-bloom's layout in the daemon: commands, kills and saves, unions, refusals, the tool, and their
 * secret. The recorded conversation is in test_corpus.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "golden.h"
#include "program.h"
#include "valkey_recordings.h"

CLIENT_SUITE(the_daemon, client, valkey, "--appendonly", "yes", "--appendfsync", "always");

/* In a pack, in its own file, grown by all kinds of layers, and of a fixed size. */
static const struct {
    const char *name, *create;
    int items;
} cases[] = {{"small", "BF.RESERVE small 0.01 100 LAYOUT valkey", 90},
             {"grown",
              "BF.INSERT grown CAPACITY 20 ERROR 0.001 EXPANSION 1 TIGHTENING 0.97 SEED "
              "0123456789abcdefghijklmnopqrstuv",
              1500},
             {"fixed", "BF.INSERT fixed CAPACITY 3000 ERROR 1e-15 NONSCALING LAYOUT valkey", 3000},
             {"large", "BF.INSERT large CAPACITY 60000 ERROR 0.0001 VALIDATESCALETO 120000", 5000}};
#define CASES (sizeof(cases) / sizeof(cases[0]))

static void fill_cases(void)
{
    for (size_t i = 0; i < CASES; i++) {
        bool insert = strstr(cases[i].create, "BF.INSERT") != NULL;
        if (i == 2) {
            char command[200];
            snprintf(command, sizeof(command), "%s ITEMS i0", cases[i].create);
            expect(client, "[:1]", command);
        } else {
            expect(client, insert ? "[]" : "+OK", cases[i].create);
        }
        client_for_items(client, "BF.MADD", cases[i].name, "i", cases[i].items);
        expect(client, "[\"valkey\"]", "BF.INFO %s LAYOUT", cases[i].name);
        expect(client, "+bloomfltr", "TYPE %s", cases[i].name);
    }
}

static char *dump_of(const char *name)
{
    return strdup(client_ask(client, "DUMP %s", name));
}

DAEMON_TEST(the_daemon, valkey, keeps_bits_and_seed_through_copies_kills_and_saves)
{
    char *dumps[CASES], copy[32];
    fill_cases();
    for (size_t i = 0; i < CASES; i++) {
        dumps[i] = dump_of(cases[i].name);
        snprintf(copy, sizeof(copy), "%s:copy", cases[i].name);
        expect(client, ":1", "COPY %s %s", cases[i].name, copy);
    }
    for (int round = 0; round < 3; round++) {
        if (round == 1)
            expect(client, "+OK", "SAVE");
        client = client_after_kill(client, &the_daemon, NULL);
        for (size_t i = 0; i < CASES; i++) {
            snprintf(copy, sizeof(copy), "%s:copy", cases[i].name);
            expect(client, dumps[i], "DUMP %s", cases[i].name);
            expect(client, dumps[i], "DUMP %s", copy);
            cr_assert_eq(client_for_items(client, "BF.MEXISTS", copy, "i", cases[i].items), cases[i].items);
        }
    }
    expect(client, "+OK", "BF.CLEAR grown"); /* it keeps its seed */
    client_for_items(client, "BF.MADD", "grown", "i", 1500);
    expect(client, dumps[1], "DUMP grown");
    for (size_t i = 0; i < CASES; i++)
        free(dumps[i]);
}

DAEMON_TEST(the_daemon, valkey, filters_with_one_seed_have_a_union)
{
    expect(client, "[]", "BF.INSERT a CAPACITY 1000 SEED 0123456789abcdefghijklmnopqrstuv");
    expect(client, "[]", "BF.INSERT b CAPACITY 1000 SEED 0123456789abcdefghijklmnopqrstuv");
    expect(client, "+OK", "BF.RESERVE other 0.01 1000 LAYOUT valkey");
    expect(client, "+OK", "BF.RESERVE native 0.01 1000");
    client_for_items(client, "BF.MADD", "a", "a", 300);
    client_for_items(client, "BF.MADD", "b", "b", 400);
    expect(client, "+OK", "BF.MERGE ab a b");
    client = client_after_kill(client, &the_daemon, NULL);
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "ab", "a", 300), 300);
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "ab", "b", 400), 400);
    const char *reply = client_ask(client, "BF.MERGE x a other");
    cr_assert(reply[0] == '-' && strstr(reply, "seeds differ"), "%s", reply);
    reply = client_ask(client, "BF.MERGE x a native");
    cr_assert(reply[0] == '-' && strstr(reply, "the layouts differ: valkey (options 32) and na"), "%s", reply);
    expect(client, "+OK", "CONFIG SET bf-use-random-seed no");
    expect(client, "+OK", "BF.RESERVE c 0.01 1000 LAYOUT valkey");
    expect(client, "+OK", "BF.RESERVE d 0.01 1000 LAYOUT valkey");
    expect(client, "+OK", "BF.MERGE c d");
}

DAEMON_TEST(the_daemon, valkey, what_the_layout_cannot_have_is_refused)
{
    expect(client, "-ERR a filter of LAYOUT valkey cannot be KEYED: its seed is its key: give LAYOUT na",
           "BF.RESERVE f 0.01 100 LAYOUT valkey KEYED");
    expect(client, "-ERR a window is kept in LAYOUT na or blocked: WINDOW and LAYOUT valkey exclude each other",
           "BF.RESERVE f 0.01 100 LAYOUT valkey WINDOW 60");
    expect(client, "-ERR SEED, TIGHTENING and VALIDATESCALETO need LAYOUT valkey",
           "BF.INSERT f LAYOUT na TIGHTENING 0.5 ITEMS a");
    expect(client, "-ERR wrong number of arguments for 'bf.insert' command", "BF.INSERT f CAPACITY 100 ERROR 0.1");
    expect(client, "-ERR invalid seed", "BF.INSERT f SEED short");
    expect(client, ":0", "EXISTS f");
    expect(client, "+OK", "CONFIG SET bf-layout valkey");
    expect(client, "+OK", "CONFIG SET bf-keyed yes");
    expect(client, "+OK", "BF.RESERVE plain 0.01 100"); /* its seed is its key */
    expect(client, "[nil]", "BF.INFO plain KEY");
    expect(client, "+OK", "BF.RESERVE window 0.01 100 WINDOW 60");
    expect(client, "[\"na\"]", "BF.INFO window LAYOUT");
    expect(client, "[\"0.5\"]", "BF.INFO plain TIGHTENING");
    expect(client, "[\"0.01\"]", "BF.INFO plain ERROR");
    expect(client, "-Invalid information value", "BF.INFO window TIGHTENING");
    expect(client, "-Invalid information value", "BF.INFO window ERROR");
}

DAEMON_TEST(the_daemon, valkey, is_planned_and_found_as_it_is)
{
    expect(client, "+OK", "BF.RESERVE f 0.003 777 LAYOUT valkey");
    client_for_items(client, "BF.MADD", "f", "i", 5000);
    char *size = strdup(client_ask(client, "BF.INFO f FILTERS")), wanted[64]; /* [:number] */
    snprintf(wanted, sizeof(wanted), "+Number of filters,%.*s,", (int)strlen(size) - 2, size + 1);
    const char *plan = client_ask(client, "BF.PLAN 0.003 777 LAYOUT valkey ITEMS 5000");
    cr_assert(strstr(plan, wanted), "'%s' is not in %s", wanted, plan);
    expect(client, "+OK", "BF.RESERVE g 0.003 777 LAYOUT valkey");
    expect(client, ":1", "BF.ADD g i7");
    expect(client, ":1", "BF.ADD native i7");
    const char *found = client_ask(client, "BF.FIND f g native ITEMS i7");
    cr_assert(strstr(found, "\"f\",\"g\",\"native\""), "%s", found);
    free(size);
}

/* Under the contract, too, and in what an operator sees. */
DAEMON_TEST(the_daemon, valkey, the_seed_is_no_reply_and_no_message)
{
    static const char *const asks[] = {"BF.INFO f FULL", "INFO everything", "BF.DEBUG f", "BF.INFO f"};
    expect(client, "[:1]", "BF.INSERT f SEED 0123456789abcdefghijklmnopqrstuv ITEMS x");
    expect(client, "+OK", "CONFIG SET loglevel debug");
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++) {
            const char *reply = client_ask(client, asks[i]);
            cr_assert(!strstr(reply, "0123456789abcdef") && !strstr(reply, "3031323334353637"), "%s: %s", asks[i],
                      reply);
        }
        expect(client, "+OK", "CONFIG SET bf-compatibility valkey");
    }
    client = client_after_kill(client, &the_daemon, NULL);
    cr_assert_null(strstr(daemon_output(&the_daemon), "0123456789abcdef"));
    cr_assert_null(strstr(daemon_output(&the_daemon), "3031323334353637"));
}

/* Who knows a seed chooses false positives: the slow log has it as little as MONITOR. */
DAEMON_TEST(the_daemon, valkey, seeds_are_hidden_from_others)
{
    static const char seed[] = "0123456789abcdefghijklmnopqrstuv";
    expect(client, "+OK", "CONFIG SET slowlog-log-slower-than 0");
    expect(client, "[:1]", "BF.INSERT s SEED %s TIGHTENING 0.5 ITEMS a", seed);
    const char *text = client_ask(client, "SLOWLOG GET 2");
    cr_expect(strstr(text, "\"SEED\",\"(redacted)\",\"TIGHTENING\"") && !strstr(text, seed), "%s", text);
    expect(client, "+OK", "CONFIG SET slowlog-log-slower-than -1");
}

static const char *tool(int *status_out, const char *command, const char *a, const char *b)
{
    static char output[20000];
    *status_out = program_run(output, sizeof(output), "env -u LD_PRELOAD '%s' %s %s %s %s 2>&1", BLOOMERY_TOOL_PATH,
                              command, the_daemon.data, a, b);
    return output;
}

DAEMON_TEST(the_daemon, valkey, is_checked_listed_and_exported)
{
    char out[400], file[500];
    int status;
    fill_cases();
    client_kill(client, &the_daemon);
    const char *text = tool(&status, "check", "", ""); /* only in the log */
    cr_assert_eq(status, 0, "%s", text);
    client = client_restart(&the_daemon);
    expect(client, "+OK", "SAVE");
    client_stop(client, &the_daemon);
    text = tool(&status, "check", "", "");
    cr_assert_eq(status, 0, "%s", text);
    text = tool(&status, "list", "", "");
    cr_assert(strstr(text, "filters/valkey-") && !strstr(text, "Filter.db"), "%s", text);
    for (size_t i = 0; i < CASES; i++) {
        size_t len;
        uint64_t bits;
        snprintf(out, sizeof(out), "%s/out-%s", the_daemon.dir, cases[i].name);
        text = tool(&status, "export", cases[i].name, out);
        cr_assert_eq(status, 0, "%s", text);
        snprintf(file, sizeof(file), "%s/valkey-0.bits", out);
        unsigned char *bytes = golden_file(&len, "%s", file);
        memcpy(&bits, bytes + 48, sizeof(bits));
        cr_assert_eq(len, 112 + bits / 8, "%zu bytes", len);
        if (i == 1)
            cr_assert_arr_eq(bytes + 80, "0123456789abcdefghijklmnopqrstuv", 32);
        free(bytes);
    }
    client = client_restart(&the_daemon);
}
