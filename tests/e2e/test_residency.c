/* Bits that are not in memory: maxmemory-policy and lazy-load, command by command. Tests under load, and with kill
 * -9, are in test_residency_hunt.c. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "disk_control.h"
#include "tmpdir.h"
#include "wait.h"

#define FILTERS 60 /* of 59 kB: 3.6 MB, six times the limit */
#define CLIENTS 24
#define LIMIT   "900kb" /* some 250 kB are in use in addition to the bits */

DISK_SUITE(the_daemon, residency);

static redisContext *start(const char *const *args)
{
    daemon_start(&the_daemon, args);
    return client_open(the_daemon.port);
}

static const char *const lazy[] = {"--threads", "2", "--lazy-load", "yes", NULL};

/* Stops with a save, and starts. NULL: with the same arguments. */
static redisContext *start_again(redisContext *client, const char *const *args)
{
    expect(client, "+OK", "SAVE");
    return client_after_stop(client, &the_daemon, args);
}

/* Afterwards all bits are only on the disk. */
static redisContext *start_lazily(redisContext *client)
{
    return start_again(client, lazy);
}

/* ---- the policies ---- */

DAEMON_TEST(the_daemon, residency, without_a_policy_what_needs_memory_is_refused)
{
    redisContext *client = start((const char *const[]){"--threads", "1", "--maxmemory", LIMIT, NULL});
    int made = 0;
    while (made < FILTERS && strncmp(client_ask(client, "BF.RESERVE f%d 0.001 33000", made), "-OOM", 4) != 0)
        made++;
    cr_expect(made > 2 && made < 16, "%d", made);
    cr_expect_eq(client_info(client, "bf", "bf_evictions"), 0);
    expect(client, "+OK", "CONFIG SET maxmemory-policy reload");
    expect(client, "[\"maxmemory-policy\",\"reload\"]", "CONFIG GET maxmemory-policy");
    for (int i = made; i < FILTERS; i++)
        expect(client, "+OK", "BF.RESERVE f%d 0.001 33000", i);
    expect(client, ":1", "BF.ADD f0 x");
    expect(client, ":1", "BF.EXISTS f0 x");
    expect(client, ":0", "BF.EXISTS f1 x");
}

static int next_away(redisContext *client, int i)
{
    while (i < 30 && strcmp(client_ask(client, "BF.INFO f%d RESIDENT", i), "[:0]") != 0)
        i++;
    cr_assert_lt(i, 30);
    return i;
}

/* At run time and in the file; evicted bits come back under noeviction, too, when there is room. */
DAEMON_TEST(the_daemon, residency, the_policy_is_a_setting_like_others)
{
    daemon_prepare(&the_daemon);
    snprintf(the_daemon.file, sizeof(the_daemon.file), "%s/the.conf", the_daemon.dir);
    file_write(the_daemon.file, "# mine\nlazy-load yes\nmaxmemory-policy reload\n", 45);
    redisContext *client = start((const char *const[]){"--threads", "1", NULL});
    expect(client, "[\"lazy-load\",\"yes\"]", "CONFIG GET lazy-load");
    cr_expect_eq(strncmp(client_ask(client, "CONFIG SET lazy-load no"), "-ERR", 4), 0);
    const char *reply = client_ask(client, "CONFIG SET maxmemory-policy allkeys-lru");
    cr_expect(strstr(reply, "noeviction") && strstr(reply, "reload") && strstr(reply, "maybe"), "%s", reply);
    expect(client, "[\"maxmemory-policy\",\"reload\"]", "CONFIG GET maxmemory-policy");
    expect(client, "+OK", "CONFIG SET maxmemory " LIMIT " maxmemory-policy maybe");
    for (int i = 0; i < 30; i++)
        expect(client, "+OK", "BF.RESERVE f%d 0.001 33000", i);
    int away = next_away(client, 0);
    expect(client, "+OK", "CONFIG SET maxmemory-policy noeviction");
    reply = client_ask(client, "BF.EXISTS f%d nobody", away);
    cr_expect(strcmp(reply, ":0") == 0 || strncmp(reply, "-OOM there is no room", 21) == 0, "%s", reply);
    expect(client, "+OK", "CONFIG SET maxmemory 0");
    for (int i = 0; i < 30; i++)
        expect(client, ":0", "BF.EXISTS f%d nobody", i);
    cr_expect_eq(client_info(client, "bf", "bf_away_filters"), 0);
    expect(client, "+OK", "CONFIG SET maxmemory-policy maybe");
    expect(client, "+OK", "CONFIG REWRITE");
    client = start_again(client, NULL);
    expect(client, "[\"maxmemory-policy\",\"maybe\"]", "CONFIG GET maxmemory-policy");
    expect(client, "[\"lazy-load\",\"yes\"]", "CONFIG GET lazy-load");
    cr_expect_eq(client_info(client, "bf", "bf_away_filters"), 30);
}

/* It answers 1 until there is room, and then from the bits. */
DAEMON_TEST(the_daemon, residency, maybe_ends_when_there_is_room)
{
    redisContext *client =
        start((const char *const[]){"--threads", "1", "--maxmemory", LIMIT, "--maxmemory-policy", "maybe", NULL});
    for (int i = 0; i < 30; i++)
        expect(client, "+OK", "BF.RESERVE f%d 0.001 33000", i);
    cr_assert_gt(client_info(client, "bf", "bf_away_filters"), 10);
    int away = next_away(client, 0);
    expect(client, ":1", "BF.EXISTS f%d nobody", away);
    cr_expect_geq(client_info(client, "bf", "bf_maybe_answers"), 1);
    for (int i = 0; i < 30; i++) {
        if (i != away)
            expect(client, ":1", "DEL f%d", i);
    }
    wait_until(strcmp(client_ask(client, "BF.EXISTS f%d nobody", away), ":0") == 0);
    expect(client, "[:1]", "BF.INFO f%d RESIDENT", away);
}

/* BF.FIND names filters whose bits are away, also on the loop and in a transaction. */
DAEMON_TEST(the_daemon, residency, maybe_names_the_filters_whose_bits_are_away)
{
    redisContext *client =
        start((const char *const[]){"--threads", "1", "--maxmemory", LIMIT, "--maxmemory-policy", "maybe", NULL});
    long long asked, found;
    for (int i = 0; i < 30; i++)
        expect(client, "+OK", "BF.RESERVE f%d 0.001 33000", i);
    int first = next_away(client, 0), second = next_away(client, first + 1);
    char answer[100];
    snprintf(answer, sizeof(answer), "[\"asked\",:1,\"found\",[[\"f%d\"],[\"f%d\"]],\"unknown\",[]]", first, first);
    expect(client, answer, "BF.FIND f%d ITEMS nobody nothing", first);
    cr_expect_eq(client_info(client, "bf", "bf_maybe_answers"), 2);
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "BF.FIND COUNT f%d ITEMS nobody", second);
    expect(client, "[[\"asked\",:1,\"found\",[:1],\"unknown\",[]]]", "EXEC");
    cr_expect_eq(client_info(client, "bf", "bf_maybe_answers"), 3);
    const char *all = client_ask(client, "BF.FIND COUNT * ITEMS nobody");
    cr_assert_eq(sscanf(all, "[\"asked\",:%lld,\"found\",[:%lld],\"unknown\",[]]", &asked, &found), 2, "%s", all);
    cr_expect_eq(asked, 30);
    cr_expect_gt(found, 10);
    cr_expect_eq(client_info(client, "bf", "bf_maybe_answers"), 3 + found, "no filter has an item");
    expect(client, "+OK", "CONFIG SET maxmemory-policy reload");
    expect(client, "[\"asked\",:30,\"found\",[:0],\"unknown\",[]]", "BF.FIND COUNT * ITEMS nobody");
    cr_expect_eq(client_info(client, "bf", "bf_maybe_answers"), 3 + found);
}

/* An add first brings the bits of its filter back, under both policies. */
DAEMON_TEST(the_daemon, residency, an_add_brings_the_filter_back)
{
    redisContext *client =
        start((const char *const[]){"--threads", "1", "--maxmemory", LIMIT, "--maxmemory-policy", "maybe", NULL});
    for (int i = 0; i < 15; i++) {
        expect(client, "+OK", "BF.RESERVE f%d 0.001 33000", i);
        expect(client, ":1", "BF.ADD f%d first", i);
    }
    for (int i = 0; i < 15; i++) {
        expect(client, "[:0,:1]", "BF.MADD f%d first second", i);
        expect(client, ":2", "BF.CARD f%d", i);
    }
}

/* ---- every command ---- */

static void make_abc(redisContext *client)
{
    static const char *const names[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) {
        expect(client, "+OK", "BF.RESERVE %s 0.01 50000", names[i]);
        expect(client, ":1", "BF.ADD %s in-%s", names[i], names[i]);
    }
}

DAEMON_TEST(the_daemon, residency, what_needs_no_bits_leaves_them_on_the_disk)
{
    redisContext *client = start(lazy);
    make_abc(client);
    client = start_lazily(client);
    cr_expect_eq(client_info(client, "bf", "bf_away_filters"), 3);
    cr_expect_eq(client_info(client, "bf", "bf_bytes"), 0);
    expect(client, "[:0]", "BF.INFO a RESIDENT");
    expect(client, "[:1]", "BF.INFO a ITEMS");
    expect(client, "[nil]", "BF.INFO a FILL");
    expect_has(client, "Resident", "BF.INFO a FULL");
    expect(client, ":1", "BF.CARD a");
    expect(client, ":1", "EXPIRE a 1000");
    cr_expect_gt(client_number(client, "TTL a"), 900);
    expect(client, ":1", "PERSIST a");
    expect(client, ":1", "EXISTS a");
    expect(client, "+MBbloom--", "TYPE a");
    cr_expect_gt(client_number(client, "MEMORY USAGE a"), 50);
    expect(client, "+OK", "BF.CLEAR c");
    expect(client, ":0", "BF.CARD c");
    expect(client, ":1", "DEL b");
    expect(client, "+OK", "SAVE");
    expect(client, ":1", "EXPIRE a 1000");
    expect(client, "+OK", "SAVE");
    expect(client, "[:0]", "BF.INFO a RESIDENT");
    cr_expect_eq(client_info(client, "bf", "bf_reloads"), 0);
    expect(client, ":1", "BF.EXISTS a in-a");
    cr_expect_eq(client_info(client, "bf", "bf_reloads"), 1);
    expect(client, "[:1]", "BF.INFO a RESIDENT");
    client = start_lazily(client);
    expect(client, ":1", "BF.EXISTS a in-a");
    expect(client, "[:0,:0]", "BF.MEXISTS b in-b other");
    expect(client, ":1", "BF.CARD a");
}

DAEMON_TEST(the_daemon, residency, what_needs_bits_finds_them)
{
    redisContext *client = start(lazy);
    make_abc(client);
    client = start_lazily(client);
    expect(client, "[:1,:0]", "BF.MEXISTS a in-a in-b");
    expect(client, "+OK", "RENAME b bb");
    expect(client, ":1", "BF.EXISTS bb in-b");
    expect(client, ":1", "COPY c cc");
    expect(client, ":1", "BF.EXISTS cc in-c");
    client = start_lazily(client);
    expect(client, "+OK", "BF.MERGE u a bb cc");
    expect(client, "[:1,:1,:1,:0]", "BF.MEXISTS u in-a in-b in-c in-d");
    client = start_lazily(client);
    cr_expect_eq(client_ask(client, "DUMP u")[0], '"');
    client = start_lazily(client);
    cr_expect_eq(client_ask(client, "BF.SCANDUMP u 0")[0], '[');
    expect(client, "[\"asked\",:5,\"found\",[:3,:0],\"unknown\",[]]", "BF.FIND COUNT cc a bb c u ITEMS in-c nothing");
    client = start_lazily(client);
    expect_has(client, "[:2,:0]", "BF.FIND COUNT * ITEMS in-a nothing");
    client = start_lazily(client);
    expect(client, "[:1]", "BF.INSERT a ITEMS more");
    expect(client, ":2", "BF.CARD a");
}

DAEMON_TEST(the_daemon, residency, a_transaction_finds_all_its_bits)
{
    redisContext *client = start(lazy), *other;
    make_abc(client);
    client = start_lazily(client);
    other = client_open(the_daemon.port);
    expect(client, "+OK", "WATCH a");
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "BF.EXISTS a in-a");
    expect(client, "+QUEUED", "BF.ADD b second");
    expect(client, "+QUEUED", "BF.MEXISTS c in-c second");
    expect(client, "+QUEUED", "RENAME c d");
    expect(client, "[:1,:1,[:1,:0],+OK]", "EXEC");
    expect(client, "[:1,:1]", "BF.MEXISTS b in-b second");
    expect(other, ":1", "BF.EXISTS d in-c");
}

DAEMON_TEST(the_daemon, residency, filters_of_other_databases_come_back)
{
    redisContext *client = start(lazy);
    expect(client, "+OK", "SELECT 3");
    make_abc(client);
    client = start_lazily(client);
    cr_expect_eq(client_info(client, "bf", "bf_away_filters"), 3);
    expect(client, ":0", "BF.EXISTS a in-a");
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "SELECT 3");
    expect(client, "+QUEUED", "BF.EXISTS a in-a");
    expect(client, "[+OK,:1]", "EXEC");
    expect(client, ":1", "BF.EXISTS b in-b");
    client = start_lazily(client);
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "SWAPDB 0 3");
    expect(client, "+QUEUED", "BF.EXISTS a in-a");
    expect(client, "+QUEUED", "SWAPDB 3 0");
    expect(client, "+QUEUED", "SELECT 3");
    expect(client, "+QUEUED", "BF.EXISTS b in-b");
    expect(client, "[+OK,:1,+OK,+OK,:1]", "EXEC");
    expect(client, "[\"asked\",:3,\"found\",[:1],\"unknown\",[]]", "BF.FIND COUNT a b c ITEMS in-c");
    expect(client, ":1", "MOVE c 0");
    expect(client, "+OK", "SELECT 0");
    expect(client, ":1", "BF.EXISTS c in-c");
}

/* The log's adds to a filter with its bits on the disk, and its growth. */
DAEMON_TEST(the_daemon, residency, a_lazy_start_brings_back_what_the_log_has)
{
    redisContext *client = start(lazy);
    make_abc(client);
    expect(client, "+OK", "BF.RESERVE grows 0.01 10000");
    expect(client, "+OK", "SAVE");
    cr_expect_gt(client_for_items(client, "BF.MADD", "a", "late", 100), 90);
    cr_expect_gt(client_for_items(client, "BF.MADD", "grows", "late", 20000), 19000);
    long long grown = client_number(client, "BF.CARD grows");
    expect(client, "+OK", "RENAME b bb");
    client = client_after_kill(client, &the_daemon, NULL);
    cr_expect_eq(client_info(client, "bf", "bf_away_filters"), 2);
    cr_expect_eq(client_for_items(client, "BF.MEXISTS", "a", "late", 100), 100);
    cr_expect_eq(client_for_items(client, "BF.MEXISTS", "grows", "late", 20000), 20000);
    cr_expect_eq(client_number(client, "BF.CARD grows"), grown);
    expect(client, ":1", "BF.EXISTS a in-a");
    expect(client, ":1", "BF.EXISTS bb in-b");
}

/* ---- unreadable bits ---- */

static void damage(const char *name, int how)
{
    struct daemon_layer layer = daemon_layer(&the_daemon, name, 0);
    if (how == 0)
        cr_assert_eq(unlink(layer.path), 0);
    else if (how == 1)
        cr_assert_eq(truncate(layer.path, 1000), 0);
    else
        daemon_damage_layer(&the_daemon, name, 5000);
}

DAEMON_TEST(the_daemon, residency, a_file_that_cannot_be_read_quarantines_its_filter)
{
    static const char *const all[] = {"--threads", "2", "--lazy-load", "yes", "--save-pack-limit", "0", NULL};
    static const char *const names[] = {"a", "b", "c"};
    redisContext *client = start(all);
    make_abc(client);
    expect(client, "+OK", "BF.RESERVE whole 0.01 50000");
    expect(client, ":1", "BF.ADD whole item");
    expect(client, ":1", "EXPIRE a 10000");
    expect(client, "+OK", "SAVE");
    client_stop(client, &the_daemon);
    for (int i = 0; i < 3; i++)
        damage(names[i], i);
    client = start(all);
    for (int i = 0; i < 3; i++) {
        const char *reply = client_ask(client, "BF.EXISTS %s in-%s", names[i], names[i]);
        cr_expect_not_null(strstr(reply, "quarantined"), "%s", reply);
        reply = client_ask(client, "BF.ADD %s in-%s", names[i], names[i]);
        cr_expect_not_null(strstr(reply, "quarantined"), "%s", reply);
    }
    cr_expect_gt(client_number(client, "TTL a"), 9000);
    cr_expect_eq(client_info(client, "bf", "bf_quarantined_filters"), 3);
    cr_expect_eq(client_info(client, "bf", "bf_reloads_failed"), 3);
    expect(client, ":1", "BF.EXISTS whole item");
    expect(client, ":1", "BF.ADD whole more");
    expect(client, "+OK", "SAVE");
    expect(client, ":1", "DEL c");
    expect(client, "+OK", "SAVE");
    client_stop(client, &the_daemon);
    client = start((const char *const[]){"--threads", "2", NULL}); /* reads all bits at once */
    cr_expect_eq(client_info(client, "bf", "bf_quarantined_filters"), 2);
    expect_has(client, "quarantined", "BF.EXISTS b in-b");
    expect(client, ":0", "EXISTS c");
    expect(client, ":1", "BF.EXISTS whole more");
}

/* Descriptors, memory: temporary errors do not mean damage of the file. */
DAEMON_TEST(the_daemon, residency, an_error_of_the_moment_is_an_answer_and_no_quarantine)
{
    struct rlimit before, none;
    redisContext *client = start(lazy);
    make_abc(client);
    client = start_lazily(client);
    expect(client, "+PONG", "PING"); /* the connection already has its descriptor */
    cr_assert_eq(prlimit(the_daemon.pid, RLIMIT_NOFILE, NULL, &before), 0);
    none = (struct rlimit){8, before.rlim_max};
    cr_assert_eq(prlimit(the_daemon.pid, RLIMIT_NOFILE, &none, NULL), 0);
    const char *reply = client_ask(client, "BF.EXISTS a in-a");
    cr_expect(strncmp(reply, "-ERR cannot read the filter's bits now: ", 40) == 0, "%s", reply);
    cr_expect_not_null(strstr(reply, strerror(EMFILE)), "%s", reply);
    reply = client_ask(client, "BF.ADD a more");
    cr_expect_not_null(strstr(reply, strerror(EMFILE)), "%s", reply);
    reply = client_ask(client, "BF.FIND a ITEMS in-a");
    cr_expect_not_null(strstr(reply, strerror(EMFILE)), "%s", reply);
    cr_assert_eq(prlimit(the_daemon.pid, RLIMIT_NOFILE, &before, NULL), 0);
    expect(client, "[:1,:0]", "BF.MEXISTS a in-a more");
    cr_expect_eq(client_info(client, "bf", "bf_quarantined_filters"), 0);
    cr_expect_eq(client_info(client, "bf", "bf_reloads_failed"), 0);
}

/* ---- other clients ---- */

/* Room for ten filters, and dozens are requested at once; some clients do not wait for the reply. */
DAEMON_TEST(the_daemon, residency, all_are_answered_that_ask_for_more_than_fits)
{
    redisContext *client = start((const char *const[]){"--threads", "2", "--maxmemory", LIMIT, "--maxmemory-policy",
                                                       "reload", NULL}),
                 *others[CLIENTS];
    for (int f = 0; f < FILTERS; f++) {
        expect(client, "+OK", "BF.RESERVE f%d 0.001 33000", f);
        expect(client, ":1", "BF.ADD f%d item", f);
    }
    for (int i = 0; i < CLIENTS; i++) {
        int done = 0;
        others[i] = client_open(the_daemon.port);
        for (int n = 0; n < 8; n++)
            redisAppendCommand(others[i], "BF.EXISTS f%d item", (i * 7 + n * 11) % FILTERS);
        while (!done)
            cr_assert_eq(redisBufferWrite(others[i], &done), REDIS_OK);
    }
    for (int i = 0; i < CLIENTS; i++) {
        for (int n = 0; n < 8 && i % 4; n++) {
            cr_expect_str_eq(client_reply(others[i]), ":1");
            cr_expect_lt(client_info(client, "bf", "bf_bytes"), 1024 * 1024);
        }
        redisFree(others[i]);
    }
}

/* A time and a longer name take a little memory: while an eviction is under way, they wait as adds do. All filters
 * have changed here, and the save before any eviction takes long. */
DAEMON_TEST(the_daemon, residency, a_time_and_a_name_wait_for_room)
{
    static const char *const commands[][2] = {
        {"EXPIRE f0 1000", ":1"}, {"RENAME f1 longer", "+OK"}, {"MOVE f2 1", ":1"}, {"BF.ADD f3 new", ":1"}};
    redisContext *others[4];
    int done = 0;
    disk_attach();
    redisContext *client = start((const char *const[]){"--threads", "2", "--maxmemory-policy", "reload", NULL});
    for (int f = 0; f < FILTERS; f++) {
        expect(client, "+OK", "BF.RESERVE f%d 0.001 33000", f);
        expect(client, ":1", "BF.ADD f%d item", f);
    }
    for (int i = 0; i < 4; i++)
        others[i] = client_open(the_daemon.port);
    atomic_store(&disk->delay_ms, 100);
    expect(client, "+OK", "CONFIG SET maxmemory " LIMIT);
    for (int i = 0; i < 4; i++) {
        redisAppendCommand(others[i], commands[i][0]);
        cr_assert_eq(redisBufferWrite(others[i], &done), REDIS_OK);
    }
    for (int i = 0; i < 4; i++) {
        const char *reply = client_reply(others[i]);
        cr_expect_str_eq(reply, commands[i][1], "%s: %s", commands[i][0], reply);
        redisFree(others[i]);
    }
    disk_mend();
}

/* A filter of 60 MB is read while other clients are served. Queries for it wait in their places in the pipeline,
 * also those of another client, although every filter has its memory at that moment. */
DAEMON_TEST(the_daemon, residency, other_clients_go_on_while_a_large_filter_is_read)
{
    redisContext *client = start(lazy), *other;
    int done = 0;
    expect(client, "+OK", "BF.RESERVE large 0.01 50000000");
    expect(client, ":1", "BF.ADD large item");
    expect(client, "+OK", "BF.RESERVE small 0.01 50000");
    expect(client, ":1", "BF.ADD small item");
    client = start_lazily(client);
    other = client_open(the_daemon.port);
    expect(other, ":1", "BF.EXISTS small item");
    for (int i = 0; i < 100; i++)
        redisAppendCommand(client, i % 2 ? "BF.EXISTS small item" : "BF.EXISTS large item");
    redisAppendCommand(client, "BF.EXISTS large nothing");
    while (!done)
        cr_assert_eq(redisBufferWrite(client, &done), REDIS_OK);
    while (client_info(other, "bf", "bf_bytes") < 50000000) /* until its memory is there */
        expect(other, ":1", "BF.EXISTS small item");
    expect(other, ":1", "BF.EXISTS large item");
    for (int i = 0; i < 100; i++)
        cr_assert_str_eq(client_reply(client), ":1");
    cr_assert_str_eq(client_reply(client), ":0");
}

/* Filters that are deleted while BF.FIND reads others: each is looked up, or named as missing. */
DAEMON_TEST(the_daemon, residency, filters_are_deleted_while_bf_find_reads_others)
{
    redisContext *client = start(lazy);
    size_t gone = 0;
    for (int round = 0; round < 100 && gone == 0; round++) {
        for (int i = 0; i < FILTERS; i++) {
            expect(client, "+OK", "BF.RESERVE f%02d 0.001 60000", i);
            expect(client, ":1", "BF.ADD f%02d item", i);
        }
        client = start_lazily(client);
        redisContext *other = client_open(the_daemon.port);
        int done = 0;
        redisAppendCommand(client, "BF.FIND COUNT f* ITEMS item");
        while (!done)
            cr_assert_eq(redisBufferWrite(client, &done), REDIS_OK);
        while (client_info(other, "bf", "bf_reloads") == 0)
            ;
        for (int i = FILTERS; i-- > 0;)
            redisAppendCommand(other, "DEL f%02d", i);
        client_skip(other, FILTERS);
        redisFree(other);
        redisReply *reply = NULL;
        cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK);
        cr_assert_eq(reply->elements, 6);
        gone = reply->element[5]->elements / 2;
        cr_assert_eq(reply->element[1]->integer + (long long)gone, FILTERS);
        cr_assert_eq(reply->element[3]->element[0]->integer, reply->element[1]->integer);
        for (size_t i = 0; i < gone; i++)
            cr_assert_str_eq(reply->element[5]->element[2 * i + 1]->str, "not found");
        freeReplyObject(reply);
        expect(client, ":0", "DBSIZE");
    }
    cr_expect_gt(gone, 0, "BF.FIND was through before the first was deleted, each time");
}
