/* valkey-bloom's filters come by RESTORE, BF.LOAD and an RDB file, answer as in valkey-bloom, and leave with the same
 * bytes. What valkey-bloom cannot have made is refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "program.h"
#include "valkey_recordings.h"

CLIENT_SUITE(the_daemon, the_client, valkey_moves, "--threads", "3", "--appendonly", "yes");

static unsigned char *recorded(const char *filter, const char *file, size_t *len_out)
{
    return golden_file(len_out, "%s/%s/%s", VALKEY_GOLDEN, filter, file);
}

static const char *expected_number(const char *info, const char *field)
{
    static char text[32];
    snprintf(text, sizeof(text), "[:%lld]", (long long)golden_json_number(info, field));
    return text;
}

/* The recorded BF.INFO, and the answers of BF.MEXISTS to 2,000 items, one by one. */
static void expect_the_recorded(redisContext *client, const char *filter, const char *key)
{
    static const char *const fields[][2] = {
        {"Capacity", "CAPACITY"}, {"Number of filters", "FILTERS"}, {"Number of items inserted", "ITEMS"}};
    struct golden_lines answers;
    size_t len;
    char *info = (char *)recorded(filter, "info.json", &len), *probes = (char *)recorded(filter, "probes.hex", &len);
    char *probe = probes;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        expect(client, expected_number(info, fields[i][0]), "BF.INFO %s %s", key, fields[i][1]);
    golden_lines_open(&answers, "%s/%s/answers.txt", VALKEY_GOLDEN, filter);
    while (golden_lines_next(&answers)) {
        char *end = strchr(probe, '\n');
        *end = '\0';
        size_t n = golden_unhex(probe);
        cr_assert_eq(client_number(client, "BF.EXISTS %s %b", key, probe, n), golden_i64(answers.fields[0]), "%s",
                     filter);
        probe = end + 1;
    }
    golden_lines_close(&answers);
    free(info);
    free(probes);
}

/* DUMP has the recorded value, or its form without compression, which is in an RDB file, but for the largest filter. */
static void expect_dump(redisContext *client, const char *filter, const char *key)
{
    size_t len, file_len;
    unsigned char *dump = recorded(filter, "dump.bin", &len);
    unsigned char *file = golden_file(&file_len, "%s/small_uncompressed.rdb", VALKEY_GOLDEN);
    redisReply *reply = redisCommand(client, "DUMP %s", key);
    cr_assert(reply && reply->type == REDIS_REPLY_STRING, "%s", filter);
    bool same = (reply->len == len && memcmp(reply->str, dump, len - 10) == 0) ||
                memmem(file, file_len, reply->str + 1, reply->len - 11) != NULL;
    cr_assert(same || strcmp(filter, "17_100k") == 0, "%s", filter);
    expect(client, "+OK", "RESTORE again 0 %b", reply->str, reply->len);
    expect_the_recorded(client, filter, "again");
    expect(client, ":1", "DEL again");
    freeReplyObject(reply);
    free(file);
    free(dump);
}

CLIENT_TEST(the_daemon, valkey_moves, a_filter_comes_and_goes_as_it_was)
{
    for (size_t f = 0; f < VALKEY_NFILTERS; f++) {
        const char *filter = VALKEY_FILTERS[f];
        size_t len, load_len;
        unsigned char *dump = recorded(filter, "dump.bin", &len), *load = recorded(filter, "load.bin", &load_len);
        expect(client, "+OK", "RESTORE dumped 0 %b", dump, len);
        expect(client, "+bloomfltr", "TYPE dumped");
        expect(client, "[\"0\",[\"dumped\"]]", "SCAN 0 COUNT 100 TYPE bloomfltr");
        expect(client, "[\"0\",[]]", "SCAN 0 COUNT 100 TYPE MBbloom--");
        expect(client, "-BUSYKEY Target key name already exists.", "RESTORE dumped 0 %b", dump, len);
        expect(client, "+OK", "BF.LOAD loaded %b", load, load_len);
        expect(client, "-BUSYKEY Target key name already exists.", "BF.LOAD loaded %b", load, load_len);
        expect_the_recorded(client, filter, "dumped");
        expect_dump(client, filter, "dumped");
        expect_dump(client, filter, "loaded");
        expect(client, ":1", "COPY dumped copy");
        expect(client, "+OK", "RENAME copy renamed");
        expect_dump(client, filter, "renamed");
        expect(client, ":3", "DEL dumped loaded renamed");
        free(dump);
        free(load);
    }
}

/* After a kill they come from the log, after a stop from the save. */
CLIENT_TEST(the_daemon, valkey_moves, a_filter_that_came_stays)
{
    for (int stop = 0; stop <= 1; stop++) {
        for (size_t f = 0; f < VALKEY_NFILTERS; f++) {
            size_t len, load_len;
            unsigned char *dump = recorded(VALKEY_FILTERS[f], "dump.bin", &len);
            unsigned char *load = recorded(VALKEY_FILTERS[f], "load.bin", &load_len);
            expect(client, "+OK", "RESTORE d%d:%s 0 %b", stop, VALKEY_FILTERS[f], dump, len);
            expect(client, "+OK", "BF.LOAD l%d:%s %b", stop, VALKEY_FILTERS[f], load, load_len);
            free(dump);
            free(load);
        }
        client = stop ? client_after_stop(client, &the_daemon, NULL) : client_after_kill(client, &the_daemon, NULL);
        for (size_t f = 0; f < VALKEY_NFILTERS; f++) {
            char key[64];
            snprintf(key, sizeof(key), "d%d:%s", stop, VALKEY_FILTERS[f]);
            expect_dump(client, VALKEY_FILTERS[f], key);
            *key = 'l';
            expect_dump(client, VALKEY_FILTERS[f], key);
        }
    }
}

CLIENT_TEST(the_daemon, valkey_moves, hostile_values_change_nothing)
{
    for (size_t i = 0; i < VALKEY_NHOSTILE; i++) {
        const struct valkey_hostile *hostile = &VALKEY_HOSTILE[i];
        bool load = i >= VALKEY_HOSTILE_LOAD, sound = !hostile->reason && !hostile->refused_as_filter;
        size_t len;
        unsigned char *bytes = valkey_hostile_file(hostile, &len);
        const char *reply =
            load ? client_ask(client, "BF.LOAD f %b", bytes, len) : client_ask(client, "RESTORE f 0 %b", bytes, len);
        cr_assert(strncmp(reply, sound ? "+OK" : "-ERR ", sound ? 3 : 5) == 0, "%s: %s", hostile->file, reply);
        if (!sound && !load)
            cr_assert(strstr(reply, hostile->reason ? hostile->reason : "layer 0"), "%s: %s", hostile->file, reply);
        expect(client, sound ? ":1" : ":0", "DEL f");
        expect(client, "[:1]", "BF.INSERT f ITEMS a"); /* it goes on */
        expect(client, ":1", "DEL f");
        free(bytes);
    }
}

CLIENT_TEST(the_daemon, valkey_moves, cve_2026_21864_every_cut_of_a_value_is_an_error)
{
    size_t len;
    unsigned char *dump = recorded("03_empty_filter", "dump.bin", &len), *load;
    for (size_t n = 0; n < len; n++)
        expect(client, "-ERR DUMP payload version or checksum are wrong", "RESTORE f 0 %b", dump, n);
    free(dump);
    load = recorded("01_tiny_cap1", "load.bin", &len);
    for (size_t n = 0; n < len; n++) {
        const char *reply = client_ask(client, "BF.LOAD f %b", load, n);
        cr_assert(strncmp(reply, "-ERR bloom object decoding failed", 33) == 0, "%zu bytes: %s", n, reply);
    }
    expect(client, "+OK", "BF.LOAD f %b", load, len);
    free(load);
}

/* ---- an RDB file ---- */

static struct daemon another;

static void prepare_another(void)
{
    daemon_prepare(&another);
}

static void discard_another(void)
{
    daemon_discard(&another);
}

TestSuite(valkey_rdb, .init = prepare_another, .fini = discard_another, .timeout = 3000);

Test(valkey_rdb, an_rdb_file_of_valkey_is_imported)
{
    static char output[65536];
    program_expect(output, sizeof(output), 0, "imported 18 filters",
                   "'" BLOOMERY_TOOL_PATH "' import --rdb '" VALKEY_GOLDEN "/small.rdb' '%s'", another.data);
    redisContext *client = client_start(&another, NULL);
    expect(client, ":18", "DBSIZE");
    expect(client, ":4102444800000", "PEXPIRETIME 02_default_add");
    for (size_t f = 0; f < VALKEY_NFILTERS; f++) {
        if (strcmp(VALKEY_FILTERS[f], "17_100k") == 0)
            continue;
        expect_the_recorded(client, VALKEY_FILTERS[f], VALKEY_FILTERS[f]);
        expect_dump(client, VALKEY_FILTERS[f], VALKEY_FILTERS[f]);
    }
    client_stop(client, &another);
    program_expect(output, sizeof(output), 0, "\"type\":\"bloomfltr\"",
                   "'" BLOOMERY_TOOL_PATH "' import --json --list --rdb '" VALKEY_GOLDEN "/small.rdb'");
}
