/* `bloomery check`, the real program, on directories that a start refuses although every line and every record is
 * valid by itself. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "log_payload.h"
#include "log_append.h"
#include "log_tail.h"
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

/* One filter, saved in a file. */
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
    program_expect(output, sizeof(output), code, text, "'" BLOOMERY_TOOL "' check %s", AT("data"));
}

/* A log of one frame. Closes the store. */
static void write_log(struct log_bytes *records)
{
    const struct log_writer_options options = {.dir = AT("data"), .next_segment = 1, .next_sequence = 1};
    struct log_writer *writer;

    cr_assert_eq(log_writer_create(&options, &writer), 0);
    struct log_bytes payload = {0};
    cr_assert_eq(log_payload_controls(&payload, 1, records), 0);
    cr_assert_eq(log_append(writer, true, &payload, &err), 0, "%s", err.text);
    log_bytes_deinit(&payload);
    cr_assert_eq(log_writer_sync(writer, &err), 0, "%s", err.text);
    log_writer_destroy(writer);
    log_bytes_deinit(records);
    store_close(store);
}

/* Also opens the store again. */
static void forget_log(void)
{
    cr_assert_eq(remove(AT("data/log/00000001.log")), 0);
    rig_deinit(&rig);
    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, AT("data"), NULL, 1, &store, &err), 0, "%s", err.text);
}

static void note(struct log_bytes *records, const struct log_control *control)
{
    cr_assert_eq(log_control_encode(records, control), 0);
}

/* A filter with contents, after a record of the kind `before` (0: none); `deleted`: with its deletion. */
static void write_contents(enum log_control_kind before, bool deleted)
{
    struct rig_filter *filter = rig_add(&rig, "contents", &small, NULL);
    const struct store_item item = {
        .id = filter->id, .name = filter->name, .name_len = filter->name_len, .filter = filter->filter};
    struct log_control control = {.kind = LOG_LOADED, .id = filter->id};
    struct log_bytes records = {0};
    struct store_record record;

    rig_fill(filter, 0, 20);
    cr_assert_eq(store_write(store, &item, &record, &err), 0, "%s", err.text);
    store_published(store, filter->id);
    control.record = record.text;
    control.record_len = record.len;
    if (before)
        note(&records, &(struct log_control){.kind = before});
    note(&records, &control);
    if (deleted)
        note(&records, &(struct log_control){.kind = LOG_DELETE, .id = filter->id});
    write_log(&records);
    free(record.text);
}

Test(tool_check, a_damaged_file_that_only_the_log_knows_of_is_found)
{
    struct tmp_path file =
        tmp_path(dir, "data/filters/na-%llu-big-Filter.db", (unsigned long long)store_number(store) + 1);

    write_contents(0, false);
    expect_check(0, "whole");
    file_flip_bit(file.text, 100);
    expect_check(1, "damaged: filter 'contents', id 2: ");
    file_flip_bit(file.text, 100);
    expect_check(0, "whole");
    cr_assert_eq(remove(file.text), 0);
    expect_check(1, "damaged: filter 'contents', id 2: ");
}

/* The same as JSON: the fields for a script, and the messages that a reader would see on stderr. */
Test(tool_check, json_says_the_same)
{
    static const char parse[] = "python3 -c 'import json, sys; c = json.load(sys.stdin); "
                                "print(c[\"whole\"], c[\"files\"], len(c[\"problems\"]), c[\"log\"][\"controls\"])'";

    struct tmp_path file =
        tmp_path(dir, "data/filters/na-%llu-big-Filter.db", (unsigned long long)store_number(store) + 1);

    write_contents(0, false);
    cr_assert_eq(log_tail_end(fsops_posix(), AT("data"), 1), 0);
    program_expect(output, sizeof(output), 0, "True {'whole': 2, 'damaged': 0} 0 1\n",
                   "'" BLOOMERY_TOOL "' check %s --json | %s", AT("data"), parse);
    program_expect(output, sizeof(output), 0, "False {'whole': 0, 'damaged': 0} 1 0\n",
                   "'" BLOOMERY_TOOL "' check %s --json 2>/dev/null | %s", AT("none"), parse);
    program_expect(output, sizeof(output), 1, "none: No such file or directory",
                   "'" BLOOMERY_TOOL "' check %s --json 2>/dev/null", AT("none"));
    file_flip_bit(file.text, 100);
    program_expect(output, sizeof(output), 0, "False {'whole': 1, 'damaged': 1} 1 1\n",
                   "'" BLOOMERY_TOOL "' check %s --json 2>/dev/null | %s", AT("data"), parse);
    program_expect(output, sizeof(output), 1, "damaged: filter", "'" BLOOMERY_TOOL "' check %s --json 2>&1 >/dev/null",
                   AT("data"));
}

Test(tool_check, a_damaged_file_of_what_the_log_has_deleted_is_of_no_interest)
{
    struct tmp_path file =
        tmp_path(dir, "data/filters/na-%llu-big-Filter.db", (unsigned long long)store_number(store) + 1);

    write_contents(0, true);
    file_flip_bit(file.text, 100);
    expect_check(0, "whole");
}

/* Contents in the log itself count as a filter that is loaded. */
Test(tool_check, contents_in_the_log_need_no_file)
{
    struct rig_filter *filter = rig_add(&rig, "contents", &small, NULL);
    struct log_bytes contents = {0}, records = {0};

    rig_fill(filter, 0, 20);
    cr_assert_eq(log_contents_encode(&contents, filter->filter, LOG_CONTENTS_MAX), 0);
    note(&records, &(struct log_control){.kind = LOG_FILLED,
                                         .id = filter->id,
                                         .name = filter->name,
                                         .name_len = filter->name_len,
                                         .params = small,
                                         .record = (const char *)contents.ptr,
                                         .record_len = contents.len});
    log_bytes_deinit(&contents);
    write_log(&records);
    expect_check(0, "0 filters created, 1 loaded");
    expect_check(0, "whole");
}

/* Records after a break belong to a save that was not made: a start does not check them either. */
Test(tool_check, contents_behind_a_break_are_of_no_interest)
{
    struct tmp_path file =
        tmp_path(dir, "data/filters/na-%llu-big-Filter.db", (unsigned long long)store_number(store) + 1);

    write_contents(LOG_BREAK, false);
    expect_check(0, "1 control records depend on a save that does not exist");
    file_flip_bit(file.text, 100);
    expect_check(0, "whole");
}

Test(tool_check, contents_behind_a_clearing_are_looked_at)
{
    struct tmp_path file =
        tmp_path(dir, "data/filters/na-%llu-big-Filter.db", (unsigned long long)store_number(store) + 1);

    write_contents(LOG_CLEAR, false);
    expect_check(0, "filters: 1 were deleted or have expired");
    file_flip_bit(file.text, 100);
    expect_check(1, "damaged: filter 'contents', id 2: ");
}

/* A filter of the save that the log removes: a start does not read its files. */
Test(tool_check, damaged_files_of_filters_that_are_gone_are_of_no_interest)
{
    static const struct log_control ways[] = {{.kind = LOG_DELETE, .id = 1},
                                              {.kind = LOG_EXPIRY, .id = 1, .expires_ms = 1},
                                              {.kind = LOG_CLEAR},
                                              {.kind = LOG_FORGET, .id = 1}};

    file_flip_bit(rig_place(NULL, AT("data"), "one", 0).path, 100);
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        struct log_bytes records = {0};
        if (i > 0)
            forget_log();
        note(&records, &ways[i]);
        write_log(&records);
        expect_check(0, "filters: 1 were deleted or have expired since they were saved");
    }
    cr_assert_eq(remove(AT("data/log/00000001.log")), 0);
    expect_check(1, "damaged: filter 'one', id 1: ");
}

/* Filters of the log that a start could not make. */
Test(tool_check, filters_that_cannot_be_made_are_found)
{
    const struct bloom_shape shape = {15, 7, BLOOM_NA}, none = {15, 22, BLOOM_NA};
    const struct {
        struct log_control control;
        const char *says;
    } rows[] = {
        {{.kind = LOG_CREATE, .id = 2, .name = "one", .name_len = 3, .params = small, .shape = shape},
         "damaged: filter 'one', id 2: another filter has the same name"},
        {{.kind = LOG_CREATE, .id = 2, .name = "two", .name_len = 3, .params = small, .shape = none}, "log: "},
        {{.kind = LOG_GROW, .id = 1, .layer = 1, .shape = shape}, "damaged: filter 'one', id 1: layer 1: "},
        {{.kind = LOG_CREATE, .id = 2, .replaced_id = 1, .name = "one", .name_len = 3, .params = small, .shape = shape},
         NULL},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct log_bytes records = {0};
        if (i > 0)
            forget_log();
        note(&records, &rows[i].control);
        write_log(&records);
        expect_check(rows[i].says != NULL, rows[i].says ? rows[i].says : "whole");
    }
}

/* The save has the filter, or the log does, empty or with contents. */
Test(tool_check, layers_of_another_variant_are_found)
{
    static const struct bloom_params growing = {.capacity = 100, .error_rate = 0.01, .expansion = 2};
    const struct bloom_shape shape = {15, 7, BLOOM_NA}, other = {29, 8, BLOOM_ME};
    const struct log_control grow = {.kind = LOG_GROW, .id = 2, .layer = 1, .shape = other};
    struct log_control create = {
        .kind = LOG_CREATE, .id = 2, .name = "two", .name_len = 3, .params = growing, .shape = shape};
    struct log_bytes contents = {0}, records = {0};

    note(&records, &create);
    note(&records, &grow);
    write_log(&records);
    expect_check(1,
                 "damaged: filter 'two', id 2: layer 1: its variant is me, and that of the filter's other layers na");

    forget_log();
    struct rig_filter *filter = rig_add(&rig, "two", &growing, NULL);
    cr_assert_eq(filter->id, 2);
    cr_assert_eq(log_contents_encode(&contents, filter->filter, LOG_CONTENTS_MAX), 0);
    create.kind = LOG_FILLED;
    create.record = (const char *)contents.ptr;
    create.record_len = contents.len;
    note(&records, &create);
    note(&records, &grow);
    write_log(&records);
    log_bytes_deinit(&contents);
    expect_check(1,
                 "damaged: filter 'two', id 2: layer 1: its variant is me, and that of the filter's other layers na");

    forget_log();
    filter = rig_add(&rig, "two", &growing, NULL);
    cr_assert_eq(rig_save(&rig, store, NULL, &err), 0, "%s", err.text);
    note(&records, &grow);
    write_log(&records);
    expect_check(1,
                 "damaged: filter 'two', id 2: layer 1: its variant is me, and that of the filter's other layers na");
}

/* A record is invalid by itself, whatever later records state about its filter. */
Test(tool_check, damaged_records_of_filters_that_are_gone_are_found)
{
    static const char text[] =
        "filter id=2 name=two capacity=1 error-rate=0.5 expansion=0 variant=xx expires-ms=0 layers=1\n";
    static const struct log_control ways[] = {{.kind = LOG_DELETE, .id = 2},
                                              {.kind = LOG_EXPIRY, .id = 2, .expires_ms = 1},
                                              {.kind = LOG_CLEAR},
                                              {.kind = LOG_FORGET, .id = 2}};

    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        struct log_bytes records = {0};
        if (i > 0)
            forget_log();
        note(&records, &(struct log_control){.kind = LOG_LOADED, .id = 2, .record = text, .record_len = strlen(text)});
        note(&records, &ways[i]);
        write_log(&records);
        expect_check(1, "expected 'variant=' with a valid value");
    }
}

/* The record of the one filter again, changed, with another file; the last line is corrected. */
static void append_to_manifest(const char *from, const char *to)
{
    size_t len;
    char *old = (char *)file_read(AT("data/MANIFEST"), &len), text[4096];
    char *filter = memmem(old, len, "filter id=1 ", 12), *save = memmem(old, len, "save number=", 12);
    char *at = memmem(filter, (size_t)(save - filter), from, strlen(from));
    char *file = memmem(filter, (size_t)(save - filter), " file=", 6);

    cr_assert(at && file && len < sizeof(text) / 2);
    file += strlen(" file=");
    len = (size_t)snprintf(text, sizeof(text), "%.*s%.*s%s%.*s2\n%.*s", (int)(save - old), old, (int)(at - filter),
                           filter, to, (int)(file - at - (long)strlen(from)), at + strlen(from),
                           (int)(strchr(save, '\n') + 1 - save), save);
    snprintf(text + len, sizeof(text) - len, "end filters=2 xxh3=%016llx\n",
             (unsigned long long)XXH3_64bits(text, len));
    file_write(AT("data/MANIFEST"), text, strlen(text));
    free(old);
}

Test(tool_check, two_filters_with_one_id_are_found_as_a_start_finds_them)
{
    store_close(store);
    append_to_manifest("name=one", "name=two");
    expect_check(1, "a second filter with the id 1");
    rig_deinit(&rig);
    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, AT("data"), NULL, 1, &store, &err), STORE_DAMAGED);
}

Test(tool_check, an_id_above_the_next_one_is_found_as_a_start_finds_it)
{
    store_close(store);
    append_to_manifest("id=1 name=one", "id=7 name=two");
    expect_check(1, "is not above the filter id 7");
    rig_deinit(&rig);
    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, AT("data"), NULL, 1, &store, &err), STORE_DAMAGED);
}

/* As a start takes them. */
/* Where the log begins is in the MANIFEST: without it the log may be whole. */
Test(tool_check, without_a_manifest_nothing_is_said_of_the_log)
{
    struct log_bytes records = {0};
    note(&records, &(struct log_control){.kind = LOG_DELETE, .id = 1});
    write_log(&records);
    cr_assert_eq(unlink(AT("data/MANIFEST")), 0);
    expect_check(1, "data/MANIFEST: No such file or directory");
    cr_expect_null(strstr(output, "log: "), "%s", output);
}

Test(tool_check, symbolic_links_to_directories_are_followed)
{
    store_close(store);
    program_expect(
        output, sizeof(output), 0, "whole",
        "cd %s && mv data real && mv real/filters files && ln -s ../files real/filters && ln -s real data && "
        "'" BLOOMERY_TOOL "' export data one out && '" BLOOMERY_TOOL "' check data",
        dir);
    program_expect(output, sizeof(output), 1, "damaged: real/filters: Not a directory",
                   "cd %s && rm real/filters && echo >real/filters && '" BLOOMERY_TOOL "' check real", dir);
}

/* Another user's directory: the lock holds without a write; what cannot be locked is checked all the same. */
Test(tool_check, who_may_only_read_can_check)
{
    const char *somebody = geteuid() == 0 ? "setpriv --reuid=65534 --clear-groups " : "";
#define AS_SOMEBODY(code, text) \
    program_expect(output, sizeof(output), code, text, "%s'" BLOOMERY_TOOL "' check %s", somebody, AT("data"))

    program_expect(output, sizeof(output), 0, "", "chmod -R a+rX %s && chmod a-w %s", dir, AT("data/LOCK"));
    AS_SOMEBODY(1, "is in use by another process");
    store_close(store);
    AS_SOMEBODY(0, "whole");
    cr_expect_null(strstr(output, "warning"), "%s", output);
    program_expect(output, sizeof(output), 0, "", "chmod 0 %s", AT("data/LOCK"));
    AS_SOMEBODY(0, "whole");
    program_said(output, "LOCK: Permission denied: it is not known whether a daemon uses the directory\n");
}
