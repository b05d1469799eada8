/* Bits that are not in memory: maxmemory-policy and lazy-load. Nothing is ever answered "absent" that was added, and
 * counts stay exact, whatever has left memory and whenever the daemon is killed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"

#define FILTERS 60      /* of 108 kB: 6.5 MB, ten times as much as there may be */
#define LIMIT   "900kb" /* beside the bits some 250 kB are in use */
#define BATCH   20

static struct daemon the_daemon;

static void discard(void)
{
    daemon_discard(&the_daemon);
}

TestSuite(residency, .fini = discard, .timeout = 300);

static long long bf_field(redisContext *client, const char *field)
{
    char line[64];
    const char *info = client_ask(client, "INFO bf"), *at;
    snprintf(line, sizeof(line), "\\x0a%s:", field);
    at = strstr(info, line);
    cr_assert_not_null(at, "no %s in %s", field, info);
    return atoll(at + strlen(line));
}

static redisContext *start(const char *const *args)
{
    daemon_start(&the_daemon, args);
    return client_open(the_daemon.port);
}

static const char *const lazy[] = {"--threads", "2", "--lazy-load", "yes", NULL};

/* Stops with a save, and starts with all bits on the disk. */
static redisContext *start_lazily(redisContext *client)
{
    expect(client, "+OK", "SAVE");
    redisFree(client);
    daemon_stop(&the_daemon);
    return start(lazy);
}

/* ---- ten times more filters than memory ---- */

struct model {
    long long items[FILTERS]; /* that were answered 1 */
    int batches[FILTERS];     /* of BATCH items each, numbered from 0 */
};

static void add_batch(redisContext *client, struct model *model, int i)
{
    char prefix[64], filter[16];
    snprintf(filter, sizeof(filter), "f%d", i);
    snprintf(prefix, sizeof(prefix), "%d/%d/", i, model->batches[i]++);
    model->items[i] += client_for_items(client, "BF.MADD", filter, prefix, BATCH);
}

/* One item of each batch of it, by itself and in a pipeline, and its count. */
static void check(redisContext *client, const struct model *model, int i)
{
    for (int batch = 0; batch < model->batches[i]; batch++) {
        char item[64];
        snprintf(item, sizeof(item), "%d/%d/%d", i, batch, rand() % BATCH);
        expect(client, ":1", "BF.EXISTS f%d %s", i, item);
        for (int n = 0; n < 5; n++)
            redisAppendCommand(client, "BF.EXISTS f%d %s", i, item);
        for (int n = 0; n < 5; n++)
            cr_assert_str_eq(client_reply(client), ":1");
    }
    cr_assert_eq(client_number(client, "BF.CARD f%d", i), model->items[i], "the count of f%d", i);
}

static void check_all(redisContext *client, const struct model *model)
{
    for (int i = 0; i < FILTERS; i++)
        check(client, model, i);
}

static void work(redisContext *client, struct model *model, int rounds)
{
    for (int n = 0; n < rounds; n++) {
        add_batch(client, model, rand() % FILTERS);
        check(client, model, rand() % FILTERS);
    }
}

static void ten_times(const char *policy)
{
    const char *const args[] = {"--threads", "2", "--maxmemory", LIMIT, "--maxmemory-policy", policy, NULL};
    struct model model = {.batches = {0}};
    redisContext *client = start(args);
    for (int i = 0; i < FILTERS; i++) {
        expect(client, "+OK", "BF.RESERVE f%d 0.001 60000", i);
        add_batch(client, &model, i);
    }
    cr_expect_gt(bf_field(client, "bf_evictions"), FILTERS / 2);
    cr_expect_gt(bf_field(client, "bf_away_filters"), FILTERS / 2);
    cr_expect_lt(bf_field(client, "bf_bytes"), 1024 * 1024);
    work(client, &model, 25);
    check_all(client, &model);
    cr_expect_gt(bf_field(client, "bf_reloads"), 0);
    client = client_after_kill(client, &the_daemon, NULL);
    check_all(client, &model);
    work(client, &model, 25);
    client = client_after_kill(client, &the_daemon, NULL);
    work(client, &model, 10);
    if (strcmp(policy, "maybe") == 0)
        cr_expect_gt(bf_field(client, "bf_maybe_answers"), 0);
    redisFree(client);
    daemon_stop(&the_daemon);
    client = start(lazy); /* there is no limit now: every answer is that of the bits */
    check_all(client, &model);
    cr_expect_lt(client_for_items(client, "BF.MEXISTS", "f7", "absent", 1000), 50);
    cr_expect_eq(bf_field(client, "bf_away_filters"), 0);
    redisFree(client);
}

DAEMON_TEST(the_daemon, residency, reload_with_ten_times_more_filters_than_memory)
{
    ten_times("reload");
}

DAEMON_TEST(the_daemon, residency, maybe_with_ten_times_more_filters_than_memory)
{
    ten_times("maybe");
}

/* ---- the policies ---- */

DAEMON_TEST(the_daemon, residency, without_a_policy_what_needs_memory_is_refused)
{
    redisContext *client = start((const char *const[]){"--threads", "1", "--maxmemory", LIMIT, NULL});
    int made = 0;
    while (made < FILTERS && strncmp(client_ask(client, "BF.RESERVE f%d 0.001 60000", made), "-OOM", 4) != 0)
        made++;
    cr_expect(made > 2 && made < 10, "%d", made);
    cr_expect_eq(bf_field(client, "bf_evictions"), 0);
    expect(client, "+OK", "CONFIG SET maxmemory-policy reload");
    expect(client, "[\"maxmemory-policy\",\"reload\"]", "CONFIG GET maxmemory-policy");
    for (int i = made; i < FILTERS; i++)
        expect(client, "+OK", "BF.RESERVE f%d 0.001 60000", i);
    expect(client, ":1", "BF.ADD f0 x");
    expect(client, ":1", "BF.EXISTS f0 x");
    expect(client, ":0", "BF.EXISTS f1 x");
    redisFree(client);
}

/* It says 1 until there is room, and the truth then. */
DAEMON_TEST(the_daemon, residency, maybe_ends_when_there_is_room)
{
    redisContext *client =
        start((const char *const[]){"--threads", "1", "--maxmemory", LIMIT, "--maxmemory-policy", "maybe", NULL});
    for (int i = 0; i < 30; i++)
        expect(client, "+OK", "BF.RESERVE f%d 0.001 60000", i);
    cr_assert_gt(bf_field(client, "bf_away_filters"), 10);
    int away = 0;
    while (away < 30 && strcmp(client_ask(client, "BF.INFO f%d RESIDENT", away), "[:0]") != 0)
        away++;
    cr_assert_lt(away, 30);
    expect(client, ":1", "BF.EXISTS f%d nobody", away);
    cr_expect_geq(bf_field(client, "bf_maybe_answers"), 1);
    for (int i = 0; i < 30; i++) {
        if (i != away)
            expect(client, ":1", "DEL f%d", i);
    }
    const char *reply = ":1";
    for (int i = 0; i < 1000 && strcmp(reply, ":0") != 0; i++) {
        reply = client_ask(client, "BF.EXISTS f%d nobody", away);
        usleep(10000);
    }
    cr_expect_str_eq(reply, ":0");
    expect(client, "[:1]", "BF.INFO f%d RESIDENT", away);
    redisFree(client);
}

/* What an item is added to comes back first, under both policies. */
DAEMON_TEST(the_daemon, residency, an_add_brings_the_filter_back)
{
    redisContext *client =
        start((const char *const[]){"--threads", "1", "--maxmemory", LIMIT, "--maxmemory-policy", "maybe", NULL});
    for (int i = 0; i < 15; i++) {
        expect(client, "+OK", "BF.RESERVE f%d 0.001 60000", i);
        expect(client, ":1", "BF.ADD f%d first", i);
    }
    for (int i = 0; i < 15; i++) {
        expect(client, "[:0,:1]", "BF.MADD f%d first second", i);
        expect(client, ":2", "BF.CARD f%d", i);
    }
    redisFree(client);
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
    cr_expect_eq(bf_field(client, "bf_away_filters"), 3);
    cr_expect_eq(bf_field(client, "bf_bytes"), 0);
    expect(client, "[:0]", "BF.INFO a RESIDENT");
    expect(client, "[:1]", "BF.INFO a ITEMS");
    expect(client, "[nil]", "BF.INFO a FILL");
    cr_expect_not_null(strstr(client_ask(client, "BF.INFO a FULL"), "Resident"));
    expect(client, ":1", "BF.CARD a");
    expect(client, ":1", "EXPIRE a 1000");
    expect(client, ":1000", "TTL a");
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
    cr_expect_eq(bf_field(client, "bf_reloads"), 0);
    expect(client, ":1", "BF.EXISTS a in-a");
    cr_expect_eq(bf_field(client, "bf_reloads"), 1);
    expect(client, "[:1]", "BF.INFO a RESIDENT");
    client = start_lazily(client);
    expect(client, ":1", "BF.EXISTS a in-a");
    expect(client, "[:0,:0]", "BF.MEXISTS b in-b other");
    expect(client, ":1", "BF.CARD a");
    redisFree(client);
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
    cr_expect_not_null(strstr(client_ask(client, "BF.FIND COUNT * ITEMS in-a nothing"), "[:2,:0]"));
    client = start_lazily(client);
    expect(client, "[:1]", "BF.INSERT a ITEMS more");
    expect(client, ":2", "BF.CARD a");
    redisFree(client);
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
    redisFree(other);
    redisFree(client);
}

DAEMON_TEST(the_daemon, residency, filters_of_other_databases_come_back)
{
    redisContext *client = start(lazy);
    expect(client, "+OK", "SELECT 3");
    make_abc(client);
    client = start_lazily(client);
    cr_expect_eq(bf_field(client, "bf_away_filters"), 3);
    expect(client, ":0", "BF.EXISTS a in-a");
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "SELECT 3");
    expect(client, "+QUEUED", "BF.EXISTS a in-a");
    expect(client, "[+OK,:1]", "EXEC");
    expect(client, ":1", "BF.EXISTS b in-b");
    expect(client, "[\"asked\",:3,\"found\",[:1],\"unknown\",[]]", "BF.FIND COUNT a b c ITEMS in-c");
    expect(client, ":1", "MOVE c 0");
    expect(client, "+OK", "SELECT 0");
    expect(client, ":1", "BF.EXISTS c in-c");
    redisFree(client);
}

/* The log's adds to a filter whose bits are on the disk, and its growth. */
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
    cr_expect_eq(bf_field(client, "bf_away_filters"), 2);
    cr_expect_eq(client_for_items(client, "BF.MEXISTS", "a", "late", 100), 100);
    cr_expect_eq(client_for_items(client, "BF.MEXISTS", "grows", "late", 20000), 20000);
    cr_expect_eq(client_number(client, "BF.CARD grows"), grown);
    expect(client, ":1", "BF.EXISTS a in-a");
    expect(client, ":1", "BF.EXISTS bb in-b");
    redisFree(client);
}

/* ---- what cannot be read ---- */

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
    redisFree(client);
    daemon_stop(&the_daemon);
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
    cr_expect_eq(bf_field(client, "bf_quarantined_filters"), 3);
    cr_expect_eq(bf_field(client, "bf_reloads_failed"), 3);
    expect(client, ":1", "BF.EXISTS whole item");
    expect(client, ":1", "BF.ADD whole more");
    expect(client, "+OK", "SAVE");
    expect(client, ":1", "DEL c");
    expect(client, "+OK", "SAVE");
    redisFree(client);
    daemon_stop(&the_daemon);
    client = start((const char *const[]){"--threads", "2", NULL}); /* reads all at once */
    cr_expect_eq(bf_field(client, "bf_quarantined_filters"), 2);
    cr_expect_not_null(strstr(client_ask(client, "BF.EXISTS b in-b"), "quarantined"));
    expect(client, ":0", "EXISTS c");
    expect(client, ":1", "BF.EXISTS whole more");
    redisFree(client);
}

/* ---- other clients ---- */

/* A filter of 60 MB is read while other clients are served; the question to it waits in its place in the pipeline. */
DAEMON_TEST(the_daemon, residency, other_clients_go_on_while_a_large_filter_is_read)
{
    redisContext *client = start(lazy), *other;
    int served = 0, done = 0;
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
    while (bf_field(other, "bf_reloads") < 2) {
        expect(other, ":1", "BF.EXISTS small item");
        served++;
    }
    for (int i = 0; i < 100; i++)
        cr_assert_str_eq(client_reply(client), ":1");
    cr_assert_str_eq(client_reply(client), ":0");
    printf("%d commands of another client meanwhile\n", served);
    redisFree(other);
    redisFree(client);
}
