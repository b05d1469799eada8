/* `bloomery import --rdb`: the daemon serves the filters of an RDB file that Redis has written. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "disk_control.h"
#include "golden.h"
#include "program.h"

#define GOLDEN       BLOOMERY_GOLDEN_DIR "/redisbloom"
#define MIXED        GOLDEN "/mixed.rdb"
#define QUOTED_MIXED "'" MIXED "'" /* for the shell */

static struct daemon the_daemon;
static char output[65536];

static void prepare(void)
{
    daemon_prepare(&the_daemon);
}

static void discard(void)
{
    daemon_discard(&the_daemon);
    disk_detach();
}

TestSuite(import_rdb, .init = prepare, .fini = discard, .timeout = 3000);

/* Asserts this exit status and this text in the output. */
#define RUN(code, text, ...) \
    program_expect(output, sizeof(output), code, text, "'" BLOOMERY_TOOL_PATH "' import " __VA_ARGS__)

static const char *const filters[] = {
    "default_by_add", "empty",    "expansion1_9_layers", "expansion4", "full_nonscaling", "n1000_p0.001_nonscaling",
    "n1000_p0.01",    "one_item", "n20000_p0.0001",      "p0.5",       "p1e-9_k30",       "scaled_6_layers",
};

static char *dump(redisContext *client, const char *key, size_t *len_out)
{
    redisReply *reply = redisCommand(client, "DUMP %s", key);
    cr_assert(reply && reply->type == REDIS_REPLY_STRING, "%s", key);
    char *bytes = malloc(reply->len + 1);
    memcpy(bytes, reply->str, reply->len);
    *len_out = reply->len;
    freeReplyObject(reply);
    return bytes;
}

/* The file was written after the recorded adds that follow a recorded dump. */
static void expect_as_recorded(redisContext *client, const char *folder, const char *filter)
{
    struct golden_lines lines;
    size_t len, have_len, want_len;
    unsigned char *recorded = golden_file(&len, "%s/%s%s/dump.bin", GOLDEN, folder, filter);
    expect(client, "+OK", "RESTORE wanted 0 %b", recorded, len);
    golden_lines_open(&lines, "%s/%s%s/more.tsv", GOLDEN, folder, filter);
    while (golden_lines_next(&lines)) {
        size_t n = golden_unhex(lines.fields[0]);
        (void)client_ask(client, "BF.ADD wanted %b", lines.fields[0], n);
    }
    golden_lines_close(&lines);
    char key[128];
    snprintf(key, sizeof(key), "g:%s", filter);
    char *have = dump(client, key, &have_len), *want = dump(client, "wanted", &want_len);
    cr_assert_eq(have_len, want_len, "%s", filter);
    cr_assert_arr_eq(have, want, want_len, "%s", filter);
    expect(client, ":1", "DEL wanted");
    free(have);
    free(want);
    free(recorded);
}

/* Whether DUMP equals the value in the file, to the byte, after the name of its key. */
static bool is_as_in_file(redisContext *client, const unsigned char *file, size_t file_len, const char *filter)
{
    char key[128];
    size_t len;
    int key_len = snprintf(key, sizeof(key), "g:%s", filter);
    char *have = dump(client, key, &len);
    unsigned char *value = memmem(file, file_len, key, (size_t)key_len);
    cr_assert(value, "%s", filter);
    value += key_len;
    bool same = len <= (size_t)(file + file_len - value) && memcmp(have + 1, value, len - 11) == 0;
    free(have);
    return same;
}

/* Also after a save and a restart: the tool's files equal the daemon's. */
DAEMON_TEST(the_daemon, import_rdb, every_filter_is_served_as_redis_had_it)
{
    RUN(0, "imported 13 filters with 23864 items", "--rdb " QUOTED_MIXED " --db 0 '%s'", the_daemon.data);
    RUN(0, "imported 1 filter with 1 item", "--rdb " QUOTED_MIXED " --db 1 --into 0 --prefix db1: '%s'",
        the_daemon.data);
    daemon_start(&the_daemon, NULL);
    size_t len;
    unsigned char *file = golden_file(&len, MIXED);
    for (int start = 0; start < 2; start++) {
        redisContext *client = client_open(the_daemon.port);
        expect(client, ":14", "DBSIZE");
        size_t same = 0;
        for (size_t f = 0; f < sizeof(filters) / sizeof(*filters); f++)
            same += is_as_in_file(client, file, len, filters[f]);
        cr_assert_eq(same, 9, "%zu: Redis has compressed layers of three of them", same);
        expect(client, "[:1050]", "BF.INFO g:n1000_p0.01 ITEMS");
        expect(client, "[:50]", "BF.INFO g:empty ITEMS");
        expect(client, "[:1]", "BF.INFO db1:other-db:filter ITEMS");
        expect(client, "+MBbloomCF", "TYPE cuckoo");
        expect(client, "\"bktsize:2 buckets:512 items:1 deletes:0 filters:1 max_iterations:20 expansion:1\"",
               "CF.DEBUG cuckoo");
        cr_assert_gt(client_number(client, "PTTL g:one_item"), 0);
        expect(client, ":-1", "PTTL g:empty");
        expect(client, "+OK", "SAVE");
        client_kill(client, &the_daemon);
        daemon_restart(&the_daemon);
    }
    free(file);
}

DAEMON_TEST(the_daemon, import_rdb, an_older_redis_is_read)
{
    static const char *const older[] = {"full_nonscaling", "n1000_p0.01", "scaled_6_layers"};
    RUN(0, "RDB 10 of version 7.0.15: imported 3 filters", "--rdb '" GOLDEN "/v2.8.20/mixed.rdb' '%s'",
        the_daemon.data);
    redisContext *client = client_start(&the_daemon, NULL);
    for (size_t f = 0; f < sizeof(older) / sizeof(*older); f++)
        expect_as_recorded(client, "v2.8.20/", older[f]);
}

/* ---- messages and refusals ---- */

Test(import_rdb, a_list_says_what_is_in_a_file_and_imports_nothing)
{
    RUN(0, "14 filters with 23865 items", "--rdb " QUOTED_MIXED " --list");
    program_said(output, "0\tg%3Ascaled_6_layers\t6 layers, 3023 items of 3150, error rate 0.01, 6688 bytes\n");
    program_said(output, "1\tother-db%3Afilter\t");
    program_said(output, "0\tcuckoo\tcuckoo filter, 1 sub-filter, 1 item in 1024 slots, 1024 bytes\n");
    program_said(output, "4 string, 2 set, 2 hash, 1 TopK-TYPE, 1 CMSk-TYPE, 1 stream");
    RUN(0, "\"name\":\"other-db:filter\",\"type\":\"MBbloom--\",\"layers\":1,\"items\":1",
        "--rdb " QUOTED_MIXED " --list --json --db 1");
    cr_assert_not(strstr(output, "scaled_6_layers"));
    RUN(0, "\"others\":{\"list\":1,\"string\":4", "--rdb " QUOTED_MIXED " --list --json '%s'", the_daemon.data);
    cr_assert(strstr(output, "\"rdb\":13,\"engine\":\"8.6.3\",\"valkey\":false,\"checksum\":true,\"keys\":28"));
}

Test(import_rdb, filters_go_into_the_databases_that_they_were_in)
{
    RUN(0, "imported 14 filters", "--rdb " QUOTED_MIXED " '%s'", the_daemon.data);
    RUN(1, "skipped: a filter with this name already exists", "--rdb " QUOTED_MIXED " --db 1 '%s'", the_daemon.data);
    RUN(0, "imported 1 filter", "--rdb " QUOTED_MIXED " --db 1 --into 3 '%s'", the_daemon.data);
    RUN(2, "--into '1024': must be a number from 0 to 1023", "--rdb " QUOTED_MIXED " --into 1024 '%s'",
        the_daemon.data);
    redisContext *client = client_start(&the_daemon, NULL);
    expect(client, ":13", "DBSIZE");
    for (int db = 1; db <= 3; db += 2) {
        expect(client, "+OK", "SELECT %d", db);
        expect(client, "[\"other-db:filter\"]", "KEYS *");
        expect(client, ":1", "BF.CARD other-db:filter");
    }
}

Test(import_rdb, names_that_are_there_are_skipped_and_the_others_imported)
{
    RUN(0, "imported 13 filters", "--rdb " QUOTED_MIXED " --db 0 '%s'", the_daemon.data);
    RUN(1, "skipped: a filter with this name already exists", "--rdb " QUOTED_MIXED " --db 0 '%s'", the_daemon.data);
    program_said(output, "imported 0 filters with 0 items, 0 bytes; 13 skipped");
    RUN(0, "imported 13 filters", "--rdb " QUOTED_MIXED " --db 0 --prefix again: '%s'", the_daemon.data);
    RUN(1, "\"imported\":false,\"reason\":\"a filter with this name already exists\"",
        "--rdb " QUOTED_MIXED " --db 0 --json '%s'", the_daemon.data);
}

/* A changed copy of a file. */
static void write_changed(const char *path, const unsigned char *bytes, size_t len, size_t at, unsigned char bit)
{
    FILE *file = fopen(path, "wb");
    cr_assert(file);
    for (size_t i = 0; i < len; i++)
        fputc(bytes[i] ^ (i == at ? bit : 0), file);
    cr_assert_eq(fclose(file), 0);
}

Test(import_rdb, a_damaged_file_imports_nothing)
{
    size_t len;
    char path[400];
    unsigned char *bytes = golden_file(&len, MIXED);
    snprintf(path, sizeof(path), "%s/damaged.rdb", the_daemon.dir);
    for (size_t at = 9; at < len; at += 9973) {
        write_changed(path, bytes, len, at, 4);
        RUN(1, "damaged.rdb: ", "--rdb '%s' --db 0 '%s'", path, the_daemon.data);
    }
    write_changed(path, bytes, len - 1, len, 0);
    RUN(1, "the data ends within the checksum", "--rdb '%s' --db 0 '%s'", path, the_daemon.data);
    cr_assert_neq(access(the_daemon.data, F_OK), 0);
    RUN(1, "not an RDB file", "--rdb '" GOLDEN "/../README.md' '%s'", the_daemon.data);
    RUN(1, "No such file", "--rdb '%s/none' '%s'", the_daemon.dir, the_daemon.data);
    free(bytes);
}

#define LAYER "\2\12\4\x7b\x14\xae\x47\xe1\x7a\x84\x3f\2\7\4\x56\x05\x6b\x5e\x2d\x2b\x23\x40"

#define NAMED(name)                                                                              \
    "\7\4" name "\x81\x30\x16\xe5\xa2\x89\xbe\xf8\4\2\3\2\1\2\5\2\2" LAYER "\2\x40\x80\2\0\5\20" \
    "0123456789abcdef"                                                                           \
    "\2\3\0"
#define END "\xff\0\0\0\0\0\0\0\0"

/* Writes a file into the test's directory: its path. */
static const char *written(const char *bytes, size_t len)
{
    static char path[400];
    snprintf(path, sizeof(path), "%s/made.rdb", the_daemon.dir);
    write_changed(path, (const unsigned char *)bytes, len, len, 0);
    return path;
}
#define WRITTEN(text) written(text, sizeof(text) - 1)

/* A file without a checksum, as with rdbchecksum no: an expired filter, an impossible filter, and a good one. */
Test(import_rdb, what_is_skipped_is_told_with_the_reason)
{
    static const char file[] =
        "REDIS0011\xfe\0"
        "\xfd\1\0\0\0" NAMED("late") "\7\3bad\x81\x30\x16\xe5\xa2\x89\xbe\xf8\4\2\3\2\1\2\5\2\2" LAYER
                                     "\2\x40\x80\2\x40\x40\5\20"
                                     "0123456789abcdef"
                                     "\2\3\0" NAMED("good") "\xff\0\0\0\0\0\0\0\0SELECT 0";
    char path[400];
    snprintf(path, sizeof(path), "%s/small.rdb", the_daemon.dir);
    write_changed(path, (const unsigned char *)file, sizeof(file) - 1, sizeof(file), 0);
    RUN(1, "0\tlate\tskipped: it has expired", "--rdb '%s' '%s'", path, the_daemon.data);
    program_said(output, "0\tbad\tskipped: layer 0: ");
    program_said(output, "n2");
    program_said(output, "imported 1 filter with 3 items, 16 bytes; 2 skipped");
    program_said(output, "has no checksum");
    program_said(output, "8 unread bytes after its end");
    program_said(output, "2 filters have been skipped");
}

Test(import_rdb, one_name_in_two_databases_is_refused_before_anything_is_written)
{
    static const char file[] = "REDIS0011\xfe\0" NAMED("seen") NAMED("zero") "\xfe\5" NAMED("five") NAMED("seen") END;
    const char *path = WRITTEN(file);
    RUN(1,
        "the databases 0 and 5 both have a filter 'seen', and there can be one in database 7: import one database at a "
        "time (--db N), with another --into or a --prefix for each; nothing was imported",
        "--rdb '%s' --into 7 '%s'", path, the_daemon.data);
    cr_assert_neq(access(the_daemon.data, F_OK), 0, "something was written");
    RUN(0, "5\tseen\tskipped: another filter of the file would have this name", "--rdb '%s' --into 7 --list", path);
    RUN(0, "imported 4 filters", "--rdb '%s' '%s'", path, the_daemon.data);
    RUN(0, "imported 2 filters", "--rdb '%s' --db 0 --into 7 '%s'", path, the_daemon.data);
    RUN(0, "imported 2 filters", "--rdb '%s' --db 5 --into 7 --prefix 5: '%s'", path, the_daemon.data);
    redisContext *client = client_start(&the_daemon, NULL);
    expect(client, "+OK", "SELECT 7");
    expect(client, ":4", "DBSIZE");
}

Test(import_rdb, a_key_that_is_there_twice_is_refused_before_anything_is_written)
{
    static const char file[] = "REDIS0011\xfe\0" NAMED("seen") NAMED("zero") NAMED("seen") END;
    const char *path = WRITTEN(file);
    RUN(1, "the key 'seen' of database 0 is there twice, at bytes 26 and ", "--rdb '%s' '%s'", path, the_daemon.data);
    cr_assert_neq(access(the_daemon.data, F_OK), 0, "something was written");
}

Test(import_rdb, opcodes_of_redis_enterprise_are_skipped)
{
    static const char file[] = "REDIS0012\xfe\0\x79\5\x6b\x32" NAMED("both") "\x79\x7f\xff" NAMED(
        "slot") "\x6b\x80\0\1\0\0" NAMED("used") "\x79\5\xfd\xff\xff\xff\x7f" NAMED("ends") END;
    RUN(0, "imported 4 filters with 12 items", "--rdb '%s' '%s'", WRITTEN(file), the_daemon.data);
}

Test(import_rdb, an_unknown_opcode_is_told_with_its_place)
{
    static const char after[] = "REDIS0012\xfe\2" NAMED("both") NAMED("last") "\x75\5name",
                      within[] = "REDIS0012\xfe\2" NAMED("both") "\7\3odd\x81\x30\x16\xe5\xa2\x89\xbe\xf8\4\x09",
                      first[] = "REDIS0012\xf6";
    RUN(1, "2 filters came before: after the key 'last' of database 2: values of type 117 are not known, at byte ",
        "--rdb '%s' '%s'", WRITTEN(after), the_daemon.data);
    program_said(output, "; nothing was imported");
    RUN(1, "2 filters came before: in the key 'odd' of database 2: a module's value: opcode 9 is not known, at byte ",
        "--rdb '%s' '%s'", WRITTEN(within), the_daemon.data);
    RUN(1, "0 filters came before: unknown opcode 246, at byte 10; nothing was imported", "--rdb '%s' '%s'",
        WRITTEN(first), the_daemon.data);
    cr_assert_neq(access(the_daemon.data, F_OK), 0, "something was written");
}

Test(import_rdb, a_newer_version_is_read_with_a_warning)
{
    static const char redis[] = "REDIS0099\xfe\0" NAMED("seen") END, valkey[] = "VALKEY081\xfe\0" NAMED("seen") END,
                      known[] = "VALKEY080\xfe\0" NAMED("seen") END;
    RUN(0, "has version 99 of RDB, 15 is the newest that is known here", "--rdb '%s' --list", WRITTEN(redis));
    RUN(0, "has version 81 of RDB, 80 is the newest that is known here", "--rdb '%s' --list", WRITTEN(valkey));
    RUN(0, "1 filter with 3 items", "--rdb '%s' --list", WRITTEN(known));
    cr_assert_not(strstr(output, "is known here"));
}

/* Each sync of the directory fails once: what the message says is what 'bloomery list' shows. */
Test(import_rdb, a_failed_sync_says_what_is_there)
{
    bool in_doubt = false;
    disk_attach();
    for (long n = 1; n < 100; n++) {
        program_expect(output, sizeof(output), 0, "", "rm -rf '%s'", the_daemon.data);
        disk_fail_only("fsync data", n, DISK_ERROR, EIO);
        int status = program_run(output, sizeof(output), "'" BLOOMERY_TOOL_PATH "' import --rdb " QUOTED_MIXED " '%s'",
                                 the_daemon.data);
        if (atomic_load(&disk->hits) == 0)
            break;
        bool doubted = strstr(output, "'bloomery list' shows whether the import is there");
        cr_assert_neq(status, 0, "%ld: %s", n, output);
        in_doubt |= doubted;
        (void)program_run(output, sizeof(output), "'" BLOOMERY_TOOL_PATH "' list '%s'", the_daemon.data);
        cr_assert_eq(doubted, strstr(output, "other-db") != NULL, "%ld: %s", n, output);
    }
    disk_detach();
    cr_assert(in_doubt);
}

/* Bytes that come through a pipe have no size and no second reading. */
Test(import_rdb, a_pipe_is_refused_with_the_way_out)
{
    program_expect(output, sizeof(output), 1, "is no regular file: write it to a file first",
                   "cat " QUOTED_MIXED " | '" BLOOMERY_TOOL_PATH "' import --rdb /dev/stdin '%s'", the_daemon.data);
    program_expect(output, sizeof(output), 0, "14 filters",
                   "'" BLOOMERY_TOOL_PATH "' import --rdb /dev/stdin --list < " QUOTED_MIXED);
}

#define CUCKOO(name, encver) "\7\3" name "\x81\x30\x16\xe5\xa2\x89\x82\x14" encver

#define OLD           "\2\1\2\4\2\3\5\10abc\0\0\0\0\0\0"
#define HEAD(buckets) "\2\1\2" buckets "\2\3\2\0\2\2\2\24\2\1" /* one sub-filter, 3 items, buckets of 2 */

/* RedisBloom before 2.2 had other hashes: its cuckoo filters would answer "absent" to their own items. */
Test(import_rdb, cuckoo_filters_that_cannot_be_are_told_with_the_reason)
{
    static const char file[] =
        "REDIS0011\xfe\0" CUCKOO("old", "\1") OLD CUCKOO("new", "\5") "\2\1\0" CUCKOO("bad", "\4")
            HEAD("\3") "\2\3\5\6abcdef\0" CUCKOO("all", "\4") HEAD("\2") "\2\2\5\4ab\0c\0\xff\0\0\0\0\0\0\0\0";
    char path[400];
    snprintf(path, sizeof(path), "%s/cuckoo.rdb", the_daemon.dir);
    write_changed(path, (const unsigned char *)file, sizeof(file) - 1, sizeof(file), 0);
    RUN(1,
        "0\told\tskipped: a cuckoo filter of RedisBloom before 2.2 (encoding 1) has hashes that later versions do not "
        "use: make it anew from its items",
        "--rdb '%s' '%s'", path, the_daemon.data);
    program_said(output, "0\tnew\tskipped: a cuckoo filter in the unknown encoding 5\n");
    program_said(output, "0\tbad\tskipped: number of buckets: 3 is not possible\n");
    program_said(output, "imported 1 filter with 3 items, 8 bytes; 3 skipped");
    redisContext *client = client_start(&the_daemon, NULL);
    expect(client, "\"bktsize:2 buckets:2 items:3 deletes:0 filters:1 max_iterations:20 expansion:1\"", "CF.DEBUG all");
}

Test(import_rdb, arguments_that_do_not_fit_are_refused)
{
    RUN(2, "--rdb needs one argument", "--rdb " QUOTED_MIXED);
    RUN(2, "--rdb needs one argument", "--rdb " QUOTED_MIXED " a b c");
    RUN(2, "--db 'x': must be a number from 0 to ", "--rdb " QUOTED_MIXED " --db x a");
    RUN(2, "--prefix is for --rdb", "--prefix x a b c");
    RUN(2, "NAME is missing", "a");
}
