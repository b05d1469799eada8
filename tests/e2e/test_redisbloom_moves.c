/* RedisBloom's filters are moved here by RESTORE and BF.LOADCHUNK, answer as in RedisBloom, and move back. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "golden.h"
#include "redisbloom_recordings.h"
#include "wait.h"
#include "wire.h"

DAEMON_SUITE(the_daemon, redisbloom_moves, "--threads", "3");

static redisContext *client;

static void connect_client(void)
{
    client = client_open(the_daemon.port);
}

/* ---- recordings ---- */

struct chunk {
    long long iterator;
    unsigned char *bytes;
    size_t len;
};

#define MAX_CHUNKS 16

/* The recorded BF.SCANDUMP. */
static size_t chunks_of(const char *filter, struct chunk *chunks)
{
    size_t len, n = 0;
    char *text = (char *)golden_file(&len, "%s/%s/scandump.json", REDISBLOOM_GOLDEN, filter);
    char *at = text;
    while ((at = strstr(at, "\"iterator\": "))) {
        struct chunk *chunk = &chunks[n++];
        cr_assert_leq(n, MAX_CHUNKS);
        chunk->iterator = strtoll(at + 12, NULL, 10);
        at = strstr(at, "\"hex\": \"") + 8;
        char *end = strchr(at, '"');
        *end = '\0';
        chunk->bytes = malloc(strlen(at) / 2 + 1);
        chunk->len = golden_unhex(at);
        memcpy(chunk->bytes, at, chunk->len);
        at = end + 1;
    }
    free(text);
    return n;
}

static void chunks_free(struct chunk *chunks, size_t n)
{
    while (n > 0)
        free(chunks[--n].bytes);
}

/* Lines of a table: an item, and the reply to BF.EXISTS or BF.ADD. One by one, in order. */
static void expect_answers(const char *filter, const char *table, const char *command, const char *key)
{
    struct golden_lines lines;
    size_t n = 0;
    golden_lines_open(&lines, "%s/%s/%s", REDISBLOOM_GOLDEN, filter, table);
    while (golden_lines_next(&lines)) {
        char answer[32];
        snprintf(answer, sizeof(answer), "%.31s", lines.fields[1]);
        size_t len = golden_unhex(lines.fields[0]);
        const char *reply = client_ask(client, "%s %s %b", command, key, lines.fields[0], len);
        bool same = reply[0] == ':' ? strcmp(reply + 1, answer) == 0
                                    : strstr(answer, "full") != NULL && strstr(reply, "full") != NULL;
        cr_assert(same, "%s, %s, line %zu: '%s' instead of '%s'", filter, table, n, reply, answer);
        n++;
    }
    cr_assert_gt(n, 0);
    golden_lines_close(&lines);
}

/* All added items; the last ones were refused if the filter was full. Those of the largest filter are not recorded. */
static void expect_items(const char *filter, const char *key)
{
    struct golden_lines lines;
    if (strcmp(filter, "n20000_p0.0001") == 0)
        return;
    long long items = client_number(client, "BF.CARD %s", key);
    golden_lines_open(&lines, "%s/%s/items.hex", REDISBLOOM_GOLDEN, filter);
    for (long long i = 0; i < items && golden_lines_next(&lines); i++) {
        size_t len = golden_unhex(lines.fields[0]);
        cr_assert_str_eq(client_ask(client, "BF.EXISTS %s %b", key, lines.fields[0], len), ":1", "%s", filter);
    }
    golden_lines_close(&lines);
}

/* BF.INFO equals RedisBloom's, except for the size in memory. */
static void expect_info(const char *filter, const char *section, const char *key)
{
    static const struct {
        const char *recorded;
        const char *argument;
    } fields[] = {{"Capacity", "CAPACITY"}, {"Number of filters", "FILTERS"}, {"Number of items inserted", "ITEMS"}};
    size_t len;
    char *meta = (char *)golden_file(&len, "%s/%s/meta.json", REDISBLOOM_GOLDEN, filter);
    char *at = strstr(meta, section);
    cr_assert(at);
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        char expected[64];
        snprintf(expected, sizeof(expected), "[:%lld]", (long long)golden_json_number(at, fields[i].recorded));
        const char *reply = client_ask(client, "BF.INFO %s %s", key, fields[i].argument);
        cr_assert_str_eq(reply, expected, "%s, %s: %s instead of %s", filter, fields[i].recorded, reply, expected);
    }
    free(meta);
}

/* The filter of that name equals RedisBloom's at its dump, and takes the next adds in the same way. */
static void expect_the_recorded(const char *filter, const char *key)
{
    expect_info(filter, "\"info\"", key);
    expect_items(filter, key);
    expect_answers(filter, "probes.tsv", "BF.EXISTS", key);
    expect_answers(filter, "more.tsv", "BF.ADD", key);
    expect_info(filter, "\"info_after_more\"", key);
}

/* ---- RESTORE ---- */

DAEMON_TEST(the_daemon, redisbloom_moves, a_restored_filter_answers_as_it_did_in_redisbloom)
{
    connect_client();
    for (size_t f = 0; f < REDISBLOOM_NFILTERS; f++) {
        size_t len;
        unsigned char *dump = redisbloom_dump_file(REDISBLOOM_FILTERS[f], &len);
        expect(client, "+OK", "RESTORE f 0 %b", dump, len);
        expect_the_recorded(REDISBLOOM_FILTERS[f], "f");
        expect(client, "-BUSYKEY Target key name already exists.", "RESTORE f 0 %b", dump, len);
        expect(client, "+OK", "RESTORE f 0 %b REPLACE", dump, len);
        expect(client, ":1", "DEL f");
        free(dump);
    }
}

/* DUMP equals RESTORE's input, to the byte; except for RDB's version and with it the checksum, and for the filter
 * whose bits Redis had compressed. */
DAEMON_TEST(the_daemon, redisbloom_moves, a_dump_is_redisblooms)
{
    connect_client();
    for (size_t f = 0; f < REDISBLOOM_NFILTERS; f++) {
        size_t len;
        unsigned char *dump = redisbloom_dump_file(REDISBLOOM_FILTERS[f], &len);
        expect(client, "+OK", "RESTORE f 0 %b", dump, len);
        redisReply *reply = redisCommand(client, "DUMP f");
        cr_assert(reply && reply->type == REDIS_REPLY_STRING);
        if (strcmp(REDISBLOOM_FILTERS[f], "empty") != 0) {
            cr_assert_eq(reply->len, len, "%s: %zu bytes instead of %zu", REDISBLOOM_FILTERS[f], reply->len, len);
            cr_assert_arr_eq((unsigned char *)reply->str, dump, len - 10, "%s", REDISBLOOM_FILTERS[f]);
        } else {
            cr_assert_gt(reply->len, len);
        }
        expect(client, "+OK", "RESTORE g 0 %b", reply->str, reply->len);
        expect_the_recorded(REDISBLOOM_FILTERS[f], "g");
        expect(client, ":2", "DEL f g");
        freeReplyObject(reply);
        free(dump);
    }
}

/* The commands that MIGRATE of an engine sends, also from a cluster: with a password it begins with AUTH. */
DAEMON_TEST(the_daemon, redisbloom_moves, options_of_restore_are_those_of_redis)
{
    size_t len;
    unsigned char *dump = redisbloom_dump_file("n1000_p0.01", &len);
    connect_client();
    redisAppendCommand(client, "SELECT 0");
    redisAppendCommand(client, "RESTORE f 60000 %b REPLACE", dump, len);
    redisAppendCommand(client, "RESTORE g 0 %b", dump, len);
    redisAppendCommand(client, "RESTORE-ASKING h 60000 %b REPLACE", dump, len);
    for (int i = 0; i < 4; i++)
        cr_assert_str_eq(client_reply(client), "+OK");
    long long ttl = client_number(client, "PTTL f");
    cr_assert(ttl > 0 && ttl <= 60000, "%lld", ttl);
    ttl = client_number(client, "PTTL h");
    cr_assert(ttl > 0 && ttl <= 60000, "%lld", ttl);
    expect(client, ":-1", "PTTL g");
    expect(client, "+OK", "RESTORE a 4102444800000 %b ABSTTL IDLETIME 5", dump, len);
    expect(client, ":4102444800000", "PEXPIRETIME a");
    expect(client, "+OK", "RESTORE b 0 %b FREQ 5", dump, len);
    expect(client, "+OK", "RESTORE g 1 %b ABSTTL REPLACE", dump, len);
    expect(client, ":0", "EXISTS g");
    free(dump);
}

DAEMON_TEST(the_daemon, redisbloom_moves, a_damaged_dump_changes_nothing)
{
    size_t len;
    unsigned char *dump = redisbloom_dump_file("scaled_6_layers", &len);
    connect_client();
    for (size_t at = 0; at < len; at += at < 200 || at > len - 50 ? 1 : 53) {
        dump[at] ^= 1;
        expect(client, "-ERR DUMP payload version or checksum are wrong", "RESTORE f 0 %b", dump, len);
        dump[at] ^= 1;
    }
    expect(client, "-ERR DUMP payload version or checksum are wrong", "RESTORE f 0 %b", dump, len - 1);
    expect(client, "-ERR DUMP payload version or checksum are wrong", "RESTORE f 0 %b", dump, (size_t)10);
    expect(client, ":0", "DBSIZE");
    free(dump);
}

/* ---- BF.LOADCHUNK ---- */

/* For each recorded filter: a test with its chunks. They make a filter 'f', which is deleted afterwards. */
typedef void chunks_test(const char *filter, const struct chunk *chunks, size_t n);

static void for_each_recording(chunks_test *test)
{
    connect_client();
    for (size_t f = 0; f < REDISBLOOM_NFILTERS; f++) {
        struct chunk chunks[MAX_CHUNKS];
        size_t n = chunks_of(REDISBLOOM_FILTERS[f], chunks);
        test(REDISBLOOM_FILTERS[f], chunks, n);
        expect(client, ":1", "DEL f");
        chunks_free(chunks, n);
    }
    redisFree(client);
}

static const char *load(const char *key, const struct chunk *chunk)
{
    return client_ask(client, "BF.LOADCHUNK %s %lld %b", key, chunk->iterator, chunk->bytes, chunk->len);
}

static void load_in_order(const char *filter, const struct chunk *chunks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        expect(client, ":0", "EXISTS f");
        cr_assert_str_eq(load("f", &chunks[i]), "+OK", "%s, chunk %zu", filter, i);
    }
    expect_the_recorded(filter, "f");
}

DAEMON_TEST(the_daemon, redisbloom_moves, chunks_are_taken_in_order)
{
    for_each_recording(load_in_order);
}

/* From the last chunk to the first, each cut into pieces of odd lengths, each sent twice, also the header; wrong
 * pieces in between change nothing. The filter is there with the last byte. */
static void load_in_any_order(const char *filter, const struct chunk *chunks, size_t n)
{
    size_t piece_len = 777;
    cr_assert_str_eq(load("f", &chunks[0]), "+OK");
    for (size_t i = n - 1; i >= 1; i--) {
        size_t at = chunks[i].len;
        while (at > 0) {
            size_t len = at < piece_len ? at : piece_len;
            struct chunk piece = {chunks[i].iterator - (long long)(chunks[i].len - at), chunks[i].bytes + at - len,
                                  len};
            expect(client, ":0", "EXISTS f");
            cr_assert_str_eq(load("f", &chunks[0]), "+OK");
            expect_has(client, "bad data", "BF.LOADCHUNK f 999999999 abc");
            cr_assert_str_eq(load("f", &piece), "+OK", "%s, chunk %zu at %zu", filter, i, at);
            cr_assert_str_eq(load("f", &piece), "+OK", "%s, chunk %zu at %zu, again", filter, i, at);
            at -= len;
        }
    }
    expect(client, ":1", "EXISTS f");
    for (size_t i = 1; i < n; i++)
        cr_assert_str_eq(load("f", &chunks[i]), "+OK", "what the filter has may come again");
    expect(client, "-ERR received bad data: the key exists", "BF.LOADCHUNK f 9 %b", "\xff\xff\xff\xff\xff\xff\xff\xff",
           (size_t)8);
    expect_the_recorded(filter, "f");
}

DAEMON_TEST(the_daemon, redisbloom_moves, chunks_are_taken_in_any_order_and_repeatedly)
{
    for_each_recording(load_in_any_order);
}

/* Several clients load the same filter at a time. */
DAEMON_TEST(the_daemon, redisbloom_moves, chunks_may_come_over_many_connections_at_a_time)
{
    struct chunk chunks[MAX_CHUNKS];
    redisContext *clients[8];
    connect_client();
    size_t n = chunks_of("n20000_p0.0001", chunks);
    cr_assert_eq(n, 2);
    for (int c = 0; c < 8; c++)
        clients[c] = client_open(the_daemon.port);
    for (int round = 0; round < 20; round++) {
        cr_assert_str_eq(load("f", &chunks[0]), "+OK");
        for (int c = 0; c < 8; c++) {
            for (size_t at = (size_t)c * 500; at < chunks[1].len; at += 8 * 500) {
                size_t len = chunks[1].len - at < 500 ? chunks[1].len - at : 500;
                redisAppendCommand(clients[c], "BF.LOADCHUNK f %lld %b", (long long)(1 + at + len),
                                   chunks[1].bytes + at, len);
            }
            int done;
            cr_assert_eq(redisBufferWrite(clients[c], &done), REDIS_OK);
        }
        for (int c = 0; c < 8; c++) {
            for (size_t at = (size_t)c * 500; at < chunks[1].len; at += 8 * 500)
                cr_assert_str_eq(client_reply(clients[c]), "+OK");
        }
        if (round == 0)
            expect_the_recorded("n20000_p0.0001", "f");
        expect(client, ":1", "DEL f");
    }
    for (int c = 0; c < 8; c++)
        redisFree(clients[c]);
    chunks_free(chunks, n);
}

/* BF.SCANDUMP gives the recorded chunks, to the byte. */
static void scan(const char *filter, const struct chunk *chunks, size_t n)
{
    size_t len;
    unsigned char *dump = redisbloom_dump_file(filter, &len);
    long long iterator = 0;
    expect(client, "+OK", "RESTORE f 0 %b", dump, len);
    for (size_t i = 0; i <= n; i++) {
        redisReply *reply = redisCommand(client, "BF.SCANDUMP f %lld", iterator);
        cr_assert(reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2);
        iterator = reply->element[0]->integer;
        cr_assert_eq(iterator, i < n ? chunks[i].iterator : 0, "%s, chunk %zu", filter, i);
        cr_assert_eq(reply->element[1]->len, i < n ? chunks[i].len : 0);
        if (i < n)
            cr_assert_arr_eq((unsigned char *)reply->element[1]->str, chunks[i].bytes, chunks[i].len, "%s, %zu", filter,
                             i);
        freeReplyObject(reply);
    }
    expect(client, "[:0,\"\"]", "BF.SCANDUMP f 999999999");
    free(dump);
}

DAEMON_TEST(the_daemon, redisbloom_moves, a_scan_is_redisblooms)
{
    for_each_recording(scan);
}

/* ---- artificial dumps ---- */

static uint64_t crc64_bit_by_bit(const unsigned char *bytes, size_t len)
{
    uint64_t crc = 0;
    for (size_t i = 0; i < len; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT64_C(0x95ac9329ac4bc9b5) : 0);
    }
    return crc;
}

/* The value with the trailer of a DUMP. */
static size_t seal(unsigned char *out, const void *value, size_t len)
{
    memcpy(out, value, len);
    memcpy(out + len, "\13", 2);
    uint64_t crc = crc64_bit_by_bit(out, len + 2);
    memcpy(out + len + 2, &crc, 8);
    return len + 10;
}

#define MODULE "\7\x81\x30\x16\xe5\xa2\x89\xbe\xf8\4"
#define RATE   "\x7b\x14\xae\x47\xe1\x7a\x84\x3f" /* 0.01 */
#define BPE    "\x56\x05\x6b\x5e\x2d\x2b\x23\x40" /* its bits per item, 9.585 */
#define LAYER  "\2\12\4" RATE "\2\7\4" BPE        /* for 10 items, with 7 bits each */
#define BITS \
    "\5\x10" \
    "0123456789abcdef" /* 128 */

/* Each has a right checksum. The error names the field, no filter is created, and the daemon continues. */
DAEMON_TEST(the_daemon, redisbloom_moves, a_made_up_dump_is_refused_by_the_name_of_its_field)
{
    static const struct {
        const char *value;
        size_t len;
        const char *reason; /* NULL: it is a filter */
    } table[] = {
#define ROW(bytes, reason) {bytes, sizeof(bytes) - 1, reason}
        ROW(MODULE "\2\3\2\1\2\5\2\2" LAYER "\2\x40\x80\2\0" BITS "\2\3\0", NULL),
        ROW(MODULE "\2\3\2\1\2\5\2\2" LAYER "\2\x40\x80\2\7" BITS "\2\3\0", NULL), /* 2^7 = 128 */
        ROW("\0\3abc", "the value is a string, not a Bloom filter"),
        ROW("\7\x81\x30\x16\xe5\xa2\x89\xbe\x08\4\0", "the value is of the module type MBbloom"),
        ROW(MODULE "\2\3\2\0\2\5\2\2\0", "nfilters"),
        ROW(MODULE "\2\3\2\x80\xff\xff\xff\xff\2\5\2\2", "nfilters: 4294967295"),
        ROW(MODULE "\2\3\2\1\2\x15\2\2" LAYER "\2\x40\x80\2\0" BITS "\2\3\0", "options"),
        ROW(MODULE "\2\3\2\1\2\5\2\0" LAYER "\2\x40\x80\2\0" BITS "\2\3\0", "growth"),
        ROW(MODULE "\2\3\2\1\2\5\2\x80\xff\xff\xff\xff" LAYER "\2\x40\x80\2\0" BITS "\2\3\0", "growth"),
        ROW(MODULE "\2\3\2\1\2\5\2\2" LAYER "\2\x40\x80\2\x40\x40" BITS "\2\3\0", "n2"),
        ROW(MODULE "\2\3\2\1\2\5\2\2" LAYER "\2\x40\x80\2\x08" BITS "\2\3\0", "n2"),
        ROW(MODULE "\2\3\2\1\2\5\2\2" LAYER "\2\x40\x88\2\0" BITS "\2\3\0", "16 bytes, expected 17"),
        ROW(MODULE "\2\3\2\1\2\5\2\2" LAYER "\2\x81\0\0\x40\0\0\0\0\0\2\0" BITS "\2\3\0", "expected 8796093022208"),
        ROW(MODULE "\2\3\2\1\2\5\2\2" LAYER "\2\x81\0\0\x40\0\0\0\0\0\2\0\5\xc3\1\x81\0\0\x08\0\0\0\0\0"
                   "x"
                   "\2\3\0",
            "the compressed string is damaged"),
        ROW(MODULE "\2\4\2\1\2\5\2\2" LAYER "\2\x40\x80\2\0" BITS "\2\3\0", "size: 4 items"),
        ROW(MODULE "\2\13\2\1\2\5\2\2" LAYER "\2\x40\x80\2\0" BITS "\2\13\0", "11 items"),
        ROW(MODULE "\2\0\2\1\2\5\2\2\2\0\4" RATE "\2\7\4" BPE "\2\x40\x80\2\0" BITS "\2\0\0", "capacity 0"),
        ROW(MODULE "\2\0\2\1\2\5\2\2\2\12\4\0\0\0\0\0\0\xf0\x3f\2\7\4" BPE "\2\x40\x80\2\0" BITS "\2\0\0",
            "error rate 1"),
        ROW(MODULE "\2\0\2\1\2\5\2\2\2\12\4\0\0\0\0\0\0\xf8\x7f\2\7\4" BPE "\2\x40\x80\2\0" BITS "\2\0\0",
            "error rate nan"),
        ROW(MODULE "\2\0\2\1\2\5\2\2\2\12\4" RATE "\2\x08\4" BPE "\2\x40\x80\2\0" BITS "\2\0\0", "8 hashes"),
        ROW(MODULE "\2\0\2\2\2\x0d\2\2" LAYER "\2\x40\x80\2\0" BITS "\2\0" LAYER "\2\x40\x80\2\0" BITS "\2\0\0",
            "a filter of fixed size has one layer"),
    };
    connect_client();
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        unsigned char dump[512];
        size_t len = seal(dump, table[i].value, table[i].len);
        const char *reply = client_ask(client, "RESTORE f 0 %b", dump, len);
        if (!table[i].reason) {
            cr_assert_str_eq(reply, "+OK", "row %zu: %s", i, reply);
            expect(client, ":1", "DEL f");
            continue;
        }
        cr_assert(strncmp(reply, "-ERR Bad data format: ", 22) == 0 && strstr(reply, table[i].reason), "row %zu: %s", i,
                  reply);
        expect(client, ":0", "DBSIZE");
    }
}

/* An engine's MIGRATE sends a large filter in one piece. The daemon serves other clients while it reads the filter (the
 * test prints their longest wait), and runs the later commands of the same client afterwards, in order. */
DAEMON_TEST(the_daemon, redisbloom_moves, a_large_dump_is_restored_in_one_piece)
{
    static const char head[] = MODULE "\2\0\2\1\2\5\2\2"
                                      "\2\x80\0\x50\0\0\4" RATE "\2\7\4" BPE "\2\x80\x20\0\0\0\2\0\5\x80\4\0\0\0";
    static const char tail[] = "\2\0\0";
    const size_t bytes = 64u << 20, size = sizeof(head) - 1 + bytes + sizeof(tail) - 1;
    unsigned char *value = malloc(size), *dump = malloc(size + 10);
    memcpy(value, head, sizeof(head) - 1);
    for (size_t i = 0; i < bytes; i++) /* a bit in each byte, different in neighbouring bytes */
        value[sizeof(head) - 1 + i] = (unsigned char)(1u << (i * 5 % 8));
    memcpy(value + size - (sizeof(tail) - 1), tail, sizeof(tail) - 1);
    size_t len = seal(dump, value, size);
    connect_client();
    redisContext *other = client_open(the_daemon.port);
    for (int round = 0; round < 3; round++) {
        redisAppendCommand(client, "RESTORE big 0 %b REPLACE", dump, len);
        redisAppendCommand(client, "BF.CARD big");
        redisAppendCommand(client, "BF.LOADCHUNK g 1 %b", dump, (size_t)(1 << 20));
        redisAppendCommand(client, "ECHO behind");
        int done = 0;
        while (!done)
            cr_assert_eq(redisBufferWrite(client, &done), REDIS_OK);
        double longest = 0;
        for (int i = 0; i < 300; i++) {
            double before = wait_clock();
            expect(other, "+PONG", "PING");
            double ms = (wait_clock() - before) * 1e3;
            longest = ms > longest ? ms : longest;
            usleep(1000);
        }
        cr_assert_str_eq(client_reply(client), "+OK");
        cr_assert_str_eq(client_reply(client), ":0");
        cr_assert(strstr(client_reply(client), "received bad data"));
        cr_assert_str_eq(client_reply(client), "\"behind\"");
        printf("64 MB restored: the longest PING of another client took %.1f ms\n", longest);
    }
    expect(client, "[:5242880]", "BF.INFO big CAPACITY");
    redisReply *reply = redisCommand(client, "BF.SCANDUMP big %d", 1 + (32 << 20));
    cr_assert(reply && reply->type == REDIS_REPLY_ARRAY && reply->element[1]->len > 1000);
    cr_assert_arr_eq((unsigned char *)reply->element[1]->str, value + sizeof(head) - 1 + (32u << 20),
                     reply->element[1]->len);
    freeReplyObject(reply);
    free(value);
    free(dump);
}

/* Headers that announce impossible sizes cost nothing. */
DAEMON_TEST(the_daemon, redisbloom_moves, a_made_up_header_is_refused)
{
    static const struct {
        size_t at;
        uint64_t value;
        size_t bytes;
    } table[] = {
        {0, 999, 8},
        {8, 0, 4},
        {8, UINT32_MAX, 4},
        {8, 2, 4},
        {12, 0x80, 4},
        {16, 0, 4},
        {16, UINT32_MAX, 4},
        {20, UINT64_C(1) << 43, 8},
        {28, UINT64_MAX, 8},
        {28, 11071, 8},
        {28, UINT64_C(1) << 62, 8},
        {36, 1001, 8},
        {44, 0, 8},
        {44, UINT64_MAX, 8},
        {52, 0, 8},
        {60, 9, 4},
        {64, 0, 8},
        {64, 999, 8},
        {72, 64, 1},
        {72, 63, 1},
    };
    struct chunk chunks[MAX_CHUNKS];
    connect_client();
    size_t n = chunks_of("n1000_p0.01", chunks);
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        unsigned char damaged[73];
        memcpy(damaged, chunks[0].bytes, sizeof(damaged));
        memcpy(damaged + table[i].at, &table[i].value, table[i].bytes);
        const char *reply = client_ask(client, "BF.LOADCHUNK f 1 %b", damaged, sizeof(damaged));
        cr_assert(strncmp(reply, "-ERR received bad data: ", 24) == 0, "row %zu: %s", i, reply);
    }
    for (size_t len = 0; len < chunks[0].len; len++) {
        const char *reply = client_ask(client, "BF.LOADCHUNK f 1 %b", chunks[0].bytes, len);
        cr_assert(strncmp(reply, "-ERR received bad data: ", 24) == 0, "%zu bytes: %s", len, reply);
    }
    cr_assert(strstr(client_ask(client, "INFO stats"), "bf_loads_under_way:0") ||
              strstr(client_ask(client, "INFO everything"), "bf_loads_under_way:0"));

    /* 16 GB of bits in a possible layer: if they are too much, the error says so. */
    uint64_t bytes = UINT64_C(0x7fffffff) * 8, bits = bytes * 8;
    memcpy(chunks[0].bytes + 20, &bytes, 8);
    memcpy(chunks[0].bytes + 28, &bits, 8);
    for (int i = 0; i < 64; i++) {
        const char *reply = client_ask(client, "BF.LOADCHUNK f%d 1 %b", i, chunks[0].bytes, chunks[0].len);
        cr_assert(strcmp(reply, "+OK") == 0 || strncmp(reply, "-OOM ", 5) == 0, "%s", reply);
        if (reply[0] == '-')
            break;
        cr_assert_lt(i, 63, "a machine with a terabyte of memory?");
    }
    expect(client, ":0", "DBSIZE");
    chunks_free(chunks, n);
}

/* A load that starts again with another header is another load; an idle load is dropped. */
DAEMON_TEST(the_daemon, redisbloom_moves, another_header_begins_anew_and_a_pause_ends)
{
    struct chunk a[MAX_CHUNKS], b[MAX_CHUNKS];
    connect_client();
    size_t na = chunks_of("scaled_6_layers", a), nb = chunks_of("expansion4", b);
    cr_assert_str_eq(load("f", &a[0]), "+OK");
    cr_assert_str_eq(load("f", &a[1]), "+OK");
    cr_assert_str_eq(load("f", &b[0]), "+OK");
    for (size_t i = 1; i < nb; i++) {
        expect(client, ":0", "EXISTS f");
        cr_assert_str_eq(load("f", &b[i]), "+OK");
    }
    expect_the_recorded("expansion4", "f");

    expect(client, "+OK", "CONFIG SET bf-load-timeout 1");
    cr_assert_str_eq(load("g", &a[0]), "+OK");
    wait_until(strstr(client_ask(client, "INFO everything"), "bf_loads_under_way:0"));
    const char *reply = load("g", &a[1]);
    cr_assert(strstr(reply, "begins with its header"), "%s", reply);
    chunks_free(a, na);
    chunks_free(b, nb);
}
