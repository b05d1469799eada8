/* `bloomery export` and `check` on a directory with packs, the real program. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "program.h"
#include "rig.h"
#include "tmpdir.h"

static const struct bloom_params small = {.capacity = 100, .error_rate = 0.01, .expansion = 0};
static const struct bloom_params scaling = {.capacity = 40, .error_rate = 0.05, .expansion = 2};

static char dir[TMPDIR_SIZE];
static char output[4096]; /* of the last run, stdout and stderr */
static struct rig rig;

#define AT(...) (tmp_path(dir, __VA_ARGS__).text)

/* One small filter, one in two layers, one with a file; their expected files, from another directory without packs. */
static void set_up(void)
{
    struct errbuf err = {{0}};
    struct store *store;

    tmpdir_create(dir);
    cr_assert_eq(chdir(dir), 0);
    for (int i = 0; i < 2; i++) {
        rig_init(&rig);
        cr_assert_eq(rig_load(&rig, i == 0 ? AT("files") : AT("data"), NULL, 1, &store, &err), 0, "%s", err.text);
        rig.pack_limit = i == 0 ? 0 : 16384;
        rig_fill(rig_add(&rig, "one", &small, NULL), 0, 50);
        rig_fill(rig_add(&rig, "two/x", &scaling, NULL), 0, 100);
        rig_fill(rig_add(&rig, "large", &(struct bloom_params){.capacity = 50000, .error_rate = 0.01}, NULL), 0, 100);
        cr_assert_eq(rig_save(&rig, store, NULL, &err), 0, "%s", err.text);
        store_close(store);
        rig_deinit(&rig);
    }
}

static void tear_down(void)
{
    tmpdir_remove(dir);
}

TestSuite(tool_export, .init = set_up, .fini = tear_down);

/* Asserts an exit code and a text in the output. */
#define ASSERT_RUN(code, text, ...) \
    program_expect(output, sizeof(output), code, text, "'" BLOOMERY_TOOL "' " __VA_ARGS__)

/* `b` is the file of a layer of a filter in `files`. */
static void assert_same_files(const char *a, struct rig_place b)
{
    size_t len, other_len;
    unsigned char *bytes = file_read(AT("%s", a), &len), *other = file_read(b.path, &other_len);

    cr_assert(len == other_len && memcmp(bytes, other, len) == 0, "%s is not %s", a, b.path);
    free(bytes);
    free(other);
}

Test(tool_export, a_filter_is_exported_from_a_pack_or_its_own_files_as_the_files_it_would_have)
{
    ASSERT_RUN(0, "out/na-0-big-Filter.db: k 5", "export data one out");
    assert_same_files("out/na-0-big-Filter.db", rig_place(NULL, AT("files"), "one", 0));
    ASSERT_RUN(0, "na-1-big-Filter.db", "export data two/x out2");
    assert_same_files("out2/na-0-big-Filter.db", rig_place(NULL, AT("files"), "two/x", 0));
    assert_same_files("out2/na-1-big-Filter.db", rig_place(NULL, AT("files"), "two/x", 1));
    ASSERT_RUN(0, "na-0-big-Filter.db", "export data large out3");
    assert_same_files("out3/na-0-big-Filter.db", rig_place(NULL, AT("files"), "large", 0));
    ASSERT_RUN(1, "na-0-big-Filter.db exists already", "export data large out3");
    ASSERT_RUN(1, "has no filter 'none'", "export data none none");
    cr_assert_null(strstr(output, "later changes"), "%s", output); /* there is no log */
    ASSERT_RUN(2, "'-': a directory is needed", "export data large -");
    cr_assert_not(file_exists("-"));
    cr_assert_neq(access(AT("none"), F_OK), 0);
    ASSERT_RUN(1, "export: nowhere: No such file or directory", "export nowhere one out");
    ASSERT_RUN(1, "check: out/na-0-big-Filter.db: Not a directory", "check out/na-0-big-Filter.db");
    ASSERT_RUN(1, "out/na-0-big-Filter.db/na-0-big-Filter.db: Not a directory",
               "export data large out/na-0-big-Filter.db");
    ASSERT_RUN(0, "filter 'again'", "import other again out/na-0-big-Filter.db");
    assert_same_files("other/filters/na-1-big-Filter.db", rig_place(NULL, AT("files"), "one", 0));
}

/* Otherwise the output would go into the first opened file. */
Test(tool_export, an_output_that_cannot_be_written_is_a_failure_and_no_file_gets_it)
{
    ASSERT_RUN(1, "cannot write to the standard output: No space left on device", "check data >/dev/full");
    ASSERT_RUN(1, "cannot write to the standard output: Bad file descriptor", "export data large out >&-");
    assert_same_files("out/na-0-big-Filter.db", rig_place(NULL, AT("files"), "large", 0));
    ASSERT_RUN(0, "MANIFEST", "check data | head -1");
}

Test(tool_export, help_is_given_wherever_it_is_asked_for)
{
    ASSERT_RUN(0, "Usage: bloomery check DATADIR", "check -h");
    ASSERT_RUN(0, "Usage: bloomery move", "move --from redis://a --help");
    ASSERT_RUN(2, "unknown option '-x'", "check -x");
    ASSERT_RUN(1, "--help: No such file or directory", "check -- --help");
}

/* Two filters of one name, as when two directories were joined by hand. */
Test(tool_export, list_and_check_name_filters_of_one_name)
{
    struct errbuf err = {{0}};
    struct store *store;

    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, AT("doubles"), NULL, 1, &store, &err), 0, "%s", err.text);
    rig_fill(rig_add(&rig, "same", &small, NULL), 0, 50);
    rig_fill(rig_add(&rig, "same", &small, NULL), 50, 100);
    cr_assert_eq(rig_save(&rig, store, NULL, &err), 0, "%s", err.text);
    store_close(store);
    rig_deinit(&rig);
    ASSERT_RUN(1, "list: database 0 has two filters of the name same: no daemon starts with them", "list doubles");
    program_said(output, "2\tsame\t");
    ASSERT_RUN(1, "filter 'same', id 2: another filter has the same name", "check doubles");
    cr_assert_eq(mkdir(AT("empty"), 0777), 0);
    ASSERT_RUN(1, "check: empty is no data directory: it has neither MANIFEST nor filters nor log\n", "check empty");
    ASSERT_RUN(1, "export: empty is no data directory", "export empty one out");
}

Test(tool_export, list_says_which_files_are_whose)
{
    struct rig_place one = rig_place(NULL, AT("data"), "one", 0), large = rig_place(NULL, AT("data"), "large", 0);
    char line[300];

    snprintf(line, sizeof(line), "1\tone\t1 layer, 50 items, 136 bytes\tfilters/%s at byte %llu\n", one.file,
             (unsigned long long)one.offset);
    ASSERT_RUN(0, line, "list data");
    snprintf(line, sizeof(line), "\tfilters/%s\n", large.file);
    ASSERT_RUN(0, line, "list data --name large");
    cr_assert(!strstr(output, "one"), "%s", output);
    ASSERT_RUN(0, "\"name\":\"two%2Fx\",\"layers\":2,\"items\":99,\"bytes\":168,", "list data --json");
    ASSERT_RUN(1, "[]", "list data --name none --json");
    ASSERT_RUN(1, "bloomery list: the last save of data has no filter 'none'; changes since then are in the log",
               "list data --name none");
    ASSERT_RUN(1, "has no filter 'one' in this database; changes", "list data --name one --db 3");
    ASSERT_RUN(0, "the last save of data has no such filter; changes since then are in the log", "list data --db 3");
    ASSERT_RUN(1, "No such file", "list nowhere");
    file_change_byte(AT("data/MANIFEST"), -10);
    ASSERT_RUN(1, "1\tone\t", "list data"); /* the readable part */
    program_said(output, "damaged: data/MANIFEST: line ");
}

/* No one writes to the pipe: a read would wait forever. */
Test(tool_export, a_manifest_that_is_a_pipe_is_refused_at_once, .timeout = 3000)
{
    unlink(AT("data/MANIFEST"));
    cr_assert_eq(mkfifo(AT("data/MANIFEST"), 0600), 0);
    ASSERT_RUN(1, "data/MANIFEST: ", "check data");
    ASSERT_RUN(1, "data/MANIFEST: ", "list data");
    ASSERT_RUN(1, "data/MANIFEST: ", "export data one out");
}

Test(tool_export, what_is_damaged_is_not_exported_and_check_says_whose_it_is)
{
    struct rig_place place = rig_place(NULL, AT("data"), "one", 0);

    ASSERT_RUN(0, "files: 4 whole, 0 damaged", "check data");
    file_flip_bit(place.path, 8 * (place.offset + 30));
    file_flip_bit(rig_place(NULL, AT("data"), "large", 0).path, 800);
    ASSERT_RUN(1, "damaged: filter 'one', id 1: data/filters/1.pack: layer 0, at byte ", "check data");
    cr_assert(strstr(output, "damaged: filter 'large', id 3: ") && strstr(output, "files: 2 whole, 2 damaged"), "%s",
              output);
    ASSERT_RUN(1, "differs from the MANIFEST", "export data one out");
    ASSERT_RUN(1, "differs from the MANIFEST", "export data large out");
    cr_assert_eq(dir_count(AT("out")), 0);
    ASSERT_RUN(0, "na-1-big-Filter.db", "export data two/x out");
    unlink(place.path);
    ASSERT_RUN(1, "damaged: filter 'two%2Fx', id 2: filters/", "check data");
    program_said(output, ".pack: missing");
}
