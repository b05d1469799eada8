/* Windows in the running daemon: the guarantees by time and by count, through saves, kills, copies and dumps. The
 * test waits for items that must disappear; items that must stay are queried as long as they must, by the test's own
 * clock: a test on a slow machine queries less often, and fails no sooner. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "program.h"
#include "tmpdir.h"
#include "wait.h"

#define ITEMS  200
#define WINDOW 1.0 /* seconds of the windows by time */

DAEMON_SUITE(daemon_under_test, windows, "--appendonly", "yes");

static long long present(redisContext *client, const char *name)
{
    return client_for_items(client, "BF.MEXISTS", name, "item:", ITEMS);
}

/* The time of the adds: not before `first`, and not after `last`. */
struct added {
    double first, last;
};

static struct added add(redisContext *client, const char *name)
{
    struct added added = {.first = wait_clock()};

    cr_assert_eq(client_for_items(client, "BF.MADD", name, "item:", ITEMS), ITEMS);
    added.last = wait_clock();
    return added;
}

/* Whether the window of the items may be over. */
static bool may_go(const struct added *added)
{
    return wait_clock() - added->first >= WINDOW;
}

/* Adds one of the items again: it is known as long as its window lasts, otherwise its age is counted from this add. */
static void add_again(redisContext *client, const char *name, const char *item, struct added *added)
{
    bool is_new = client_number(client, "BF.ADD %s %s", name, item) == 1;

    cr_assert(!is_new || may_go(added), "%s has lost %s", name, item);
    if (is_new)
        added->last = wait_clock();
}

/* All items are there, unless the reply may have come too late. Returns whether it may. */
static bool all_or_late(redisContext *client, const char *name, const struct added *added)
{
    long long found = present(client, name);

    cr_assert(found == ITEMS || may_go(added), "%s has %lld items", name, found);
    return may_go(added);
}

/* Queries the items until their window is over. */
static void expect_kept(redisContext *client, const char *name, const struct added *added)
{
    while (!all_or_late(client, name, added))
        usleep(20000);
}

/* At most a part longer than a window; then the items are gone, except for false positives. */
static void expect_forgotten(redisContext *client, const char *name, const struct added *added)
{
    while (wait_clock() - added->last < WINDOW * 1.25)
        usleep(20000);
    cr_assert_leq(present(client, name), 10, "%s keeps items", name);
    expect(client, ":0", "BF.CARD %s", name);
}

CLIENT_TEST(daemon_under_test, windows, by_time)
{
    expect(client, "+OK", "BF.RESERVE w 0.001 %d WINDOW 1 PARTS 4", ITEMS);
    struct added added = add(client, "w");
    add_again(client, "w", "item:0", &added);
    expect_kept(client, "w", &added);
    expect_forgotten(client, "w", &added);
    added.first = wait_clock();
    expect(client, ":1", "BF.ADD w item:0");
    cr_assert(client_number(client, "BF.CARD w") == 1 || may_go(&added));
}

/* A repeatedly added item stays, and another item disappears. */
CLIENT_TEST(daemon_under_test, windows, a_refreshed_item_stays)
{
    struct added kept = {.first = wait_clock()};

    expect(client, "[:1,:1]", "BF.INSERT w CAPACITY 100 WINDOW 1 PARTS 4 REFRESH ITEMS kept gone");
    double both_added = wait_clock();
    do {
        double again = wait_clock();
        add_again(client, "w", "kept", &kept);
        kept.first = again;
        usleep(50000);
    } while (wait_clock() - both_added < WINDOW * 1.3);
    expect(client, ":0", "BF.EXISTS w gone");
    bool answer = strcmp(client_ask(client, "BF.EXISTS w kept"), ":1") == 0;
    cr_assert(answer || may_go(&kept));
}

CLIENT_TEST(daemon_under_test, windows, by_items)
{
    expect(client, "+OK", "BF.RESERVE w 0.0001 100 WINDOW ITEMS 100 PARTS 10");
    for (int i = 0; i < 1000; i++) {
        long long added = client_number(client, "BF.ADD w i%d", i);
        cr_assert(added == 1 || i > 0);
        if (i % 37 == 0)
            client = client_after_kill(client, &daemon_under_test, NULL);
        if (i % 10 == 0) {
            for (int j = i < 99 ? 0 : i - 99; j <= i; j++)
                expect(client, ":1", "BF.EXISTS w i%d", j);
        }
    }
    long long most = client_number(client, "BF.CARD w");
    cr_assert(most >= 100 && most <= 110, "%lld", most);
    expect(client, ":0", "BF.EXISTS w i880");
}

/* From the log alone, from a save and the log, and from a save alone. */
CLIENT_TEST(daemon_under_test, windows, through_kills_and_saves)
{
    for (int round = 0; round < 2; round++) {
        const char *name = round == 0 ? "a" : "b";
        expect(client, "+OK", "BF.RESERVE %s 0.001 50 WINDOW 1 PARTS 4", name); /* its parts grow */
        struct added added = add(client, name);
        if (round == 1)
            expect(client, "+OK", "SAVE");
        client = client_after_kill(client, &daemon_under_test, NULL);
        all_or_late(client, name, &added);
        add_again(client, name, "item:7", &added);
        client = client_after_kill(client, &daemon_under_test, NULL);
        expect_kept(client, name, &added);
        client = client_after_kill(client, &daemon_under_test, NULL);
        expect_forgotten(client, name, &added);
    }
    expect(client, "+OK", "BF.RESERVE c 0.001 1000 WINDOW 1 PARTS 4");
    struct added added = add(client, "c");
    client = client_after_stop(client, &daemon_under_test, NULL);
    expect_kept(client, "c", &added);
    expect_forgotten(client, "c", &added);
}

/* `bloomery check` reads all records of a window in the log. */
CLIENT_TEST(daemon_under_test, windows, a_log_with_parts_is_whole)
{
    char output[4096];
    expect(client, "+OK", "BF.RESERVE w 0.01 100 WINDOW 1000");
    expect(client, ":1", "BF.ADD w x");
    expect(client, ":1", "COPY w copy");
    expect(client, "+OK", "BF.MERGE union w copy");
    client_kill(client, &daemon_under_test);
    program_expect(output, sizeof(output), 0, "whole", "'" BLOOMERY_TOOL_PATH "' check '%s'", daemon_under_test.data);
}

/* Copies are as old as their sources. */
CLIENT_TEST(daemon_under_test, windows, copies_and_dumps_keep_the_ages)
{
    static const char *const names[] = {"moved", "copy", "restored", "loaded"};
    long long iterator = 0;

    expect(client, "+OK", "BF.RESERVE w 0.001 50 WINDOW 1 PARTS 4");
    struct added added = add(client, "w");
    expect(client, ":1", "COPY w copy");
    redisReply *dump = redisCommand(client, "DUMP w");
    expect(client, "+OK", "RESTORE restored 0 %b", dump->str, (size_t)dump->len);
    for (;;) {
        redisReply *chunk = redisCommand(client, "BF.SCANDUMP w %lld", iterator);
        iterator = chunk->element[0]->integer;
        if (iterator == 0) {
            freeReplyObject(chunk);
            break;
        }
        expect(client, "+OK", "BF.LOADCHUNK loaded %lld %b", iterator, chunk->element[1]->str,
               (size_t)chunk->element[1]->len);
        freeReplyObject(chunk);
    }
    expect(client, "+OK", "RENAME w moved");
    client = client_after_kill(client, &daemon_under_test, NULL);
    for (size_t i = 0; i < 4; i++)
        all_or_late(client, names[i], &added);
    expect_kept(client, "copy", &added);
    for (size_t i = 0; i < 4; i++)
        expect_forgotten(client, names[i], &added);
    expect(client, "+OK", "RESTORE late 0 %b", dump->str, (size_t)dump->len); /* it is as old as its items */
    cr_assert_leq(present(client, "late"), 10);
    freeReplyObject(dump);
}

/* A union has the items of each window for as long as the window: from the log alone, from a save, from a dump. */
CLIENT_TEST(daemon_under_test, windows, merged_they_keep_what_each_has_promised)
{
    expect(client, "+OK", "BF.RESERVE first 0.001 500 WINDOW 1 PARTS 4");
    expect(client, "+OK", "BF.RESERVE second 0.001 500 WINDOW 1 PARTS 4");
    struct added first = {.first = wait_clock()};
    cr_assert_eq(client_for_items(client, "BF.MADD", "first", "first:", 100), 100);
    usleep(300000); /* so that they are in different parts */
    struct added added = add(client, "second");
    expect(client, "+OK", "BF.MERGE free first second");
    expect(client, "+OK", "BF.MERGE second first second");
    long long items[] = {client_number(client, "BF.CARD second"), client_number(client, "BF.CARD free")};
    cr_assert(items[0] == items[1] || may_go(&first), "%lld, %lld", items[0], items[1]);
    client = client_after_kill(client, &daemon_under_test, NULL);
    all_or_late(client, "free", &added);
    expect(client, "+OK", "SAVE");
    client = client_after_kill(client, &daemon_under_test, NULL);
    all_or_late(client, "free", &added);
    expect_kept(client, "second", &added);
    while (wait_clock() - added.last < WINDOW * 1.5) /* a part longer than in its own window */
        usleep(20000);
    expect_forgotten(client, "second", &added);
    expect_forgotten(client, "free", &added);
}

/* Two full windows are too much for one; the target is then unchanged. */
CLIENT_TEST(daemon_under_test, windows, a_union_that_is_too_full_is_refused)
{
    char state[1024];

    for (int i = 0; i < 2; i++) {
        expect(client, "+OK", "BF.RESERVE w%d 0.001 50 NONSCALING WINDOW 3600 PARTS 1", i);
        for (int j = 0; j < 50; j++)
            client_ask(client, "BF.ADD w%d w%d:%d", i, i, j);
    }
    snprintf(state, sizeof(state), "%s", client_ask(client, "BF.DEBUG w0"));
    expect_has(client, "too full (bf-merge-overfull)", "BF.MERGE w0 w1");
    expect(client, state, "BF.DEBUG w0");
    expect(client, "+OK", "CONFIG SET bf-merge-overfull yes");
    expect(client, "+OK", "BF.MERGE w0 w1");
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "w0", "w0:", 45), 45);
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "w0", "w1:", 45), 45);
    cr_assert(client_ask(client, "BF.ADD w0 more")[0] == '-');
}

/* The count of a union: with room it is right except for a few; a full layer counts no more than its capacity, and
 * yet every item is there (docs/WINDOWS.md). */
CLIENT_TEST(daemon_under_test, windows, a_union_counts_up_to_the_capacity_of_its_layers)
{
    for (int capacity = 100; capacity <= 10000; capacity *= 100) {
        for (int w = 0; w < 2; w++) {
            expect(client, "+OK", "BF.RESERVE w%d 0.001 %d WINDOW 86400", w, capacity);
            for (int i = 0; i < 20; i++)
                expect(client, ":1", "BF.ADD w%d item-%d-%d", w, w, i);
        }
        expect(client, "+OK", "BF.MERGE union w0 w1");
        for (int i = 0; i < 40; i++)
            expect(client, ":1", "BF.EXISTS union item-%d-%d", i % 2, i / 2);
        long long n = client_number(client, "BF.CARD union");
        if (capacity == 100)
            cr_expect(n >= 20 && n < 35, "%lld", n);
        else
            cr_expect(n >= 38 && n <= 40, "%lld", n);
        expect(client, "+OK", "FLUSHALL");
    }
}

CLIENT_TEST(daemon_under_test, windows, cleared_they_are_empty_windows)
{
    expect(client, "+OK", "BF.RESERVE w 0.001 50 WINDOW ITEMS 1000");
    add(client, "w");
    expect(client, "+OK", "BF.CLEAR w");
    expect(client, ":0", "BF.CARD w");
    add(client, "w");
    expect(client, "[\"1000 items\"]", "BF.INFO w WINDOW");
    expect(client, "[:8]", "BF.INFO w PARTS");
    expect(client, "+OK", "BF.RESERVE plain 0.001 50");
    expect(client, "[nil]", "BF.INFO plain WINDOW");
}

CLIENT_TEST(daemon_under_test, windows, what_is_not_possible_is_said)
{
    expect(client, "-ERR WINDOW takes a number of seconds, or ITEMS and a number of items",
           "BF.RESERVE w 0.01 9 WINDOW");
    expect(client, "-ERR WINDOW takes a number of seconds, or ITEMS and a number of items",
           "BF.RESERVE w 0.01 9 WINDOW 0");
    expect(client, "-ERR WINDOW takes a number of seconds, or ITEMS and a number of items",
           "BF.RESERVE w 0.01 9 WINDOW ITEMS x");
    expect(client, "-ERR PARTS takes a number in the range [1, 64]", "BF.RESERVE w 0.01 9 WINDOW 60 PARTS 65");
    expect(client, "-ERR PARTS and REFRESH need WINDOW", "BF.RESERVE w 0.01 9 REFRESH");
    expect(client, "-ERR PARTS must not be more than the ITEMS of the window, 5",
           "BF.RESERVE w 0.01 9 WINDOW ITEMS 5 PARTS 6");
    expect(client, "-ERR a window is kept in LAYOUT na or blocked: WINDOW and LAYOUT redisbloom exclude each other",
           "BF.RESERVE w 0.01 9 WINDOW 60 LAYOUT redisbloom");
    expect(client, "-Unknown argument received", "BF.INSERT w WINDOWS 60 ITEMS a");
    expect(client, ":0", "EXISTS w");
    expect(client, "+OK", "BF.RESERVE w 0.01 9 WINDOW 60");
    expect(client, "+OK", "BF.RESERVE v 0.01 9 WINDOW 61");
    expect(client, "+OK", "BF.RESERVE plain 0.01 9");
    expect(client, "+OK", "BF.RESERVE last 0.01 9 WINDOW ITEMS 9");
    expect(client, "-ERR 'w' and 'v' cannot be merged: the windows differ: 60 and 61 seconds", "BF.MERGE w v");
    expect(client, "-ERR 'plain' and 'w' cannot be merged: only one has a WINDOW: the items of the other have no age",
           "BF.MERGE plain w");
    expect(client, "+OK", "BF.RESERVE more 0.01 9 WINDOW ITEMS 9");
    expect_has(client, "-ERR 'last' and 'more' cannot be merged: windows of a number of", "BF.MERGE free last more");
    expect_has(client, "-ERR 'free' and 'last' cannot be merged: windows of a number of", "BF.MERGE free last");
    expect_has(client, "no common order", "BF.MERGE last more");
    expect(client, ":0", "EXISTS free");
}

/* A changed digit would move the clock for ever. */
CLIENT_TEST(daemon_under_test, windows, clock_that_is_lost_or_changed_is_told)
{
    char note[512];
    snprintf(note, sizeof(note), "%s/CLOCK", daemon_under_test.data);
    expect(client, "+OK", "BF.RESERVE w 0.01 9 WINDOW 60");
    for (int i = 0; i < 2; i++) {
        expect(client, "+OK", "SAVE");
        client_kill(client, &daemon_under_test);
        if (i)
            file_change_byte(note, -24);
        else
            cr_assert_eq(remove(note), 0);
        daemon_start(&daemon_under_test, NULL);
        cr_assert(strstr(daemon_output(&daemon_under_test), "the file CLOCK is missing or invalid"), "%s",
                  daemon_output(&daemon_under_test));
        client = client_open(daemon_under_test.port);
    }
    expect(client, ":1", "EXISTS w");
}

/* Without the note, a time of day that is set while the daemon is down would make items expire early. So it is there
 * before the first window can be made. */
CLIENT_TEST(daemon_under_test, windows, clock_is_noted_from_the_first_start_on)
{
    char note[512];
    snprintf(note, sizeof(note), "%s/CLOCK", daemon_under_test.data);
    expect(client, ":0", "DBSIZE");
    cr_expect_eq(access(note, F_OK), 0);
}
