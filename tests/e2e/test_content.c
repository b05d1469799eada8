/* Filters created whole: dumped and loaded, restored, copied, merged, emptied. Merges while clients add:
 * test_merges.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "wire.h"

CLIENT_SUITE(the_daemon, client, content, "--threads", "3");

/* ---- dumps ---- */

struct chunk {
    char iterator[24];
    char *data;
    size_t len;
};

#define MAX_CHUNKS 64

/* The loop from RedisBloom's documentation. */
static int scandump(redisContext *c, const char *key, struct chunk *chunks)
{
    int n = 0;
    char iterator[24] = "0";
    for (;;) {
        redisReply *reply = redisCommand(c, "BF.SCANDUMP %s %s", key, iterator);
        cr_assert(reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2, "%s",
                  reply ? reply->str : c->errstr);
        snprintf(iterator, sizeof(iterator), "%lld", reply->element[0]->integer);
        if (reply->element[0]->integer == 0) {
            cr_assert_eq(reply->element[1]->len, 0);
            freeReplyObject(reply);
            return n;
        }
        cr_assert_lt(n, MAX_CHUNKS);
        strcpy(chunks[n].iterator, iterator);
        chunks[n].len = reply->element[1]->len;
        chunks[n].data = malloc(chunks[n].len);
        memcpy(chunks[n].data, reply->element[1]->str, chunks[n].len);
        n++;
        freeReplyObject(reply);
    }
}

static void chunks_free(struct chunk *chunks, int n)
{
    while (n > 0)
        free(chunks[--n].data);
}

static const char *loadchunk(redisContext *c, const char *key, const struct chunk *chunk)
{
    return client_ask(c, "BF.LOADCHUNK %s %s %b", key, chunk->iterator, chunk->data, chunk->len);
}

/* Small and large filters, with one layer and with many: a loaded filter gives the same answers and BF.INFO as the
 * dumped one. It is missing before its last chunk. */
DAEMON_TEST(the_daemon, content, a_dump_is_loaded_again)
{
    static const struct {
        const char *reserve;
        int items;
    } cases[] = {{"BF.RESERVE f 0.01 100", 3},
                 {"BF.RESERVE f 0.001 50", 4000},
                 {"BF.RESERVE f 0.001 2000000", 5000},
                 {"BF.RESERVE f 0.01 1000 NONSCALING", 900}};
    struct chunk chunks[MAX_CHUNKS];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect(client, "+OK", cases[i].reserve);
        client_for_items(client, "BF.MADD", "f", "i", cases[i].items);
        int n = scandump(client, "f", chunks);
        cr_assert_geq(n, 3);
        for (int c = 0; c < n; c++) {
            expect(client, ":0", "EXISTS g");
            expect(client, ":0", "BF.EXISTS g i0");
            cr_assert_str_eq(loadchunk(client, "g", &chunks[c]), "+OK", "chunk %d", c);
        }
        cr_assert_eq(client_for_items(client, "BF.MEXISTS", "g", "i", cases[i].items), cases[i].items);
        char *info = strdup(client_ask(client, "BF.INFO f"));
        expect(client, info, "BF.INFO g");
        free(info);
        info = strdup(client_ask(client, "BF.INFO f BITSSET"));
        expect(client, info, "BF.INFO g BITSSET");
        free(info);
        expect(client, ":1", "BF.ADD g another");
        expect(client, ":2", "DEL f g");
        chunks_free(chunks, n);
    }
}

/* After any wrong chunk: an error, the load is over, no filter exists; and the right chunks can be sent again. */
DAEMON_TEST(the_daemon, content, a_wrong_chunk_ends_the_load)
{
    struct chunk chunks[MAX_CHUNKS], bad;
    expect(client, "+OK", "BF.RESERVE f 0.001 1000000");
    client_for_items(client, "BF.MADD", "f", "i", 1000);
    int n = scandump(client, "f", chunks);
    cr_assert_geq(n, 5);
    for (int way = 0; way < 7; way++) {
        cr_assert_str_eq(loadchunk(client, "g", &chunks[0]), "+OK");
        cr_assert_str_eq(loadchunk(client, "g", &chunks[1]), "+OK");
        char *copy = calloc(1, 3 << 20);
        memcpy(copy, chunks[2].data, chunks[2].len);
        bad = chunks[2];
        bad.data = copy;
        if (way == 0)
            copy[chunks[2].len / 2] ^= 1; /* damaged */
        else if (way == 1)
            bad.len--; /* cut */
        else if (way == 2)
            bad = chunks[1]; /* sent twice */
        else if (way == 3)
            bad = chunks[3]; /* one is missing */
        else if (way == 4)
            bad = chunks[0]; /* from the beginning again */
        else if (way == 5)
            bad.len = 3 << 20; /* far too long */
        else
            strcpy(bad.iterator, chunks[3].iterator); /* the iterator of another chunk */
        const char *reply = loadchunk(client, "g", &bad);
        cr_assert_eq(strncmp(reply, "-ERR received bad data: ", 24), 0, "way %d: %s", way, reply);
        cr_assert(strstr(reply, "dropped"), "way %d: %s", way, reply);
        free(copy);
        reply = loadchunk(client, "g", &chunks[2]); /* the right one is too late */
        cr_assert_eq(strncmp(reply, "-ERR received bad data: ", 24), 0, "way %d: %s", way, reply);
        expect(client, ":0", "EXISTS g");
    }
    for (int c = 0; c < n; c++)
        cr_assert_str_eq(loadchunk(client, "g", &chunks[c]), "+OK");
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "g", "i", 1000), 1000);
    cr_assert_eq(strncmp(loadchunk(client, "g", &chunks[0]), "-ERR received bad data: the key exists", 38), 0);
    expect(client, ":2", "EXISTS f g h");
    chunks_free(chunks, n);
}

/* From two connections: at least one is refused, nothing is loaded, and all chunks can be sent again. The rounds
 * continue until one load has started in the middle of the other, and both got an error. */
DAEMON_TEST(the_daemon, content, two_chunks_of_one_load_at_a_time)
{
    struct chunk chunks[MAX_CHUNKS];
    redisContext *both[] = {client, client_open(the_daemon.port)};
    expect(client, "+OK", "BF.RESERVE f 0.001 1000000");
    client_for_items(client, "BF.MADD", "f", "i", 1000);
    int n = scandump(client, "f", chunks), met = 0;
    for (int round = 0; round < 5000 && met < 2; round++) {
        int taken = 0;
        met = 0;
        cr_assert_str_eq(loadchunk(client, "g", &chunks[0]), "+OK");
        for (int i = 0, done = 0; i < 2; i++, done = 0) {
            redisAppendCommand(both[i], "BF.LOADCHUNK g %s %b", chunks[1].iterator, chunks[1].data, chunks[1].len);
            while (!done)
                cr_assert_eq(redisBufferWrite(both[i], &done), REDIS_OK);
        }
        for (int i = 0; i < 2; i++) {
            const char *reply = client_reply(both[i]);
            taken += strcmp(reply, "+OK") == 0;
            met += strstr(reply, "two chunks at a time") != NULL;
            cr_assert(strcmp(reply, "+OK") == 0 || strstr(reply, "dropped"), "%s", reply);
        }
        cr_assert_leq(taken, 1);
        cr_assert_eq(strncmp(loadchunk(client, "g", &chunks[2]), "-ERR received bad data: ", 24), 0);
        expect(client, ":0", "EXISTS g");
    }
    cr_assert_eq(met, 2);
    for (int c = 0; c < n; c++)
        cr_assert_str_eq(loadchunk(both[c % 2], "g", &chunks[c]), "+OK");
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "g", "i", 1000), 1000);
    redisFree(both[1]);
    chunks_free(chunks, n);
}

/* Chunks of two dumps of one filter, with adds in between, do not combine; nor do those of another filter. */
DAEMON_TEST(the_daemon, content, chunks_of_different_dumps_do_not_mix)
{
    struct chunk first[MAX_CHUNKS], second[MAX_CHUNKS];
    expect(client, "+OK", "BF.RESERVE f 0.01 1000");
    expect(client, ":1", "BF.ADD f a");
    int n = scandump(client, "f", first);
    expect(client, ":1", "BF.ADD f b");
    cr_assert_eq(scandump(client, "f", second), n);
    for (int cut = 1; cut < n; cut++) {
        for (int c = 0; c < cut; c++)
            cr_assert_str_eq(loadchunk(client, "g", &first[c]), "+OK");
        cr_assert_eq(strncmp(loadchunk(client, "g", &second[cut]), "-ERR received bad data: ", 24), 0, "cut %d", cut);
        expect(client, ":0", "EXISTS g");
    }
    chunks_free(first, n);
    chunks_free(second, n);
}

/* An abandoned load: dropped after its timeout, its memory given back. And a name that is taken meanwhile. */
DAEMON_TEST(the_daemon, content, a_load_that_is_not_gone_on_with)
{
    struct chunk chunks[MAX_CHUNKS];
    expect(client, "+OK", "BF.RESERVE f 0.01 1000");
    int n = scandump(client, "f", chunks);
    cr_assert_str_eq(loadchunk(client, "g", &chunks[0]), "+OK");
    cr_assert_str_eq(loadchunk(client, "g", &chunks[1]), "+OK");
    expect(client, ":1", "BF.ADD g x");
    cr_assert_eq(strncmp(loadchunk(client, "g", &chunks[2]), "-ERR received bad data: the key exists", 38), 0);
    expect(client, ":1", "BF.CARD g");
    expect(client, ":1", "DEL g");
    expect(client, "+OK", "CONFIG SET bf-load-timeout 1");
    const char *reply;
    do /* after the timeout the next chunk has no predecessor */
        reply = loadchunk(client, "g", &chunks[2]);
    while (strcmp(reply, "+OK") == 0 && strcmp(client_ask(client, "DEL g"), ":1") == 0 &&
           strcmp(loadchunk(client, "g", &chunks[0]), "+OK") == 0 &&
           strcmp(loadchunk(client, "g", &chunks[1]), "+OK") == 0 && usleep(1500000) == 0);
    cr_assert(strstr(reply, "first chunk"), "%s", reply);
    chunks_free(chunks, n);
}

/* A filter that would not fit is refused at its first chunk, with its required memory; a load under way counts. */
DAEMON_TEST(the_daemon, content, loads_count_against_the_limits)
{
    struct chunk chunks[MAX_CHUNKS];
    expect(client, "+OK", "BF.RESERVE f 0.01 100000");
    int n = scandump(client, "f", chunks);
    expect(client, "+OK", "CONFIG SET bf-max-filter-bytes 1000");
    const char *reply = loadchunk(client, "g", &chunks[0]);
    cr_assert(strncmp(reply, "-OOM the filter would need", 26) == 0, "%s", reply);
    expect(client, "+OK", "CONFIG SET bf-max-filter-bytes 0");
    long long used = client_info(client, "memory", "used_memory");
    long long one = client_number(client, "MEMORY USAGE f"); /* room for one more filter, not for two */
    expect(client, "+OK", "CONFIG SET maxmemory %lld", used + one + one / 2);
    cr_assert_str_eq(loadchunk(client, "g", &chunks[0]), "+OK");
    reply = loadchunk(client, "h", &chunks[0]);
    cr_assert(strncmp(reply, "-OOM", 4) == 0, "%s", reply);
    expect_has(client, "bf_loads_under_way:1\\x0d", "INFO bf");
    expect(client, "+OK", "CONFIG SET maxmemory 0"); /* the chunks themselves count, too */
    for (int c = 1; c < n; c++)
        cr_assert_str_eq(loadchunk(client, "g", &chunks[c]), "+OK");
    expect_has(client, "bf_loads_under_way:0\\x0d", "INFO bf");
    expect(client, ":0", "EXISTS h");
    chunks_free(chunks, n);
}

/* Iterators and errors as RedisBloom's clients expect them. */
DAEMON_TEST(the_daemon, content, scandump_and_loadchunk_refuse)
{
    expect(client, "-ERR not found", "BF.SCANDUMP f 0");
    expect(client, "+OK", "BF.RESERVE f 0.01 100");
    expect(client, "-Second argument must be numeric", "BF.SCANDUMP f x");
    expect(client, "-ERR invalid iterator: begin with 0, go on with what the last reply said", "BF.SCANDUMP f 1");
    expect(client, "-ERR invalid iterator: begin with 0, go on with what the last reply said", "BF.SCANDUMP f -1");
    expect(client, "-ERR invalid iterator: begin with 0, go on with what the last reply said",
           "BF.SCANDUMP f 9007199254740991");
    expect(client, "-ERR Second argument must be numeric", "BF.LOADCHUNK g x data");
    expect(client, "-ERR received bad data: 4 bytes are too few for the header of a dump", "BF.LOADCHUNK g 1 data");
    expect(client,
           "-ERR received bad data: not a dump of Bloomery; a dump of RedisBloom begins with its header, "
           "iterator 1",
           "BF.LOADCHUNK g 2 data");
}

/* ---- DUMP, RESTORE, COPY ---- */

struct bytes {
    char *data;
    size_t len;
};

static struct bytes dump(const char *key)
{
    redisReply *reply = redisCommand(client, "DUMP %s", key);
    cr_assert(reply && reply->type == REDIS_REPLY_STRING, "%s", reply ? reply->str : client->errstr);
    struct bytes bytes = {malloc(reply->len), reply->len};
    memcpy(bytes.data, reply->str, reply->len);
    freeReplyObject(reply);
    return bytes;
}

DAEMON_TEST(the_daemon, content, dump_and_restore)
{
    expect(client, "nil", "DUMP f");
    expect(client, "+OK", "BF.RESERVE f 0.01 100");
    client_for_items(client, "BF.MADD", "f", "i", 500);
    struct bytes bytes = dump("f");
    expect(client, "+OK", "RESTORE g 0 %b", bytes.data, bytes.len);
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "g", "i", 500), 500);
    expect(client, "-BUSYKEY Target key name already exists.", "RESTORE g 0 %b", bytes.data, bytes.len);
    expect(client, ":1", "BF.ADD g more");
    expect(client, "+OK", "RESTORE g 0 %b REPLACE IDLETIME 5", bytes.data, bytes.len);
    expect(client, ":0", "BF.EXISTS g more");
    expect(client, "+OK", "RESTORE g 0 %b REPLACE FREQ 255", bytes.data, bytes.len);
    expect(client, "-ERR Invalid FREQ value, must be >= 0 and <= 255", "RESTORE g 0 %b REPLACE FREQ 256", bytes.data,
           bytes.len);
    expect(client, "-ERR Invalid IDLETIME value, must be >= 0", "RESTORE g 0 %b REPLACE IDLETIME -1", bytes.data,
           bytes.len);
    expect(client, "-ERR Invalid TTL value, must be >= 0", "RESTORE h -1 %b", bytes.data, bytes.len);
    expect(client, "-ERR value is not an integer or out of range", "RESTORE h x %b", bytes.data, bytes.len);
    expect(client, "-ERR syntax error", "RESTORE h 0 %b SIDEWAYS", bytes.data, bytes.len);
    expect(client, "-ERR syntax error", "RESTORE h 0 %b IDLETIME 1 FREQ 1", bytes.data, bytes.len);
    bytes.data[bytes.len / 2] ^= 4;
    expect(client, "-ERR DUMP payload version or checksum are wrong", "RESTORE h 0 %b", bytes.data, bytes.len);
    expect(client, "-ERR DUMP payload version or checksum are wrong", "RESTORE h 0 %b", bytes.data, bytes.len - 1);
    expect(client, ":0", "EXISTS h");
    free(bytes.data);
}

DAEMON_TEST(the_daemon, content, copy)
{
    expect(client, ":0", "COPY f g");
    expect(client, "+OK", "BF.RESERVE f 0.01 10 EXPANSION 4");
    client_for_items(client, "BF.MADD", "f", "i", 300);
    expect(client, ":1", "COPY f g");
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "g", "i", 300), 300);
    char *info = strdup(client_ask(client, "BF.INFO f"));
    expect(client, info, "BF.INFO g");
    free(info);
    expect(client, ":1", "BF.ADD f more");
    expect(client, ":0", "BF.EXISTS g more");
    expect(client, ":0", "COPY f g");
    expect(client, ":1", "COPY f g REPLACE DB 0");
    expect(client, ":1", "BF.EXISTS g more");
    expect(client, "-ERR DB index is out of range", "COPY f h DB 16");
    expect(client, ":1", "COPY f f DB 1");
    expect(client, ":0", "COPY f f DB 1");
    expect(client, "-ERR source and destination objects are the same", "COPY f f");
    expect(client, "-ERR syntax error", "COPY f h QUICKLY");
}

/* ---- BF.MERGE, BF.CLEAR ---- */

DAEMON_TEST(the_daemon, content, merge)
{
    expect(client, "+OK", "BF.RESERVE a 0.001 1000");
    expect(client, "+OK", "BF.RESERVE b 0.001 1000");
    expect(client, "+OK", "BF.RESERVE c 0.001 1000");
    client_for_items(client, "BF.MADD", "a", "a", 200);
    client_for_items(client, "BF.MADD", "b", "b", 300);
    expect(client, "-ERR not found: 'nothing'", "BF.MERGE a b nothing");
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "a", "b", 300), 0);
    expect(client, "+OK", "BF.MERGE a b c a");
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "a", "a", 200), 200);
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "a", "b", 300), 300);
    long long card = client_number(client, "BF.CARD a");
    cr_assert(card >= 485 && card <= 500, "%lld", card);
    expect(client, "+OK", "BF.MERGE new a b");
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "new", "a", 200), 200);
    char *many = malloc(1001 * 2 + 32);
    strcpy(many, "BF.MERGE a");
    for (int i = 0; i < 1001; i++)
        strcat(many, " b");
    expect(client, "-ERR at most 1000 filters can be merged at a time", many);
    many[strlen(many) - 2] = '\0';
    expect(client, "+OK", many);
    free(many);
    expect(client, "+OK", "BF.RESERVE other 0.001 1001");
    expect(client, "-ERR 'a' and 'other' cannot be merged: the capacities differ: 1000 and 1001", "BF.MERGE a b other");
    expect(client, "-ERR 'b' and 'other' cannot be merged: the capacities differ: 1000 and 1001",
           "BF.MERGE missing b other");
    client_for_items(client, "BF.MADD", "c", "c", 990);
    const char *reply = client_ask(client, "BF.MERGE a c");
    cr_assert(strncmp(reply, "-ERR the union would be too full", 32) == 0, "%s", reply);
    expect(client, ":0", "BF.EXISTS a c1");
    expect(client, "+OK", "CONFIG SET bf-merge-overfull yes");
    expect(client, "+OK", "BF.MERGE a c");
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "a", "c", 990), 990);
    expect(client, ":1000", "BF.CARD a"); /* a layer never counts more than its capacity */
}

DAEMON_TEST(the_daemon, content, clear)
{
    expect(client, "-ERR not found", "BF.CLEAR f");
    expect(client, "+OK", "BF.RESERVE f 0.01 50 EXPANSION 3");
    char *info = strdup(client_ask(client, "BF.INFO f"));
    client_for_items(client, "BF.MADD", "f", "i", 1000);
    expect(client, "+OK", "BF.CLEAR f");
    expect(client, info, "BF.INFO f");
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "f", "i", 1000), 0);
    expect(client, ":1", "BF.ADD f i1");
    free(info);
    expect(client, "+OK", "CONFIG SET maxmemory 3000000");
    expect(client, "+OK", "BF.RESERVE large 0.01 1500000 NONSCALING");
    expect(client, "+OK", "BF.CLEAR large"); /* though twice its size would not fit */
}

/* A restart finds merged and emptied filters. */
DAEMON_TEST(the_daemon, content, what_was_made_is_saved)
{
    struct chunk chunks[MAX_CHUNKS];
    expect(client, "+OK", "BF.RESERVE a 0.001 1000");
    expect(client, "+OK", "BF.RESERVE b 0.001 1000");
    client_for_items(client, "BF.MADD", "a", "a", 100);
    client_for_items(client, "BF.MADD", "b", "b", 100);
    expect(client, "+OK", "SAVE");
    expect(client, "+OK", "BF.MERGE a b");
    expect(client, ":1", "COPY a copied");
    int n = scandump(client, "a", chunks);
    for (int c = 0; c < n; c++)
        cr_assert_str_eq(loadchunk(client, "loaded", &chunks[c]), "+OK");
    chunks_free(chunks, n);
    expect(client, "+OK", "BF.CLEAR b");
    expect(client, "+OK", "SAVE");
    client = client_after_stop(client, &the_daemon, NULL);
    static const char *const keys[] = {"a", "copied", "loaded"};
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(client_for_items(client, "BF.MEXISTS", keys[i], "a", 100), 100);
        cr_assert_eq(client_for_items(client, "BF.MEXISTS", keys[i], "b", 100), 100);
    }
    expect(client, ":0", "BF.CARD b");
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "b", "b", 100), 0);
}

/* ---- large values ---- */

/* A command whose words are in a text. */
static void run(const char *command, const char *expected)
{
    char line[120];
    int len = snprintf(line, sizeof(line), "%s\r\n", command);
    cr_assert_eq(redisAppendFormattedCommand(client, line, (size_t)len), REDIS_OK);
    cr_expect_str_eq(client_reply(client), expected, "%s", command);
}

static size_t dump_and_restore(const char *name, const char *items)
{
    redisReply *dump = redisCommand(client, "DUMP %s", name);
    cr_assert_eq(dump->type, REDIS_REPLY_STRING, "%s: %s", name, dump->str ? dump->str : "nil");
    redisReply *reply = redisCommand(client, "RESTORE copy 0 %b REPLACE", dump->str, dump->len);
    cr_assert_str_eq(reply->str, "OK", "%s: %s", name, reply->str);
    freeReplyObject(reply);
    expect(client, "[:1,:1,:0]", "%s copy a b nobody", items);
    size_t len = dump->len;
    freeReplyObject(dump);
    return len;
}

/* DUMP gives what RESTORE takes, whatever its size: proto-max-bulk-len alone is the limit. */
DAEMON_TEST(the_daemon, content, dumps_of_any_size)
{
    static const struct {
        const char *reserve, *add, *ask;
    } kinds[] = {
        {"BF.RESERVE f 0.01 10000000", "BF.MADD f", "BF.MEXISTS"},
        {"BF.RESERVE f 0.01 10000000 LAYOUT redisbloom", "BF.MADD f", "BF.MEXISTS"},
        {"BF.RESERVE f 0.01 10000000 LAYOUT blocked", "BF.MADD f", "BF.MEXISTS"},
        {"CF.RESERVE f 12000000", "CF.INSERT f ITEMS", "CF.MEXISTS"},
        {"CF.RESERVE f 8000000 ERROR 0.001", "CF.INSERT f ITEMS", "CF.MEXISTS"},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char command[64];
        run(kinds[i].reserve, "+OK");
        snprintf(command, sizeof(command), "%s a b", kinds[i].add);
        run(command, "[:1,:1]");
        size_t len = dump_and_restore("f", kinds[i].ask);
        cr_expect_gt(len, 11u << 20, "%s: %zu bytes", kinds[i].reserve, len);
        expect(client, "+OK", "CONFIG SET proto-max-bulk-len 1mb");
        expect_has(client, "at most 1048576 bytes (proto-max-bulk-len): use", "DUMP f");
        expect(client, "+OK", "CONFIG SET proto-max-bulk-len 512mb");
        expect(client, ":1", "DEL f");
    }
}

/* The limits of a load hold for each way in, also if some bytes stand for many. */
DAEMON_TEST(the_daemon, content, short_values_of_large_filters_are_refused)
{
    static const char *const reserves[] = {"BF.RESERVE f 0.01 3000000 LAYOUT redisbloom", "CF.RESERVE f 6000000",
                                           "BF.RESERVE f 0.01 3000000"};
    for (int i = 0; i < 3; i++) {
        run(reserves[i], "+OK");
        redisReply *dump = redisCommand(client, "DUMP f");
        cr_assert_eq(dump->type, REDIS_REPLY_STRING);
        expect(client, "+OK", "CONFIG SET bf-max-filter-bytes 1mb");
        expect_has(client, "the limit for one filter is 1048576", "COPY f g");
        expect_has(client, i == 1 ? "WRONGTYPE" : "the limit for one filter is 1048576", "BF.MERGE g f");
        expect_has(client, "the limit for one filter is 1048576", "RESTORE g 0 %b", dump->str, dump->len);
        expect(client, "+OK", "CONFIG SET bf-max-filter-bytes 0 maxmemory 3mb");
        expect_has(client, "-OOM", "COPY f g");
        expect_has(client, "-OOM", "BF.MERGE g f");
        expect_has(client, "-OOM", "RESTORE g 0 %b", dump->str, dump->len);
        expect(client, ":0", "EXISTS g");
        expect(client, "+OK", "CONFIG SET bf-max-filter-bytes 0 maxmemory 0");
        expect(client, ":1", "DEL f");
        freeReplyObject(dump);
    }
}
