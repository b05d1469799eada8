/* The BF commands as a user sees them, in both versions of the protocol, and the filters after a restart. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "wire.h"

CLIENT_SUITE(the_daemon, client, bf, NULL);

/* An add reports whether the item was new; queries find it from then on. */
DAEMON_TEST(the_daemon, bf, an_item_is_new_once)
{
    expect(client, ":0", "BF.EXISTS f a");
    expect(client, ":0", "EXISTS f");
    expect(client, ":1", "BF.ADD f a");
    expect(client, ":0", "BF.ADD f a");
    expect(client, ":1", "BF.EXISTS f a");
    expect(client, ":1", "EXISTS f");
    expect(client, "[:0,:1,:0]", "BF.MADD f a b b");
    expect(client, "[:1,:1,:0]", "BF.MEXISTS f a b c");
    expect(client, ":2", "BF.CARD f");
    expect(client, "+MBbloom--", "TYPE f");
}

/* Items and names are bytes. */
DAEMON_TEST(the_daemon, bf, items_and_names_are_bytes)
{
    expect(client, ":1", "BF.ADD %b %b", "n\0\xff", (size_t)3, "\0\r\n\xfe", (size_t)4);
    expect(client, ":1", "BF.EXISTS %b %b", "n\0\xff", (size_t)3, "\0\r\n\xfe", (size_t)4);
    expect(client, ":0", "BF.EXISTS %b %b", "n\0\xff", (size_t)3, "\0\r\n", (size_t)3);
    expect(client, ":1", "BF.ADD %b %b", "", (size_t)0, "", (size_t)0);
    expect(client, ":1", "BF.EXISTS %b %b", "", (size_t)0, "", (size_t)0);
}

/* A filter of fixed size takes items up to its capacity, then refuses more, and still knows its items. */
DAEMON_TEST(the_daemon, bf, a_full_fixed_filter_refuses)
{
    expect(client, "+OK", "BF.RESERVE f 0.001 3 NONSCALING");
    expect(client, "[:1,:1,:1]", "BF.MADD f a b c");
    expect(client, "-ERR non scaling filter is full", "BF.ADD f d");
    expect(client, ":0", "BF.ADD f a");
    expect(client, ":1", "BF.EXISTS f c");
    expect(client, ":3", "BF.CARD f");
}

/* A scaling filter grows, and loses no item. */
DAEMON_TEST(the_daemon, bf, a_filter_grows)
{
    enum { ITEMS = 2000 };
    const char *info;
    long long news = 0;

    expect(client, "+OK", "BF.RESERVE f 0.001 100 EXPANSION 2");
    for (int i = 0; i < ITEMS; i++)
        news += client_number(client, "BF.ADD f item:%d", i);
    for (int i = 0; i < ITEMS; i++)
        cr_assert_eq(client_number(client, "BF.EXISTS f item:%d", i), 1, "item:%d is lost", i);
    /* 2000 items at a rate of at most 0.1 %: more than 12 false positives among them are less likely than 1 in 10^6. */
    cr_assert_geq(news, ITEMS - 12);
    cr_assert_eq(client_number(client, "BF.CARD f"), news);
    expect(client, "[:5]", "BF.INFO f FILTERS");
    info = client_ask(client, "BF.INFO f");
    cr_assert_eq(strncmp(info, "[+Capacity,:3100,+Size,:", 24), 0, "%s", info);
    cr_assert_not_null(strstr(info, "+Number of filters,:5,+Number of items inserted,:"), "%s", info);
    cr_assert_not_null(strstr(info, ",+Expansion rate,:2]"), "%s", info);
}

/* The requested rate holds up to the capacity. */
DAEMON_TEST(the_daemon, bf, the_rate_is_kept)
{
    enum { ITEMS = 10000, QUERIES = 20000 };
    long long present = 0;

    expect(client, "+OK", "BF.RESERVE f 0.01 %d", ITEMS);
    for (int i = 0; i < ITEMS; i++)
        cr_assert_eq(redisAppendCommand(client, "BF.ADD f in:%d", i), REDIS_OK);
    for (int i = 0; i < QUERIES; i++)
        cr_assert_eq(redisAppendCommand(client, "BF.EXISTS f out:%d", i), REDIS_OK);
    for (int i = 0; i < ITEMS + QUERIES; i++) {
        redisReply *reply;

        cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK, "%s", client->errstr);
        cr_assert_eq(reply->type, REDIS_REPLY_INTEGER);
        present += i >= ITEMS && reply->integer == 1;
        freeReplyObject(reply);
    }
    /* 200 are expected at the full 1 %; five standard deviations more occur once in three million runs. */
    cr_assert_leq(present, 270);
    cr_assert_gt(present, 0, "a filter without a false positive was not asked");
}

/* BF.INSERT creates a filter with the given options, or none. */
DAEMON_TEST(the_daemon, bf, insert_creates_with_its_options)
{
    expect(client, "-ERR not found", "BF.INSERT f NOCREATE ITEMS a");
    expect(client, "[:1,:1,:0]", "BF.INSERT f CAPACITY 500 ERROR 0.001 EXPANSION 4 ITEMS a b a");
    expect(client, "[:500]", "BF.INFO f CAPACITY");
    expect(client, "[:4]", "BF.INFO f EXPANSION");
    expect(client, "[:0,:1]", "BF.INSERT f NOCREATE ITEMS a c");
}

/* The same conversation in RESP3: booleans, maps, nulls. */
DAEMON_TEST(the_daemon, bf, resp3_has_its_own_types)
{
    const char *info;

    struct wire wire = wire_to(the_daemon.port);
    cr_assert_eq(wire_ask(&wire, "HELLO 3")[0], '{');
    cr_assert_str_eq(wire_ask(&wire, "BF.RESERVE f 0.01 100 NONSCALING"), "+OK");
    cr_assert_str_eq(wire_ask(&wire, "BF.ADD f a"), "#t");
    cr_assert_str_eq(wire_ask(&wire, "BF.MEXISTS f a b"), "[#t,#f]");
    cr_assert_str_eq(wire_ask(&wire, "BF.CARD f"), ":1");
    cr_assert_str_eq(wire_ask(&wire, "BF.INFO f EXPANSION"), "{+Expansion rate:nil}");
    info = wire_ask(&wire, "BF.INFO f");
    cr_assert_eq(strncmp(info, "{+Capacity::100,+Size::", 23), 0, "%s", info);
}

/* A batch of a hundred thousand items is one command. */
DAEMON_TEST(the_daemon, bf, a_large_batch_is_one_command)
{
    enum { ITEMS = 100000 };
    struct word *words = calloc(ITEMS + 2, sizeof(*words));
    char *bytes = malloc(ITEMS * 16);
    struct lines lines = {NULL, 0, 0};
    struct wire wire;
    size_t news = 0;

    cr_assert(words != NULL && bytes != NULL);
    expect(client, "+OK", "BF.RESERVE f 0.0001 %d", ITEMS);
    words[0] = (struct word){"BF.MADD", 7};
    words[1] = (struct word){"f", 1};
    for (int i = 0; i < ITEMS; i++)
        words[i + 2] = (struct word){bytes + 16 * i, (size_t)snprintf(bytes + 16 * i, 16, "item:%d", i)};
    wire_open(&wire, the_daemon.port);
    cr_assert(wire_send_command(&wire, words, ITEMS + 2));
    cr_assert_eq(wire_reply(&wire, WIRE_PATIENCE_MS, &lines), WIRE_OK);
    cr_assert_eq(lines.count, ITEMS + 1);
    for (size_t i = 1; i < lines.count; i++)
        news += strcmp(lines.items[i], ":1") == 0;
    cr_assert_geq(news, ITEMS - 50);
    lines_truncate(&lines, 0);
    words[0] = (struct word){"BF.MEXISTS", 10};
    cr_assert(wire_send_command(&wire, words, ITEMS + 2));
    cr_assert_eq(wire_reply(&wire, WIRE_PATIENCE_MS, &lines), WIRE_OK);
    for (size_t i = 1; i < lines.count; i++)
        cr_assert_str_eq(lines.items[i], ":1", "item %zu is lost", i - 1);
    lines_deinit(&lines);
    free(words);
    free(bytes);
}

/* DEL, RENAME and FLUSHALL. */
DAEMON_TEST(the_daemon, bf, filters_can_be_deleted_and_renamed)
{
    expect(client, "[:1,:1]", "BF.MADD f a b");
    expect(client, ":1", "BF.ADD g c");
    expect(client, "+OK", "RENAME f g");
    expect(client, ":0", "EXISTS f");
    expect(client, "[:1,:1,:0]", "BF.MEXISTS g a b c");
    expect(client, "-ERR no such key", "RENAME f g");
    expect(client, ":1", "DBSIZE");
    expect(client, ":1", "DEL g f");
    expect(client, ":0", "BF.EXISTS g a");
    expect(client, ":1", "BF.ADD h x");
    expect(client, "+OK", "FLUSHALL");
    expect(client, ":0", "DBSIZE");
}

/* Saved filters are there after a restart, also after SIGKILL; with save rules SIGTERM saves the unsaved changes. */
DAEMON_TEST(the_daemon, bf, filters_survive_a_restart)
{
    const char *const args[] = {"--save", "3600 1000000", NULL};
    enum { ITEMS = 3000 };

    client = client_after_stop(client, &the_daemon, args);
    expect(client, "+OK", "BF.RESERVE %b 0.0001 500", "odd/\0 name", (size_t)10);
    for (int i = 0; i < ITEMS; i++)
        client_number(client, "BF.ADD %b item:%d", "odd/\0 name", (size_t)10, i);
    expect(client, "+OK", "SAVE");
    client = client_after_kill(client, &the_daemon, NULL);
    for (int i = 0; i < ITEMS; i++)
        cr_assert_eq(client_number(client, "BF.EXISTS %b item:%d", "odd/\0 name", (size_t)10, i), 1, "item:%d is lost",
                     i);
    expect(client, ":1", "DBSIZE");
    expect(client, ":1", "BF.ADD late x");
    client = client_after_stop(client, &the_daemon, NULL);
    expect(client, ":1", "BF.EXISTS late x");
    expect(client, ":1", "BF.CARD late");
    expect(client, ":2", "DBSIZE");
}
