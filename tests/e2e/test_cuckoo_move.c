/* `bloomery move` of cuckoo filters between two daemons: answers, counts and slots are the same afterwards. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "move_runs.h"

DAEMON_PAIR(cuckoo_move);

static void each(redisContext *client, const char *command, const char *name, int first, int n)
{
    for (int i = first; i < first + n; i++)
        redisAppendCommand(client, "%s %s item:%d", command, name, i);
}

static void change(const char *command, const char *name, int first, int n)
{
    each(from, command, name, first, n);
    client_skip(from, n);
}

/* All slots: the bytes of all chunks concatenated, to be freed. */
static char *slots_of(redisContext *client, const char *name, size_t *len_out)
{
    char *slots = NULL;
    long long iterator = 0;
    *len_out = 0;
    for (;;) {
        redisReply *reply = redisCommand(client, "CF.SCANDUMP %s %lld", name, iterator);
        cr_assert(reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2, "%s", name);
        iterator = reply->element[0]->integer;
        if (iterator == 0) {
            freeReplyObject(reply);
            return slots;
        }
        slots = realloc(slots, *len_out + reply->element[1]->len);
        memcpy(slots + *len_out, reply->element[1]->str, reply->element[1]->len);
        *len_out += reply->element[1]->len;
        freeReplyObject(reply);
    }
}

/* The state in both is equal, and so are the answers to some present and some absent items. */
static void expect_same(const char *name)
{
    enum { PROBES = 400 };
    size_t len_from, len_to;
    char *wanted = strdup(client_ask(from, "CF.DEBUG %s", name));
    expect(to, wanted, "CF.DEBUG %s", name);
    free(wanted);
    char *slots = slots_of(from, name, &len_from), *moved = slots_of(to, name, &len_to);
    cr_assert(len_from == len_to && memcmp(slots, moved, len_from) == 0, "%s: %zu and %zu bytes", name, len_from,
              len_to);
    free(slots);
    free(moved);
    each(from, "CF.COUNT", name, 0, PROBES);
    each(to, "CF.COUNT", name, 0, PROBES);
    for (int i = 0; i < PROBES; i++) {
        wanted = strdup(client_reply(from));
        cr_assert_str_eq(client_reply(to), wanted, "%s item:%d", name, i);
        free(wanted);
    }
}

#define MEGABYTES_32 "16777217 BUCKETSIZE 4" /* rounded up */

static void make_filters(void)
{
    expect(from, "+OK", "CF.RESERVE small 1000");
    change("CF.ADD", "small", 0, 300);
    expect(from, ":1", "PEXPIRE small 500000");
    expect(from, "+OK", "CF.RESERVE several 500 EXPANSION 2 MAXITERATIONS 50");
    change("CF.ADD", "several", 0, 5000);
    change("CF.DEL", "several", 0, 100);
    expect(from, "+OK", "CF.RESERVE fixed 64 EXPANSION 0 BUCKETSIZE 8");
    change("CF.ADD", "fixed", 0, 60);
    expect(from, "+OK", "CF.RESERVE empty 1000 BUCKETSIZE 1");
    expect(from, "+OK", "CF.RESERVE rate-8 300 ERROR 0.2");
    change("CF.ADD", "rate-8", 0, 3000);
    change("CF.DEL", "rate-8", 0, 100);
    expect(from, "+OK", "CF.RESERVE rate-12 500 ERROR 0.01 KEYED");
    change("CF.ADD", "rate-12", 0, 3000);
    change("CF.DEL", "rate-12", 0, 100);
    expect(from, "+OK", "CF.RESERVE rate-16 5000000 ERROR 0.001");
    change("CF.ADD", "rate-16", 0, 3000);
    expect(from, "+OK", "CF.RESERVE rate-empty 1000 ERROR 0.001 EXPANSION 0");
    expect(from, "+OK", "CF.RESERVE emptied 4000");
    change("CF.ADD", "emptied", 0, 5);
    change("CF.DEL", "emptied", 0, 5);
    expect(from, "+OK", "CF.RESERVE middle 3000000 BUCKETSIZE 4");
    change("CF.ADD", "middle", 0, 3000);
    expect(from, "+OK", "CF.RESERVE large " MEGABYTES_32);
    change("CF.ADD", "large", 0, 5000);
    change("CF.DEL", "large", 7, 3);
    expect(from, "+OK", "CF.RESERVE large-empty 9000000");
    client_add_items(from, "bloom", 0, 50);
}

/* The target gets the source's key. */
static void give_key(void)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/KEYS", source.data);
    expect(to, "+OK", "CONFIG SET bf-key-file %s", path);
}

PAIR_TEST(cuckoo_move, filters_of_all_sizes_are_the_same_afterwards)
{
    static const char *const names[] = {"small", "several", "fixed",   "empty",   "emptied",    "middle",
                                        "large", "rate-8",  "rate-12", "rate-16", "rate-empty", "large-empty"};
    const size_t n = sizeof(names) / sizeof(names[0]);
    make_filters();
    give_key();
    expect_move(0, "move\tlarge\t", "--dry-run");
    expect(to, ":0", "DBSIZE");
    expect_move(0, "moved    13 filters", "--verify");
    expect(to, ":13", "DBSIZE");
    for (size_t i = 0; i < n; i++)
        expect_same(names[i]);
    client_expect_items(to, "bloom", 0, 50);
    long long ttl = client_number(to, "PTTL small");
    cr_assert(ttl > 100000 && ttl <= 500000, "%lld", ttl);
    cr_expect_eq(client_number(to, "PTTL large"), -1);
    expect_move(0, "there    13", "--verify");

    /* Both behave alike from here on. */
    change("CF.DEL", "several", 200, 900);
    each(to, "CF.DEL", "several", 200, 900);
    client_skip(to, 900);
    expect_same("several");
    change("CF.ADD", "rate-12", 5000, 5000);
    each(to, "CF.ADD", "rate-12", 5000, 5000);
    client_skip(to, 5000);
    expect_same("rate-12");

    /* And after the target's restart. */
    client_kill(to, &target);
    to = client_restart(&target);
    static const char *const asks[] = {"EXISTS", "MEXISTS", "COUNT", "ADD", "ADDNX", "DEL"};
    for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++)
        cr_assert(strstr(client_ask(to, "CF.%s rate-12 x", asks[i]), "of this filter is missing"), "%s", asks[i]);
    give_key(); /* it had been set for that process only */
    for (size_t i = 0; i < n; i++)
        expect_same(names[i]);
}

/* A filter changed since then is another one, even with as many items. */
PAIR_TEST(cuckoo_move, other_filters_of_the_same_name_are_replaced_only_on_demand)
{
    expect(from, "+OK", "CF.RESERVE f 1000");
    expect(from, "+OK", "CF.RESERVE g 20000000 BUCKETSIZE 4");
    change("CF.ADD", "f", 0, 10);
    change("CF.ADD", "g", 0, 10);
    expect_move(0, "moved    2 filters", "");
    change("CF.DEL", "f", 0, 1);
    change("CF.ADD", "f", 10, 1);
    change("CF.DEL", "g", 0, 1);
    change("CF.ADD", "g", 10, 1);
    expect_move(3, "skipped f: the target has another filter of this name (buckets 512, 10 items, 1 layers", "");
    expect_move(0, "moved    2 filters", "--replace --verify");
    expect_same("f");
    expect_same("g");

    expect(from, ":2", "DEL f g");
    client_add_items(from, "f", 0, 5);
    expect(from, "+OK", "CF.RESERVE g 100");
    expect_move(3, "skipped f: the target has a value of another type under this name", "");
    expect_move(0, "moved    2 filters", "--replace --verify");
    client_expect_items(to, "f", 0, 5);
    expect_same("g");
}

PAIR_TEST(cuckoo_move, chunks_serve_where_a_dump_is_not_allowed)
{
    expect(from, "+OK", "CF.RESERVE f 1000 EXPANSION 4");
    change("CF.ADD", "f", 0, 4000);
    expect(from, "+OK", "CF.RESERVE empty 1000");
    expect(from, "+OK", "CF.RESERVE rate 1000000 ERROR 0.01"); /* its chunks end within slots */
    change("CF.ADD", "rate", 0, 20000);
    expect(to, "+OK", "ACL SETUSER default -dump -restore");
    expect_move(0, "moved    3 filters", "--verify");
    expect_same("f");
    expect_same("empty");
    expect_same("rate");
    expect(to, ":3", "DBSIZE");
    client_kill(to, &target);
    to = client_restart(&target);
    expect_same("rate");
    expect(to, "+OK", "ACL SETUSER default +@all");
}
