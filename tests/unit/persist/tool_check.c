/* `bloomery check`, the real program, on what a start does not take although every line and every record is valid by
 * itself. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "log_contents.h"
#include "log_writer.h"
#include "program.h"
#include "rig.h"
#include "tmpdir.h"

static const struct bloom_params small = {.capacity = 100, .error_rate = 0.01, .expansion = 0};

static char dir[TMPDIR_SIZE];
static char output[4096]; /* of the last run, stdout and stderr */
static struct rig rig;
static struct store *store;
static struct errbuf err;

#define AT(...) (tmp_path(dir, __VA_ARGS__).text)

/* One filter that a save has, in a file. */
static void set_up(void)
{
    tmpdir_create(dir);
    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, AT("data"), NULL, 1, &store, &err), 0, "%s", err.text);
    rig_fill(rig_add(&rig, "one", &small, NULL), 0, 50);
    cr_assert_eq(rig_save(&rig, store, NULL, &err), 0, "%s", err.text);
}

static void tear_down(void)
{
    rig_deinit(&rig);
    tmpdir_remove(dir);
}

TestSuite(tool_check, .init = set_up, .fini = tear_down);

static void expect_check(int code, const char *text)
{
    program_expect(output, sizeof(output), code, text, BLOOMERY_TOOL " check %s", AT("data"));
}

/* A log of one frame: these control records. */
static void write_log(const struct log_control *controls, size_t n)
{
    const struct log_writer_options options = {.dir = AT("data"), .next_segment = 1, .next_sequence = 1};
    struct log_bytes records = {0};
    struct log_writer *writer;

    for (size_t i = 0; i < n; i++)
        cr_assert_eq(log_control_encode(&records, &controls[i]), 0);
    cr_assert_eq(log_writer_create(&options, &writer), 0);
    cr_assert_eq(log_payload_controls(log_writer_payload(writer), 1, &records), 0);
    cr_assert_eq(log_writer_append(writer, true, &err), 0, "%s", err.text);
    cr_assert_eq(log_writer_sync(writer, &err), 0, "%s", err.text);
    log_writer_destroy(writer);
    log_bytes_deinit(&records);
}

/* A filter with contents that are in a file, and whether it is deleted again. */
static void write_contents(bool deleted)
{
    struct rig_filter *filter = rig_add(&rig, "contents", &small, NULL);
    const struct store_item item = {
        .id = filter->id, .name = filter->name, .name_len = filter->name_len, .filter = filter->filter};
    struct log_control controls[] = {{.kind = LOG_LOADED, .id = filter->id}, {.kind = LOG_DELETE, .id = filter->id}};
    struct store_record record;

    rig_fill(filter, 0, 20);
    cr_assert_eq(store_write(store, &item, &record, &err), 0, "%s", err.text);
    store_published(store, filter->id);
    controls[0].record = record.text;
    controls[0].record_len = record.len;
    write_log(controls, deleted ? 2 : 1);
    free(record.text);
    store_close(store);
}

Test(tool_check, a_damaged_file_that_only_the_log_knows_of_is_found)
{
    struct tmp_path file =
        tmp_path(dir, "data/filters/contents/0-Filter.db.%llu", (unsigned long long)store_generation(store) + 1);

    write_contents(false);
    expect_check(0, "whole");
    file_flip_bit(file.text, 100);
    expect_check(1, "damaged: filter 'contents', id 2: ");
    file_flip_bit(file.text, 100);
    expect_check(0, "whole");
    cr_assert_eq(remove(file.text), 0);
    expect_check(1, "damaged: filter 'contents', id 2: ");
}

Test(tool_check, a_damaged_file_of_what_the_log_has_deleted_is_of_no_interest)
{
    struct tmp_path file =
        tmp_path(dir, "data/filters/contents/0-Filter.db.%llu", (unsigned long long)store_generation(store) + 1);

    write_contents(true);
    file_flip_bit(file.text, 100);
    expect_check(0, "whole");
}

/* Contents in the log itself count as a filter that is loaded. */
Test(tool_check, contents_in_the_log_need_no_file)
{
    struct rig_filter *filter = rig_add(&rig, "contents", &small, NULL);
    struct log_bytes contents = {0};

    rig_fill(filter, 0, 20);
    cr_assert_eq(log_contents_encode(&contents, filter->filter, LOG_CONTENTS_MAX), 0);
    const struct log_control control = {.kind = LOG_FILLED,
                                        .id = filter->id,
                                        .name = filter->name,
                                        .name_len = filter->name_len,
                                        .params = small,
                                        .record = (const char *)contents.ptr,
                                        .record_len = contents.len};
    write_log(&control, 1);
    log_bytes_deinit(&contents);
    store_close(store);
    expect_check(0, "0 filters created, 1 loaded");
    expect_check(0, "whole");
}

/* Text appended to the entries of the MANIFEST, the last line put right. */
static void append_to_manifest(const char *from, const char *to, const char *end)
{
    size_t len;
    unsigned char *old = file_read(AT("data/MANIFEST"), &len);
    char text[4096], *at;

    cr_assert_lt(len, sizeof(text) / 2);
    memcpy(text, old, len);
    text[len] = '\0';
    free(old);
    cr_assert_not_null(strstr(text, "\nend "));
    *(strstr(text, "\nend ") + 1) = '\0';
    cr_assert_not_null(strstr(text, "filter id=1 "));
    char *copy = strdup(strstr(text, "filter id=1 "));
    at = strstr(copy, from);
    cr_assert_not_null(at);
    len = strlen(text);
    len += (size_t)snprintf(text + len, sizeof(text) - len, "%.*s%s%s", (int)(at - copy), copy, to, at + strlen(from));
    snprintf(text + len, sizeof(text) - len, "%s xxh3=%016llx\n", end, (unsigned long long)XXH3_64bits(text, len));
    file_write(AT("data/MANIFEST"), text, strlen(text));
    free(copy);
}

Test(tool_check, two_filters_with_one_id_are_found_as_a_start_finds_them)
{
    store_close(store);
    append_to_manifest("name=one", "name=two", "end filters=2 removed=0");
    expect_check(1, "a second filter with the id 1");
    rig_deinit(&rig);
    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, AT("data"), NULL, 1, &store, &err), STORE_DAMAGED);
}

Test(tool_check, an_id_above_the_next_one_is_found_as_a_start_finds_it)
{
    store_close(store);
    append_to_manifest("id=1 name=one", "id=7 name=two", "end filters=2 removed=0");
    expect_check(1, "is not above the filter id 7");
    rig_deinit(&rig);
    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, AT("data"), NULL, 1, &store, &err), STORE_DAMAGED);
}
