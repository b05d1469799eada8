/* `bloomery advise`, the real program, on tables made here: overfull, oversized and missing filters, copies of keys,
 * tablestats. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index_file.h"
#include "murmur3.h"
#include "program.h"
#include "tmpdir.h"

#define TOOL  "'" BLOOMERY_TOOL "' "
#define USERS "data/shop/users-5a1c3f20d1b811ee8c99f7a3c2b4e6d0"
#define LOGS  "data/shop/logs-6b1c3f20d1b811ee8c99f7a3c2b4e6d0"

static char dir[TMPDIR_SIZE];
static char output[65536]; /* of the last run, stdout and stderr */

#define ASSERT_RUN(code, text, ...) program_expect(output, sizeof(output), code, text, "cd '%s' && " __VA_ARGS__)

static void set_up(void)
{
    tmpdir_create(dir);
    ASSERT_RUN(0, "", "mkdir -p " USERS " " LOGS, dir);
}

static void tear_down(void)
{
    tmpdir_remove(dir);
}

TestSuite(tool_advise, .init = set_up, .fini = tear_down, .timeout = 300);

/* The index of an SSTable with int keys first..first + n - 1, and a Statistics.db that asks for the rate 0.01. */
static void make_index(const char *prefix, int first, int n)
{
    static const unsigned char statistics[] =
        "\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\x10\0\022ByteOrdPartitioner\x3f\x84\x7a\xe1\x47\xae\x14\x7b";
    struct index_file index = {.numbers_vary = true};
    for (int i = first; i < first + n; i++) {
        unsigned char key[4] = {(unsigned char)(i >> 24), (unsigned char)(i >> 16), (unsigned char)(i >> 8),
                                (unsigned char)i};
        index_file_add(&index, key, sizeof(key), 0);
    }
    file_write(tmp_path(dir, "%sIndex.db", prefix).text, index.bytes, index.len);
    file_write(tmp_path(dir, "%sData.db", prefix).text, "data", 4);
    file_write(tmp_path(dir, "%sStatistics.db", prefix).text, statistics, sizeof(statistics) - 1);
    free(index.bytes);
}

static void make_table(const char *prefix, int first, int n, const char *sized)
{
    make_index(prefix, first, n);
    ASSERT_RUN(0, "", "seq -f 'int:%%.0f' %d %d | " TOOL "build %sFilter.db --keys --sizing cassandra --force %s", dir,
               first, first + n - 1, prefix, sized);
}

/* The number after the first `key` after `behind`, in JSON. */
static double number(const char *behind, const char *key)
{
    const char *at = strstr(output, behind);
    char quoted[64];
    snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    at = at ? strstr(at, quoted) : NULL;
    cr_assert_not_null(at, "%s after %s in %s", key, behind, output);
    return strtod(at + strlen(quoted), NULL);
}

Test(tool_advise, right_filters_need_no_change)
{
    make_table(USERS "/nb-1-big-", 0, 20000, "--error 0.01");
    make_table(USERS "/nb-2-big-", 20000, 20000, "--error 0.01");
    ASSERT_RUN(0, "No change saves", TOOL "advise data", dir);
    cr_expect_null(strstr(output, "overfull"), "%s", output);
    ASSERT_RUN(0, "\"changes\":[]", TOOL "advise data --json", dir);
    cr_expect_float_eq(number("users", "keys"), 40000, 500);
    cr_expect_eq(number("users", "sstables"), 2);
    cr_expect_eq(number("users", "asked"), 0.01);
    cr_expect_float_eq(number("users", "copies"), 1, 0.05);
    cr_expect_float_eq(number("\"now\"", "reads"), 0.02, 0.005);
    cr_expect_float_eq(number("\"now\"", "bytes") / number("at_0.01", "bytes"), 1, 0.05);
    cr_expect_lt(number("at_0.1", "bytes"), number("at_0.01", "bytes"));
    cr_expect_lt(number("at_0.01", "bytes"), number("at_0.001", "bytes"));
    cr_expect_gt(number("at_0.1", "reads"), 5 * number("at_0.01", "reads"));
}

Test(tool_advise, faults_are_named_and_the_commands_mend_them)
{
    make_table(USERS "/nb-1-big-", 0, 20000, "--error 0.01");
    make_table(USERS "/nb-2-big-", 0, 20000, "--error 0.01 --capacity 5000");
    make_table(USERS "/nb-3-big-", 0, 20000, "--error 0.0001");
    make_index(USERS "/nb-4-big-", 0, 20000);
    make_table(LOGS "/nb-1-big-", 0, 1000, "--error 0.01");
    ASSERT_RUN(0, "shop.users: 1 filter with more than twice the requested rate", TOOL "advise data", dir);
    program_said(output, "shop.users: 1 filter with more than 1.5 times the bytes");
    program_said(output, "1. shop.users: rebuild 3 filters at 0.01 (1 missing, 1 overfull, 1 oversized): ");
    cr_expect_null(strstr(output, "2. "), "%s", output);
    program_said(output, "   bloomery rebuild --error 0.01 'data/shop/users-");
    ASSERT_RUN(0, "\"change\":\"repair\"", TOOL "advise data --json", dir);
    cr_expect_float_eq(number("users", "copies"), 3, 0.3); /* of the three with filters */
    cr_expect_eq(number("users", "overfull"), 1);
    cr_expect_eq(number("users", "oversized"), 1);
    cr_expect_gt(number("users", "reads"), 1.3); /* the missing one always, and the overfull one */
    cr_expect_float_eq(number("\"repair\"", "reads_saved"), 1.5, 0.1);
    cr_expect_lt(number("\"repair\"", "bytes_saved"), 0);

    ASSERT_RUN(0, "", TOOL "rebuild --error 0.01 '" USERS "'/*-Data.db", dir);
    ASSERT_RUN(0, "No change saves", TOOL "advise data", dir);
    ASSERT_RUN(0, "4 whole, 0 wrong", TOOL "verify " USERS, dir);
}

Test(tool_advise, reads_that_were_counted_decide_about_rates)
{
    static const char stats[] = "Keyspace : shop\n\tRead Count: 5\n\t\tTable: users\n\t\tSSTable count: 1\n"
                                "\t\tLocal read count: 100000\n\t\tBloom filter false positives: 60000\n"
                                "\t\tTable: logs\n\t\tLocal read count: 200000\n\t\tBloom filter false positives: 3\n"
                                "----------------\nKeyspace : other\n\t\tTable: users\n\t\tLocal read count: 1\n"
                                "\t\tBloom filter false positives: 1\n";
    make_table(USERS "/nb-1-big-", 0, 20000, "--error 0.01");
    make_table(LOGS "/nb-1-big-", 0, 20000, "--error 0.01");
    file_write(tmp_path(dir, "stats").text, stats, sizeof(stats) - 1);
    ASSERT_RUN(0, "1. shop.users: rebuild 1 filter at 0.001: ", TOOL "advise data --stats stats --html page.html", dir);
    program_said(output, "ALTER TABLE shop.users WITH bloom_filter_fp_chance = 0.001;");
    program_said(output, "2. shop.logs: rebuild 1 filter at 0.1: ");
    program_said(output, "of those counted");
    ASSERT_RUN(0, "</html>", "grep -c 'class=\"bar' page.html && cat page.html", dir);
    cr_expect(strncmp(output, "8\n<!DOCTYPE html>", 17) == 0, "%s", output);
    ASSERT_RUN(0, "", TOOL "advise data --stats stats --json", dir);
    cr_expect_float_eq(number("\"rate\",", "counted_reads_saved"), 54000, 2000);
    ASSERT_RUN(1, "no table in it", "echo nothing >empty && " TOOL "advise data --stats empty", dir);
    ASSERT_RUN(1, "none: No such file", TOOL "advise data --stats none", dir);
}

/* ScyllaDB's, of two shards, with a histogram beside the summary; labels in any order. */
Test(tool_advise, reads_of_scylladbs_metrics)
{
    static const char metrics[] =
        "# HELP scylla_column_family_read_latency Read latency histogram\n"
        "# TYPE scylla_column_family_read_latency histogram\n"
        "scylla_column_family_read_latency_bucket{cf=\"users\",ks=\"shop\",le=\"640.000000\",shard=\"0\"} 77\n"
        "scylla_column_family_read_latency_count{cf=\"users\",ks=\"shop\",shard=\"0\"} 60000\n"
        "scylla_column_family_read_latency_count{cf=\"users\",ks=\"shop\",shard=\"1\"} 4e+04\n"
        "scylla_column_family_read_latency_count{cf=\"users\",ks=\"other\",shard=\"1\"} 7777777\n"
        "scylla_column_family_read_latency_count{shard=\"0\",ks=\"shop\",cf=\"logs\"} 1\n"
        "scylla_column_family_read_latency_count{shard=\"0\",ks=\"shop\",cf=\"logs} 5\n"
        "scylla_column_family_read_latency_count{ks=\"shop\"} 5\n"
        "scylla_column_family_read_latency_summary_count{ks=\"shop\",cf=\"logs\"} 200000\n";
    make_table(USERS "/nb-1-big-", 0, 20000, "--error 0.1");
    make_table(USERS "/nb-2-big-", 20000, 20000, "--error 0.1");
    make_table(LOGS "/nb-1-big-", 0, 20000, "--error 0.01");
    file_write(tmp_path(dir, "metrics").text, metrics, sizeof(metrics) - 1);
    ASSERT_RUN(0, "1. shop.users: rebuild 2 filters at 0.001: ", TOOL "advise data --stats metrics", dir);
    program_said(output, "less of those estimated from the counted reads");
    program_said(output, "2. shop.logs: rebuild 1 filter at 0.1: ");
    ASSERT_RUN(0, "", TOOL "advise data --stats metrics --json", dir);
    cr_expect_float_eq(number("\"rate\":0.001", "counted_reads_saved"), 100000 * 0.2 / 2, 1500);
    static const char damaged[] = "scylla_column_family_read_latency_count{ks=\"shop\"} 5\n";
    file_write(tmp_path(dir, "metrics").text, damaged, sizeof(damaged) - 1);
    ASSERT_RUN(1, "no table in it", TOOL "advise data --stats metrics", dir);
}

Test(tool_advise, what_cannot_be_read_is_named)
{
    make_table(USERS "/nb-1-big-", 0, 2000, "--error 0.01");
    make_table(USERS "/nb-2-big-", 0, 2000, "--error 0.01");
    ASSERT_RUN(1, "nb-2-big-Filter.db: ", "truncate -s -1 " USERS "/nb-2-big-Filter.db && " TOOL "advise data", dir);
    program_said(output, "shop.users: 1 SSTable could not be read");
    ASSERT_RUN(0, "", "rm " USERS "/nb-2-big-*", dir);
    ASSERT_RUN(0, "\"asked\":null", "printf x >" USERS "/nb-1-big-Statistics.db && " TOOL "advise data --json", dir);
    ASSERT_RUN(1, "none: No such file", TOOL "advise none", dir);
    ASSERT_RUN(1, "no SSTable below it", "mkdir empty && " TOOL "advise empty", dir);
    ASSERT_RUN(1, "Not a directory", TOOL "advise " USERS "/nb-1-big-Data.db", dir);
    ASSERT_RUN(1, "Is a directory", TOOL "advise data --stats data", dir);
    ASSERT_RUN(1, "pipe: it is a device", "mkfifo pipe && " TOOL "advise data --html pipe && ls", dir);
    ASSERT_RUN(0, "pipe", "test -p pipe && ln -s pipe link && ls", dir);
    ASSERT_RUN(1, "link: it is a device", TOOL "advise data --html link", dir);
    ASSERT_RUN(0, "", "test -h link && test -p link", dir);
    ASSERT_RUN(1, "page.html: ", "mkdir page.html && " TOOL "advise data --html page.html", dir);
}

/* ---- leveled compaction ---- */

enum { LEVELED = 4000 };

static struct {
    int64_t token;
    int key;
} sorted[LEVELED];

static int compare(const void *a, const void *b)
{
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return (one > other) - (one < other);
}

static void put32(unsigned char *at, int value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (24 - 8 * i));
}

/* An SSTable of keys in the order of their tokens, with a Summary.db, and a Statistics.db that has its level. */
static void make_leveled(int generation, int level, int first, int n)
{
    unsigned char summary[24 + 8 + 16] = "\0\0\0\x80\0\0\0\1\0\0\0\0\0\0\0\x8\0\0\0\x80\0\0\0\1";
    unsigned char statistics[200] = "\0\0\0\1\0\0\0\2\0\0\0\x10";
    struct tmp_path prefix = tmp_path(dir, USERS "/nb-%d-big-", generation);
    struct index_file index = {.numbers_vary = true};
    char keys[LEVELED * 16], *at = keys;
    for (int i = first; i < first + n; i++) {
        unsigned char key[4];
        put32(key, sorted[i].key);
        index_file_add(&index, key, sizeof(key), 0);
        at += sprintf(at, "int:%d\n", sorted[i].key);
    }
    put32(summary + 32, 4);
    put32(summary + 36, sorted[first].key);
    put32(summary + 40, 4);
    put32(summary + 44, sorted[first + n - 1].key);
    put32(statistics + 16 + 2 * 4 + 12 + 16 + 16 + 8 + 4 + 4, level);
    file_write(tmp_path(dir, "keys").text, keys, (size_t)(at - keys));
    file_write(tmp_path(dir, USERS "/nb-%d-big-Index.db", generation).text, index.bytes, index.len);
    file_write(tmp_path(dir, USERS "/nb-%d-big-Summary.db", generation).text, summary, sizeof(summary));
    file_write(tmp_path(dir, USERS "/nb-%d-big-Statistics.db", generation).text, statistics, sizeof(statistics));
    file_write(tmp_path(dir, USERS "/nb-%d-big-Data.db", generation).text, "data", 4);
    ASSERT_RUN(0, "", TOOL "build '%sFilter.db' --keys --sizing cassandra --error 0.01 <keys", dir, prefix.text);
    free(index.bytes);
}

/* A key is in the range of one SSTable per level, and only those are queried for it. */
Test(tool_advise, levels_and_ranges)
{
    for (int i = 0; i < LEVELED; i++) {
        unsigned char key[4];
        put32(key, i);
        sorted[i].key = i;
        sorted[i].token = (int64_t)murmur3_hash(key, sizeof(key)).h1;
    }
    qsort(sorted, LEVELED, sizeof(sorted[0]), compare);
    make_leveled(1, 0, 0, LEVELED);
    for (int i = 0; i < 4; i++)
        make_leveled(2 + i, 1, i * LEVELED / 4, LEVELED / 4);
    ASSERT_RUN(0,
               "shop.users: level 0: 1 SSTable, 1.0 of them with a given key in their range\n"
               "shop.users: level 1: 4 SSTables, 1.0 of them with a given key in their range\n",
               TOOL "advise data", dir);
    ASSERT_RUN(0, "\"levels\":[{\"level\":0,\"sstables\":1,\"overlap\":1},{\"level\":1,\"sstables\":4,\"overlap\":1}]",
               TOOL "advise data --json", dir);
    cr_expect_float_eq(number("users", "overlap"), 2, 0.001);
    cr_expect_float_eq(number("\"now\"", "reads"), 0.02, 0.005);
    ASSERT_RUN(0, "", "rm " USERS "/*-Summary.db " USERS "/*-Statistics.db && " TOOL "advise data --json", dir);
    cr_expect_float_eq(number("users", "overlap"), 5, 0.001);
    cr_expect_float_eq(number("\"now\"", "reads"), 0.05, 0.01);
    program_said(output, "\"levels\":[]");
}

/* Real tables have a level each, also where it is not printed. */
Test(tool_advise, real_levels)
{
    if (access(BLOOMERY_SHARED_GOLDEN_DIR "/sstables", R_OK) != 0)
        cr_skip_test("there are no real SSTables here");
    ASSERT_RUN(
        0, "51 tables, 50 levels\n",
        TOOL "advise '" BLOOMERY_SHARED_GOLDEN_DIR "/sstables' --json | python3 -c 'import json, sys; tables = "
             "json.load(sys.stdin)[\"tables\"]; print(len(tables), \"tables,\", sum(table[\"levels\"] == [{\"level\": "
             "0, \"sstables\": 1, \"overlap\": 1}] for table in tables), \"levels\")'",
        dir);
    ASSERT_RUN(0, "useless", TOOL "advise '" BLOOMERY_SHARED_GOLDEN_DIR "/sstables'", dir);
    cr_expect_null(strstr(output, ": level 0"), "%s", output);
}

/* A filter with all bits set says nothing about its keys: they are counted. */
Test(tool_advise, a_full_filter_is_overfull)
{
    make_table(USERS "/nb-1-big-", 0, 20000, "--error 0.1 --capacity 10");
    ASSERT_RUN(0, "\"change\":\"repair\"", TOOL "advise data --json", dir);
    cr_expect_eq(number("users", "keys"), 20000);
    cr_expect_eq(number("\"now\"", "reads"), 1);
}
