/* Features of BF.* beyond RedisBloom: plans, statistics from the bits, reported false positives, missing filters
 * told from filters without an item, adds that do not create; and names and items of any bytes. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "wire.h"

static struct daemon the_daemon;
static redisContext *client;
static struct wire wire = {.fd = -1};

static void start(void)
{
    client = client_start(&the_daemon, NULL);
    wire_open(&wire, the_daemon.port);
    cr_assert_neq(strncmp(wire_ask(&wire, "HELLO 3"), "-", 1), 0);
}

static void discard(void)
{
    daemon_discard(&the_daemon);
}

TestSuite(bf_more, .init = start, .fini = discard, .timeout = 3000);

#define ask3(expected, command)                                                                                   \
    do {                                                                                                          \
        const char *text3 = wire_ask(&wire, command);                                                             \
        cr_assert_str_eq(text3, (expected), "got '%s' instead of '%s'; command: %s", text3, (expected), command); \
    } while (0)

/* The value that follows a name in a flat reply. */
static redisReply *value_of(redisReply *reply, const char *name)
{
    cr_assert(reply && reply->type == REDIS_REPLY_ARRAY, "%s", reply ? reply->str : client->errstr);
    for (size_t i = 0; i + 1 < reply->elements; i += 2)
        if (strcmp(reply->element[i]->str, name) == 0)
            return reply->element[i + 1];
    cr_assert_fail("no field '%s'", name);
    return NULL;
}

static double number_of(redisReply *reply, const char *name)
{
    redisReply *value = value_of(reply, name);
    return value->type == REDIS_REPLY_INTEGER ? (double)value->integer : atof(value->str);
}

static void add_items(const char *key, int n)
{
    for (int i = 0; i < n; i++)
        redisAppendCommand(client, "BF.ADD %s i%d", key, i);
    client_skip(client, n);
}

/* A plan gives the properties of the filter that would be created; it creates none. */
DAEMON_TEST(the_daemon, bf_more, a_plan_comes_true)
{
    redisReply *plan = redisCommand(client, "BF.PLAN 0.001 1000 EXPANSION 4 ITEMS 3000");
    expect(client, ":0", "DBSIZE");
    expect(client, "+OK", "BF.RESERVE f 0.001 1000 EXPANSION 4");
    add_items("f", 3000);
    redisReply *info = redisCommand(client, "BF.INFO f FULL");
    static const char *const same[] = {"Capacity", "Size", "Number of filters", "Expansion rate",
                                       "Hashes",   "Bits", "Error rate"};
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        cr_assert_eq(number_of(plan, same[i]), number_of(info, same[i]), "%s", same[i]);
    cr_assert_eq(number_of(plan, "Number of filters"), 2);
    cr_assert_eq(value_of(plan, "Layers")->elements, 2);
    cr_assert_leq(number_of(plan, "Predicted error rate"), 0.001);
    cr_assert_float_eq(number_of(plan, "Bits per item"), number_of(plan, "Bits") / number_of(plan, "Capacity"), 1e-9);
    freeReplyObject(info);
    freeReplyObject(plan);

    plan = redisCommand(client, "BF.PLAN 0.0000001 1000000000 NONSCALING"); /* gigabytes, at no cost */
    cr_assert_gt(number_of(plan, "Size"), 4e9);
    cr_assert_eq(value_of(plan, "Expansion rate")->type, REDIS_REPLY_NIL);
    freeReplyObject(plan);
    expect(client, "-ERR bad error rate", "BF.PLAN x 100");
    expect(client, "-ERR the error rate must be above 0 and below 1, and comes first: BF.PLAN 0.01 1000",
           "BF.PLAN 1000000 0.001");
    expect(client, "-ERR bad capacity", "BF.PLAN 0.01 x");
    expect(client, "-ERR bad number of items", "BF.PLAN 0.01 100 ITEMS 0");
    expect(client, "-ERR a filter of fixed size holds 100 items", "BF.PLAN 0.01 100 NONSCALING ITEMS 101");
    expect(client,
           "-ERR unknown option 'BIG': BF.PLAN takes EXPANSION n, NONSCALING, LAYOUT name, WINDOW seconds or ITEMS n, "
           "PARTS n, REFRESH and ITEMS n",
           "BF.PLAN 0.01 100 BIG");
    expect(client, "-ERR PARTS and REFRESH need WINDOW", "BF.PLAN 0.01 100 PARTS 4");
    expect(client, "-ERR a part of a window of fixed size holds 10 items",
           "BF.PLAN 0.01 100 NONSCALING WINDOW 60 PARTS 10 ITEMS 101");
    expect(client, "-Nonscaling filters cannot expand", "BF.PLAN 0.01 100 NONSCALING EXPANSION 2");
}

/* Of a window: the ring with all its parts. */
DAEMON_TEST(the_daemon, bf_more, a_plan_of_a_window_comes_true)
{
    redisReply *plan = redisCommand(client, "BF.PLAN 0.001 800 WINDOW ITEMS 800 PARTS 8");
    expect(client, "+OK", "BF.RESERVE w 0.001 800 WINDOW ITEMS 800 PARTS 8");
    add_items("w", 2000);
    redisReply *info = redisCommand(client, "BF.INFO w FULL");
    static const char *const same[] = {"Capacity", "Size", "Number of filters", "Bits", "Parts"};
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        cr_assert_eq(number_of(plan, same[i]), number_of(info, same[i]), "%s", same[i]);
    cr_assert_eq(number_of(plan, "Parts in memory"), 10);
    cr_assert_str_eq(value_of(plan, "Window")->str, "800 items");
    cr_assert_eq(value_of(plan, "Layers")->elements, 1);
    double part = number_of(plan, "Predicted error rate of a part"), whole = number_of(plan, "Predicted error rate");
    cr_assert(part > 0 && part <= 0.0001 && whole <= 0.001 && whole > 9 * part, "%g %g", part, whole);
    freeReplyObject(info);
    freeReplyObject(plan);
}

/* BF.INFO FULL is computed from the bits; the default reply is RedisBloom's five fields. A large filter is counted off
 * the loop, with the same result. */
DAEMON_TEST(the_daemon, bf_more, what_the_bits_say)
{
    static const struct {
        const char *reserve;
        int items;
    } cases[] = {{"BF.RESERVE f 0.01 1000", 1000}, {"BF.RESERVE f 0.001 1000000", 3000}};
    for (size_t i = 0; i < 2; i++) {
        expect(client, "+OK", cases[i].reserve);
        add_items("f", cases[i].items);
        redisReply *info = redisCommand(client, "BF.INFO f");
        cr_assert_eq(info->elements, 10);
        freeReplyObject(info);
        info = redisCommand(client, "BF.INFO f FULL");
        double bits = number_of(info, "Bits"), set = number_of(info, "Bits set"), fill = number_of(info, "Fill ratio");
        double items = number_of(info, "Number of items inserted"), estimate = number_of(info, "Estimated items");
        cr_assert_float_eq(fill, set / bits, 1e-12);
        cr_assert(fabs(estimate - items) < 6 * sqrt(items), "%g items, estimated %g", items, estimate);
        cr_assert_leq(set, items * number_of(info, "Hashes"));
        cr_assert_leq(number_of(info, "Current error rate"), number_of(info, "Error rate"));
        cr_assert_float_eq(number_of(info, "Current error rate"), number_of(info, "Predicted error rate"),
                           0.3 * number_of(info, "Predicted error rate"));
        redisReply *layers = value_of(info, "Layers");
        cr_assert_eq(layers->elements, 1);
        cr_assert_eq(number_of(layers->element[0], "Bits set"), set);
        freeReplyObject(info);
        expect(client, ":1", "DEL f");
    }
}

/* Single fields: RESP2 gives the value alone, RESP3 a map of one, with numbers as numbers. */
DAEMON_TEST(the_daemon, bf_more, single_fields)
{
    expect(client, "+OK", "BF.RESERVE f 0.25 100 NONSCALING");
    expect(client, "[\"0.25\"]", "BF.INFO f ERRORRATE");
    expect(client, "[:0]", "BF.INFO f BITSSET");
    expect(client, "[\"0\"]", "BF.INFO f FILL");
    expect(client, "[\"0\"]", "BF.INFO f PREDICTEDRATE");
    expect(client, "[\"0\"]", "BF.INFO f CURRENTRATE");
    expect(client, "[nil]", "BF.INFO f OBSERVEDRATE");
    expect(client, "[nil]", "BF.INFO f SINCE");
    expect(client, "[\"na\"]", "BF.INFO f layout");
    ask3("{+Error rate:,0.25}", "BF.INFO f ERRORRATE");
    ask3("{+Fill ratio:,0}", "BF.INFO f FILL");
    ask3("{+Observed error rate:nil}", "BF.INFO f OBSERVEDRATE");
    expect(client, "-Invalid information value", "BF.INFO f NOTHING");
}

/* Hits and misses of each filter, in batches and one by one; from zero again after CONFIG RESETSTAT, and for an
 * emptied filter. */
DAEMON_TEST(the_daemon, bf_more, queries_are_counted_for_each_filter)
{
    expect(client, "+OK", "BF.RESERVE f 0.0001 1000");
    expect(client, "+OK", "BF.RESERVE g 0.0001 1000");
    expect(client, "[:1,:1]", "BF.MADD f a b");
    expect(client, ":1", "BF.EXISTS f a");
    expect(client, ":0", "BF.EXISTS f x");
    expect(client, ":0", "BF.EXISTS g x");
    expect(client, "[:1,:1,:0,:0,:0]", "BF.MEXISTS f a b x y z");
    expect(client, "[:3]", "BF.INFO f HITS");
    expect(client, "[:4]", "BF.INFO f MISSES");
    expect(client, "[:0]", "BF.INFO g HITS");
    expect(client, "[:1]", "BF.INFO g MISSES");
    expect(client, "+OK", "BF.CLEAR g");
    expect(client, "[:0]", "BF.INFO g MISSES");
    expect(client, "+OK", "CONFIG RESETSTAT");
    expect(client, "[:0]", "BF.INFO f MISSES");
    expect(client, ":0", "BF.EXISTS f x");
    expect(client, "[:1]", "BF.INFO f MISSES");
}

/* The share of the queries for absent items that was reported as false positives. */
DAEMON_TEST(the_daemon, bf_more, false_positives_are_reported)
{
    expect(client, "-ERR not found", "BF.FALSEPOSITIVE f");
    expect(client, "+OK", "BF.RESERVE f 0.01 1000");
    expect(client, ":1", "BF.ADD f there");
    expect(client, "[:0,:0,:0]", "BF.MEXISTS f a b c");
    expect(client, ":1", "BF.FALSEPOSITIVE f");
    expect(client, "[\"0.25\"]", "BF.INFO f OBSERVEDRATE");
    expect(client, ":6", "BF.FALSEPOSITIVE f 5");
    expect(client, "[:6]", "BF.INFO f FALSEPOSITIVES");
    expect(client, "-ERR count must be an integer in the range [1, 4294967295]", "BF.FALSEPOSITIVE f 0");
    expect(client, "-ERR count must be an integer in the range [1, 4294967295]", "BF.FALSEPOSITIVE f -1");
    expect(client, "-ERR count must be an integer in the range [1, 4294967295]", "BF.FALSEPOSITIVE f x");
    expect(client, "-ERR wrong number of arguments for 'bf.falsepositive' command", "BF.FALSEPOSITIVE f 1 2");
}

DAEMON_TEST(the_daemon, bf_more, an_empty_filter_has_no_observed_rate)
{
    expect(client, "+OK", "BF.RESERVE f 0.01 100");
    expect(client, ":1", "BF.FALSEPOSITIVE f");
    expect(client, "[nil]", "BF.INFO f OBSERVEDRATE");
    expect(client, ":1", "BF.ADD f a");
    expect(client, "[:0]", "BF.MEXISTS f nobody");
    expect(client, "[\"0.5\"]", "BF.INFO f OBSERVEDRATE");
}

/* A missing filter: the reply as in RedisBloom, null, or an error; by setting or by command. */
DAEMON_TEST(the_daemon, bf_more, a_missing_filter_is_told_apart)
{
    expect(client, ":0", "BF.EXISTS f x");
    expect(client, "-ERR not found", "BF.QUERY f ITEMS x y");
    expect(client, "[nil,nil]", "BF.QUERY f MISSING NULL ITEMS x y");
    expect(client, "[:0,:0]", "BF.QUERY f missing absent items x y");
    ask3("[nil,nil]", "BF.QUERY f MISSING NULL ITEMS x y");
    ask3("[#f]", "BF.QUERY f MISSING ABSENT ITEMS ITEMS");
    expect(client, "+OK", "CONFIG SET bf-missing-filter-reply null");
    expect(client, "nil", "BF.EXISTS f x");
    expect(client, "[nil,nil]", "BF.MEXISTS f x y");
    ask3("nil", "BF.EXISTS f x");
    expect(client, "+OK", "CONFIG SET bf-missing-filter-reply error");
    expect(client, "-ERR not found", "BF.EXISTS f x");
    expect(client, "-ERR not found", "BF.MEXISTS f x y");
    expect(client, "[:0]", "BF.QUERY f MISSING ABSENT ITEMS x");
    expect(client, ":1", "BF.ADD f MISSING");
    expect(client, ":0", "BF.EXISTS f x");
    expect(client, "[:1,:0]", "BF.QUERY f ITEMS MISSING ITEMS");
    expect(client, "-ERR MISSING takes ERROR, NULL or ABSENT", "BF.QUERY f MISSING ITEMS x y");
    expect(client, "-ERR syntax error: BF.QUERY takes MISSING ERROR|NULL|ABSENT, then ITEMS", "BF.QUERY f x y");
    expect(client, "-ERR wrong number of arguments for 'bf.query' command", "BF.QUERY f MISSING NULL ITEMS");
}

/* With bf-auto-create no, only commands with parameters of the filter create one. */
DAEMON_TEST(the_daemon, bf_more, adds_that_do_not_create)
{
    expect(client, "+OK", "CONFIG SET bf-auto-create no");
    expect(client, "-ERR not found", "BF.ADD f x");
    expect(client, "-ERR not found", "BF.MADD f x y");
    expect(client, "-ERR not found", "BF.INSERT f ITEMS x");
    expect(client, "-ERR not found", "BF.INSERT f CAPACITY 100 NOCREATE ITEMS x");
    expect(client, ":0", "EXISTS f");
    expect(client, "[:1]", "BF.INSERT f CAPACITY 100 ITEMS x");
    expect(client, ":1", "BF.ADD f y");
    expect(client, "+OK", "BF.RESERVE g 0.01 100");
    expect(client, ":1", "BF.ADD g y");
}

/* A filter has its time from its creation; BF.CLEAR and BF.MERGE keep it, and a copy gets it. */
DAEMON_TEST(the_daemon, bf_more, filters_with_a_time_to_live)
{
    expect(client, "+OK", "BF.RESERVE f 0.01 100 TTL 1000");
    expect(client, "+OK", "BF.RESERVE g 0.01 100 ttl 5000 EXPANSION 3");
    expect(client, "+OK", "BF.RESERVE never 0.01 100");
    expect(client, "-ERR TTL without seconds", "BF.RESERVE h 0.01 100 TTL");
    long long ttl = client_number(client, "TTL f");
    cr_assert(ttl > 900 && ttl <= 1000, "%lld", ttl);
    expect(client, ":1", "BF.ADD f x");
    expect(client, "+OK", "BF.MERGE f never");
    ttl = client_number(client, "TTL f");
    cr_assert(ttl > 900 && ttl <= 1000, "%lld", ttl);
    expect(client, ":1", "BF.EXISTS f x");
    expect(client, "+OK", "BF.CLEAR f");
    ttl = client_number(client, "TTL f");
    cr_assert(ttl > 900 && ttl <= 1000, "%lld", ttl);
    expect(client, ":1", "COPY f copied");
    ttl = client_number(client, "TTL copied");
    cr_assert(ttl > 900 && ttl <= 1000, "%lld", ttl);
    expect(client, "[:1]", "BF.INSERT h TTL 3000 ITEMS x");
    ttl = client_number(client, "TTL h");
    cr_assert(ttl > 2900 && ttl <= 3000, "%lld", ttl);
    expect(client, "[:1]", "BF.INSERT h TTL 9 ITEMS y"); /* only of a filter that it creates */
    cr_assert_gt(client_number(client, "TTL h"), 2900);
    expect(client, "-ERR invalid expire time in 'bf.reserve' command", "BF.RESERVE i 0.01 100 TTL 0");
    expect(client, "-ERR invalid expire time in 'bf.reserve' command", "BF.RESERVE i 0.01 100 TTL 9223372036854775807");
    expect(client, "-ERR value is not an integer or out of range", "BF.RESERVE i 0.01 100 TTL soon");
    expect(client, "-ERR wrong number of arguments for 'bf.reserve' command", "BF.RESERVE i 0.01 100 NONSCALING a b c");
    expect(client, ":0", "EXISTS i");
}

/* RESTORE takes a time, too, relative or absolute; a past time leaves no filter. */
DAEMON_TEST(the_daemon, bf_more, restored_filters_with_a_time_to_live)
{
    expect(client, "+OK", "BF.RESERVE f 0.01 100");
    redisReply *dump = redisCommand(client, "DUMP f");
    cr_assert_eq(dump->type, REDIS_REPLY_STRING);
    expect(client, "+OK", "RESTORE g 500000 %b", dump->str, dump->len);
    long long ttl = client_number(client, "PTTL g");
    cr_assert(ttl > 400000 && ttl <= 500000, "%lld", ttl);
    expect(client, "+OK", "RESTORE h 32503680000000 %b ABSTTL", dump->str, dump->len);
    expect(client, ":32503680000000", "PEXPIRETIME h");
    expect(client, "+OK", "RESTORE h 1 %b ABSTTL REPLACE", dump->str, dump->len);
    expect(client, ":0", "EXISTS h");
    freeReplyObject(dump);
}

/* Items and names are bytes. */
DAEMON_TEST(the_daemon, bf_more, items_and_names_are_bytes)
{
    expect(client, ":1", "BF.ADD %b %b", "n\0\xff", (size_t)3, "\0\r\n\xfe", (size_t)4);
    expect(client, ":1", "BF.EXISTS %b %b", "n\0\xff", (size_t)3, "\0\r\n\xfe", (size_t)4);
    expect(client, ":0", "BF.EXISTS %b %b", "n\0\xff", (size_t)3, "\0\r\n", (size_t)3);
    expect(client, ":1", "BF.ADD %b %b", "", (size_t)0, "", (size_t)0);
    expect(client, ":1", "BF.EXISTS %b %b", "", (size_t)0, "", (size_t)0);
}
