/* BF.FIND: which of many filters may have an item. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "wire.h"

CLIENT_SUITE(the_daemon, client, find, NULL);

/* Filters are named once each, in the order of the words and of the bytes; missing filters are named, too. */
DAEMON_TEST(the_daemon, find, says_which_filters_may_have_an_item)
{
    expect(client, "[:1,:1]", "BF.MADD b x y");
    expect(client, "[:1,:1]", "BF.MADD a x z");
    expect(client, ":1", "BF.ADD c z");
    expect(client, "[\"asked\",:2,\"found\",[[\"b\",\"a\"]],\"unknown\",[]]", "BF.FIND b a ITEMS x");
    expect(client, "[\"asked\",:3,\"found\",[[\"a\",\"b\"],[\"b\"],[]],\"unknown\",[]]", "BF.FIND * ITEMS x y w");
    expect(client, "[\"asked\",:2,\"found\",[[\"a\"]],\"unknown\",[\"d\",\"not found\"]]", "BF.FIND d a b a ITEMS z");
    expect(client, "[\"asked\",:3,\"found\",[[\"c\",\"a\"]],\"unknown\",[\"q*\",\"no filter matches\"]]",
           "BF.FIND c [a-c] q* * ITEMS z");
    expect(client, "[\"asked\",:3,\"found\",[:2,:1],\"unknown\",[]]", "bf.find count * items x y");
    expect(client, "[\"asked\",:0,\"found\",[[],[]],\"unknown\",[\"nothing\",\"not found\"]]",
           "BF.FIND nothing ITEMS a b");
}

/* A cuckoo filter is not searched: under its name it is unknown, and no pattern leads to it. */
DAEMON_TEST(the_daemon, find, does_not_search_cuckoo_filters)
{
    expect(client, ":1", "BF.ADD b x");
    expect(client, ":1", "CF.ADD c x");
    expect(client, "[\"asked\",:1,\"found\",[[\"b\"]],\"unknown\",[\"c\",\"not a Bloom filter\"]]",
           "BF.FIND c b ITEMS x");
    expect(client, "[\"asked\",:1,\"found\",[[\"b\"]],\"unknown\",[]]", "BF.FIND [bc] ITEMS x");
}

/* In RESP3 the reply and the list of unknown filters are maps. */
DAEMON_TEST(the_daemon, find, is_a_map_in_resp3)
{
    struct wire wire = wire_to(the_daemon.port);
    wire_ask(&wire, "HELLO 3");
    expect_ask(&wire, "BF.ADD a x", "#t");
    expect_ask(&wire, "BF.FIND a b ITEMS x y",
               "{\"asked\"::1,\"found\":[[\"a\"],[]],\"unknown\":{\"b\":\"not found\"}}");
}

/* Names that would be options are given as patterns; a backslash takes away the meaning of a special character. */
DAEMON_TEST(the_daemon, find, names_of_any_kind_can_be_asked)
{
    static const char *const names[] = {"COUNT", "ITEMS", "a*b", "axb", "a\\b", ""};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        expect(client, ":1", "BF.ADD %s x", names[i]);
    expect(client, "[\"asked\",:2,\"found\",[[\"COUNT\",\"ITEMS\"]],\"unknown\",[]]",
           "BF.FIND [C]OUNT [I]TEMS ITEMS x");
    expect(client, "[\"asked\",:1,\"found\",[[\"COUNT\"]],\"unknown\",[]]", "BF.FIND COUNT* ITEMS x");
    expect(client, "[\"asked\",:1,\"found\",[[\"a*b\"]],\"unknown\",[]]", "BF.FIND a\\*b ITEMS x");
    expect(client, "[\"asked\",:2,\"found\",[[\"a*b\",\"axb\"]],\"unknown\",[]]", "BF.FIND a*[*x]b ITEMS x");
    expect(client, "[\"asked\",:1,\"found\",[[\"a\\\\b\"]],\"unknown\",[]]", "BF.FIND a\\\\b ITEMS x");
    expect(client, "[\"asked\",:1,\"found\",[[\"\"]],\"unknown\",[]]", "BF.FIND %s ITEMS x", "");
    expect(client, ":1", "BF.ADD ITEMS ITEMS");
    expect(client, "[\"asked\",:1,\"found\",[[\"ITEMS\"]],\"unknown\",[]]", "BF.FIND [I]TEMS ITEMS ITEMS");
}

DAEMON_TEST(the_daemon, find, wrong_calls_are_errors)
{
    static char pattern[300];
    memset(pattern, 'a', sizeof(pattern) - 1);
    pattern[sizeof(pattern) - 2] = '*';
    expect(client, "-ERR wrong number of arguments for 'bf.find' command", "BF.FIND a ITEMS");
    expect(client, "-ERR wrong number of arguments for 'bf.find' command", "BF.FIND COUNT ITEMS x");
    expect(client, "-ERR syntax error: BF.FIND takes [COUNT], names or patterns, then ITEMS item ... or KEY key ...",
           "BF.FIND a b c");
    expect(client, "-ERR the pattern has 299 bytes; at most 256 are allowed", "BF.FIND %s ITEMS x", pattern);
    expect(client, "[\"COUNT\"]", "COMMAND GETKEYS BF.ADD COUNT x");
}

/* Keys are items in Cassandra's byte form. */
DAEMON_TEST(the_daemon, find, keys_become_bytes)
{
    char huge[] = "blob:0x01";
    expect(client, ":1", "BF.ADD t:int %b", "\xff\xff\xff\xfe", (size_t)4);
    expect(client, ":1", "BF.ADD t:pair %b", "\0\1a\0\0\4\0\0\0\7\0", (size_t)11);
    expect(client, ":1", "BF.ADD t:text a");
    expect(client, "[\"asked\",:3,\"found\",[[\"t:int\"],[\"t:pair\"],[\"t:text\"],[]],\"unknown\",[]]",
           "BF.FIND t:* KEY int:-2 composite(text:a,int:7) text:a %s", huge);
    expect(client, "[\"asked\",:3,\"found\",[:1],\"unknown\",[]]", "BF.FIND count t:* key int:-2");
    const char *text = client_ask(client, "BF.FIND t:* KEY int:1 int:x");
    cr_assert(strstr(text, "-ERR key 2: ") == text, "%s", text);
}

/* A transaction may query few filters; many would delay all clients. */
DAEMON_TEST(the_daemon, find, runs_in_a_transaction_where_it_is_short)
{
    expect(client, ":1", "BF.ADD a x");
    for (int i = 0; i < 3000; i++)
        redisAppendCommand(client, "BF.RESERVE many:%d 0.01 10", i);
    client_skip(client, 3000);
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "BF.FIND a ITEMS x");
    expect(client, "+QUEUED", "BF.FIND many:* ITEMS x");
    expect(
        client,
        "[[\"asked\",:1,\"found\",[[\"a\"]],\"unknown\",[]],-ERR this call of 'bf.find' may take long: it cannot run "
        "in a transaction]",
        "EXEC");
    expect(client, "[\"asked\",:3001,\"found\",[:1],\"unknown\",[]]", "BF.FIND COUNT * ITEMS x");
}

/* Sends words separated by single spaces. Changes the text. */
static redisReply *ask_words(char *text)
{
    const char *words[512];
    int n = 0;
    for (char *save, *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
        words[n++] = word;
    return redisCommandArgv(client, n, words, NULL);
}

/* The limit of short work counts layers, not filters: each layer of a long chain is checked. */
DAEMON_TEST(the_daemon, find, of_many_layers_is_no_short_work)
{
    long long layers;
    expect(client, "+OK", "BF.RESERVE chain 0.3 1 EXPANSION 1");
    cr_assert_eq(client_for_items(client, "BF.MADD", "chain", "i", 900) > 800, 1);
    redisReply *reply = redisCommand(client, "BF.INFO chain FILTERS");
    layers = reply->element[0]->integer;
    freeReplyObject(reply);
    cr_assert_gt(layers, 600);
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "BF.FIND COUNT chain ITEMS i0 i1 i2 i3");
    expect(client, "+QUEUED", "BF.FIND COUNT chain ITEMS i0 i1 i2 i3 i4 i5 i6");
    expect(
        client,
        "[[\"asked\",:1,\"found\",[:1,:1,:1,:1],\"unknown\",[]],-ERR this call of 'bf.find' may take long: it cannot "
        "run in a transaction]",
        "EXEC");
    expect(client, "[\"asked\",:1,\"found\",[:1,:1,:1,:1,:1,:1,:1],\"unknown\",[]]",
           "BF.FIND COUNT chain ITEMS i0 i1 i2 i3 i4 i5 i6");
}

#define CROWD 1000

/* Sends the command with the items i0, i1, ... after it. */
static redisReply *ask_crowd(const char *const *words, int nwords)
{
    static char items[CROWD][8];
    static const char *argv[CROWD + 8];
    memcpy(argv, words, (size_t)nwords * sizeof(*words));
    for (int i = 0; i < CROWD; i++) {
        snprintf(items[i], sizeof(items[i]), "i%d", i);
        argv[nwords + i] = items[i];
    }
    redisReply *reply = redisCommandArgv(client, nwords + CROWD, argv, NULL);
    cr_assert_not_null(reply, "%s", client->errstr);
    cr_assert_eq(reply->type, REDIS_REPLY_ARRAY, "%s", reply->str);
    return reply;
}

/* Many items are looked up filter by filter: the answers and their order equal those of single queries, for filters
 * of all kinds. */
DAEMON_TEST(the_daemon, find, of_many_items_answers_as_of_each)
{
    static const char *const names[] = {"a", "grown", "red", "window", "b"};
    expect(client, "+OK", "BF.RESERVE a 0.01 1000");
    expect(client, "+OK", "BF.RESERVE grown 0.01 10");
    expect(client, "+OK", "BF.RESERVE red 0.01 1000 LAYOUT redisbloom");
    expect(client, "+OK", "BF.RESERVE window 0.01 1000 WINDOW 100000");
    expect(client, "+OK", "BF.RESERVE b 0.3 500");
    for (int f = 0; f < 5; f++) {
        for (int i = f; i < CROWD; i += 2 + f)
            redisAppendCommand(client, "BF.ADD %s i%d", names[f], i);
        client_skip(client, (CROWD - f + 1 + f) / (2 + f));
    }
    const char *const find[] = {"BF.FIND", "a", "grown", "red", "window", "b", "ITEMS"};
    redisReply *all = ask_crowd(find, 7), *found = all->element[3];
    cr_assert_eq(found->elements, CROWD);
    size_t at[CROWD] = {0}, n = 0;
    for (int f = 0; f < 5; f++) {
        const char *const exists[] = {"BF.MEXISTS", names[f]};
        redisReply *single = ask_crowd(exists, 2);
        for (int i = 0; i < CROWD; i++) {
            if (!single->element[i]->integer)
                continue;
            n++;
            cr_assert_lt(at[i], found->element[i]->elements, "i%d in %s", i, names[f]);
            cr_assert_str_eq(found->element[i]->element[at[i]++]->str, names[f]);
        }
        freeReplyObject(single);
    }
    for (int i = 0; i < CROWD; i++)
        cr_assert_eq(at[i], found->element[i]->elements, "i%d", i);
    cr_assert_gt(n, 1400);
    freeReplyObject(all);
}

/* Steps end when their filters have enough layers; each filter is still queried once. */
DAEMON_TEST(the_daemon, find, goes_through_chains_in_steps)
{
    char question[9000] = "BF.FIND COUNT";
    for (int f = 0; f < 60; f++) {
        snprintf(question + strlen(question), 20, " c:%02d", f);
        redisAppendCommand(client, "BF.RESERVE c:%02d 0.3 1 EXPANSION 1", f);
        redisAppendCommand(client, "BF.MADD c:%02d both only%d a b c d e f g h i j k l m n o p q r s t u v w x y z", f,
                           f);
    }
    client_skip(client, 120);
    char patterns[9000] = "BF.FIND COUNT c:*";
    for (int i = 0; i < 400; i++) {
        const char *item = i == 0 ? " ITEMS both" : " both";
        strcat(patterns, item);
        strcat(question, item);
    }
    for (int i = 0; i < 2; i++) {
        redisReply *reply = ask_words(i ? question : patterns);
        cr_assert_eq(reply->element[1]->integer, 60);
        for (size_t j = 0; j < 400; j++)
            cr_assert_eq(reply->element[3]->element[j]->integer, 60);
        cr_assert_eq(reply->element[5]->elements, 0);
        freeReplyObject(reply);
    }
}

/* ---- against single queries ---- */

static bool is_in(const redisReply *names, const char *name)
{
    bool in = false;
    for (size_t i = 0; i < names->elements; i++) {
        bool same = strcmp(names->element[i]->str, name) == 0;
        cr_assert_not(in && same, "%s is there twice", name);
        in |= same;
    }
    return in;
}

static void expect_as_single_queries(const char *words, int from, int to, int items)
{
    char text[4096];
    int len = snprintf(text, sizeof(text), "BF.FIND %s ITEMS", words);
    for (int i = 0; i < items; i++)
        len += snprintf(text + len, sizeof(text) - (size_t)len, " item%d", i);
    redisReply *reply = ask_words(text);
    cr_assert(reply && reply->type == REDIS_REPLY_ARRAY, "%s", reply ? reply->str : client->errstr);
    cr_assert_eq(reply->element[1]->integer, to - from);
    cr_assert_eq(reply->element[3]->elements, (size_t)items);
    for (int i = 0; i < items; i++) {
        size_t found = 0;
        for (int f = from; f < to; f++) {
            char name[64];
            snprintf(name, sizeof(name), "t:%d/f", f);
            bool present = client_number(client, "BF.EXISTS %s item%d", name, i);
            cr_assert_eq(is_in(reply->element[3]->element[i], name), present, "%s item%d", name, i);
            found += present;
        }
        cr_assert_eq(reply->element[3]->element[i]->elements, found, "item%d", i);
    }
    freeReplyObject(reply);
}

/* Filters with one layer or many, small and large; some items are false positives of some of them. */
DAEMON_TEST(the_daemon, find, answers_equal_single_queries)
{
    for (int f = 0; f < 150; f++) {
        redisAppendCommand(client, "BF.RESERVE t:%d/f 0.3 %d", f, f % 10 == 0 ? 200000 : 2 + f % 20);
        for (int i = 0; i < 20; i++)
            redisAppendCommand(client, "BF.ADD t:%d/f item%d", f, (f * 31 + i * i) % 97);
    }
    for (int f = 0; f < 150; f++) {
        client_skip(client, 1);
        client_skip(client, 20);
    }
    expect_as_single_queries("t:*", 0, 150, 60);
    expect_as_single_queries("t:1?/f t:12/f", 10, 20, 97);
    expect_as_single_queries("t:3/f t:4/f t:5/f", 3, 6, 10);
}

/* More filters than a step takes: in the background, each once, also after a rename and a deletion. */
DAEMON_TEST(the_daemon, find, goes_through_very_many_filters)
{
    for (int f = 0; f < 5000; f++)
        redisAppendCommand(client, "BF.RESERVE many:%04d 0.01 10", f);
    client_skip(client, 5000);
    for (int f = 0; f < 5000; f += 100)
        redisAppendCommand(client, "BF.ADD many:%04d x", f);
    client_skip(client, 50);
    expect(client, "[\"asked\",:5000,\"found\",[:50],\"unknown\",[]]", "BF.FIND COUNT many:* ITEMS x");
    expect(client, "[\"asked\",:5000,\"found\",[:50],\"unknown\",[]]", "BF.FIND COUNT *:* many:1* many:0000 ITEMS x");
    expect(client, "[\"asked\",:1000,\"found\",[:10],\"unknown\",[]]", "BF.FIND COUNT many:3* ITEMS x");
    expect(client, "+OK", "RENAME many:3000 other");
    expect(client, ":1", "DEL many:3100");
    expect(client, "[\"asked\",:998,\"found\",[:8],\"unknown\",[]]", "BF.FIND COUNT many:3* ITEMS x");
    expect(client, "[\"asked\",:4999,\"found\",[:49,:0],\"unknown\",[]]", "BF.FIND COUNT * ITEMS x nothing-of-it");
    expect(client, "+OK", "FLUSHALL");
    expect(client, "[\"asked\",:0,\"found\",[:0],\"unknown\",[\"*\",\"no filter matches\"]]",
           "BF.FIND COUNT * ITEMS x");
}

/* ---- filters that cannot answer ---- */

/* A filter in quarantine is named, since it may have the item; it counts as found where its queries say "maybe". */
DAEMON_TEST(the_daemon, find, names_quarantined_filters)
{
    expect(client, ":1", "BF.ADD good x");
    expect(client, "+OK", "BF.RESERVE bad 0.01 100000");
    expect(client, ":1", "BF.ADD bad x");
    expect(client, "+OK", "SAVE");
    daemon_stop(&the_daemon);
    daemon_damage_layer(&the_daemon, "bad", 1000);
    daemon_restart(&the_daemon);
    redisFree(client);
    client = client_open(the_daemon.port);
    const char *text = client_ask(client, "BF.FIND * ITEMS x y");
    cr_assert(strstr(text, "[\"asked\",:1,\"found\",[[\"good\"],[]],\"unknown\",[\"bad\",\"") == text, "%s", text);
    expect(client, "+OK", "CONFIG SET quarantined-filters maybe");
    text = client_ask(client, "BF.FIND good bad ITEMS x y");
    cr_assert(strstr(text, "\"asked\",:2,\"found\",[[\"bad\",\"good\"],[\"bad\"]],\"unknown\",[\"bad\",\"") != NULL,
              "%s", text);
}
