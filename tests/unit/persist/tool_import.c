/* `bloomery import`, the real program. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "golden.h"
#include "program.h"
#include "rig.h"
#include "tmpdir.h"
#include "wait.h"

#define BUILT BLOOMERY_GOLDEN_DIR "/built/n10000_p0.01_int"

TMPDIR_SUITE(dir, tool_import);
static char output[4096]; /* of the last run, stdout and stderr */

/* Asserts an exit code and a text in the output. */
#define ASSERT_RUN(code, text, ...) \
    program_expect(output, sizeof(output), code, text, "'" BLOOMERY_TOOL "' " __VA_ARGS__)

Test(tool_import, an_imported_file_is_there_byte_for_byte_and_answers_for_its_keys)
{
    static const char *const variants[] = {"na", "me", "ka"};
    size_t len, expected_len;
    struct store *store;
    struct errbuf err = {{0}};
    struct rig rig;

    for (int i = 0; i < 3; i++)
        ASSERT_RUN(0, "k 5, 100032 bits, about ", "import %s/data %s '%s/Filter.%s.db' --variant %s", dir, variants[i],
                   BUILT, variants[i], variants[i]);
    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, tmp_path(dir, "data").text, NULL, 2, &store, &err), 0, "%s", err.text);
    cr_assert_eq(rig.count, 3, "%s", rig.reports);
    for (int i = 0; i < 3; i++) {
        struct rig_filter *filter = rig_find(&rig, variants[i]);
        unsigned char *file = file_read(rig_place(NULL, tmp_path(dir, "data").text, variants[i], 0).path, &len);
        unsigned char *expected = golden_file(&expected_len, BUILT "/Filter.%s.db", variants[i]);
        cr_assert(len == expected_len && memcmp(file, expected, len) == 0);
        free(file);
        free(expected);

        const struct bloom_params *params = bloom_filter_params(filter->filter);
        cr_assert_eq(params->expansion, 0);
        cr_assert_eq(params->capacity, (uint64_t)(100032 * 0.69314718055994530942 / 5));
        uint64_t items = bloom_filter_items(filter->filter);
        cr_assert(items > 9800 && items < 10200, "%llu items", (unsigned long long)items);

        char *keys = (char *)golden_file(&len, BUILT "/keys.hex");
        for (char *line = keys; line < keys + len;) {
            char *end = strchr(line, '\n');
            *end = '\0';
            size_t bytes = golden_unhex(line);
            cr_assert(bloom_filter_query(filter->filter, murmur3_hash(line, bytes)), "%s", variants[i]);
            line = end + 1;
        }
        free(keys);
    }
    store_close(store);
    rig_deinit(&rig);
}

Test(tool_import, the_variant_comes_from_the_name_of_the_sstable)
{
    file_copy(BUILT "/Filter.me.db", tmp_path(dir, "mc-1-big-Filter.db").text);
    file_copy(BUILT "/Filter.na.db", tmp_path(dir, "da-2-bti-Filter.db").text);
    file_copy(BUILT "/Filter.ka.db", tmp_path(dir, "ks-cf-ka-1-Filter.db").text);
    ASSERT_RUN(0, "'a': me,", "import %s/data a %s/mc-1-big-Filter.db", dir, dir);
    ASSERT_RUN(0, "'b': na,", "import %s/data b %s/da-2-bti-Filter.db", dir, dir);
    ASSERT_RUN(0, "'c': ka,", "import %s/data c %s/ks-cf-ka-1-Filter.db", dir, dir);
    ASSERT_RUN(1, "use --variant", "import %s/data d '%s/Filter.na.db'", dir, BUILT);
}

Test(tool_import, capacity_and_rate_can_be_given)
{
    ASSERT_RUN(0, "capacity 12345, error rate 0.02",
               "import %s/data a '%s/Filter.na.db' --variant=na --capacity 12345 --error 0.02", dir, BUILT);
    ASSERT_RUN(0, "capacity 10000, error rate 0.009",
               "import %s/data b '%s/Filter.na.db' --variant na --capacity 10000", dir, BUILT);
    ASSERT_RUN(2, "--capacity '0'", "import %s/data c '%s/Filter.na.db' --variant na --capacity 0", dir, BUILT);
    ASSERT_RUN(2, "--error '1'", "import %s/data c '%s/Filter.na.db' --variant na --error 1", dir, BUILT);
    ASSERT_RUN(2, "--error 'x'", "import %s/data c '%s/Filter.na.db' --variant na --error x", dir, BUILT);
}

Test(tool_import, a_taken_name_is_refused_and_nothing_changes)
{
    ASSERT_RUN(0, "filter 'a'", "import %s/data a '%s/Filter.na.db' --variant na", dir, BUILT);
    ASSERT_RUN(1, "the filter 'a' already exists", "import %s/data a '%s/Filter.me.db' --variant me", dir, BUILT);
    ASSERT_RUN(0, "filter 'b'", "import %s/data b '%s/Filter.me.db' --variant me", dir, BUILT);
}

Test(tool_import, a_directory_in_use_is_refused)
{
    struct store *store;
    struct errbuf err = {{0}};

    cr_assert_eq(store_open(tmp_path(dir, "data").text, NULL, &store, &err), 0);
    ASSERT_RUN(1, "is in use by process", "import %s/data a '%s/Filter.na.db' --variant na", dir, BUILT);
    cr_assert(strstr(output, "stop the daemon"));
    store_close(store);
}

/* Like a daemon that has answered SHUTDOWN. */
Test(tool_import, a_directory_that_is_given_back_in_a_moment_is_waited_for)
{
    const struct fsops *fs = fsops_posix();
    pid_t owner;
    int fd;

    ASSERT_RUN(0, "filter 'a'", "import %s/data a '%s/Filter.na.db' --variant na", dir, BUILT);
    pid_t child = fork();
    if (child == 0) {
        _exit(fs->lock(fs->ctx, tmp_path(dir, "data/LOCK").text, &fd, &owner) != 0 ||
              creat(tmp_path(dir, "held").text, 0600) < 0 || usleep(300000) != 0);
    }
    wait_until(access(tmp_path(dir, "held").text, F_OK) == 0);
    ASSERT_RUN(0, "filter 'b'", "import %s/data b '%s/Filter.na.db' --variant na", dir, BUILT);
    int status;
    cr_assert(waitpid(child, &status, 0) == child && status == 0);
}

/* A damaged neighbour is not read, and stays unchanged. */
Test(tool_import, other_filters_are_carried_over_unread)
{
    ASSERT_RUN(0, "filter 'a'", "import %s/data a '%s/Filter.na.db' --variant na", dir, BUILT);
    unlink(rig_place(NULL, tmp_path(dir, "data").text, "a", 0).path);
    ASSERT_RUN(0, "filter 'b'", "import %s/data b '%s/Filter.na.db' --variant na", dir, BUILT);

    struct store *store;
    struct errbuf err = {{0}};
    struct rig rig;
    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, tmp_path(dir, "data").text, NULL, 1, &store, &err), 0, "%s", err.text);
    cr_assert_eq(rig.loaded.quarantined, 1);
    cr_assert_eq(rig.loaded.filters, 1);
    store_close(store);
    rig_deinit(&rig);
}

Test(tool_import, a_foreign_file_in_the_way_is_not_overwritten)
{
    ASSERT_RUN(0, "filter 'a'", "import %s/data a '%s/Filter.na.db' --variant na", dir, BUILT);
    struct rig_place a = rig_place(NULL, tmp_path(dir, "data").text, "a", 0);
    struct tmp_path next = tmp_path(dir, "data/filters/me-%llu-big-Filter.db", (unsigned long long)a.number + 2);
    mkdir(next.text, 0700); /* the name of the next file */
    ASSERT_RUN(0, "filter 'b'", "import %s/data b '%s/Filter.me.db' --variant me", dir, BUILT);
    cr_assert(strcmp(rig_place(NULL, tmp_path(dir, "data").text, "b", 0).path, next.text) != 0 &&
              file_exists(next.text));
}

Test(tool_import, malformed_files_are_refused)
{
    ASSERT_RUN(1, "truncated: 48 bytes expected, 40 found",
               "import %s/data a '%s/malformed/words_5_for_4.db' --variant na", dir, BLOOMERY_GOLDEN_DIR);
    ASSERT_RUN(1, "every bit is set", "import %s/data a '%s/malformed/k_21.db' --variant na", dir, BLOOMERY_GOLDEN_DIR);
    ASSERT_RUN(1, "No such file", "import %s/data a %s/nothing --variant na", dir, dir);
    ASSERT_RUN(1, "Is a directory", "import %s/data a %s --variant na", dir, dir);
    cr_assert(!file_exists(tmp_path(dir, "data").text), "a data directory was made for nothing");
}

Test(tool_import, arguments_that_make_no_sense_are_refused_with_a_hint)
{
    ASSERT_RUN(2, "a command is missing", " ");
    ASSERT_RUN(2, "no command 'imprt'; see 'bloomery --help'", "imprt");
    ASSERT_RUN(2, "DATADIR is missing", "import");
    ASSERT_RUN(2, "unexpected argument: 'x'", "import a b c x");
    ASSERT_RUN(2, "unknown option '--foo'", "import a b c --foo=1");
    ASSERT_RUN(2, "--variant needs a value", "import a b c --variant");
    ASSERT_RUN(2, "--variant is given twice", "import a b c --variant na --variant na");
    ASSERT_RUN(2, "--variant 'nb' is not", "import a b c --variant nb");
    cr_assert(strstr(output, "Usage: bloomery import [DATADIR [NAME FILE]]"));
    cr_assert(strstr(output, "bloomery help import"));
}

Test(tool_import, help_and_version_are_there)
{
    ASSERT_RUN(0, "bloomery " BLOOMERY_TEST_VERSION "\n", "--version");
    ASSERT_RUN(0, "import", "--help");
    ASSERT_RUN(0, "Usage: bloomery import [DATADIR [NAME FILE]]", "help import");
    ASSERT_RUN(0, "--capacity", "import --help");
    ASSERT_RUN(2, "no command 'x'", "help x");
}
