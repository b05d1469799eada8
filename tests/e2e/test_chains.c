/* Filters of a thousand layers: every operation on filters runs on one of them, and its time is printed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "log_clients.h"
#include "wait.h"

#define LAYERS    1000
#define PER_LAYER 4

DAEMON_SUITE(daemon_under_test, chains, "--appendonly", "yes");

#define timed(what, statement)                                                                   \
    do {                                                                                         \
        double began = wait_clock();                                                             \
        statement;                                                                               \
        fprintf(stderr, "%d layers: %s: %.1f ms\n", LAYERS, what, (wait_clock() - began) * 1e3); \
    } while (0)

/* Adds items until the filter has this count. Returns the number of offered items. */
static int grow(redisContext *client, const char *name, long long items)
{
    int offered = 0;

    for (; client_number(client, "BF.CARD %s", name) < items; offered += 100)
        client_add_items(client, name, offered, offered + 100);
    return offered;
}

static size_t layers_of(redisContext *client, const char *name)
{
    redisReply *reply = redisCommand(client, "BF.INFO %s FILTERS", name);

    cr_assert(reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 1);
    size_t layers = (size_t)reply->element[0]->integer;
    freeReplyObject(reply);
    return layers;
}

static redisReply *field_of(redisReply *map, const char *name)
{
    for (size_t i = 0; i + 1 < map->elements; i += 2) {
        if (strcmp(map->element[i]->str, name) == 0)
            return map->element[i + 1];
    }
    cr_assert_fail("no field %s", name);
    return NULL;
}

static void expect_full_info(redisContext *client, const char *name, size_t layers)
{
    redisReply *info = redisCommand(client, "BF.INFO %s FULL", name);

    cr_assert_not_null(info);
    cr_assert_eq(info->type, REDIS_REPLY_ARRAY);
    cr_assert_eq(field_of(info, "Layers")->elements, layers);
    cr_assert_eq((size_t)field_of(info, "Number of filters")->integer, layers);
    freeReplyObject(info);
}

/* Loads a copy of `from` in chunks. */
static void load_chunks(redisContext *client, const char *from, const char *to)
{
    long long iterator = 0;

    do {
        redisReply *chunk = redisCommand(client, "BF.SCANDUMP %s %lld", from, iterator);

        cr_assert_eq(chunk->type, REDIS_REPLY_ARRAY, "%s", chunk->str);
        iterator = chunk->element[0]->integer;
        if (iterator != 0)
            expect(client, "+OK", "BF.LOADCHUNK %s %lld %b", to, iterator, chunk->element[1]->str,
                   (size_t)chunk->element[1]->len);
        freeReplyObject(chunk);
    } while (iterator != 0);
}

/* Through the log, a save in files and in packs, each kind of copy, and the tool. */
CLIENT_TEST(daemon_under_test, chains, of_a_thousand_layers_are_filters_like_others)
{
    const char *output;
    int all;

    expect(client, "+OK", "BF.RESERVE large 0.01 %d EXPANSION 1", PER_LAYER);
    expect(client, "+OK", "BF.RESERVE small 0.5 1 EXPANSION 1");
    timed("4,000 adds", all = grow(client, "large", PER_LAYER * (LAYERS - 1) + 1));
    int all_small = grow(client, "small", 300); /* small enough for a pack, and for a record of the log */
    long long items = client_number(client, "BF.CARD large"), few = client_number(client, "BF.CARD small");

    cr_assert_geq(layers_of(client, "large"), LAYERS);
    timed("BF.INFO FULL", expect_full_info(client, "large", layers_of(client, "large")));
    client = client_after_kill(client, &daemon_under_test, NULL);
    cr_assert_eq(client_number(client, "BF.CARD large"), items);
    cr_assert_eq(client_number(client, "BF.CARD small"), few);
    client_expect_items(client, "large", 0, all);
    timed("COPY", expect(client, ":1", "COPY large copy"));
    expect(client, ":1", "COPY small packed");
    timed("BF.MERGE", expect(client, "+OK", "BF.MERGE merged large"));
    timed("BF.SCANDUMP and BF.LOADCHUNK", load_chunks(client, "large", "loaded"));
    timed("SAVE", expect(client, "+OK", "SAVE"));
    expect(client, ":1", "BF.ADD large one-more");
    timed("SAVE of one more item", expect(client, "+OK", "SAVE"));
    client_stop(client, &daemon_under_test);
    cr_assert_eq(check_tool(&daemon_under_test, &output), 0, "%s", output);
    timed("a start", client = client_restart(&daemon_under_test));
    cr_assert_eq(client_number(client, "BF.CARD large"), items + 1);
    cr_assert_eq(client_number(client, "BF.CARD packed"), few);
    timed("4,000 queries", client_expect_items(client, "large", 0, all));
    client_expect_items(client, "copy", 0, all);
    client_expect_items(client, "merged", 0, all);
    client_expect_items(client, "loaded", 0, all);
    client_expect_items(client, "packed", 0, all_small);
}

/* The error names the limit; the existing filter still answers. */
CLIENT_TEST(daemon_under_test, chains, end_with_a_text_that_names_the_limit)
{
    char item[32];

    expect(client, "+OK", "BF.RESERVE f 0.001 1 EXPANSION 1");
    for (int i = 0; client_number(client, "BF.CARD f") < 1024; i++) {
        snprintf(item, sizeof(item), "item-%d", i);
        cr_assert_leq(client_number(client, "BF.ADD f %s", item), 1);
    }
    cr_assert_eq(layers_of(client, "f"), 1024);
    for (int i = 0; i < 2; i++) {
        const char *answer = client_ask(client, "BF.ADD f another-%d", i);
        cr_assert(strstr(answer, "a filter has at most 1024 layers"), "%s", answer);
    }
    expect(client, ":1", "BF.EXISTS f item-0");
}
