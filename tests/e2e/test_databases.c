/* Several databases: each has its own filters after every kind of end of the daemon and every SWAPDB. The comparison
 * of replies with redis-server is in tests/clients/redis_server.py. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "program.h"
#include "wire.h"

DAEMON_SUITE(the_daemon, databases, "--threads", "3", "--appendfsync", "always");

static void expect_in(redisContext *client, int db, const char *expected, const char *command)
{
    expect(client, "+OK", "SELECT %d", db);
    const char *got = client_ask(client, command);
    cr_assert_str_eq(got, expected, "in %d: %s: %s instead of %s", db, command, got, expected);
}

/* INFO keyspace as "0:1 5:2", the numbers of databases and of their filters. */
static const char *keyspace(redisContext *client)
{
    static char text[512];
    redisReply *reply = redisCommand(client, "INFO keyspace");
    text[0] = '\0';
    for (const char *line = reply->str; (line = strstr(line, "\ndb")); line++) {
        int db, keys;
        cr_assert_eq(sscanf(line, "\ndb%d:keys=%d,", &db, &keys), 2);
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d:%d", text[0] ? " " : "", db, keys);
    }
    freeReplyObject(reply);
    return text;
}

#define expect_keyspace(client, expected)                                         \
    do {                                                                          \
        const char *seen = keyspace(client);                                      \
        cr_assert_str_eq(seen, expected, "'%s' instead of '%s'", seen, expected); \
    } while (0)

CLIENT_TEST(the_daemon, databases, each_has_names_of_its_own)
{
    expect_in(client, 0, ":1", "BF.ADD f zero");
    expect_in(client, 5, ":1", "BF.ADD f five");
    expect_in(client, 5, "[:0,:1]", "BF.MEXISTS f zero five");
    expect_in(client, 0, "[:1,:0]", "BF.MEXISTS f zero five");
    expect_in(client, 5, ":1", "BF.ADD alone x");
    expect_keyspace(client, "0:1 5:2");
    expect_in(client, 0, ":0", "EXISTS alone");
    expect_in(client, 0, "[\"f\"]", "KEYS *");
    expect_in(client, 5, ":2", "DBSIZE");
    expect_in(client, 5, "[\"0\",[\"alone\"]]", "SCAN 0 COUNT 1000 MATCH a*");
    expect_in(client, 7, "nil", "RANDOMKEY");
    expect_in(client, 0, "\"f\"", "RANDOMKEY");
    expect_in(client, 5, "[\"asked\",:2,\"found\",[[\"f\"]],\"unknown\",[]]", "BF.FIND f alone ITEMS five");
    expect_in(client, 5, "[\"asked\",:2,\"found\",[[\"f\"]],\"unknown\",[]]", "BF.FIND * ITEMS five");
    expect_in(client, 0, "[\"asked\",:1,\"found\",[[]],\"unknown\",[\"alone\",\"not found\"]]",
              "BF.FIND * alone ITEMS five");
    expect_in(client, 5, "-ERR not found: 'none'", "BF.MERGE f none");
    expect_in(client, 5, "+OK", "BF.MERGE united f alone");
    expect_in(client, 5, "[:1,:1]", "BF.MEXISTS united five x");
    expect_has(client, " db=5 ", "CLIENT LIST");
    expect(client, "\"raw\"", "OBJECT ENCODING united");
    cr_assert_gt(client_number(client, "MEMORY USAGE united"), 0);
}

/* The pipeline's runs, with equal heads in two databases. */
DAEMON_TEST(the_daemon, databases, pipelines_go_from_one_to_another)
{
    enum { ROUNDS = 40, ITEMS = 40 };
    redisContext *client = client_open(the_daemon.port), *other = client_open(the_daemon.port);
    expect(other, "+OK", "SELECT 3");
    for (int i = 0; i < ROUNDS; i++) {
        redisAppendCommand(client, "SELECT %d", i % 4);
        for (int j = 0; j < ITEMS; j++)
            redisAppendCommand(client, "BF.ADD f %d-%d", i % 4, j);
        for (int j = 0; j < ITEMS; j++)
            redisAppendCommand(client, "BF.EXISTS f %d-%d", (i + j) % 4, j);
        expect(other, ":0", "EXISTS %d", i);
        cr_assert_str_eq(client_reply(client), "+OK");
        for (int j = 0; j < ITEMS; j++)
            cr_assert_str_eq(client_reply(client), i < 4 ? ":1" : ":0", "add %d-%d", i, j);
        for (int j = 0; j < ITEMS; j++) /* the filters are too empty for a false positive */
            cr_assert_str_eq(client_reply(client), j % 4 == 0 ? ":1" : ":0", "query %d-%d", i, j);
    }
    for (int j = 0; j < ITEMS; j++)
        redisAppendCommand(other, "BF.EXISTS f %d-%d", j % 4, j);
    for (int j = 0; j < ITEMS; j++)
        cr_assert_str_eq(client_reply(other), j % 4 == 3 ? ":1" : ":0");
}

/* Inline requests have no room for the prefix of a key, and quoted arguments are split in place. */
DAEMON_TEST(the_daemon, databases, inline_commands_find_theirs)
{
    struct wire wire = wire_to(the_daemon.port);
    wire_send_text(&wire,
                   "select 4\r\nbf.add f a\r\nbf.exists f a\r\nbf.madd  \"f\" b c\r\nexists f g f\r\nrename f g\r\n"
                   "bf.exists   g   c\r\nselect 0\r\nexists g\r\n");
    const char *const replies[] = {"+OK", ":1", ":1", "[:1,:1]", ":2", "+OK", ":1", "+OK", ":0"};
    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        const char *got = wire_text(&wire);
        cr_assert_str_eq(got, replies[i], "%zu: %s", i, got);
    }
}

/* A name in database 0 that looks like a key of another database. */
CLIENT_TEST(the_daemon, databases, names_that_look_like_keys_are_names)
{
    static const char key[] = "\0\xff"
                              "db\0\5f";
    expect(client, ":1", "BF.ADD %b x", key, sizeof(key) - 1);
    expect_in(client, 5, ":0", "EXISTS f");
    expect_in(client, 5, ":1", "BF.ADD f y");
    expect_in(client, 0, ":1", "DBSIZE");
    expect(client, ":1", "BF.EXISTS %b x", key, sizeof(key) - 1);
    expect(client, ":0", "BF.EXISTS %b y", key, sizeof(key) - 1);
    expect(client, "[\"\\x00\\xffdb\\x00\\x05f\"]", "KEYS *");
    client = client_after_kill(client, &the_daemon, NULL);
    expect(client, ":1", "BF.EXISTS %b x", key, sizeof(key) - 1);
    expect(client, ":1", "MOVE %b 6", key, sizeof(key) - 1);
    expect_in(client, 6, "[\"\\x00\\xffdb\\x00\\x05f\"]", "KEYS *");
}

CLIENT_TEST(the_daemon, databases, the_longest_name_is_shorter_in_another)
{
    static char name[65536];
    memset(name, 'n', sizeof(name));
    expect(client, ":1", "BF.ADD %b x", name, (size_t)65535);
    expect(client, "-ERR the name has 65535 bytes; at most 65529 are allowed in a database other than 0", "MOVE %b 1",
           name, (size_t)65535);
    expect(client, "+OK", "SELECT 1");
    expect(client, ":1", "BF.ADD %b x", name, (size_t)65529);
    expect(client, "-ERR the name has 65530 bytes; at most 65529 are allowed in a database other than 0", "BF.ADD %b x",
           name, (size_t)65530);
    expect(client, ":1", "MOVE %b 2", name, (size_t)65529);
    expect(client, "-ERR source and destination objects are the same", "MOVE %b 1", name, (size_t)10);
}

/* The name for the other database was written beyond its buffer. */
CLIENT_TEST(the_daemon, databases, move_of_a_name_that_no_filter_can_have)
{
    static char name[1 << 20];
    static const size_t lengths[] = {65536, 65541, 65542, 65548, 66000, 70000, sizeof(name)};
    memset(name, 'n', sizeof(name));
    for (int db = 0; db < 2; db++) {
        expect(client, "+OK", "SELECT %d", db);
        for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
            expect(client, ":0", "MOVE %b 3", name, lengths[i]);
        expect(client, ":0", "COPY %b %b", name, (size_t)70000, name + 1, (size_t)70001);
    }
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "MOVE %b 3", name, (size_t)70000);
    expect(client, "[:0]", "EXEC");
}

/* ---- SWAPDB ---- */

DAEMON_TEST(the_daemon, databases, an_exchange_is_seen_by_all_at_once)
{
    redisContext *one = client_open(the_daemon.port), *two = client_open(the_daemon.port);
    expect_in(one, 0, ":1", "BF.ADD f zero");
    expect_in(two, 1, ":1", "BF.ADD f one");
    expect(one, "+OK", "SWAPDB 0 1");
    expect(one, "[:0,:1]", "BF.MEXISTS f zero one");
    expect(two, "[:1,:0]", "BF.MEXISTS f zero one");
    expect(two, "+OK", "SWAPDB 1 9");
    expect(two, ":0", "EXISTS f");
    expect_in(two, 9, "[:1,:0]", "BF.MEXISTS f zero one");
    expect_keyspace(one, "0:1 9:1");
}

/* WATCH refers to the client's database number: the filters behind it at EXEC count. */
DAEMON_TEST(the_daemon, databases, an_exchange_changes_watched_names)
{
    redisContext *client = client_open(the_daemon.port), *other = client_open(the_daemon.port);
    expect_in(other, 1, ":1", "BF.ADD f one");
    expect(client, "+OK", "WATCH f");
    expect(other, "+OK", "SWAPDB 0 1");
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "PING");
    expect(client, "nil", "EXEC");
    expect(client, "+OK", "WATCH none");
    expect(other, "+OK", "SWAPDB 0 1");
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "PING");
    expect(client, "[+PONG]", "EXEC");
}

static void send_all(redisContext *client)
{
    int done = 0;
    while (!done)
        cr_assert_eq(redisBufferWrite(client, &done), REDIS_OK);
}

/* Commands that wait for the end of the exchange apply to the filters that their numbers have after it: no command
 * removes filters added after the exchange. */
DAEMON_TEST(the_daemon, databases, an_exchange_comes_before_what_has_waited_for_it)
{
    redisContext *copies = client_open(the_daemon.port), *swaps = client_open(the_daemon.port);
    redisContext *flushes = client_open(the_daemon.port), *across = client_open(the_daemon.port);
    redisContext *client = client_open(the_daemon.port);
    expect(client, "+OK", "BF.RESERVE large 0.001 %d", DAEMON_SANITIZED ? 10000000 : 200000000);
    expect(client, ":1", "BF.ADD f x");
    redisAppendCommand(copies, "COPY large larger");
    send_all(copies);
    while (!strstr(client_ask(client, "CLIENT LIST"), " cmd=copy "))
        ;
    redisAppendCommand(swaps, "SELECT 1");
    redisAppendCommand(swaps, "SWAPDB 0 1"); /* waits for the copy */
    redisAppendCommand(swaps, "BF.ADD kept x");
    send_all(swaps);
    while (!strstr(client_ask(client, "CLIENT LIST"), " cmd=swapdb ") && !strstr(keyspace(client), "1:"))
        ;
    redisAppendCommand(flushes, "FLUSHDB");
    send_all(flushes);
    redisAppendCommand(across, "COPY f f DB 1 REPLACE");
    send_all(across);
    client_skip(copies, 1);
    client_skip(swaps, 3);
    client_skip(flushes, 1);
    const char *reply = client_reply(across);
    cr_assert(strcmp(reply, ":0") == 0 || strcmp(reply, ":1") == 0 ||
                  strcmp(reply,
                         "-TRYAGAIN SWAPDB has exchanged the databases while the command waited; nothing has been "
                         "changed") == 0,
              "%s", reply);
    expect(swaps, ":1", "BF.EXISTS kept x");
}

CLIENT_TEST(the_daemon, databases, transactions_go_through_several)
{
    const char *const lines[] = {"BF.ADD f a", "SELECT 2", "BF.ADD f b",   "SWAPDB 2 3",
                                 "EXISTS f",   "SELECT 3", "BF.EXISTS f b"};
    expect(client, "+OK", "MULTI");
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        expect(client, "+QUEUED", lines[i]);
    expect(client, "[:1,+OK,:1,+OK,:0,+OK,:1]", "EXEC");
    expect(client, ":1", "BF.EXISTS f b");
    expect(client, "+OK", "MULTI"); /* alone in its transaction */
    expect(client, "+QUEUED", "SWAPDB 3 0");
    expect(client, "[+OK]", "EXEC");
    expect(client, "[:1,:0]", "BF.MEXISTS f a b");
    client = client_after_kill(client, &the_daemon, NULL);
    expect(client, "[:0,:1]", "BF.MEXISTS f a b");
    expect_keyspace(client, "0:1 3:1");
}

/* ---- after kills and saves ---- */

/* Each number of a table of databases, after a kill, a save, or both in turn. */
CLIENT_TEST(the_daemon, databases, all_is_there_after_kills_and_saves)
{
    for (int db = 0; db < 6; db++) {
        expect(client, "+OK", "SELECT %d", db);
        expect(client, ":1", "BF.ADD f %d", db);
        expect(client, "+OK", "BF.RESERVE ttl 0.01 10 TTL 10000");
        expect(client, ":1", "BF.ADD gone-%d x", db);
    }
    for (int round = 0; round < 4; round++) {
        expect(client, "+OK", "SWAPDB %d %d", round, round + 2); /* in the end 0 1 2 3 4 5 -> 2 3 4 5 0 1 */
        if (round % 2)
            expect(client, "+OK", "SAVE");
        expect_in(client, round, "+OK", "FLUSHDB");
        expect(client, ":1", "BF.ADD f new");
        client = client_after_kill(client, &the_daemon, NULL);
        for (int db = 0; db < 6; db++)
            expect_in(client, db, db <= round ? ":1" : ":3", "DBSIZE");
        expect_in(client, round, "[:1,:0]", "BF.MEXISTS f new 0");
        expect(client, "+OK", "SWAPDB %d %d", round, round + 2);
        expect(client, "+OK", "SWAPDB %d %d", round + 2, round);
    }
    expect_in(client, 4, "[:1,:0,:0,:0]", "BF.MEXISTS f 0 1 4 new");
    expect_in(client, 5, "[:1,:0,:0,:0]", "BF.MEXISTS f 1 0 5 new");
    cr_assert_geq(client_number(client, "TTL ttl"), 9000);
    expect_in(client, 5, ":1", "MOVE ttl 9");
    expect_in(client, 9, "+OK", "SAVE");
    client = client_after_kill(client, &the_daemon, NULL);
    expect_in(client, 9, ":1", "PEXPIRE ttl 1");
}

/* A filter of the save, a filter of the log, a filter with contents, a filter renamed in and another renamed out. */
CLIENT_TEST(the_daemon, databases, a_flush_takes_what_was_in_it_alone)
{
    expect_in(client, 2, ":1", "BF.ADD saved x");
    expect_in(client, 2, ":1", "BF.ADD leaves x");
    expect_in(client, 1, ":1", "BF.ADD comes x");
    expect_in(client, 1, ":1", "BF.ADD stays x");
    expect(client, "+OK", "SAVE");
    expect_in(client, 2, ":1", "BF.ADD logged x");
    expect_in(client, 2, ":1", "COPY saved copied");
    expect_in(client, 2, ":1", "MOVE leaves 1");
    expect_in(client, 1, ":1", "MOVE comes 2");
    expect_in(client, 2, "+OK", "FLUSHDB");
    expect_in(client, 2, ":1", "BF.ADD later x");
    expect_in(client, 1, ":1", "COPY stays later DB 3");
    client = client_after_kill(client, &the_daemon, NULL);
    expect_keyspace(client, "1:2 2:1 3:1");
    expect_in(client, 1, "[:1,:0]", "BF.MEXISTS leaves x y");
    expect_in(client, 2, ":1", "BF.EXISTS later x");
    expect(client, "+OK", "FLUSHALL");
    client = client_after_kill(client, &the_daemon, NULL);
    expect_keyspace(client, "");
}

/* Filters with unread bits: a request whose bytes have been overwritten must not be parsed again. */
CLIENT_TEST(the_daemon, databases, pipelines_wait_for_filters_that_are_read_late)
{
    enum { ROUNDS = 8, QUERIES = 60 };
    const char *const lazy[] = {"--lazy-load", "yes", NULL};
    expect(client, "+OK", "SELECT 5");
    for (int i = 0; i < ROUNDS; i++)
        expect(client, ":1", "BF.ADD f%d x", i);
    expect(client, "+OK", "SAVE");
    client_stop(client, &the_daemon);
    cr_assert(daemon_try(&the_daemon, lazy));
    client = client_open(the_daemon.port);
    expect(client, "+OK", "SELECT 5");
    for (int i = 0; i < ROUNDS; i++) {
        for (int j = 0; j < QUERIES; j++)
            redisAppendCommand(client, "BF.EXISTS f0 x");
        if (i + 1 < ROUNDS)
            redisAppendCommand(client, "RENAME f%d f0", i + 1);
        client_skip(client, QUERIES + (i + 1 < ROUNDS));
    }
    expect(client, ":1", "BF.EXISTS f0 x");
    expect(client, ":1", "DBSIZE");
}

/* SWAPDB reads no bits, MOVE those of its filter. A damaged filter moves along, and is refused. */
CLIENT_TEST(the_daemon, databases, filters_without_bits_in_memory_go_to_others)
{
    expect_in(client, 0, ":1", "BF.ADD damaged x");
    expect_in(client, 0, "+OK", "BF.RESERVE large 0.001 100000"); /* has its own file */
    expect_in(client, 0, ":1", "BF.ADD large x");
    expect_in(client, 0, "+OK", "BF.RESERVE away 0.001 100000 TTL 10000");
    expect_in(client, 0, ":1", "BF.ADD away x");
    expect(client, "+OK", "SAVE");
    client_stop(client, &the_daemon);
    daemon_damage_layer(&the_daemon, "large", 1000);
    cr_assert(daemon_try(&the_daemon, (const char *const[]){"--lazy-load", "yes", NULL}));
    client = client_open(the_daemon.port);
    expect(client, "+OK", "SWAPDB 0 3");
    expect_in(client, 3, "[:0]", "BF.INFO away RESIDENT");
    expect(client, ":1", "MOVE away 6");
    expect_in(client, 6, "[:1,:0]", "BF.MEXISTS away x y");
    cr_assert_geq(client_number(client, "TTL away"), 9000);
    expect(client, "+OK", "SELECT 3");
    expect_has(client, "quarantined", "BF.EXISTS large x");
    expect_has(client, "quarantined", "MOVE large 5");
    expect(client, "+OK", "SWAPDB 3 7");
    client = client_after_kill(client, &the_daemon, NULL);
    expect_keyspace(client, "6:1 7:2");
    expect_in(client, 6, ":1", "BF.EXISTS away x");
    expect_in(client, 7, ":1", "BF.EXISTS damaged x");
    expect_has(client, "quarantined", "BF.EXISTS large x");
    expect(client, ":1", "DEL large");
    client = client_after_kill(client, &the_daemon, NULL);
    expect_keyspace(client, "6:1 7:1");
}

/* Times, patterns and the log follow the filters through an exchange. */
CLIENT_TEST(the_daemon, databases, an_exchange_takes_times_and_patterns_along)
{
    expect_in(client, 1, ":1", "BF.ADD a:1 x");
    expect_in(client, 1, ":1", "BF.ADD a:2 x");
    expect_in(client, 1, ":1", "EXPIRE a:1 10000");
    expect_in(client, 2, ":1", "BF.ADD a:2 y");
    expect(client, "+OK", "SWAPDB 1 2");
    expect_in(client, 2, "[\"asked\",:2,\"found\",[[\"a:1\",\"a:2\"]],\"unknown\",[]]", "BF.FIND a:* ITEMS x");
    expect_in(client, 1, "[\"asked\",:1,\"found\",[[]],\"unknown\",[]]", "BF.FIND a:* ITEMS x");
    expect_in(client, 2, ":1", "BF.ADD a:2 later");
    expect_in(client, 2, ":1", "PEXPIRE a:1 1");
    while (client_number(client, "DBSIZE") != 1)
        ;
    expect(client, "+OK", "SWAPDB 2 1");
    client = client_after_kill(client, &the_daemon, NULL);
    expect_keyspace(client, "1:1 2:1");
    expect_in(client, 1, "[:1,:0,:1]", "BF.MEXISTS a:2 x y later");
    expect_in(client, 2, "[:0,:1,:0]", "BF.MEXISTS a:2 x y later");
}

CLIENT_TEST(the_daemon, databases, a_start_with_too_few_is_refused)
{
    const char *const few[] = {"--databases", "4", NULL}, *const enough[] = {"--databases", "12", NULL};
    expect_in(client, 2, ":1", "BF.ADD f x");
    expect(client, "+OK", "SWAPDB 2 11");
    client_stop(client, &the_daemon);
    cr_assert_not(daemon_try(&the_daemon, few));
    cr_assert_not_null(strstr(daemon_output(&the_daemon),
                              "has filters in database 11, and `databases` is 4: set it to at "
                              "least 12"));
    cr_assert(daemon_try(&the_daemon, enough));
    client = client_open(the_daemon.port);
    expect_in(client, 11, ":1", "BF.EXISTS f x");
    expect(client, "-ERR DB index is out of range", "SELECT 12");
}

/* ---- the tool ---- */

#define TOOL(code, text, ...) \
    program_expect(output, sizeof(output), code, text, "'" BLOOMERY_TOOL_PATH "' " __VA_ARGS__)

CLIENT_TEST(the_daemon, databases, the_tool_knows_them)
{
    static char output[8192];
    expect_in(client, 0, ":1", "BF.ADD f zero");
    expect_in(client, 1, ":1", "BF.ADD f one");
    expect(client, "+OK", "SWAPDB 1 6");
    expect(client, "+OK", "SAVE");
    client_stop(client, &the_daemon);
    TOOL(0, "database 6", "list '%s'", the_daemon.data);
    TOOL(0, "\"db\":6,\"name\":\"f\"", "list '%s' --json --db 6 --name f", the_daemon.data);
    cr_assert_null(strstr(output, "\"db\":0"), "%s", output);
    TOOL(0, "na-0-big-Filter.db", "export '%s' f '%s/out' --db 6", the_daemon.data, the_daemon.dir);
    cr_assert_null(strstr(output, "later changes"), "%s", output); /* the log has none */
    TOOL(1, "has no filter 'f'", "export '%s' f '%s/none' --db 1", the_daemon.data, the_daemon.dir);
    TOOL(0, "", "import '%s' f '%s/out/na-0-big-Filter.db' --db 7", the_daemon.data, the_daemon.dir);
    TOOL(1, "the filter 'f' already exists", "import '%s' f '%s/out/na-0-big-Filter.db' --db 6", the_daemon.data,
         the_daemon.dir);
    TOOL(0, "", "check '%s'", the_daemon.data);
    client = client_restart(&the_daemon);
    expect_keyspace(client, "0:1 6:1 7:1");
    expect_in(client, 7, "[:1,:0]", "BF.MEXISTS f one zero");
}

/* ---- events and MONITOR ---- */

CLIENT_TEST(the_daemon, databases, events_and_monitors_name_them)
{
    struct wire sub = wire_to(the_daemon.port), monitor = wire_to(the_daemon.port);
    expect(client, "+OK", "CONFIG SET notify-keyspace-events KA");
    expect_ask(&sub, "PSUBSCRIBE __key*", "[\"psubscribe\",\"__key*\",:1]");
    expect_ask(&monitor, "MONITOR", "+OK");
    expect_in(client, 0, "+OK", "BF.RESERVE f 0.01 10");
    expect(client, ":1", "MOVE f 5");
    expect(client, "+OK", "SWAPDB 5 6");
    expect_in(client, 6, ":1", "DEL f");
    expect_text(&sub, "[\"pmessage\",\"__key*\",\"__keyspace@0__:f\",\"bloom.reserve\"]");
    expect_text(&sub, "[\"pmessage\",\"__key*\",\"__keyspace@0__:f\",\"move_from\"]");
    expect_text(&sub, "[\"pmessage\",\"__key*\",\"__keyspace@5__:f\",\"move_to\"]");
    expect_text(&sub, "[\"pmessage\",\"__key*\",\"__keyspace@6__:f\",\"del\"]");
    const char *line;
    do
        line = wire_text(&monitor);
    while (!strstr(line, "\"DEL\" \"f\""));
    cr_assert_not_null(strstr(line, " [6 127.0.0.1:"), "%s", line);
}
