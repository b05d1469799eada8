/* `bloomery advise`, the real program, on tables made here: overfull, oversized and missing filters, copies of keys,
 * tablestats. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index_file.h"
#include "murmur.h"
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

TestSuite(tool_advise, .init = set_up, .fini = tear_down, .timeout = 3000);

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

Test(tool_advise, right_filters_have_no_faults)
{
    make_table(USERS "/nb-1-big-", 0, 20000, "--error 0.01");
    make_table(USERS "/nb-2-big-", 20000, 20000, "--error 0.01");
    ASSERT_RUN(0, "shop.users", TOOL "advise data", dir);
    cr_expect_null(strstr(output, "rebuild"), "%s", output);
    ASSERT_RUN(0, "\"missing\":0,\"overfull\":0,\"oversized\":0", TOOL "advise data --json", dir);
    cr_expect_float_eq(number("users", "keys"), 40000, 500);
    cr_expect_eq(number("users", "sstables"), 2);
    cr_expect_eq(number("users", "asked"), 0.01);
    cr_expect_float_eq(number("users", "copies"), 1, 0.05);
    cr_expect_float_eq(number("users", "useless"), 0.02, 0.005);
}

Test(tool_advise, faults_are_named_and_the_command_mends_them)
{
    make_table(USERS "/nb-1-big-", 0, 20000, "--error 0.01");
    make_table(USERS "/nb-2-big-", 0, 20000, "--error 0.01 --capacity 5000");
    make_table(USERS "/nb-3-big-", 0, 20000, "--error 0.0001");
    make_index(USERS "/nb-4-big-", 0, 20000);
    make_table(LOGS "/nb-1-big-", 0, 1000, "--error 0.01");
    ASSERT_RUN(0, ": filters with more than twice the requested rate: 1\n", TOOL "advise data", dir);
    program_said(output, ": filters with more than 1.5 times the bytes that the requested rate needs: 1\n");
    program_said(output, ": SSTables without a filter: 1\n");
    program_said(output, "   bloomery rebuild --error 0.01 'data/shop/users-");
    cr_expect_null(strstr(output, "rebuild --error 0.01 'data/shop/logs"), "%s", output);
    ASSERT_RUN(0, "", TOOL "advise data --json", dir);
    cr_expect_float_eq(number("users", "copies"), 3, 0.3); /* of the three with filters */
    cr_expect_eq(number("users", "overfull"), 1);
    cr_expect_eq(number("users", "oversized"), 1);
    cr_expect_eq(number("users", "missing"), 1);
    cr_expect_gt(number("users", "useless"), 1.3); /* the missing one always, and the overfull one */

    ASSERT_RUN(0, "", TOOL "rebuild --error 0.01 '" USERS "'/*-Data.db", dir);
    ASSERT_RUN(0, "shop.users", TOOL "advise data", dir);
    cr_expect_null(strstr(output, "rebuild"), "%s", output);
    ASSERT_RUN(0, "4 whole, 0 wrong", TOOL "verify " USERS, dir);
}

Test(tool_advise, what_cannot_be_read_is_named)
{
    make_table(USERS "/nb-1-big-", 0, 2000, "--error 0.01");
    make_table(USERS "/nb-2-big-", 0, 2000, "--error 0.01");
    ASSERT_RUN(1, "nb-2-big-Filter.db: ", "truncate -s -1 " USERS "/nb-2-big-Filter.db && " TOOL "advise data", dir);
    program_said(output, ": SSTables that could not be read: 1\n");
    ASSERT_RUN(0, "", "rm " USERS "/nb-2-big-*", dir);
    ASSERT_RUN(0, "\"asked\":null", "printf x >" USERS "/nb-1-big-Statistics.db && " TOOL "advise data --json", dir);
    ASSERT_RUN(1, "none: No such file", TOOL "advise none", dir);
    ASSERT_RUN(1, "no SSTable below it", "mkdir empty && " TOOL "advise empty", dir);
    ASSERT_RUN(1, "Not a directory", TOOL "advise " USERS "/nb-1-big-Data.db", dir);
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

/* An SSTable of keys in the order of their tokens, with a Summary.db. */
static void make_leveled(int generation, int first, int n)
{
    unsigned char summary[24 + 8 + 16] = "\0\0\0\x80\0\0\0\1\0\0\0\0\0\0\0\x8\0\0\0\x80\0\0\0\1";
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
    file_write(tmp_path(dir, "keys").text, keys, (size_t)(at - keys));
    file_write(tmp_path(dir, USERS "/nb-%d-big-Index.db", generation).text, index.bytes, index.len);
    file_write(tmp_path(dir, USERS "/nb-%d-big-Summary.db", generation).text, summary, sizeof(summary));
    file_write(tmp_path(dir, USERS "/nb-%d-big-Data.db", generation).text, "data", 4);
    ASSERT_RUN(0, "", TOOL "build '%sFilter.db' --keys --sizing cassandra --error 0.01 <keys", dir, prefix.text);
    free(index.bytes);
}

/* A key is in the range of one SSTable per level, and only those are queried for it. */
Test(tool_advise, ranges)
{
    for (int i = 0; i < LEVELED; i++) {
        unsigned char key[4];
        put32(key, i);
        sorted[i].key = i;
        sorted[i].token = (int64_t)murmur3_hash(key, sizeof(key)).h1;
    }
    qsort(sorted, LEVELED, sizeof(sorted[0]), compare);
    make_leveled(1, 0, LEVELED);
    for (int i = 0; i < 4; i++)
        make_leveled(2 + i, i * LEVELED / 4, LEVELED / 4);
    ASSERT_RUN(0, "", TOOL "advise data --json", dir);
    cr_expect_float_eq(number("users", "overlap"), 2, 0.001);
    cr_expect_float_eq(number("users", "useless"), 0.02, 0.005);
    ASSERT_RUN(0, "", "rm " USERS "/*-Summary.db && " TOOL "advise data --json", dir);
    cr_expect_float_eq(number("users", "overlap"), 5, 0.001);
    cr_expect_float_eq(number("users", "useless"), 0.05, 0.01);
}

Test(tool_advise, real_tables)
{
    if (access(BLOOMERY_SHARED_GOLDEN_DIR "/sstables", R_OK) != 0)
        cr_skip_test("there are no real SSTables here");
    ASSERT_RUN(0, "51\n",
               TOOL "advise '" BLOOMERY_SHARED_GOLDEN_DIR "/sstables' --json | python3 -c 'import json, sys; "
                    "print(len(json.load(sys.stdin)))'",
               dir);
    ASSERT_RUN(0, "useless", TOOL "advise '" BLOOMERY_SHARED_GOLDEN_DIR "/sstables'", dir);
}

/* A filter with all bits set says nothing about its keys: they are counted. */
Test(tool_advise, a_full_filter_is_overfull)
{
    make_table(USERS "/nb-1-big-", 0, 20000, "--error 0.1 --capacity 10");
    ASSERT_RUN(0, "\"overfull\":1", TOOL "advise data --json", dir);
    cr_expect_eq(number("users", "keys"), 20000);
    cr_expect_eq(number("users", "useless"), 1);
}
