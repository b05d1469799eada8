/* LAYOUT blocked: an item's bits in one block of 64 bytes. Its bits are compared with another program's in
 * tests/clients/readers.py. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "program.h"

static struct daemon the_daemon;
static redisContext *client;

static void setup(void)
{
    client = client_start(&the_daemon, NULL);
}

static void teardown(void)
{
    client_stop(client, &the_daemon);
}

TestSuite(blocked, .init = setup, .fini = teardown);

/* Small and in a pack, grown, with a file of its own, a window, KEYED, of very few blocks, and of very many layers. */
static const struct {
    const char *name, *reserve;
    int items;
} cases[] = {{"small", "0.01 100", 90},
             {"one", "0.5 1 NONSCALING", 1},
             {"grown", "0.001 50 EXPANSION 1", 1500},
             {"large", "0.0001 2000000", 5000},
             {"window", "0.01 5000 WINDOW 86400 PARTS 4", 3000},
             {"last", "0.01 5000 WINDOW ITEMS 5000 PARTS 2 REFRESH", 3000},
             {"keyed", "0.01 500 KEYED", 400},
             {"deep", "0.1 1 EXPANSION 1 WINDOW 9999", 900}};
#define CASES (sizeof(cases) / sizeof(cases[0]))

static void expect_all(const char *end, char *const set[CASES])
{
    for (size_t i = 0; i < CASES; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%s%s", cases[i].name, end);
        cr_expect_eq(client_for_items(client, "BF.MEXISTS", name, "i", cases[i].items), cases[i].items, "%s", name);
        expect(client, set[i], "BF.INFO %s BITSSET", name);
        expect(client, "[\"blocked\"]", "BF.INFO %s LAYOUT", name);
    }
}

Test(blocked, keeps_every_bit_through_copies_dumps_kills_and_saves)
{
    char *set[CASES];
    for (size_t i = 0; i < CASES; i++) {
        const char *name = cases[i].name;
        char reserve[96];
        snprintf(reserve, sizeof(reserve), "BF.RESERVE %s %s LAYOUT blocked", name, cases[i].reserve);
        expect(client, "+OK", reserve);
        cr_assert_gt(client_for_items(client, "BF.MADD", name, "i", cases[i].items), cases[i].items * 9 / 10);
        set[i] = strdup(client_ask(client, "BF.INFO %s BITSSET", name));
        expect(client, ":1", "COPY %s %s:copy", name, name);
        redisReply *dump = redisCommand(client, "DUMP %s", name);
        cr_assert_eq(dump->type, REDIS_REPLY_STRING);
        expect(client, "+OK", "RESTORE %s:dump 0 %b", name, dump->str, dump->len);
        freeReplyObject(dump);
    }
    for (int round = 0; round < 3; round++) {
        expect_all("", set);
        expect_all(":copy", set);
        expect_all(":dump", set);
        if (round == 1)
            expect(client, "+OK", "SAVE");
        client = client_after_kill(client, &the_daemon, NULL);
    }
    for (size_t i = 0; i < CASES; i++)
        free(set[i]);
}

Test(blocked, is_merged_with_its_like_only)
{
    expect(client, "+OK", "BF.RESERVE a 0.001 1000 LAYOUT blocked");
    expect(client, "+OK", "BF.RESERVE b 0.001 1000 LAYOUT blocked");
    expect(client, "+OK", "BF.RESERVE native 0.001 1000");
    client_for_items(client, "BF.MADD", "a", "a", 300);
    client_for_items(client, "BF.MADD", "b", "b", 400);
    expect(client, "+OK", "BF.MERGE ab a b");
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "ab", "a", 300), 300);
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "ab", "b", 400), 400);
    cr_expect_eq(client_ask(client, "BF.MERGE x a native")[0], '-');
    cr_expect_eq(client_ask(client, "BF.MERGE native a")[0], '-');
}

/* The plan is the filter; the rate of its bits is near the requested one when it is full. */
Test(blocked, has_the_planned_size_and_rate)
{
    expect(client, "+OK", "CONFIG SET bf-layout blocked");
    expect(client, "+OK", "BF.RESERVE f 0.001 20000 NONSCALING");
    expect(client, "[\"blocked\"]", "BF.INFO f LAYOUT");
    char *bits = strdup(client_ask(client, "BF.INFO f BITS"));
    cr_expect(strstr(client_ask(client, "BF.PLAN 0.001 20000 NONSCALING"), "+Bits,:311296"), "%s",
              client_ask(client, "BF.PLAN 0.001 20000 NONSCALING"));
    expect(client, "[:311296]", "BF.INFO f BITS");
    for (int blocked = 0; blocked < 2; blocked++) {
        const char *plan = client_ask(client, "BF.PLAN 0.001 20000 NONSCALING LAYOUT %s", blocked ? "blocked" : "na");
        cr_expect(strstr(plan, "+Layout,\"na\",+Size,:37568,+Cache lines,:7,"), "%s", plan);
        cr_expect(strstr(plan, "+Layout,\"blocked\",+Size,:38944,+Cache lines,:1,"), "%s", plan);
    }
    cr_expect(strstr(client_ask(client, "BF.PLAN 0.001 70000 WINDOW 60 PARTS 7"), "+Cache lines,:7,"));
    cr_expect(strstr(client_ask(client, "BF.PLAN 1e-16 1000 LAYOUT na"), "[+Layout,\"blocked\"]]"), "%s",
              client_ask(client, "BF.PLAN 1e-16 1000 LAYOUT na"));
    client_for_items(client, "BF.MADD", "f", "i", 20000);
    const char *info = client_ask(client, "BF.INFO f FULL"), *rate = strstr(info, "+Current error rate,\"");
    cr_assert_not_null(rate, "%s", info);
    double now = atof(rate + strlen("+Current error rate,\""));
    cr_expect(now > 0.0007 && now < 0.0012, "%g", now);
    free(bits);
}

Test(blocked, what_it_cannot_have_is_named)
{
    expect(client, "-ERR LAYOUT takes na, redisbloom, valkey or blocked", "BF.RESERVE f 0.01 9 LAYOUT block");
    cr_expect(strstr(client_ask(client, "BF.RESERVE f 1e-16 9 NONSCALING LAYOUT blocked"),
                     "LAYOUT blocked takes rates from 1e-15 on, LAYOUT na also lower ones"),
              "%s", client_ask(client, "BF.RESERVE f 1e-16 9 NONSCALING LAYOUT blocked"));
    cr_expect(strstr(client_ask(client, "BF.RESERVE f 0.01 99999999999 LAYOUT blocked"),
                     "more than the 17179869176 bytes that a layer may have"),
              "%s", client_ask(client, "BF.RESERVE f 0.01 99999999999 LAYOUT blocked"));
    expect(client, ":0", "EXISTS f");
}

/* Loaded and imported, the filter is full from its first add on. Its file is still one. */
Test(blocked, a_capacity_given_for_a_file_holds)
{
    char output[4096];
#define TOOL(text, ...) \
    program_expect(output, sizeof(output), 0, text, "tool() { '" BLOOMERY_TOOL_PATH "' \"$@\"; }; cd " __VA_ARGS__)
    TOOL("20000 items", "%s; seq 20000 | tool build a.db --error 0.001 --variant blocked", the_daemon.dir);
    TOOL("about 19831 items", "%s; tool load redis://127.0.0.1:%d loaded a.db --capacity 5", the_daemon.dir,
         the_daemon.port);
    TOOL("", "%s; tool load redis://127.0.0.1:%d large a.db --capacity 40000 --error 0.02", the_daemon.dir,
         the_daemon.port);
    expect(client, "+OK", "CONFIG SET appendonly no"); /* a log with changes takes no import */
    client_stop(client, &the_daemon);
    TOOL("capacity 5, error rate 3.95e-18", "%s; tool import data imported a.db --capacity 5", the_daemon.dir);
    TOOL("whole", "%s; tool check data", the_daemon.dir);
    TOOL("blocked, k 9", "%s; tool export data imported out; tool show out/blocked-0.bits", the_daemon.dir);
    client = client_restart(&the_daemon);
    for (int loaded = 0; loaded < 2; loaded++) {
        const char *name = loaded ? "loaded" : "imported";
        expect(client, "[:5]", "BF.INFO %s CAPACITY", name);
        expect(client, ":1", "BF.EXISTS %s 20000", name);
        expect(client, "-ERR non scaling filter is full", "BF.ADD %s new", name);
    }
    expect(client, "[:40000]", "BF.INFO large CAPACITY");
    expect_has(client, "+Error rate,\"0.02\"", "BF.INFO large FULL");
    expect(client, ":1", "BF.ADD large new");
}
