/* `bloomery verify` and `bloomery rebuild`, the real program: on SSTables made here, and on real ones if present. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "index_file.h"
#include "program.h"
#include "rng.h"
#include "tmpdir.h"

#define TOOL "'" BLOOMERY_TOOL "' "
#define KEYS 2000

TMPDIR_SUITE(dir, tool_sstables);
static char output[65536]; /* of the last run, stdout and stderr */

#define ASSERT_RUN(code, text, ...) program_expect(output, sizeof(output), code, text, "cd '%s' && " __VA_ARGS__)

/* An SSTable with int keys 0 to KEYS - 1, whose filter is made for `filtered` of them at 0.01. */
static void make_table(const char *prefix, bool numbers_vary, int filtered)
{
    struct index_file index = {.numbers_vary = numbers_vary};
    for (int i = 0; i < KEYS; i++) {
        unsigned char key[4] = {(unsigned char)(i >> 24), (unsigned char)(i >> 16), (unsigned char)(i >> 8),
                                (unsigned char)i};
        index_file_add(&index, key, sizeof(key), (size_t)i % 7);
    }
    file_write(tmp_path(dir, "%sIndex.db", prefix).text, index.bytes, index.len);
    file_write(tmp_path(dir, "%sData.db", prefix).text, "data", 4);
    file_write(tmp_path(dir, "%sTOC.txt", prefix).text, "Data.db\nIndex.db\nFilter.db\nTOC.txt\n", 35);
    free(index.bytes);
    ASSERT_RUN(0, "",
               "seq -f 'int:%%.0f' 0 %d | " TOOL "build %sFilter.db --keys --error 0.01 --sizing cassandra --force",
               dir, filtered - 1, prefix);
}

/* ---- verify ---- */

Test(tool_sstables, whole_ones_of_each_form)
{
    make_table("nb-1-big-", true, KEYS);
    make_table("me-2-big-", true, KEYS);
    make_table("ks-t-ka-3-", false, KEYS);
    ASSERT_RUN(0, "nb-1-big-Data.db: whole: 2000 keys, rate 0.0", TOOL "verify .", dir);
    program_said(output, "3 SSTables: 3 whole, 0 wrong, 0 not looked at");
    ASSERT_RUN(0, "whole: 2000 keys", TOOL "verify me-2-big-TOC.txt ks-t-ka-3-Index.db", dir);
    ASSERT_RUN(0, "whole: the first 150 keys", TOOL "verify --sample 150 nb-1-big-Filter.db", dir);
    ASSERT_RUN(0, "\"result\":\"whole\",\"keys\":2000,\"missing\":0,\"rate\":0.0",
               TOOL "verify --json nb-1-big-Data.db", dir);
}

Test(tool_sstables, what_is_wrong_is_named)
{
    make_table("nb-1-big-", true, KEYS);
    file_write(tmp_path(dir, "good").text, "", 0);
    ASSERT_RUN(0, "", "cp nb-1-big-Filter.db good", dir);
    size_t len;
    unsigned char *filter = file_read(tmp_path(dir, "good").text, &len);

    for (int i = 0; i < 40; i++) { /* each key loses all its bits at once */
        struct tmp_path path = tmp_path(dir, "nb-1-big-Filter.db");
        unsigned char *cut = malloc(len);
        memcpy(cut, filter, len);
        memset(cut + 8 + (size_t)i * 50, 0, 50);
        file_write(path.text, cut, len);
        free(cut);
        ASSERT_RUN(1, "is not in the filter: reads miss its partition", TOOL "verify nb-1-big-Data.db", dir);
        program_said(output, "of 2000 keys are not in the filter");
        cr_expect_null(strstr(output, "layout"), "%s", output);
    }
    file_write(tmp_path(dir, "nb-1-big-Filter.db").text, filter, len - 8);
    ASSERT_RUN(1, "Filter.db: ", TOOL "verify nb-1-big-Data.db", dir);
    ASSERT_RUN(0, "",
               "seq -f 'int:%%.0f' 0 9999 | " TOOL
               "build nb-1-big-Filter.db --keys --error 0.01 --sizing cassandra --force",
               dir);
    ASSERT_RUN(1, "it was made for more keys", TOOL "verify nb-1-big-Data.db", dir);

    file_write(tmp_path(dir, "nb-1-big-Filter.db").text, filter, len);
    ASSERT_RUN(0, "whole", TOOL "verify nb-1-big-Data.db", dir);
    file_write(tmp_path(dir, "nb-1-big-TOC.txt").text, "Data.db\nIndex.db\nStatistics.db\n", 31);
    ASSERT_RUN(1, "TOC.txt names Statistics.db, which is missing", TOOL "verify nb-1-big-Data.db", dir);
    program_said(output, "TOC.txt does not name Filter.db");
    ASSERT_RUN(0, "", "rm nb-1-big-TOC.txt", dir);
    ASSERT_RUN(0, "whole", TOOL "verify nb-1-big-Data.db", dir);
    ASSERT_RUN(0, "", "truncate -s -1 nb-1-big-Index.db", dir);
    ASSERT_RUN(1, "Index.db is damaged: ", TOOL "verify nb-1-big-Data.db", dir);
    ASSERT_RUN(1, "Index.db has no key", ": >nb-1-big-Index.db && " TOOL "verify nb-1-big-Data.db", dir);
    ASSERT_RUN(1, "Index.db has no key", TOOL "rebuild --error 0.1 nb-1-big-Data.db", dir);
    free(filter);
}

Test(tool_sstables, rates_at_which_scylladb_ends_are_warned_of)
{
    static const char statistics[] =
        "\0\0\0\1\0\0\0\0\0\0\0\x0c\0\022ByteOrdPartitioner\x3f\x12\x59\x9e\xd7\xc6\xfb\xd2"; /* 7e-5 */
    unsigned char file[64] = {0};
    memcpy(file, statistics, sizeof(statistics) - 1);
    make_table("me-1-big-", true, KEYS);
    ASSERT_RUN(0, "(scylladb#31207)", "seq 10 | " TOOL "build x.db --error 7e-5", dir);
    ASSERT_RUN(0, "(scylladb#31207)", TOOL "rebuild --error 8.9e-5 --output y.db me-1-big-Data.db", dir);
    ASSERT_RUN(0, "whole", TOOL "verify me-1-big-Data.db", dir);
    cr_expect_null(strstr(output, "scylladb"), "%s", output);
    file_write(tmp_path(dir, "me-1-big-Statistics.db").text, file, sizeof(file));
    ASSERT_RUN(0, "(scylladb#31207)", TOOL "verify me-1-big-Data.db", dir);
    program_said(output, "whole");
    ASSERT_RUN(0, "", "seq 10 | " TOOL "build z.db --error 9e-5", dir);
    cr_expect_null(strstr(output, "scylladb"), "%s", output);
}

/* A backup is noticed before the keys are read. */
Test(tool_sstables, an_earlier_backup_of_a_rebuild_stays)
{
    make_table("nb-1-big-", true, KEYS);
    ASSERT_RUN(0, "", TOOL "rebuild --same nb-1-big-Data.db", dir);
    ASSERT_RUN(1, "it is an earlier backup: move it, or use --no-backup; nothing was changed",
               ": >nb-1-big-Index.db && " TOOL "rebuild --same nb-1-big-Data.db", dir);
}

/* ---- an index cut between two entries ---- */

static void put_key(int fd, int key)
{
    const unsigned char bytes[8] = {0, 0, 0, 4, 0, 0, (unsigned char)(key >> 8), (unsigned char)key};
    cr_assert_eq(write(fd, bytes, sizeof(bytes)), (ssize_t)sizeof(bytes));
}

/* As for a table of the keys 0 to KEYS - 1, with one sample. `head`: the bytes before the sample. */
static void make_summary(const char *prefix, const char *head, size_t len)
{
    int fd = open(tmp_path(dir, "%sSummary.db", prefix).text, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, head, len), (ssize_t)len);
    put_key(fd, 0);
    put_key(fd, 0);
    put_key(fd, KEYS - 1);
    cr_assert_eq(write(fd, "more", 4), 4);
    close(fd);
}

Test(tool_sstables, an_index_cut_between_two_entries_is_not_whole)
{
    static const struct {
        const char *prefix, *head;
        size_t len, entry; /* of the index; the last ones have `behind` 0 to 6 */
    } forms[] = {
        {"ks-t-ic-1-", "\0\0\0\x80\0\0\0\1\0\0\0\0\0\0\0\0", 16, 2 + 4 + 12 + 1999 % 7},
        {"ks-t-jb-1-", "\0\0\0\x80\0\0\0\1\0\0\0\0\0\0\0\x8", 16, 2 + 4 + 12 + 1999 % 7},
        {"ks-t-ka-1-", "\0\0\0\x80\0\0\0\1\0\0\0\0\0\0\0\x8\0\0\0\x80\0\0\0\1", 24, 2 + 4 + 12 + 1999 % 7},
        {"nb-1-big-", "\0\0\0\x80\0\0\0\1\0\0\0\0\0\0\0\x8\0\0\0\x80\0\0\0\1", 24, 2 + 4 + 10 + 1999 % 7},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const char *prefix = forms[i].prefix;
        make_table(prefix, i == 3, KEYS);
        make_summary(prefix, forms[i].head, forms[i].len);
        ASSERT_RUN(0, "whole: 2000 keys", TOOL "verify %sData.db", dir, prefix);
        ASSERT_RUN(0, "2000 keys", TOOL "rebuild --same --no-backup %sData.db", dir, prefix);
        ASSERT_RUN(0, "", "cp %sFilter.db before && truncate -s -%zu %sIndex.db", dir, prefix, forms[i].entry, prefix);
        ASSERT_RUN(1, "Index.db is damaged: its last key differs from Summary.db's last key", TOOL "verify %sData.db",
                   dir, prefix);
        ASSERT_RUN(0, "the first 100 keys", TOOL "verify --sample 100 %sData.db", dir, prefix);
        ASSERT_RUN(1, "Summary.db's last key: it was truncated, or Summary.db belongs to another SSTable; nothing was",
                   TOOL "rebuild --error 0.1 %sData.db", dir, prefix);
        ASSERT_RUN(0, "", "cmp before %sFilter.db", dir, prefix);
        ASSERT_RUN(0, "1999 keys", "truncate -s -6 %sSummary.db && " TOOL "rebuild --same --no-backup %sData.db", dir,
                   prefix, prefix);
    }
}

/* The same by the number of partitions in Statistics.db, where there is no Summary.db. */
Test(tool_sstables, an_index_with_fewer_keys_than_were_counted_is_not_whole)
{
    make_table("nb-1-big-", true, KEYS);
    ASSERT_RUN(
        0, "",
        "python3 -c 'import struct; open(\"nb-1-big-Statistics.db\", \"wb\").write(struct.pack(\">5I4QI\", 1, 0, 2, "
        "16, 2, 1, 0, 1, %d, 0))'",
        dir, KEYS);
    ASSERT_RUN(0, "whole: 2000 keys", TOOL "verify nb-1-big-Data.db", dir);
    ASSERT_RUN(0, "", "cp nb-1-big-Filter.db before && truncate -s -%d nb-1-big-Index.db", dir, 2 + 4 + 10 + 1999 % 7);
    ASSERT_RUN(1, "Index.db is damaged: it has 1999 keys, but Statistics.db counts 2000 partitions: it was truncated",
               TOOL "verify nb-1-big-Data.db", dir);
    ASSERT_RUN(0, "the first 100 keys", TOOL "verify --sample 100 nb-1-big-Data.db", dir);
    ASSERT_RUN(1, "counts 2000 partitions: it was truncated, or Statistics.db belongs to another SSTable; nothing was",
               TOOL "rebuild --same nb-1-big-Data.db", dir);
    ASSERT_RUN(0, "", "cmp before nb-1-big-Filter.db", dir);
    ASSERT_RUN(0, "whole: 1999 keys", "truncate -s 50 nb-1-big-Statistics.db && " TOOL "verify nb-1-big-Data.db", dir);
}

/* The first keys distinguish bits of another version from damage. */
Test(tool_sstables, another_layout_is_named)
{
    static const char *const layouts[] = {"na", "me", "ka"}, *const prefixes[] = {"nb-1-big-", "me-1-big-",
                                                                                  "ks-t-ka-1-"};
    for (int of = 0; of < 3; of++) {
        make_table(prefixes[of], of < 2, KEYS);
        for (int is = 0; is < 3; is++) {
            char expected[100];
            snprintf(expected, sizeof(expected), "its bits have the layout %s, and the version", layouts[is]);
            ASSERT_RUN(0, "",
                       "seq -f 'int:%%.0f' 0 1999 | " TOOL
                       "build %sFilter.db --keys --error 0.01 --sizing cassandra --force --variant %s",
                       dir, prefixes[of], layouts[is]);
            ASSERT_RUN(of != is, of == is ? "whole" : expected, TOOL "verify %sData.db", dir, prefixes[of]);
        }
    }
}

Test(tool_sstables, what_cannot_be_looked_at)
{
    make_table("nb-1-big-", true, KEYS);
    file_write(tmp_path(dir, "da-2-bti-Data.db").text, "data", 4);
    file_write(tmp_path(dir, "da-2-bti-Filter.db").text, "\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\0", 16);
    ASSERT_RUN(2, "da-2-bti-Data.db: not looked at: Partitions.db: No such file", TOOL "verify .", dir);
    ASSERT_RUN(2, "none: No such file or directory", TOOL "verify none", dir);
    ASSERT_RUN(2, "no SSTable below it", "mkdir empty && " TOOL "verify empty", dir);
    ASSERT_RUN(2, "Usage: bloomery verify", TOOL "verify", dir);
    ASSERT_RUN(0, "", "rm nb-1-big-Index.db nb-1-big-TOC.txt", dir);
    ASSERT_RUN(2, "not looked at: Index.db: No such file", TOOL "verify nb-1-big-Data.db", dir);
    ASSERT_RUN(0, "", "rm nb-1-big-Filter.db", dir);
    ASSERT_RUN(0, "whole, without a filter", TOOL "verify nb-1-big-Data.db", dir);
}

/* The tool does not wait for a FIFO, and does not call a path damaged that is no file. */
Test(tool_sstables, what_is_no_file)
{
    make_table("nb-1-big-", true, KEYS);
    ASSERT_RUN(2, "nb-1-big-Data.db: not looked at: ",
               "mv nb-1-big-Index.db kept && mkfifo nb-1-big-Index.db && " TOOL "verify nb-1-big-Data.db", dir);
    ASSERT_RUN(1, "nothing was changed", TOOL "rebuild --same nb-1-big-Data.db", dir);
    ASSERT_RUN(2, "nb-1-big-Data.db: not looked at: ",
               "rm nb-1-big-Index.db && mkdir nb-1-big-Index.db && " TOOL "verify nb-1-big-Data.db", dir);
    ASSERT_RUN(1, "TOC.txt: ",
               "rmdir nb-1-big-Index.db && mv kept nb-1-big-Index.db && rm nb-1-big-TOC.txt && "
               "mkfifo nb-1-big-TOC.txt && " TOOL "verify nb-1-big-Data.db",
               dir);
    ASSERT_RUN(1, "TOC.txt: ",
               "rm nb-1-big-TOC.txt && yes Data.db | head -n 1000 >nb-1-big-TOC.txt && " TOOL "verify nb-1-big-Data.db",
               dir);
}

/* ---- rebuild ---- */

Test(tool_sstables, the_same_comes_out_byte_for_byte)
{
    static const char *const prefixes[] = {"nb-1-big-", "me-1-big-", "ks-t-ka-1-"};
    for (int i = 0; i < 3; i++) {
        make_table(prefixes[i], i < 2, KEYS);
        ASSERT_RUN(0, "new: 2000 keys", TOOL "rebuild --same --output new %sData.db", dir, prefixes[i]);
        ASSERT_RUN(0, "", "cmp new %sFilter.db", dir, prefixes[i]);
        ASSERT_RUN(1, "the file exists; --force replaces it", TOOL "rebuild --same --output new %sData.db", dir,
                   prefixes[i]);
        ASSERT_RUN(0, "new: 2000 keys", TOOL "rebuild --same --output new --force %sData.db && rm new", dir,
                   prefixes[i]);
        ASSERT_RUN(0, "", "cp %sFilter.db before && printf x | dd of=%sFilter.db bs=1 seek=30 conv=notrunc 2>/dev/null",
                   dir, prefixes[i], prefixes[i]);
        ASSERT_RUN(0, "Filter.db: 2000 keys", TOOL "rebuild --same %sIndex.db", dir, prefixes[i]);
        ASSERT_RUN(0, "", "cmp before %sFilter.db && ! cmp -s before %sFilter.db.before-rebuild", dir, prefixes[i],
                   prefixes[i]);
        ASSERT_RUN(1, "it is an earlier backup", TOOL "rebuild --same %sIndex.db", dir, prefixes[i]);
        ASSERT_RUN(0, "", TOOL "rebuild --error 0.001 --no-backup %sIndex.db", dir, prefixes[i]);
        ASSERT_RUN(0, "whole: 2000 keys, rate 0.00", TOOL "verify %sIndex.db", dir, prefixes[i]);
        ASSERT_RUN(
            0, "",
            "seq -f 'int:%%.0f' 0 1999 | " TOOL
            "build expected --keys --error 0.001 --sizing cassandra --variant %.2s && cmp expected %sFilter.db && "
            "rm expected",
            dir,
            i == 0   ? "na"
            : i == 1 ? "me"
                     : "ka",
            prefixes[i]);
    }
}

Test(tool_sstables, owner_mode_and_toc_are_kept_and_corrected)
{
    struct stat st;
    make_table("nb-1-big-", true, KEYS);
    cr_assert_eq(chmod(tmp_path(dir, "nb-1-big-Filter.db").text, 0604), 0);
    if (getuid() == 0)
        cr_assert_eq(chown(tmp_path(dir, "nb-1-big-Filter.db").text, 4711, 4712), 0);
    ASSERT_RUN(0, "a running node can load a copy by 'nodetool import'", TOOL "rebuild --error 0.1 nb-1-big-Data.db",
               dir);
    cr_assert_eq(stat(tmp_path(dir, "nb-1-big-Filter.db").text, &st), 0);
    cr_expect_eq(st.st_mode & 07777, 0604);
    cr_expect(getuid() != 0 || (st.st_uid == 4711 && st.st_gid == 4712));
    ASSERT_RUN(0, "", "rm nb-1-big-Filter.db && printf 'Data.db\\nIndex.db' >nb-1-big-TOC.txt", dir);
    ASSERT_RUN(1, "nothing was changed", TOOL "rebuild --same nb-1-big-Data.db", dir);
    program_said(output, "nb-1-big-Filter.db is missing, so --same has no size; use --error P");
    ASSERT_RUN(0, "", TOOL "rebuild --error 0.1 nb-1-big-Data.db", dir);
    ASSERT_RUN(0, "Data.db\nIndex.db\nFilter.db\n", "cat nb-1-big-TOC.txt", dir);
}

Test(tool_sstables, what_is_refused_changes_nothing)
{
    make_table("me-1-big-", true, KEYS);
    ASSERT_RUN(0, "", "cp me-1-big-Filter.db before && ls >listed", dir);
    ASSERT_RUN(2, "give --error P or --same", TOOL "rebuild me-1-big-Data.db", dir);
    ASSERT_RUN(2, "give --error P or --same", TOOL "rebuild --same --error 0.1 me-1-big-Data.db", dir);
    ASSERT_RUN(2, "--force is for --output", TOOL "rebuild --same --force me-1-big-Data.db", dir);
    ASSERT_RUN(2, "--output is for one SSTable", TOOL "rebuild --same --output x me-1-big-Data.db me-2-big-Data.db",
               dir);
    ASSERT_RUN(1, "below Cassandra's table", TOOL "rebuild --error 1e-9 me-1-big-Data.db", dir);
    ASSERT_RUN(1, "da-2-bti-Data.db: Partitions.db: No such file", TOOL "rebuild --same da-2-bti-Data.db", dir);
    ASSERT_RUN(1, "Scylla.db: its entry of type 12 may have a checksum of the filter",
               "printf '\\0\\0\\0\\1\\0\\0\\0\\14\\0\\0\\0\\1x' >me-1-big-Scylla.db && " TOOL
               "rebuild --same me-1-big-Data.db; s=$?; rm me-1-big-Scylla.db; exit $s",
               dir);
    ASSERT_RUN(1, "Scylla.db: it is damaged; nothing was changed",
               "touch me-1-big-Scylla.db && " TOOL
               "rebuild --same me-1-big-Data.db; s=$?; rm me-1-big-Scylla.db; exit $s",
               dir);
    ASSERT_RUN(1, "uses files of", "exec 9<me-1-big-Data.db && " TOOL "rebuild --same me-1-big-Data.db", dir);
    ASSERT_RUN(1, "nothing was changed",
               "cp me-1-big-Index.db kept && truncate -s -1 me-1-big-Index.db && " TOOL
               "rebuild --error 0.1 me-1-big-Data.db; s=$?; mv kept me-1-big-Index.db; exit $s",
               dir);
    ASSERT_RUN(0, "", "cmp before me-1-big-Filter.db && ls | diff listed -", dir);
    ASSERT_RUN(0, "", "exec 9<me-1-big-Data.db && " TOOL "rebuild --same --i-know me-1-big-Data.db", dir);
}

/* Killed at any moment, or without space: the old filter or the new one is there, whole. */
Test(tool_sstables, a_crash_leaves_the_old_or_the_new_filter)
{
    enum { ROUNDS = 60 };
    struct timespec began, ended;
    make_table("nb-1-big-", true, KEYS);
    ASSERT_RUN(0, "", TOOL "rebuild --same --output old nb-1-big-Data.db", dir);
    clock_gettime(CLOCK_MONOTONIC, &began);
    ASSERT_RUN(0, "", TOOL "rebuild --error 0.0001 --output new nb-1-big-Data.db", dir);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double whole = (double)(ended.tv_sec - began.tv_sec) + 1e-9 * (double)(ended.tv_nsec - began.tv_nsec);
    for (int round = 0; round < ROUNDS; round++) { /* some of them after its end */
        ASSERT_RUN(0, "", "cp old nb-1-big-Filter.db && rm -f *.part *.before-rebuild", dir);
        program_run(output, sizeof(output),
                    "cd '%s' && timeout -s KILL %f " TOOL "rebuild --error 0.0001 nb-1-big-Data.db", dir,
                    1e-4 + 1.5 * whole * round / ROUNDS);
        ASSERT_RUN(0, "", "cmp -s old nb-1-big-Filter.db || cmp new nb-1-big-Filter.db", dir);
    }
    ASSERT_RUN(0, "", "cp old nb-1-big-Filter.db && rm -f *.part *.before-rebuild", dir);
    ASSERT_RUN(0, "2000 keys", TOOL "rebuild --error 0.0001 nb-1-big-Data.db && cmp new nb-1-big-Filter.db", dir);
    ASSERT_RUN(0, "", "cp old nb-1-big-Filter.db && rm -f *.part *.before-rebuild && ls >listed", dir);
    ASSERT_RUN(1, "nothing was changed",
               "trap '' XFSZ; (ulimit -f 2; exec " TOOL "rebuild --error 0.0001 nb-1-big-Data.db)", dir);
    ASSERT_RUN(0, "", "cmp old nb-1-big-Filter.db && ls | diff listed -", dir);
}

/* ---- real ones ---- */

/* All rebuilds give the same filter again, except for those that `verify` names. */
Test(tool_sstables, real_tables)
{
    if (access(BLOOMERY_SHARED_GOLDEN_DIR "/sstables", R_OK) != 0)
        cr_skip_test("there are no real SSTables here");
    ASSERT_RUN(1, "cassandra-la-0/la-1-big-Data.db: its bits have the layout me, and the version la has ka",
               TOOL "verify '" BLOOMERY_SHARED_GOLDEN_DIR "/sstables'", dir);
    program_said(output, "50 whole, 1 wrong, 0 not looked at");
    ASSERT_RUN(
        0, "50 same\n",
        "n=0; for data in '" BLOOMERY_SHARED_GOLDEN_DIR "'/sstables/*/*-Data.db; do rm -f new; " TOOL
        "rebuild --same --output new \"$data\" >said 2>&1 && cmp -s new \"${data%%Data.db}Filter.db\" && n=$((n + 1)); "
        "done; echo $n same",
        dir);
}

/* SSTables with a Scylla.db, which has no checksum of the filter: in place. */
Test(tool_sstables, real_tables_of_scylladb)
{
    if (access(BLOOMERY_SHARED_GOLDEN_DIR "/sstables", R_OK) != 0)
        cr_skip_test("there are no real SSTables here");
    ASSERT_RUN(0, "6 same\n",
               "n=0; for scylla in '" BLOOMERY_SHARED_GOLDEN_DIR "'/sstables/*/*-Scylla.db; do rm -rf t && mkdir t && "
               "cp --no-preserve=mode \"${scylla%%Scylla.db}\"* t && " TOOL
               "rebuild --same t/*-Data.db >said 2>&1 && cmp -s t/*-Filter.db \"${scylla%%Scylla.db}Filter.db\" && "
               "n=$((n + 1)); done; echo $n same",
               dir);
}

/* Each Statistics.db since ka is understood: with an Index.db without its last entry, and without a Summary.db. */
Test(tool_sstables, real_statistics)
{
    static const char script[] = "import sys\n"
                                 "data, new = open(sys.argv[1], 'rb').read(), sys.argv[2] == 'new'\n"
                                 "def number(at):\n"
                                 "    more = 0\n"
                                 "    while data[at] & 0x80 >> more:\n"
                                 "        more += 1\n"
                                 "    return int.from_bytes(bytes([data[at] & 0x7f >> more]) + data[at + 1:at + 1 + "
                                 "more], 'big'), at + 1 + more\n"
                                 "at = 0\n"
                                 "while at < len(data):\n"
                                 "    last = at\n"
                                 "    at += 2 + int.from_bytes(data[at:at + 2], 'big')\n"
                                 "    if new:\n"
                                 "        length, at = number(number(at)[1])\n"
                                 "    else:\n"
                                 "        length, at = int.from_bytes(data[at + 8:at + 12], 'big'), at + 12\n"
                                 "    at += length\n"
                                 "open(sys.argv[1], 'r+b').truncate(last)\n"
                                 "print('no key' if last == 0 else 'Statistics.db counts')\n";
    if (access(BLOOMERY_SHARED_GOLDEN_DIR "/sstables", R_OK) != 0)
        cr_skip_test("there are no real SSTables here");
    file_write(tmp_path(dir, "cut.py").text, script, sizeof(script) - 1);
    ASSERT_RUN(0, "all noticed\n",
               "for data in '" BLOOMERY_SHARED_GOLDEN_DIR
               "'/sstables/*/*-Index.db; do case $data in *-ic-*) continue;; "
               "esac; rm -rf t && mkdir t && cp --no-preserve=mode \"${data%%Index.db}\"* t && rm -f t/*-Summary.db; "
               "index=$(echo t/*-Index.db); case $index in *-k?-*|t/l?-*) form=old;; *) form=new;; esac; "
               "said=$(python3 cut.py $index $form) || exit 9; " TOOL
               "rebuild --same --output new $index 2>&1 | grep -q \"$said\" || echo \"$data\"; done; echo all noticed",
               dir);
    cr_expect_str_eq(output, "all noticed\n", "%s", output);
}

/* Each Summary.db is understood: a key after the last one is noticed. */
Test(tool_sstables, real_summaries)
{
    if (access(BLOOMERY_SHARED_GOLDEN_DIR "/sstables", R_OK) != 0)
        cr_skip_test("there are no real SSTables here");
    ASSERT_RUN(0, "all noticed\n",
               "for summary in '" BLOOMERY_SHARED_GOLDEN_DIR "'/sstables/*/*-Summary.db; do rm -rf t && mkdir t && "
               "cp --no-preserve=mode \"${summary%%Summary.db}\"* t && index=$(echo t/*-Index.db) && case $index in "
               "*-i?-*|*-j?-*|*-k?-*|*/l?-*) printf '\\0\\1x\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0';; "
               "*) printf '\\0\\1x\\0\\0';; esac >>\"$index\" || exit 9; " TOOL
               "rebuild --same --output new \"$index\" 2>&1 | grep -q 'Index.db is damaged: ' || "
               "echo \"$summary\"; done; echo all noticed",
               dir);
    cr_expect_str_eq(output, "all noticed\n", "%s", output);
}
