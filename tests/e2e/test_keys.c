/* Commands on names: SCAN, KEYS, RANDOMKEY, RENAMENX, TOUCH, OBJECT, MOVE, SWAPDB, FLUSHALL. Replies to wrong arguments
 * are recorded too (test_corpus.c). */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "wire.h"

DAEMON_SUITE(the_daemon, keys, "--threads", "2");

/* The filters <kind>:0 to <kind>:<n - 1>. */
static void make(redisContext *c, const char *kind, int n)
{
    for (int i = 0; i < n; i++)
        redisAppendCommand(c, "BF.RESERVE %s:%d 0.01 10", kind, i);
    client_skip(c, n);
}

/* A whole SCAN with these options; counts the names by the number after their ':'. Returns the number of calls. */
static int scan_all(redisContext *c, const char *options, int *seen, int n)
{
    char cursor[32] = "0";
    int calls = 0;
    memset(seen, 0, (size_t)n * sizeof(*seen));
    do {
        char command[256];
        snprintf(command, sizeof(command), "SCAN %s %s\r\n", cursor, options);
        redisReply *reply = NULL;
        redisAppendFormattedCommand(c, command, strlen(command));
        redisGetReply(c, (void **)&reply);
        cr_assert(reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2, "%s", command);
        snprintf(cursor, sizeof(cursor), "%s", reply->element[0]->str);
        for (size_t i = 0; i < reply->element[1]->elements; i++) {
            int k = atoi(strchr(reply->element[1]->element[i]->str, ':') + 1);
            cr_assert(k >= 0 && k < n);
            seen[k]++;
        }
        freeReplyObject(reply);
        calls++;
    } while (strcmp(cursor, "0") != 0);
    return calls;
}

#define NAMES 3000

/* Every name exactly once, with any COUNT; MATCH and TYPE choose. */
CLIENT_TEST(the_daemon, keys, scan)
{
    static int seen[NAMES];
    static const char *const all[] = {"",
                                      "COUNT 1",
                                      "COUNT 7",
                                      "COUNT 1000",
                                      "COUNT 1000000",
                                      "MATCH *",
                                      "MATCH a:* COUNT 100",
                                      "TYPE MBbloom--",
                                      "type mbbloom-- count 500"};
    make(client, "a", NAMES);
    for (size_t o = 0; o < sizeof(all) / sizeof(all[0]); o++) {
        int calls = scan_all(client, all[o], seen, NAMES);
        for (int i = 0; i < NAMES; i++)
            cr_assert_eq(seen[i], 1, "%s: a:%d was returned %d times", all[o], i, seen[i]);
        if (o == 1)
            cr_expect_gt(calls, NAMES / 200, "COUNT is looked at");
        if (o == 3)
            cr_expect_lt(calls, 50, "%d", calls);
    }
    scan_all(client, "MATCH a:1?5 COUNT 500", seen, NAMES);
    for (int i = 0; i < NAMES; i++)
        cr_assert_eq(seen[i], i / 100 == 1 && i % 10 == 5, "a:%d", i);
    cr_expect_eq(scan_all(client, "MATCH a:29*", seen, NAMES), 1, "a beginning that few names have");
    for (int i = 0; i < NAMES; i++)
        cr_assert_eq(seen[i], i == 29 || i / 10 == 29 || i / 100 == 29, "a:%d", i);
    cr_expect_eq(scan_all(client, "MATCH a:29", seen, NAMES), 1);
    for (int i = 0; i < NAMES; i++)
        cr_assert_eq(seen[i], i == 29, "a:%d", i);
    scan_all(client, "TYPE string COUNT 500", seen, NAMES);
    for (int i = 0; i < NAMES; i++)
        cr_assert_eq(seen[i], 0);
}

/* One call checks 4096 names, or few more, with any COUNT: 64 times 64, and each time the rest of a shard or of a
 * run of slots. */
CLIENT_TEST(the_daemon, keys, a_scan_with_a_huge_count_is_more_than_one_call)
{
    enum { MANY = 10000 };
    static int seen[MANY];
    make(client, "a", MANY);
    redisReply *reply = redisCommand(client, "SCAN 0 COUNT 1000000000");
    cr_assert(reply && reply->type == REDIS_REPLY_ARRAY);
    cr_assert_leq(reply->element[1]->elements, 4096 + 64 * 8);
    cr_assert_str_neq(reply->element[0]->str, "0");
    freeReplyObject(reply);
    cr_assert_geq(scan_all(client, "COUNT 1000000000", seen, MANY), 3);
    for (int i = 0; i < MANY; i++)
        cr_assert_eq(seen[i], 1, "a:%d was returned %d times", i, seen[i]);
}

CLIENT_TEST(the_daemon, keys, keys_and_random)
{
    expect(client, "nil", "RANDOMKEY");
    expect(client, "[]", "KEYS *");
    make(client, "n", 5000);
    make(client, "other", 2);
    redisReply *reply = redisCommand(client, "KEYS n:*");
    cr_assert(reply && reply->type == REDIS_REPLY_ARRAY);
    cr_expect_eq(reply->elements, 5000);
    freeReplyObject(reply);
    const char *pair = client_ask(client, "KEYS o[s-u]her:?");
    cr_expect(strcmp(pair, "[\"other:0\",\"other:1\"]") == 0 || strcmp(pair, "[\"other:1\",\"other:0\"]") == 0, "%s",
              pair);
    int zeros = 0;
    for (int i = 0; i < 500; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s", client_ask(client, "RANDOMKEY"));
        zeros += strcmp(name, "\"n:0\"") == 0;
        cr_assert(strncmp(name, "\"n:", 3) == 0 || strncmp(name, "\"other:", 7) == 0, "%s", name);
    }
    cr_expect_lt(zeros, 20, "always the same");
    expect(client, "+OK", "FLUSHALL");
    expect(client, ":0", "DBSIZE");
    make(client, "only", 1);
    expect(client, "\"only:0\"", "RANDOMKEY");
    expect(client, "+OK", "FLUSHDB ASYNC");
    expect(client, "nil", "RANDOMKEY");
}

struct row {
    const char *command, *reply;
};

static const char *const frequency = "-ERR An LFU maxmemory policy is not selected, access frequency not tracked. "
                                     "Please note that when switching between "
                                     "policies at runtime LRU and LFU data will take some time to adjust.";

/* The job of a SCAN with TYPE kept a word of the receive buffer, which the loop's other connections overwrite: pages
 * came back empty, and `bloomery move` left filters behind. */
struct noise {
    redisContext *client;
    _Atomic bool ends;
};

static void *make_noise(void *arg)
{
    struct noise *noise = arg;
    char other[200];
    memset(other, 'x', sizeof(other));
    while (!atomic_load(&noise->ends)) {
        for (int i = 0; i < 100; i++)
            redisAppendCommand(noise->client, "BF.EXISTS f:0 %b", other, sizeof(other));
        client_skip(noise->client, 100);
    }
    return NULL;
}

DAEMON_TEST(the_daemon, keys, a_scan_by_type_beside_other_clients_has_every_name)
{
    enum { N = 3000, NOISES = 4 };
    struct noise noises[NOISES];
    pthread_t threads[NOISES];
    int seen[N];
    redisContext *c = client_open(the_daemon.port);
    make(c, "f", N);
    for (int i = 0; i < NOISES; i++) {
        noises[i] = (struct noise){client_open(the_daemon.port), false};
        cr_assert_eq(pthread_create(&threads[i], NULL, make_noise, &noises[i]), 0);
    }
    for (int round = 0; round < 30; round++) {
        scan_all(c, "COUNT 500 TYPE MBbloom--", seen, N);
        for (int i = 0; i < N; i++)
            cr_assert_gt(seen[i], 0, "round %d: f:%d", round, i);
    }
    for (int i = 0; i < NOISES; i++) {
        atomic_store(&noises[i].ends, true);
        pthread_join(threads[i], NULL);
        redisFree(noises[i].client);
    }
    redisFree(c);
}

DAEMON_TEST(the_daemon, keys, object_move_swapdb_touch_renamenx)
{
    const struct row rows[] = {
        {"BF.RESERVE f 0.01 10", "+OK"},
        {"OBJECT ENCODING f", "\"raw\""},
        {"OBJECT REFCOUNT f", ":1"},
        {"OBJECT FREQ f", frequency},
        {"OBJECT IDLETIME f", ":0"},
        {"OBJECT ENCODING none", "nil"},
        {"OBJECT IDLETIME none", "nil"},
        {"OBJECT FREQ none", "nil"},
        {"OBJECT REFCOUNT none", "nil"},
        {"OBJECT", "-ERR wrong number of arguments for 'object' command"},
        {"OBJECT ENCODING", "-ERR wrong number of arguments for 'object|encoding' command"},
        {"OBJECT foo f", "-ERR unknown subcommand 'foo'. Try OBJECT HELP."},
        {"MOVE f 0", "-ERR source and destination objects are the same"},
        {"MOVE f 16", "-ERR DB index is out of range"},
        {"MOVE nobody 1", ":0"},
        {"MOVE f x", "-ERR value is not an integer or out of range"},
        {"MOVE f 2147483648", "-ERR value is out of range, value must between -2147483648 and 2147483647"},
        {"SELECT -2147483649", "-ERR value is out of range, value must between -2147483648 and 2147483647"},
        {"SELECT 2147483647", "-ERR DB index is out of range"},
        {"COPY f g DB 2147483648", "-ERR value is out of range, value must between -2147483648 and 2147483647"},
        {"COPY f g DB x", "-ERR value is not an integer or out of range"},
        {"COPY f g DB -1", "-ERR DB index is out of range"},
        {"SWAPDB 2147483648 0", "-ERR invalid first DB index"},
        {"SWAPDB 7 9223372036854775807", "-ERR invalid second DB index"},
        {"SWAPDB 0 0", "+OK"},
        {"SWAPDB 0 16", "-ERR DB index is out of range"},
        {"SWAPDB -1 0", "-ERR DB index is out of range"},
        {"SWAPDB 0 1", "+OK"},
        {"DBSIZE", ":0"},
        {"SWAPDB 1 0", "+OK"},
        {"SWAPDB a 1", "-ERR invalid first DB index"},
        {"SWAPDB 0 b", "-ERR invalid second DB index"},
        {"TOUCH f none f", ":2"},
        {"BF.RESERVE g 0.01 10", "+OK"},
        {"RENAMENX f g", ":0"},
        {"RENAMENX f f", ":0"},
        {"RENAMENX f h", ":1"},
        {"RENAMENX f h", "-ERR no such key"},
        {"EXISTS f g h", ":2"},
        {"FLUSHALL now", "-ERR syntax error"},
        {"FLUSHALL SYNC ASYNC", "-ERR syntax error"},
        {"FLUSHALL SYNC", "+OK"},
        {"DBSIZE", ":0"},
    };
    struct wire wire = wire_to(the_daemon.port);
    for (int resp = 2; resp <= 3; resp++) {
        if (resp == 3)
            cr_assert_eq(wire_ask(&wire, "HELLO 3")[0], '{');
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            const char *reply = wire_ask(&wire, rows[i].command);
            bool turned = strcmp(rows[i].command, "OBJECT IDLETIME f") == 0 && strcmp(reply, ":65") == 0; /* its unit */
            cr_expect(turned || strcmp(reply, rows[i].reply) == 0, "RESP%d: %s: %s", resp, rows[i].command, reply);
        }
    }
}

#define LONG_NAMES 60
#define NAME_BYTES 60000

/* Patterns that are very slow in other matchers are answered, SAVE gets its turn between many of them, and clients
 * that are killed in the middle do no harm. */
DAEMON_TEST(the_daemon, keys, hostile_patterns)
{
    redisContext *c = client_open(the_daemon.port), *busy[8];
    char *name = malloc(NAME_BYTES), pattern[256];
    memset(name, 'a', NAME_BYTES);
    for (int i = 0; i < LONG_NAMES; i++) {
        name[i] = 'z';
        redisReply *reply = redisCommand(c, "BF.RESERVE %b 0.01 10", name, (size_t)NAME_BYTES);
        cr_assert(reply && reply->type == REDIS_REPLY_STATUS);
        freeReplyObject(reply);
        name[i] = 'a';
    }
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = i % 2 ? 'a' : '*';
    pattern[sizeof(pattern) - 1] = 'b';
    for (int i = 0; i < 8; i++) {
        busy[i] = client_open(the_daemon.port);
        for (int k = 0; k < 4; k++)
            redisAppendCommand(busy[i], k % 2 ? "SCAN 0 COUNT 5000 MATCH %b" : "KEYS %b", pattern, sizeof(pattern));
        int sent = 0;
        while (!sent)
            cr_assert_eq(redisBufferWrite(busy[i], &sent), REDIS_OK);
    }
    expect(c, "+OK", "SAVE");
    expect(c, "+PONG", "PING");
    redisFree(busy[7]);
    for (int i = 0; i < 7; i++) {
        for (int k = 0; k < 4; k++) {
            redisReply *reply = NULL;
            cr_assert_eq(redisGetReply(busy[i], (void **)&reply), REDIS_OK);
            cr_assert_eq(reply->type, REDIS_REPLY_ARRAY, "%s", reply->str);
            cr_expect_eq(k % 2 ? reply->element[1]->elements : reply->elements, 0);
            freeReplyObject(reply);
        }
        redisFree(busy[i]);
    }
    redisReply *reply = redisCommand(c, "KEYS %b", pattern, sizeof(pattern) - 1);
    cr_expect_eq(reply->type, REDIS_REPLY_ARRAY);
    cr_expect_eq(reply->elements, LONG_NAMES, "without its last letter it matches");
    freeReplyObject(reply);
    reply = redisCommand(c, "KEYS %b%b", pattern, sizeof(pattern), "*", (size_t)1);
    cr_expect_str_eq(reply->str, "ERR the pattern has 257 bytes; at most 256 are allowed");
    freeReplyObject(reply);
    free(name);
}
