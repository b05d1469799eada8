/* `bloomery export`, `unpack` and `check` on a directory with packs, the real program. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* One small filter, one in two layers, one with a file; their expected files, by another directory without packs. */
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

/* That the tool exits so and says so. */
#define ASSERT_RUN(code, text, ...) program_expect(output, sizeof(output), code, text, BLOOMERY_TOOL " " __VA_ARGS__)

static void assert_same_files(const char *a, const char *b)
{
    size_t len, other_len;
    unsigned char *bytes = file_read(AT("%s", a), &len), *other = file_read(AT("%s", b), &other_len);

    cr_assert(len == other_len && memcmp(bytes, other, len) == 0, "%s is not %s", a, b);
    free(bytes);
    free(other);
}

Test(tool_export, a_filter_is_exported_from_a_pack_or_from_its_directory_as_the_files_it_would_have)
{
    ASSERT_RUN(0, "out/na-0-big-Filter.db: k 5", "export data one out");
    assert_same_files("out/na-0-big-Filter.db", "files/filters/one/0-Filter.db");
    ASSERT_RUN(0, "na-1-big-Filter.db", "export data two/x out2");
    assert_same_files("out2/na-0-big-Filter.db", "files/filters/two%2Fx/0-Filter.db");
    assert_same_files("out2/na-1-big-Filter.db", "files/filters/two%2Fx/1-Filter.db");
    ASSERT_RUN(0, "na-0-big-Filter.db", "export data large out3");
    assert_same_files("out3/na-0-big-Filter.db", "files/filters/large/0-Filter.db");
    ASSERT_RUN(1, "na-0-big-Filter.db is there already", "export data large out3");
    ASSERT_RUN(1, "has no filter 'none'", "export data none none");
    cr_assert_neq(access(AT("none"), F_OK), 0);
    ASSERT_RUN(1, "export: nowhere: No such file or directory", "export nowhere one out");
    ASSERT_RUN(1, "check: out/na-0-big-Filter.db: Not a directory", "check out/na-0-big-Filter.db");
    ASSERT_RUN(1, "out/na-0-big-Filter.db/na-0-big-Filter.db: Not a directory",
               "export data large out/na-0-big-Filter.db");
    ASSERT_RUN(0, "filter 'again'", "import other again out/na-0-big-Filter.db");
    assert_same_files("other/filters/again/0-Filter.db", "files/filters/one/0-Filter.db");
}

/* What is printed would otherwise be in the first file that is opened. */
Test(tool_export, an_output_that_cannot_be_written_is_a_failure_and_no_file_gets_it)
{
    ASSERT_RUN(1, "cannot write to the standard output: No space left on device", "check data >/dev/full");
    ASSERT_RUN(1, "cannot write to the standard output: Bad file descriptor", "export data large out >&-");
    assert_same_files("out/na-0-big-Filter.db", "files/filters/large/0-Filter.db");
    ASSERT_RUN(0, "MANIFEST", "check data | head -1");
}

Test(tool_export, help_is_given_wherever_it_is_asked_for)
{
    ASSERT_RUN(0, "Usage: bloomery check DATADIR", "check -h");
    ASSERT_RUN(0, "Usage: bloomery bench", "bench exists --port 1 --help");
    ASSERT_RUN(2, "unknown option '-x'", "check -x");
    ASSERT_RUN(1, "--help: No such file or directory", "check -- --help");
}

Test(tool_export, a_file_that_still_has_its_temporary_name_is_exported)
{
    cr_assert_eq(rename(AT("files/filters/one/0-Filter.db"), AT("files/filters/one/0-Filter.db.1")), 0);
    ASSERT_RUN(0, "na-0-big-Filter.db", "export files one out");
    assert_same_files("out/na-0-big-Filter.db", "files/filters/one/0-Filter.db.1");
}

Test(tool_export, what_is_damaged_is_not_exported_and_check_says_whose_it_is)
{
    struct rig_place place = rig_packed(NULL, AT("data"), "one");

    ASSERT_RUN(0, "files: 4 whole, 0 damaged", "check data");
    file_flip_bit(place.path, 8 * (place.offset + 30));
    file_flip_bit(AT("data/filters/large/0-Filter.db"), 800);
    ASSERT_RUN(1, "damaged: filter 'one', id 1: packs/", "check data");
    cr_assert(strstr(output, "damaged: filter 'large', id 3: ") && strstr(output, "files: 2 whole, 2 damaged"), "%s",
              output);
    ASSERT_RUN(1, "not what the MANIFEST says", "export data one out");
    ASSERT_RUN(1, "not what the MANIFEST says", "export data large out");
    cr_assert_eq(dir_count(AT("out")), 0);
    ASSERT_RUN(0, "na-1-big-Filter.db", "export data two/x out");
    unlink(place.path);
    ASSERT_RUN(1, "damaged: filter 'two%2Fx', id 2: packs/", "check data");
    cr_assert(strstr(output, ".pack: missing"), "%s", output);
}

Test(tool_export, a_pack_is_unpacked_without_its_manifest)
{
    unlink(AT("data/MANIFEST"));
    ASSERT_RUN(0, "2 filters in out", "unpack %s out", rig_packed(NULL, AT("data"), "one").path);
    assert_same_files("out/one-1/na-0-big-Filter.db", "files/filters/one/0-Filter.db");
    assert_same_files("out/two%2Fx-2/na-0-big-Filter.db", "files/filters/two%2Fx/0-Filter.db");
    assert_same_files("out/two%2Fx-2/na-1-big-Filter.db", "files/filters/two%2Fx/1-Filter.db");
    ASSERT_RUN(1, "File exists", "unpack %s out", rig_packed(NULL, AT("data"), "one").path);
    ASSERT_RUN(1, "No such file", "unpack nothing out2");
}

Test(tool_export, damage_in_a_pack_costs_its_own_filter_when_it_is_unpacked)
{
    struct rig_place place = rig_packed(NULL, AT("data"), "one");

    file_flip_bit(place.path, 8 * (place.offset + 7)); /* the count of words, by which the next record would be found */
    ASSERT_RUN(1, "bytes are damaged", "unpack %s out", place.path);
    cr_assert(!file_exists(AT("out/one-1")));
    assert_same_files("out/two%2Fx-2/na-1-big-Filter.db", "files/filters/two%2Fx/1-Filter.db");
}
