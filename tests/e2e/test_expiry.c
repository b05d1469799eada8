/* Filters that expire, as clients see it. The table of replies comes from a redis-server 7.0.15, asked about a
 * string of the same name. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "program.h"
#include "wait.h"
#include "wire.h"

DAEMON_SUITE(the_daemon, expiry, "--threads", "2", "--save-pack-limit", "0");

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- replies ---- */

#define NEW          "!" /* creates the filter k again, without a time */
#define NOT_A_NUMBER "-ERR value is not an integer or out of range"
#define INCOMPATIBLE "-ERR NX and XX, GT or LT options at the same time are not compatible"

static const char *const conversation[][2] = {
    {"EXPIRE k 10", ":0"}, /* no such filter */
    {"PERSIST k", ":0"},
    {"TTL k", ":-2"},
    {"PTTL k", ":-2"},
    {"EXPIRETIME k", ":-2"},
    {"PEXPIRETIME k", ":-2"},
    {"EXPIRE k abc",
     NOT_A_NUMBER}, /* arguments are read before the filter is looked for, conditions before the number */
    {"EXPIRE k abc foo", "-ERR Unsupported option foo"},
    {"EXPIRE k 10 foo", "-ERR Unsupported option foo"},
    {NEW, ""},
    {"TTL k", ":-1"},
    {"PTTL k", ":-1"},
    {"EXPIRETIME k", ":-1"},
    {"PEXPIRETIME k", ":-1"},
    {"EXPIRE k", "-ERR wrong number of arguments for 'expire' command"},
    {"TTL k x", "-ERR wrong number of arguments for 'ttl' command"},
    {"EXPIRE k 1.5", NOT_A_NUMBER},
    {"EXPIRE k +5", NOT_A_NUMBER},
    {"EXPIRE k 9223372036854775808", NOT_A_NUMBER},
    {"EXPIRE k 10 NX XX", INCOMPATIBLE},
    {"EXPIRE k 10 NX GT", INCOMPATIBLE},
    {"EXPIRE k 10 LT NX", INCOMPATIBLE},
    {"EXPIRE k 10 GT LT", "-ERR GT and LT options at the same time are not compatible"},
    {"EXPIRE k 10 XX GT LT", "-ERR GT and LT options at the same time are not compatible"},
    {"EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command"},
    {"EXPIRE k -9223372036854775808", "-ERR invalid expire time in 'expire' command"},
    {"EXPIRE k 9223372036854775", "-ERR invalid expire time in 'expire' command"},
    {"PEXPIRE k 9223372036854775807", "-ERR invalid expire time in 'pexpire' command"},
    {"EXPIREAT k 9223372036854776", "-ERR invalid expire time in 'expireat' command"},
    {"TTL k", ":-1"}, /* none of these has had an effect */
    {"EXPIREAT k 9223372036854775", ":1"},
    {"PEXPIREAT k 9223372036854775807", ":1"},
    {"PEXPIRETIME k", ":9223372036854775807"},
    {"EXPIRETIME k", ":9223372036854776"},
    {"PERSIST k", ":1"},
    {"PERSIST k", ":0"},
    {"TTL k", ":-1"},
    {"EXPIRE k 10 NX NX", ":1"},
    {"EXPIRE k 100", ":1"},
    {"EXPIRE k 50 GT", ":0"},
    {"EXPIRE k 50 LT", ":1"},
    {"EXPIRE k 50 NX", ":0"},
    {"expire k 500 gt", ":1"},
    {"EXPIRE k 600 XX GT", ":1"},
    {"PERSIST k", ":1"},
    {"EXPIRE k 60 XX", ":0"},
    {"EXPIRE k 60 GT", ":0"},
    {"EXPIRE k 60 XX LT", ":0"},
    {"EXPIRE k 60 LT", ":1"},
    {"PERSIST k", ":1"},
    {"EXPIRE k -1 GT", ":0"}, /* an unmet condition also protects it from a past time */
    {"EXISTS k", ":1"},
    {"EXPIRE k 10", ":1"},
    {"EXPIRE k -1 GT", ":0"},
    {"EXPIRE k -1 LT", ":1"},
    {"EXISTS k", ":0"},
    {NEW, ""},
    {"PEXPIREAT k 1", ":1"},
    {"EXISTS k", ":0"},
    {NEW, ""},
    {"EXPIRE k 0", ":1"},
    {"EXISTS k", ":0"},
    {NEW, ""},
    {"PEXPIREAT k -5", ":1"},
    {"EXISTS k", ":0"},
    {NEW, ""},
    {"EXPIREAT k 0", ":1"},
    {"EXISTS k", ":0"},
    {NEW, ""},
    {"PEXPIRE k -9223372036854775808", ":1"},
    {"EXISTS k", ":0"},
    {NEW, ""},
    {"EXPIREAT k 33177117420", ":1"},
    {"EXPIRETIME k", ":33177117420"},
    {"PEXPIREAT k 33177117420499", ":1"},
    {"EXPIRETIME k", ":33177117420"},
    {"PEXPIREAT k 33177117420500", ":1"},
    {"EXPIRETIME k", ":33177117421"}, /* the nearest second */
    {"PEXPIRETIME k", ":33177117420500"},
};

static void converse(struct wire *wire)
{
    for (size_t i = 0; i < sizeof(conversation) / sizeof(conversation[0]); i++) {
        const char *command = conversation[i][0];
        if (strcmp(command, NEW) == 0) {
            wire_ask(wire, "DEL k");
            wire_ask(wire, "BF.ADD k x");
            continue;
        }
        const char *reply = wire_ask(wire, command);
        cr_expect_str_eq(reply, conversation[i][1], "%s: %s instead of %s", command, reply, conversation[i][1]);
    }
}

/* Every reply of the family is Redis's, in both protocols. */
DAEMON_TEST(the_daemon, expiry, replies_are_those_of_redis)
{
    struct wire wire = wire_to(the_daemon.port);
    converse(&wire);
    wire_ask(&wire, "DEL k");
    cr_assert_eq(wire_ask(&wire, "HELLO 3")[0], '{');
    converse(&wire);
}

/* The reply equals the time that was set, in all units. */
CLIENT_TEST(the_daemon, expiry, times_agree)
{
    expect(client, ":1", "BF.ADD k x");
    long long before = now_ms();
    expect(client, ":1", "EXPIRE k 1000");
    long long after = now_ms();
    long long at = client_number(client, "PEXPIRETIME k");
    cr_expect(at >= before + 1000000 && at <= after + 1000000, "%lld", at);
    cr_expect_eq(client_number(client, "EXPIRETIME k"), (at + 500) / 1000);
    long long ttl = client_number(client, "PTTL k");
    cr_expect(ttl <= 1000000 && ttl >= at - now_ms(), "%lld", ttl);
    cr_expect_leq(client_number(client, "TTL k"), 1000);
    expect(client, ":0", "BF.ADD k x"); /* use does not change it */
    cr_expect_eq(client_number(client, "PEXPIRETIME k"), at);
}

/* ---- disappearance ---- */

static void wait_gone(redisContext *c, const char *name)
{
    wait_until(client_number(c, "EXISTS %s", name) == 0);
}

/* A filter disappears at its millisecond by the clock of TIME, not a tick of the kernel later. */
CLIENT_TEST(the_daemon, expiry, gone_at_its_millisecond)
{
    for (int i = 0; i < 100; i++) {
        expect(client, ":1", "BF.ADD k x");
        long long at = now_ms() + 5 + i % 11, seconds, micros, exists = 1;
        expect(client, ":1", "PEXPIREAT k %lld", at);
        while (exists) {
            redisAppendCommand(client, "TIME");
            redisAppendCommand(client, "EXISTS k");
            cr_assert_eq(sscanf(client_reply(client), "[\"%lld\",\"%lld\"]", &seconds, &micros), 2);
            cr_assert_eq(sscanf(client_reply(client), ":%lld", &exists), 1);
            cr_assert(!exists || seconds * 1000 + micros / 1000 < at, "round %d: %lld us late", i,
                      seconds * 1000000 + micros - at * 1000);
        }
    }
}

/* An expired filter is gone from every answer at once, on all threads, and its memory soon. */
DAEMON_TEST(the_daemon, expiry, gone_from_every_answer)
{
    redisContext *c = client_open(the_daemon.port), *other = client_open(the_daemon.port);
    expect(c, "+OK", "BF.RESERVE k 0.001 1000000");
    expect(c, ":1", "BF.ADD k x");
    expect(c, ":1", "BF.ADD stays x");
    expect(c, ":1", "BF.ADD new x");
    expect(c, ":1", "PEXPIRE k 30");
    wait_gone(other, "k");
    expect(c, ":0", "EXISTS k");
    expect(c, "+none", "TYPE k");
    expect(c, ":-2", "TTL k");
    expect(c, ":0", "BF.EXISTS k x");
    expect(c, "[:0]", "BF.MEXISTS k x");
    expect(c, "-ERR not found", "BF.INFO k");
    expect(c, ":0", "TOUCH k");
    expect(c, "nil", "OBJECT ENCODING k");
    expect(c, "[]", "KEYS k");
    expect(c, "[\"0\",[]]", "SCAN 0 MATCH k COUNT 100");
    expect(c, ":2", "DBSIZE");
    expect(c, "-ERR no such key", "RENAME k l");
    expect(c, ":0", "DEL k");
    expect(c, ":1", "BF.ADD k x"); /* a new one */
    expect(c, ":-1", "TTL k");
    expect(c, ":1", "BF.CARD k");
    expect(c, ":1", "PEXPIRE k 20");
    wait_gone(other, "k");
    expect(c, ":1", "RENAMENX new k");
    expect(c, ":-1", "TTL k");
}

/* The number after this text. */
static long long keyspace_number(redisContext *c, const char *text)
{
    const char *info = client_ask(c, "INFO keyspace"), *at = strstr(info, text);
    cr_assert(at, "%s is not in %s", text, info);
    return atoll(at + strlen(text));
}

/* Without any query its memory is given back; INFO counts expired filters and those with a time. */
CLIENT_TEST(the_daemon, expiry, memory_comes_back_unasked)
{
    expect(client, ":1", "BF.ADD small x");
    long long bytes = client_info(client, "bf", "bf_bytes");
    expect(client, "+OK", "BF.RESERVE big 0.001 10000000");
    expect(client, ":1", "BF.ADD big x");
    cr_expect_gt(client_info(client, "bf", "bf_bytes"), bytes + 10000000);
    expect(client, ":1", "EXPIRE small 1000");
    expect(client, ":1", "PEXPIRE big 100000");
    cr_expect_eq(keyspace_number(client, ",expires="), 2);
    long long avg = keyspace_number(client, ",avg_ttl=");
    cr_expect(avg > 400000 && avg <= 550000, "%lld", avg);
    expect(client, ":1", "PEXPIRE big 1");
    wait_until(client_info(client, "bf", "bf_bytes") <= bytes);
    cr_expect_eq(client_info(client, "stats", "expired_keys"), 1);
    cr_expect_eq(keyspace_number(client, "db0:keys="), 1);
    cr_expect_eq(keyspace_number(client, ",expires="), 1);
    expect(client, "+OK", "CONFIG RESETSTAT");
    cr_expect_eq(client_info(client, "stats", "expired_keys"), 0);
}

/* RENAME takes the time along, a replaced filter loses its time, as in Redis. */
CLIENT_TEST(the_daemon, expiry, renames)
{
    expect(client, ":1", "BF.ADD a x");
    expect(client, ":1", "PEXPIREAT a 33177117420123");
    expect(client, "+OK", "RENAME a b");
    expect(client, ":33177117420123", "PEXPIRETIME b");
    expect(client, "+OK", "RENAME b b");
    expect(client, ":33177117420123", "PEXPIRETIME b");
    expect(client, ":1", "BF.ADD a y");
    expect(client, ":0", "RENAMENX a b");
    expect(client, "+OK", "RENAME a b");
    expect(client, ":-1", "TTL b");
    expect(client, "[:1,:0]", "BF.MEXISTS b y x");
}

/* ---- restarts ---- */

static bool filter_files_exist(const char *name)
{
    char output[4096];
    if (!*BLOOMERY_TOOL_PATH)
        return true;
    return program_run(output, sizeof(output), "'%s' list '%s' --name %s", BLOOMERY_TOOL_PATH, the_daemon.data, name) ==
               0 &&
           strstr(output, "filters/");
}

/* After a start there may be a save under way. */
static void save(redisContext *c)
{
    wait_until(strcmp(client_ask(c, "SAVE"), "+OK") == 0);
}

/* A save keeps the times. Filters that expire while the daemon is down are missing afterwards, and the next save
 * removes their files; later ones expire at their times. */
CLIENT_TEST(the_daemon, expiry, restart)
{
    expect(client, ":1", "BF.ADD never x");
    expect(client, ":1", "BF.ADD far x");
    expect(client, ":1", "BF.ADD renamed x");
    expect(client, ":1", "BF.ADD persisted x");
    expect(client, ":1", "BF.ADD short x");
    expect(client, ":1", "PEXPIREAT far 33177117420123");
    expect(client, ":1", "PEXPIREAT renamed 33177117420124");
    expect(client, ":1", "EXPIRE persisted 100");
    save(client);
    expect(client, "+OK", "RENAME renamed other");
    expect(client, ":1", "PERSIST persisted");
    expect(client, ":1", "PEXPIREAT far 33177117420125"); /* its bits have not changed since the last save */
    save(client);
    long long at = 0;
    for (long long ms = 1500; at <= now_ms(); ms *= 2) { /* again with a later time if the machine was slower */
        if (at)
            client = client_restart(&the_daemon);
        client_ask(client, "BF.ADD short x");
        at = now_ms() + ms;
        expect(client, ":1", "PEXPIREAT short %lld", at);
        save(client);
        client_kill(client, &the_daemon);
    }
    cr_assert(filter_files_exist("short"));
    while (now_ms() <= at)
        usleep(10000);
    client = client_restart(&the_daemon);
    expect(client, ":-1", "TTL never");
    expect(client, ":33177117420125", "PEXPIRETIME far");
    expect(client, ":33177117420124", "PEXPIRETIME other");
    expect(client, ":-1", "TTL persisted");
    expect(client, ":0", "EXISTS short");
    expect(client, ":4", "DBSIZE");
    cr_expect_eq(keyspace_number(client, ",expires="), 2);
    cr_expect_eq(client_info(client, "persistence", "rdb_last_load_keys_expired"), 1);
    expect(client, ":1", "BF.EXISTS far x");
    expect(client, ":1", "BF.ADD short y");
    expect(client, ":0", "BF.EXISTS short x");
    save(client);
    expect(client, ":1", "PEXPIRE far 20");
    wait_gone(client, "far");
    save(client);
    redisFree(client);
    cr_expect(filter_files_exist("short"), "those of the new one");
    cr_expect_not(filter_files_exist("far"));
    daemon_kill(&the_daemon);
    client = client_restart(&the_daemon);
    expect(client, ":0", "EXISTS far");
    expect(client, ":-1", "TTL short");
    expect(client, "[:1,:0]", "BF.MEXISTS short y x");
}

/* Acknowledged changes are kept without a save as well: set, changed and removed times, and the end of a filter. */
CLIENT_TEST(the_daemon, expiry, restart_without_a_save)
{
    expect(client, "+OK", "CONFIG SET appendfsync always");
    expect(client, ":1", "BF.ADD set x");
    expect(client, ":1", "PEXPIREAT set 33177117420123");
    expect(client, ":1", "BF.ADD changed x");
    expect(client, ":1", "EXPIRE changed 1000");
    expect(client, ":1", "PEXPIREAT changed 33177117420124");
    expect(client, ":1", "BF.ADD removed x");
    expect(client, ":1", "EXPIRE removed 1000");
    expect(client, ":1", "PERSIST removed");
    expect(client, ":1", "BF.ADD renamed x");
    expect(client, ":1", "PEXPIREAT renamed 33177117420125");
    expect(client, "+OK", "RENAME renamed other");
    expect(client, ":1", "BF.ADD expired x");
    expect(client, ":1", "PEXPIRE expired 10");
    wait_gone(client, "expired");
    expect(client, ":1", "BF.ADD expired y");
    expect(client, ":1", "BF.ADD meanwhile x");
    expect(client, ":1", "BF.ADD past x");
    expect(client, ":1", "EXPIRE past -1");
    long long at = now_ms() + 300;
    expect(client, ":1", "PEXPIREAT meanwhile %lld", at);
    client_kill(client, &the_daemon);
    while (now_ms() <= at)
        usleep(10000);
    for (int i = 0; i < 2; i++) {
        client = client_restart(&the_daemon);
        expect(client, ":33177117420123", "PEXPIRETIME set");
        expect(client, ":33177117420124", "PEXPIRETIME changed");
        expect(client, ":-1", "TTL removed");
        expect(client, ":33177117420125", "PEXPIRETIME other");
        expect(client, ":-1", "TTL expired");
        expect(client, "[:0,:1]", "BF.MEXISTS expired x y");
        expect(client, ":0", "EXISTS meanwhile past renamed");
        expect(client, ":5", "DBSIZE");
        client_kill(client, &the_daemon);
    }
    daemon_restart(&the_daemon);
}

/* ---- many ---- */

#define MANY 50000

/* Many filters that expire at the same moment: others are served meanwhile, no expired filter is answered, and all
 * are gone soon. */
DAEMON_TEST(the_daemon, expiry, many_at_once)
{
    redisContext *c = client_open(the_daemon.port), *other = client_open(the_daemon.port);
    expect(c, ":1", "BF.ADD stays x");
    for (int i = 0; i < MANY; i++) {
        redisAppendCommand(c, "BF.RESERVE f:%d 0.01 10", i);
        redisAppendCommand(c, "PEXPIREAT f:%d %s", i, "33177117420123");
        if (i % 1000 == 999)
            client_skip(c, 2000);
    }
    cr_expect_eq(keyspace_number(c, ",expires="), MANY);
    long long due = now_ms() + 1000;
    for (int i = 0; i < MANY; i++) {
        redisAppendCommand(c, "PEXPIREAT f:%d %lld", i, due);
        if (i % 1000 == 999)
            client_skip(c, 1000);
    }
    while (now_ms() <= due + 10)
        usleep(1000);
    /* From here on no expired filter may be answered, removed already or not. */
    expect(other, ":0", "EXISTS f:0");
    expect(other, ":0", "EXISTS f:49999");
    expect(other, "[\"stays\"]", "KEYS *");
    for (int i = 0; i < 20; i++)
        expect(other, "\"stays\"", "RANDOMKEY");
    for (long long end = now_ms() + 60000; client_number(other, "DBSIZE") != 1;) {
        cr_assert_lt(now_ms(), end, "they are not removed");
        expect(other, ":1", "BF.EXISTS stays x");
        usleep(1000);
    }
    expect(c, "+PONG", "PING");
}
