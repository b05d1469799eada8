/* `bloomery find`, the real program: on a directory with one SSTable of each kind, and on the filters of real SSTables
 * laid out as Cassandra and ScyllaDB lay them out. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "golden.h"
#include "program.h"
#include "tmpdir.h"

#define ID   "1c6ace40fad111e7b9cf000000000002"
#define TOOL "'" BLOOMERY_TOOL "' "

TMPDIR_SUITE(dir, tool_find);
static char output[65536]; /* of the last run, stdout and stderr */

#define ASSERT_RUN(code, text, ...) program_expect(output, sizeof(output), code, text, __VA_ARGS__)

/* Makes a filter with the key int:<key> at this path below the directory, and the directories of the path. */
static void make_filter(const char *path, int key)
{
    ASSERT_RUN(0, "",
               "cd %s && mkdir -p \"$(dirname '%s')\" && echo int:%d | " TOOL "build '%s' --keys --error 1e-6 "
               "--capacity 100",
               dir, path, key, path);
}

static size_t count_lines(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

Test(tool_find, each_place_of_a_table)
{
    make_filter("ks/t-" ID "/nb-1-big-Filter.db", 1);
    make_filter("ks/t-" ID "/da-3fw2_0tj4_46w3k2cpidnirvjy7k-bti-Filter.db", 1);
    make_filter("ks/t-" ID "/ks-t-ka-9-Filter.db", 1);
    make_filter("ks/t-" ID "/nb-2-big-Filter.db", 2);
    make_filter("ks/t-" ID "/staging/me-3-big-Filter.db", 1);
    make_filter("ks/t-" ID "/quarantine/me-4-big-Filter.db", 1);
    make_filter("ks/t-" ID "/tmp-la-5-big-Filter.db", 1);
    make_filter("ks/t-" ID "/7.sstable/me-7-big-Filter.db", 1);
    make_filter("ks/t-" ID "/snapshots/tag/nb-1-big-Filter.db", 1);
    make_filter("ks/t-" ID "/backups/nb-1-big-Filter.db", 1);
    make_filter("ks/t-" ID "/upload/me-8-big-Filter.db", 1);
    make_filter("ks/t-" ID "/.by_age/nb-1-big-Filter.db", 1);
    make_filter("ks/t-" ID "/me-10-big-Filter.db", 1);
    ASSERT_RUN(0, "", "touch %s/ks/t-" ID "/me-10-big-TOC.txt.tmp", dir); /* being written */

    ASSERT_RUN(0, "/ks/t-" ID "/nb-1-big-Filter.db\n", TOOL "find %s int:1", dir);
    cr_expect_eq(count_lines(output), 5, "%s", output);
    cr_expect(strstr(output, "/da-3fw2_0tj4_46w3k2cpidnirvjy7k-bti-Filter.db\n"));
    cr_expect(strstr(output, "/ks-t-ka-9-Filter.db\n"));
    cr_expect(strstr(output, "/staging/me-3-big-Filter.db\n"));
    cr_expect(strstr(output, "/quarantine/me-4-big-Filter.db\n"));

    ASSERT_RUN(0, "/snapshots/tag/nb-1-big-Filter.db\n", TOOL "find --all %s int:1", dir);
    cr_expect_eq(count_lines(output), 9, "%s", output);
    ASSERT_RUN(0, "nb-2-big-Filter.db", TOOL "find %s/ks/t-" ID "/ int:2", dir);
    cr_expect_eq(count_lines(output), 1, "%s", output);
    ASSERT_RUN(1, "", TOOL "find %s int:3", dir);
    cr_expect_str_empty(output);
    ASSERT_RUN(0, "int:2\t", TOOL "find %s int:3 int:2", dir);
    cr_expect_eq(count_lines(output), 1, "%s", output);
    ASSERT_RUN(0, "\"keyspace\":\"ks\",\"table\":\"t\",\"generation\":\"2\",\"filter\":\"may hold it\"}]\n",
               TOOL "find %s int:3 int:2 --json", dir);
    ASSERT_RUN(1, "[]\n", TOOL "find %s int:3 --json", dir);
}

Test(tool_find, a_keyspace_that_is_called_snapshots)
{
    make_filter("snapshots/t-" ID "/na-1-big-Filter.db", 1);
    make_filter("snapshots/t-" ID "/snapshots/tag/na-2-big-Filter.db", 1);
    ASSERT_RUN(0, "/snapshots/t-" ID "/na-1-big-Filter.db\n", TOOL "find %s int:1", dir);
    cr_expect_eq(count_lines(output), 1, "%s", output);
    ASSERT_RUN(1, "", TOOL "find --absent %s int:1", dir);
}

/* An SSTable of a later format may hold any key. */
Test(tool_find, an_unknown_format_is_named)
{
    static const char text[] = "not the name of an SSTable of a known format";
    make_filter("ks/t-" ID "/nb-1-big-Filter.db", 1);
    ASSERT_RUN(0, "", "cd %s/ks/t-" ID " && touch xx-1-foo-Data.db xx-1-foo-Filter.db xx-1-foo-TOC.txt", dir);
    ASSERT_RUN(2, "/xx-1-foo-Data.db: not the name", TOOL "find %s int:1", dir);
    cr_expect(strstr(output, "/ks/t-" ID "/nb-1-big-Filter.db\n"), "%s", output);
    cr_expect_null(strstr(strstr(output, text) + 1, text), "named twice: %s", output);
    ASSERT_RUN(2, text, TOOL "find --absent %s int:3", dir);
    cr_expect_null(strstr(output, "int:3\n"), "%s", output);
    ASSERT_RUN(2, text, TOOL "verify %s", dir);
    ASSERT_RUN(2, "/xx-1-foo-Filter.db: not the name", "rm %s/ks/t-" ID "/xx-1-foo-Data.db; " TOOL "find %s int:1", dir,
               dir);
    ASSERT_RUN(0, "", "cd %s/ks/t-" ID " && mkdir backups && mv xx-* backups", dir);
    ASSERT_RUN(0, "nb-1-big-Filter.db\n", TOOL "find %s int:1", dir);
    ASSERT_RUN(2, text, TOOL "find --all %s int:1", dir);
}

Test(tool_find, links_to_directories_are_followed)
{
    make_filter("elsewhere/t-" ID "/nb-1-big-Filter.db", 1);
    ASSERT_RUN(0, "",
               "cd %s && mkdir -p data/ks && ln -s ../../elsewhere/t-" ID " data/ks/ && ln -s nowhere data/x && "
               "mkfifo data/pipe",
               dir);
    ASSERT_RUN(0, "data/ks/t-" ID "/nb-1-big-Filter.db", TOOL "find %s/data int:1", dir);
}

/* Back to a directory above, or nowhere: each SSTable is met once. */
Test(tool_find, links_in_a_circle_end)
{
    make_filter("ks/t-" ID "/nb-1-big-Filter.db", 1);
    ASSERT_RUN(0, "", "cd %s && ln -s . loop && ln -s .. ks/up && ln -s nowhere ks/nowhere && mkdir lost+found", dir);
    ASSERT_RUN(0, "nb-1-big-Filter.db\n", TOOL "find %s int:1", dir);
    cr_expect_eq(count_lines(output), 1, "%s", output);
}

/* A directory of a snapshot or of backups, given as itself. */
Test(tool_find, a_snapshot_by_its_path)
{
    static const char *const places[] = {"/snapshots/tag", "/snapshots", "/backups", "/upload", "/.by_age"};
    make_filter("ks/t-" ID "/nb-9-big-Filter.db", 2);
    make_filter("ks/t-" ID "/snapshots/tag/nb-1-big-Filter.db", 1);
    make_filter("ks/t-" ID "/backups/nb-1-big-Filter.db", 1);
    make_filter("ks/t-" ID "/upload/nb-1-big-Filter.db", 1);
    make_filter("ks/t-" ID "/.by_age/nb-1-big-Filter.db", 1);
    for (int i = 0; i < 5; i++) {
        ASSERT_RUN(0, "nb-1-big-Filter.db\n", TOOL "find %s/ks/t-" ID "%s/ int:1", dir, places[i]);
        cr_expect_eq(count_lines(output), 1, "%s", output);
    }
    ASSERT_RUN(1, "", TOOL "find %s/ks/t-" ID " int:1", dir);
}

/* What cannot be looked at is said, and no key is absent. With the mode 0444 its names can be read, and nothing of the
 * files. */
Test(tool_find, a_directory_that_cannot_be_read)
{
    static const char *const modes[] = {"0", "444"};
    const char *somebody = geteuid() == 0 ? "setpriv --reuid=65534 --clear-groups " : "";
    make_filter("ks/t-" ID "/nb-1-big-Filter.db", 1);
    make_filter("ks/u-" ID "/nb-1-big-Filter.db", 1);
    ASSERT_RUN(0, "", "cd %s && chmod 777 . && chmod -R go+rX ks && cp '" BLOOMERY_TOOL "' . && chmod 755 bloomery",
               dir);
    for (int i = 0; i < 2; i++) {
        ASSERT_RUN(2, "ks/u-" ID, "cd %s && chmod %s ks/u-* && %s./bloomery find --absent ks int:3", dir, modes[i],
                   somebody);
        cr_expect_null(strstr(output, "int:3\n"), "%s", output);
        program_said(output, "Permission denied");
    }
    ASSERT_RUN(2, "1 SSTable: 0 whole, 0 wrong, 1 not looked at; unreadable: 1 place\n",
               "cd %s && chmod 0 ks/u-* && %s./bloomery verify ks; code=$?; chmod 755 ks/u-*; exit $code", dir,
               somebody);
}

/* A compaction during the search: one SSTable is removed, and another one, which sorts before all others, gets its
 * keys. The tool is in the middle of the search, because it waits for its output: one byte was read, and the whole
 * output is more than a pipe takes. */
Test(tool_find, a_compaction_meanwhile_hides_nothing)
{
    make_filter("first-Filter.db", 1);
    ASSERT_RUN(0, "",
               "cd %s && mkdir -p ks/t-" ID " && cd ks/t-" ID " && for i in $(seq 1000 1999); do "
               "ln ../../first-Filter.db nb-$i-big-Filter.db && : >nb-$i-big-Data.db; done",
               dir);
    ASSERT_RUN(0, "exit 0",
               "cd %s && mkfifo pipe || exit; " TOOL "find \"$PWD/./././././././././././././././././././././ks\" int:1 "
               "--json >pipe 2>errors & exec 3<pipe; head -c 1 <&3 >found; cd ks/t-" ID
               " && mv nb-1999-big-Filter.db nb-0-big-Filter.db && mv nb-1999-big-Data.db nb-0-big-Data.db; "
               "cd ../.. && cat <&3 >>found; wait $!; echo exit $?; cat errors",
               dir);
    cr_expect_str_eq(output, "exit 0\n");
    ASSERT_RUN(0, "1000 ['0', '1000'] ['1998']",
               "cd %s && python3 -c 'import json; found = [x[\"generation\"] for x in json.load(open(\"found\"))]; "
               "found.sort(key=int); print(len(found), found[:2], found[-1:])'",
               dir);
}

/* The SSTable that sorts first is being written when the directory is listed, and is complete later, with the keys of
 * the last one, which has gone by then. */
Test(tool_find, what_was_being_written_is_looked_at_again)
{
    make_filter("first-Filter.db", 1);
    make_filter("other-Filter.db", 2);
    ASSERT_RUN(0, "",
               "cd %s && mkdir -p ks/t-" ID " && cd ks/t-" ID " && for i in $(seq 1000 1999); do "
               "ln ../../other-Filter.db nb-$i-big-Filter.db && : >nb-$i-big-Data.db; done && "
               "ln ../../first-Filter.db nb-2000-big-Filter.db && : >nb-2000-big-Data.db && "
               "ln ../../first-Filter.db nb-0-big-Filter.db && : >nb-0-big-Data.db && : >nb-0-big-TOC.txt.tmp",
               dir);
    ASSERT_RUN(0, "exit 0",
               "cd %s && mkfifo pipe || exit; " TOOL "find \"$PWD/./././././././././././././././././././././ks\" int:2 "
               "int:1 >pipe & exec 3<pipe; head -c 1 <&3 >found; cd ks/t-" ID
               " && mv nb-0-big-TOC.txt.tmp nb-0-big-TOC.txt && rm nb-2000-*; cd ../.. && cat <&3 >>found; wait $!; "
               "echo exit $?",
               dir);
    ASSERT_RUN(0, "1001", "grep -c . %s/found", dir);
    ASSERT_RUN(0, "nb-0-big-Data.db\n", "grep 'int:1	' %s/found", dir);
}

/* A filter without the keys of its own SSTable rules nothing out, for few keys and for many. */
Test(tool_find, a_filter_of_zeros_rules_nothing_out)
{
    make_filter("ks/t-" ID "/nb-1-big-Filter.db", 1);
    ASSERT_RUN(0, "",
               "cd %s/ks/t-" ID " && printf '\\0\\4\\0\\0\\0\\1\\0\\0' >nb-1-big-Index.db && : >nb-1-big-Data.db", dir);
    ASSERT_RUN(1, "", TOOL "find %s int:7", dir);
    ASSERT_RUN(0, "about 0 keys",
               "cd %s/ks/t-" ID
               " && python3 -c 'f = open(\"nb-1-big-Filter.db\", \"r+b\"); n = len(f.read()); f.seek(8); "
               "f.write(bytes(n - 8))' && " TOOL "show nb-1-big-Filter.db",
               dir);
    ASSERT_RUN(2, "it lacks the first keys of its SSTable", TOOL "find %s int:7", dir);
    program_said(output, "nb-1-big-Data.db\n");
    ASSERT_RUN(2, "it lacks the first keys of its SSTable",
               "seq -f int:%%.0f 300 | " TOOL "find %s --keys-from - --absent", dir);
    cr_expect_eq(count_lines(output), 1, "%s", output);
}

/* On a terminal, names control nothing; elsewhere they are unchanged. */
Test(tool_find, names_on_a_terminal)
{
    make_filter("ks/t-" ID "/nb-1-big-Filter.db", 1);
    ASSERT_RUN(0, "", "cd %s && mv ks \"$(printf 'k\\033\\n\\342\\200\\256s')\"", dir);
    ASSERT_RUN(0, "/k\x1b\n\xe2\x80\xaes/", TOOL "find %s int:1", dir);
    ASSERT_RUN(0, "/k\\x1b\\x0a\\xe2\\x80\\xaes/", "script -qec \"" TOOL "find %s int:1\" /dev/null", dir);
    ASSERT_RUN(2, "/k\\x1b\\x0a\\xe2\\x80\\xaes/", "script -qec \"" TOOL "verify %s\" /dev/null", dir);
}

/* Nothing that may hold the key is left out: no filter, an unknown version, a damaged file. */
Test(tool_find, what_cannot_be_ruled_out_is_printed)
{
    make_filter("ks/t-" ID "/nb-1-big-Filter.db", 1);
    ASSERT_RUN(0, "", "cd %s/ks/t-" ID " && touch nb-1-big-Data.db nb-2-big-Data.db nb-2-big-TOC.txt", dir);
    ASSERT_RUN(0, "nb-2-big-Data.db", TOOL "find %s int:7", dir);
    cr_expect_eq(count_lines(output), 1, "%s", output);
    ASSERT_RUN(2, "' is a file or directory, not a key: the command takes one directory", TOOL "find %s %s int:7", dir,
               dir);
    ASSERT_RUN(0, "nb-1-big-Data.db", TOOL "find %s int:1", dir);
    cr_expect_eq(count_lines(output), 2, "%s", output);
    ASSERT_RUN(0, "\"filter\":\"missing\"", TOOL "find %s int:7 --json", dir);

    ASSERT_RUN(0, "",
               "cd %s/ks/t-" ID " && head -c 20 nb-1-big-Filter.db >nb-3-big-Filter.db && cp nb-1-big-Filter.db "
               "zz-4-big-Filter.db && : >nb-5-big-Filter.db && cp nb-1-big-Filter.db ks-t-hf-6-Filter.db",
               dir);
    ASSERT_RUN(2, "nb-3-big-Filter.db: truncated: ", TOOL "find %s int:7", dir);
    program_said(output, "version 'zz' of format big is unknown; it may hold the key");
    program_said(output, "empty file");
    program_said(output, "Murmur2");
    ASSERT_RUN(2, "", TOOL "find %s int:7 2>/dev/null", dir);
    cr_expect_eq(count_lines(output), 5, "%s", output);
}

Test(tool_find, what_is_wrong_is_said)
{
    ASSERT_RUN(2, "No such file", TOOL "find %s/none int:1", dir);
    ASSERT_RUN(2, "no SSTable below it", TOOL "find %s int:1", dir);
    ASSERT_RUN(2, "the key 'x': write a key as <type>:<value>", TOOL "find %s x", dir);
    ASSERT_RUN(2, "KEY is missing", TOOL "find %s", dir);
    ASSERT_RUN(2, "Too many levels of symbolic links", "cd %s && mkdir -p $(seq -s / 18) && " TOOL "find . int:1", dir);
}

/* ---- real SSTables ---- */

struct real {
    char name[256], path[1024]; /* below the directory */
    char key[2048];             /* as blob:0x... */
    bool hashed_otherwise;      /* before Cassandra 1.2 */
};

static void skip_without_real_files(void)
{
    struct stat st;

    if (stat(BLOOMERY_SHARED_GOLDEN_DIR "/real", &st) != 0)
        cr_skip_test("no files of public projects here");
}

/* The path of the file in its project, as far as a data directory has it: the last three directories and the name. */
static void data_path(const char *source, int number, char *out, size_t size)
{
    const char *at = source + strlen(source);
    int slashes = 0;

    while (at > source && slashes < 3)
        slashes += *--at == '/';
    snprintf(out, size, "%d/%s", number, at + (*at == '/'));
}

static size_t lay_out(struct real *all, size_t max)
{
    struct dirent **entries;
    int n = scandir(BLOOMERY_SHARED_GOLDEN_DIR "/real", &entries, NULL, alphasort);
    size_t nreal = 0, len;

    for (int i = 0; i < n; i++) {
        struct real *real = &all[nreal];
        char source[512], version[8];
        if (entries[i]->d_name[0] != '.' && nreal < max) {
            snprintf(real->name, sizeof(real->name), "%s", entries[i]->d_name);
            char *meta = (char *)golden_file(&len, BLOOMERY_SHARED_GOLDEN_DIR "/real/%s/meta.json", real->name);
            golden_json_string(meta, "source_path", source, sizeof(source));
            golden_json_string(meta, "sstable_version", version, sizeof(version));
            free(meta);
            data_path(source, i, real->path, sizeof(real->path));
            real->hashed_otherwise = version[0] == 'f' || version[0] == 'h';
            char *keys = (char *)golden_file(&len, BLOOMERY_SHARED_GOLDEN_DIR "/real/%s/keys.hex", real->name);
            snprintf(real->key, sizeof(real->key), "blob:0x%.*s", (int)strcspn(keys, "\n"), keys);
            free(keys);
            ASSERT_RUN(0, "",
                       "mkdir -p \"$(dirname '%s/%s')\" && cp '" BLOOMERY_SHARED_GOLDEN_DIR
                       "/real/%s/Filter.db' '%s/%s'",
                       dir, real->path, real->name, dir, real->path);
            nreal++;
        }
        free(entries[i]);
    }
    free(entries);
    return nreal;
}

/* Each of them is found by its own key, in its project's directory. */
Test(tool_find, real_sstables_are_found_by_their_keys)
{
    static struct real all[128];
    skip_without_real_files();
    size_t n = lay_out(all, 128), supported = 0;

    cr_assert_geq(n, 70);
    for (size_t i = 0; i < n; i++) {
        if (strlen(all[i].key) <= strlen("blob:0x"))
            continue;
        int status = program_run(output, sizeof(output), TOOL "find --all '%s' '%s' 2>/dev/null", dir, all[i].key);
        cr_expect_eq(status, 2, "the files of before 1.2 are no errors: %s", output);
        cr_expect(strstr(output, all[i].path), "%s is not found by %s", all[i].path, all[i].key);
        supported += !all[i].hashed_otherwise;
    }
    cr_assert_geq(supported, 60);
}

/* Keys by their types, as their tables have them: the same bytes as in the index of the SSTable. */
Test(tool_find, typed_keys_are_those_of_real_tables)
{
    static const struct {
        const char *name, *file, *key, *other;
    } table[] = {
        {"scylla-mc-partition_key_with_values_of_different_types", "mc-1-big-Filter.db", "int:5", "int:77"},
        {"scylla-mc-counter_test", "mc-5-big-Filter.db", "int:0", "int:12345"},
        {"cassandra-oa-legacy_oa_clust", "oa-1-big-Filter.db", "text:0", "text:zz"},
        {"arrow-md-md-1-big", "md-1-big-Filter.db", "ascii:key1", "ascii:key2"},
        {"adaptor-ka-auditlogsbyid", "keyspace1-auditlogsbyid-ka-3-Filter.db",
         "uuid:602ed10f-d536-11e6-7f7f-7f7f7f7f7f7f", "uuid:602ed10f-d536-11e6-7f7f-7f7f7f7f7f7e"},
        {"scylla-la-composite", "la-1-big-Filter.db",
         "composite(text:HCG8Ee7ENWqfCXipk4-Ygi2hzrbfHC8pTtH3tEmV3d9p2w8gJPuMN_-wp1ejLRf4kNEPEgtgdHXa6NoFE7qUig==, "
         "text:'VJizqYxC35YpLaPEJNt_4vhbmKJxAg54xbiF1UkL_9KQkqghVvq34rZ6Lm8eRTi7JNJCXcH6-WtNUSFJXCOfdg==')",
         "composite(text:a,text:b)"},
    };

    skip_without_real_files();
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        ASSERT_RUN(0, table[i].file,
                   "mkdir -p '%s/%zu/ks/t' && cp '" BLOOMERY_SHARED_GOLDEN_DIR
                   "/real/%s/Filter.db' '%s/%zu/ks/t/%s' && " TOOL "find '%s/%zu' \"%s\"",
                   dir, i, table[i].name, dir, i, table[i].file, dir, i, table[i].key);
        ASSERT_RUN(1, "", TOOL "find '%s/%zu' '%s'", dir, i, table[i].other);
    }
}

/* Files of keys, few and many: the answers equal those for single keys; --absent prints the other keys. */
Test(tool_find, keys_from_a_file)
{
    static const int counts[] = {0, 1, 255, 256, 3000};
    make_filter("ks/t-" ID "/nb-1-big-Filter.db", 17);
    make_filter("ks/t-" ID "/nb-2-big-Filter.db", 200);
    make_filter("ks/t-" ID "/nb-3-big-Filter.db", 2500);
    for (int i = 0; i < 5; i++) {
        int n = counts[i], found = (n > 17) + (n > 200) + (n > 2500);
        ASSERT_RUN(0, "", "cd %s && seq -f 'int:%%.0f' 0 %d | head -n %d >keys", dir, n, n);
        ASSERT_RUN(found ? 0 : 1, found ? "int:17\t" : "", TOOL "find %s/ks --keys-from %s/keys", dir, dir);
        cr_expect_eq(count_lines(output), (size_t)found, "%s", output);
        cr_expect(n <= 2500 || strstr(output, "int:2500\t"), "%s", output);
        ASSERT_RUN(n > found ? 0 : 1, n ? "int:0\n" : "", TOOL "find %s/ks --absent --keys-from - <%s/keys", dir, dir);
        cr_expect_eq(count_lines(output), (size_t)(n - found));
        cr_expect_null(strstr(output, "int:17\n"), "%s", output);
    }
    ASSERT_RUN(0, "{\"key\":\"int:3\"}", TOOL "find %s/ks --absent --json int:3 int:17", dir);
    ASSERT_RUN(1, "[]", TOOL "find %s/ks --absent --json int:17", dir);
}

Test(tool_find, keys_from_a_file_that_are_wrong)
{
    make_filter("ks/t-" ID "/nb-1-big-Filter.db", 1);
    ASSERT_RUN(2, "keys: line 2 ends with a carriage return",
               "cd %s && printf 'int:1\ntext:a\r\n' >keys && " TOOL "find ks --keys-from keys", dir);
    ASSERT_RUN(2, "keys: line 3: ", "cd %s && printf 'int:1\nint:2\nint:x\n' >keys && " TOOL "find ks --keys-from keys",
               dir);
    ASSERT_RUN(2, "keys: line 2 is empty, and a partition key never is: write a key there, or remove empty lines",
               "cd %s && printf 'int:1\n\nint:3\n' >keys && " TOOL "find ks --keys-from keys", dir);
    ASSERT_RUN(2, "the standard input: line 1 is empty, and", "cd %s && echo | " TOOL "find ks --keys-from -", dir);
    ASSERT_RUN(2, "keys: line 2 ends with a carriage return",
               "cd %s && printf 'int:1\n\r\n' >keys && " TOOL "find ks --keys-from keys", dir);
    ASSERT_RUN(2, "", TOOL "find %s/none --absent int:5 2>/dev/null", dir);
    cr_expect_str_eq(output, "");
    ASSERT_RUN(2, "", "mkdir -p %s/ks/$(seq -s / 18) && " TOOL "find %s/ks --absent int:5 2>/dev/null", dir, dir);
    cr_expect_str_eq(output, "");
    ASSERT_RUN(0, "", "rm -r %s/ks/1", dir);
    ASSERT_RUN(2, "not both", TOOL "find %s/ks --keys-from %s/keys int:1", dir, dir);
    ASSERT_RUN(2, "none: No such file", TOOL "find %s/ks --keys-from none", dir);
    ASSERT_RUN(2, "Filter.db: ",
               "cd %s && seq -f 'int:%%.0f' 10 409 >keys && truncate -s -1 ks/t-" ID "/nb-1-big-Filter.db && " TOOL
               "find ks --keys-from keys",
               dir);
    cr_expect_eq(count_lines(output), 401, "%zu", count_lines(output)); /* the reason, and each key is not ruled out */
    ASSERT_RUN(2, "it may hold the key", TOOL "find %s/ks --keys-from %s/keys --absent", dir, dir);
    cr_expect_eq(count_lines(output), 1, "%s", output);
}
