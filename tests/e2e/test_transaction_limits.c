/* All clients wait while a transaction runs, so it is short: the commands refused at queueing, and the others. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"

DAEMON_SUITE(the_daemon, transaction_limits, "--threads", "2");

/* All clients wait for a transaction. So a long command is refused when queued, and the transaction with it. */
CLIENT_TEST(the_daemon, transaction_limits, what_takes_long_is_refused_when_queued)
{
    static const char *const refused[] = {
        "SAVE",
        "SHUTDOWN NOSAVE",
        "KEYS *",
        "FLUSHALL",
        "FLUSHDB",
        "INFO",
        "DUMP f",
        "BF.PLAN 0.01 100",
        "RESTORE g 0 x",
        "COPY f g",
        "BF.MERGE g f",
        "BF.SCANDUMP f 0",
        "BF.LOADCHUNK g 1 x",
        "CLIENT LIST",
        "CLIENT KILL ID 99999",
        "CONFIG REWRITE",
        "CONFIG RESETSTAT",
        "SLOWLOG GET",
        "LATENCY HISTOGRAM",
        "PUBSUB CHANNELS",
        "PUBSUB SHARDCHANNELS",
    };
    expect(client, ":1", "BF.ADD f x");
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        expect(client, "+OK", "MULTI");
        expect(client, "+QUEUED", "BF.ADD f y");
        const char *reply = client_ask(client, refused[i]);
        cr_expect(strstr(reply, "-ERR") == reply && (i < 2 || strstr(reply, "send it outside of MULTI")), "%s: %s",
                  refused[i], reply);
        expect(client, "-EXECABORT Transaction discarded because of previous errors.", "EXEC");
    }
    expect(client, ":1", "BF.CARD f");
}

/* Commands that defer in some forms only: these forms are errors in their place; they write nothing. The others run. */
CLIENT_TEST(the_daemon, transaction_limits, short_forms_run_in_their_place)
{
    expect(client, ":1", "BF.ADD f x");
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "SCAN 0 COUNT 100");
    expect(client, "+QUEUED", "SCAN 0 MATCH f* COUNT 100");
    expect(client, "+QUEUED", "BF.INFO f ITEMS");
    expect(client, "+QUEUED", "BF.CLEAR f");
    expect(client, "+QUEUED", "BF.CARD f");
    expect(client,
           "[[\"0\",[\"f\"]],-ERR this call of 'scan' may take long: it cannot run in a transaction,"
           "[:1],+OK,:0]",
           "EXEC");
}

/* The words of `call` between single spaces, and one more word with this many bytes. */
static void append_with_word(redisContext *c, const char *call, const char *word, int bytes)
{
    char copy[64], *rest = copy;
    const char *words[8];
    size_t lengths[8];
    int n = 0;
    snprintf(copy, sizeof(copy), "%s", call);
    for (char *each; (each = strsep(&rest, " ")); n++) {
        words[n] = each;
        lengths[n] = strlen(each);
    }
    words[n] = word;
    lengths[n] = (size_t)bytes;
    cr_assert_eq(redisAppendCommandArgv(c, n + (bytes > 0), words, lengths), REDIS_OK);
}

/* The number of queued calls, of this many, before the first refused one. */
static int queued_of(redisContext *c, const char *call, int times)
{
    int queued = 0;
    for (int i = 0; i < times; i++) {
        redisReply *reply = NULL;
        cr_assert_eq(redisGetReply(c, (void **)&reply), REDIS_OK);
        if (reply->type == REDIS_REPLY_ERROR)
            cr_assert(strstr(reply->str, "the transaction is too long"), "%s: %s", call, reply->str);
        else if (queued == i)
            queued++;
        freeReplyObject(reply);
    }
    return queued;
}

/* So many words, or slow commands, that others would wait for long: the first one above the limit is refused. */
CLIENT_TEST(the_daemon, transaction_limits, long_ones_are_refused)
{
    static const struct {
        const char *call;
        int most, bytes; /* of a last word */
    } rows[] = {
        {"PING", 13107, 0},
        {"BF.ADD f x", 16384, 0},
        {"BF.RESERVE f 0.01 100", 13107, 0},
        {"CONFIG GET *", 51, 0},
        {"COMMAND DOCS client", 51, 0},
        {"TIME", 13107, 0},
        {"HELLO", 3855, 0},
        {"OBJECT HELP", 63, 0},
        {"CLIENT HELP", 63, 0},
        {"CLIENT GETNAME", 63, 0},
        {"AUTH x y", 3449, 0},
        /* bytes in replies, and those of passwords */
        {"ECHO", 126, 65536},
        {"PING", 126, 65536},
        {"PUBSUB NUMSUB", 36, 65536},
        {"AUTH", 31, 65536},
    };
    static char word[65536];
    memset(word, 'x', sizeof(word));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int times = rows[i].most + rows[i].most / 16 + 10;
        expect(client, "+OK", "MULTI");
        for (int j = 0; j < times; j++)
            append_with_word(client, rows[i].call, word, rows[i].bytes);
        int queued = queued_of(client, rows[i].call, times);
        cr_expect_leq(queued, rows[i].most, "%s: %d", rows[i].call, queued);
        cr_expect_gt(queued, rows[i].most / 2, "%s: %d", rows[i].call, queued);
        expect(client, "-EXECABORT Transaction discarded because of previous errors.", "EXEC");
    }
}

/* EXEC compares all watched names while all clients wait: their number is limited. */
CLIENT_TEST(the_daemon, transaction_limits, watched_names_are_bounded)
{
    for (int i = 0; i < 4096; i++)
        redisAppendCommand(client, "WATCH w%d", i);
    client_skip(client, 4096);
    expect(client, "-ERR a client can watch at most 4096 names", "WATCH one-more");
    expect(client, "+OK", "UNWATCH");
    expect(client, "+OK", "WATCH one-more");
}

/* ---- work, not words: layers times items, pages, filters that the transaction itself creates ---- */

static void append_call(redisContext *c, const char *start, int items, const char *prefix)
{
    const char *words[32] = {0};
    char copy[256], **all = malloc((32 + (size_t)items) * sizeof(*all)), *rest = copy;
    int n = 0;
    cr_assert(all && strlen(start) < sizeof(copy));
    strcpy(copy, start);
    for (char *word; (word = strsep(&rest, " "));)
        words[n++] = word;
    for (int i = 0; i < n; i++)
        all[i] = strdup(words[i]);
    for (int i = 0; i < items; i++, n++) {
        char item[64];
        snprintf(item, sizeof(item), "%s%d", prefix, i);
        all[n] = strdup(item);
    }
    cr_assert_eq(redisAppendCommandArgv(c, n, (const char **)all, NULL), REDIS_OK);
    for (int i = 0; i < n; i++)
        free(all[i]);
    free(all);
}

/* A transaction: an add, then `times` calls with `items` items each, then another add. The reply of EXEC. */
static const char *exec_of(redisContext *c, const char *before, const char *call, int times, int items)
{
    redisAppendCommand(c, "MULTI");
    redisAppendCommand(c, "BF.ADD witness first");
    if (before)
        redisAppendCommand(c, before);
    for (int i = 0; i < times; i++)
        append_call(c, call, items, "item-");
    redisAppendCommand(c, "BF.ADD witness last");
    client_skip(c, 3 + times + (before != NULL));
    return client_ask(c, "EXEC");
}

static void has_1000_layers(redisContext *c, const char *name)
{
    expect(c, "+OK", "BF.RESERVE %s 0.01 1 EXPANSION 1", name);
    cr_assert_gt(client_for_items(c, "BF.MADD", name, "layer-", 1000), 980);
}

/* With 500 sub-filters; with evictions that may take long; with two sub-filters of two megabytes. */
static void make_cuckoo_filters(redisContext *c)
{
    static const char *const commands[] = {"CF.RESERVE cuckoos 4", "CF.RESERVE two-large 2000000",
                                           "CF.RESERVE many-evictions 100000 MAXITERATIONS 65535"};
    const char *equal[2003] = {"CF.INSERT", "cuckoos", "ITEMS"};
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        expect(c, "+OK", commands[i]);
    for (size_t i = 3; i < sizeof(equal) / sizeof(equal[0]); i++)
        equal[i] = "same";
    cr_assert_eq(redisAppendCommandArgv(c, 2003, equal, NULL), REDIS_OK);
    client_skip(c, 1);
    expect(c, "[:1,:1,:1,:1,:1]", "CF.INSERT two-large ITEMS a a a a a");
}

static void expect_refused(redisContext *c, const char *reply, const char *what)
{
    cr_expect(strstr(reply, "-EXECABORT") == reply && strstr(reply, "are more than 65536: split it"), "%s: %.200s",
              what, reply);
    expect(c, "[:0,:0]", "BF.MEXISTS witness first last");
}

/* The row's words fit. With the present filters the whole transaction is refused, and no part of it has run. */
CLIENT_TEST(the_daemon, transaction_limits, exec_counts_work_and_refuses_all_or_nothing)
{
    static const struct {
        const char *before, *call;
        int times, items;
    } rows[] = {
        {NULL, "BF.DEBUG layers", 6000, 0},
        {NULL, "BF.INFO layers", 2000, 0},
        {NULL, "BF.MEXISTS layers", 1, 55000},
        {NULL, "BF.EXISTS layers x", 2000, 0},
        {NULL, "BF.FIND layers ITEMS", 50, 500},
        {NULL, "BF.FIND l* ITEMS", 50, 500},
        {NULL, "BF.QUERY layers ITEMS", 1, 20000},
        {NULL, "BF.CLEAR huge", 3000, 0},
        {NULL, "BF.CLEAR layers", 200, 0},
        {NULL, "BF.MADD huge", 1, 32000},
        {NULL, "BF.MADD scales", 1, 5000},
        /* filters that the transaction itself creates, empties or moves */
        {"BF.RESERVE new 0.01 1 EXPANSION 1", "BF.MADD new", 1, 5000},
        {"BF.RESERVE new 1e-7 300000000", "BF.MADD new", 1, 32000},
        {NULL, "BF.INSERT new CAPACITY 1 EXPANSION 1 ITEMS", 1, 5000},
        {"RENAME layers other", "BF.MEXISTS other", 1, 55000},
        /* work of cuckoo filters: layers, evictions, layers caused by equal items, moved fingerprints */
        {NULL, "CF.MEXISTS cuckoos", 1, 15000},
        {NULL, "CF.COUNT cuckoos x", 10000, 0},
        {NULL, "CF.INFO cuckoos", 1000, 0},
        {NULL, "CF.INSERT new ITEMS", 1, 5000},
        {"CF.RESERVE new 100000 MAXITERATIONS 65535", "CF.ADD new x", 50, 0},
        {NULL, "CF.ADDNX many-evictions x", 50, 0},
        {NULL, "CF.COMPACT two-large", 20, 0},
        {NULL, "CF.DEL two-large item", 20, 0},
        {"CF.COMPACT two-large", "CF.ADD two-large item", 1000, 0},
        {"MOVE layers 1", "SELECT 1", 1, 0}, /* this one runs: the next row needs the moved filter */
        {"SELECT 1", "BF.DEBUG layers", 6000, 0},
        {"SWAPDB 0 1", "BF.DEBUG layers", 6000, 0},
    };
    has_1000_layers(client, "layers");
    expect(client, "+OK", "BF.RESERVE huge 1e-7 300000000"); /* 1.2 GB of address space */
    expect(client, "+OK", "BF.RESERVE scales 0.01 1 EXPANSION 1");
    make_cuckoo_filters(client);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *reply = exec_of(client, rows[i].before, rows[i].call, rows[i].times, rows[i].items);
        if (strcmp(rows[i].call, "SELECT 1") == 0) {
            cr_assert_str_eq(reply, "[:1,:1,+OK,:1]");
            expect(client, "+OK", "SELECT 0");
            expect(client, ":1", "DEL witness");
            expect(client, ":0", "EXISTS layers");
            continue;
        }
        expect_refused(client, reply, rows[i].call);
    }
    expect(client, ":0", "BF.CARD huge");
    expect(client, ":0", "EXISTS new other");
}

/* The size of a layer in blocks is searched for each new rate. */
CLIENT_TEST(the_daemon, transaction_limits, creations_in_blocks_count)
{
    expect(client, "+OK", "MULTI");
    for (int i = 0; i < 80; i++)
        expect(client, "+QUEUED", "BF.RESERVE new%d 0.0%d1 100 LAYOUT blocked", i, i);
    expect_refused(client, client_ask(client, "EXEC"), "BF.RESERVE");
    expect(client, ":0", "DBSIZE");
}

/* Typical transactions. */
CLIENT_TEST(the_daemon, transaction_limits, exec_runs_a_thousand_calls_of_cuckoo_filters)
{
    static const struct {
        const char *before, *call;
        int times, items;
    } rows[] = {
        {NULL, "CF.INSERT list ITEMS", 1, 1000}, {NULL, "CF.ADD one item-x", 1000, 0},
        {NULL, "CF.EXISTS one item-x", 1000, 0}, {NULL, "CF.COUNT one item-x", 1000, 0},
        {NULL, "CF.DEL list item-7", 10, 0},     {"CF.RESERVE large 100000000", "CF.ADD large item-x", 500, 0},
        {NULL, "CF.INFO list", 1000, 0},
    };
    expect(client, "+OK", "CF.RESERVE one 1000000");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *reply = exec_of(client, rows[i].before, rows[i].call, rows[i].times, rows[i].items);
        cr_expect(strncmp(reply, "[:1,", 4) == 0, "%s: %.200s", rows[i].call, reply);
        expect(client, ":1", "DEL witness");
    }
}

/* Sends MULTI and an add to each of this many filters, n0, n1 and so on, and EXEC. */
static const char *exec_of_adds(redisContext *c, int filters)
{
    redisAppendCommand(c, "MULTI");
    for (int i = 0; i < filters; i++)
        redisAppendCommand(c, "BF.ADD n%d x", i);
    client_skip(c, 1 + filters);
    return client_ask(c, "EXEC");
}

/* Each of the filters is new, so that its pages do not exist yet: 56 us for an add. */
CLIENT_TEST(the_daemon, transaction_limits, pages_of_many_fresh_filters_count)
{
    enum { FILTERS = 400 };
    for (int i = 0; i < FILTERS; i++)
        expect(client, "+OK", "BF.RESERVE n%d 1e-6 100000", i);
    expect_refused(client, exec_of_adds(client, FILTERS), "BF.ADD");
    expect(client, ":0", "BF.CARD n0");
    cr_expect(strstr(exec_of_adds(client, 40), "[:1,:1,") != NULL);
}

CLIENT_TEST(the_daemon, transaction_limits, users_count)
{
    for (int i = 0; i < 3000; i++)
        expect(client, "+OK", "ACL SETUSER u%d on >password +@read ~a* ~b* ~c*", i);
    expect_refused(client, exec_of(client, NULL, "ACL LIST", 2, 0), "ACL LIST");
    expect_refused(client, exec_of(client, NULL, "ACL USERS", 2, 0), "ACL USERS");
}

/* The same words with less work to do. */
CLIENT_TEST(the_daemon, transaction_limits, what_is_quick_runs_whole)
{
    static const struct {
        const char *before, *call;
        int times, items;
    } rows[] = {
        {NULL, "BF.DEBUG small", 2000, 0},
        {NULL, "BF.MEXISTS small", 1, 50000},
        {NULL, "BF.MADD small", 1, 20000},
        {NULL, "BF.FIND small ITEMS", 50, 500},
        {NULL, "BF.CLEAR small", 300, 0},
        {NULL, "BF.EXISTS small x", 10000, 0},
        {"BF.RESERVE new 0.01 50000", "BF.MADD new", 1, 20000},
        {"EXPIRE small 1000", "BF.MADD small", 1, 20000},
        {"RENAME fixed small", "BF.MADD small", 1, 2000}, /* a filter that never grows has no next layer */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        expect(client, "+OK", "FLUSHALL");
        expect(client, "+OK", "BF.RESERVE small 0.01 50000");
        expect(client, "+OK", "BF.RESERVE fixed 0.01 1000 NONSCALING");
        const char *reply = exec_of(client, rows[i].before, rows[i].call, rows[i].times, rows[i].items);
        cr_expect(strstr(reply, "[:1,") == reply, "%s: %.200s", rows[i].call, reply);
        expect(client, "[:1,:1]", "BF.MEXISTS witness first last");
    }
}

/* A client that is closed because of its replies: all changes of its transaction are there, and its remaining
 * commands that only reply do not run any more. */
CLIENT_TEST(the_daemon, transaction_limits, a_full_reply_buffer_ends_the_questions_of_exec)
{
    has_1000_layers(client, "layers"); /* a BF.DEBUG of it has 90 KB */
    expect(client, "+OK", "CONFIG SET reply-buffer-high-water 65536 reply-buffer-limit 131072");
    expect(client, "+OK", "CONFIG RESETSTAT");
    redisContext *limited = client_open(the_daemon.port);
    cr_expect_str_eq(exec_of(limited, NULL, "BF.DEBUG layers", 12, 0), "(Server closed the connection)");
    redisFree(limited);
    expect(client, "[:1,:1]", "BF.MEXISTS witness first last");
    const char *calls = strstr(client_ask(client, "INFO commandstats"), "cmdstat_bf.debug:calls=");
    cr_assert(calls);
    cr_expect_leq(atoi(strchr(calls, '=') + 1), 3, "%.60s", calls);
}
