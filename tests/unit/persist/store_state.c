/* One test per state that a data directory can be found in. Each begins with the directory that a good save has left. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_fs.h"
#include "rig.h"
#include "tmpdir.h"

static const struct bloom_params small = {.capacity = 100, .error_rate = 0.01, .expansion = 0};
static const struct bloom_params scaling = {.capacity = 40, .error_rate = 0.05, .expansion = 2};

static char dir[TMPDIR_SIZE];
static struct rig saved;  /* what the directory holds */
static struct rig loaded; /* what is found in it */
static struct store *store;
static struct errbuf err;

#define AT(...) (tmp_path(dir, __VA_ARGS__).text)

static void set_up(void)
{
    tmpdir_create(dir);
    rig_init(&saved);
    cr_assert_eq(rig_load(&saved, dir, NULL, 1, &store, &err), 0, "%s", err.text);
    rig_fill(rig_add(&saved, "one", &small, NULL), 0, 50);
    rig_fill(rig_add(&saved, "two", &scaling, NULL), 0, 100); /* two layers */
    rig_fill(rig_add(&saved, "three", &small, NULL), 7, 20);
    cr_assert_eq(rig_save(&saved, store, NULL, &err), 0, "%s", err.text);
    store_close(store);
    store = NULL;
    rig_init(&loaded);
}

static void tear_down(void)
{
    store_close(store);
    rig_deinit(&saved);
    rig_deinit(&loaded);
    tmpdir_remove(dir);
}

TestSuite(store_state, .init = set_up, .fini = tear_down);

static void load(void)
{
    cr_assert_eq(rig_load(&loaded, dir, NULL, 2, &store, &err), 0, "%s", err.text);
}

static void assert_whole(void)
{
    cr_assert_eq(loaded.count, saved.count);
    cr_assert_eq(loaded.loaded.quarantined, 0, "%s", loaded.reports);
    cr_assert_eq(rig_digest(&loaded), rig_digest(&saved));
}

/* The filter is quarantined with a reason that has both texts; the others are there; the bytes of `file` (if any) stay as
 * they are also through a save and another start. */
static void assert_quarantined(const char *name, const char *file, const char *reason)
{
    size_t before_len = 0, after_len = 0;
    unsigned char *before = file && file_exists(AT("%s", file)) ? file_read(AT("%s", file), &before_len) : NULL;

    load();
    struct rig_filter *filter = rig_find(&loaded, name);
    cr_assert(filter && !filter->filter, "'%s' is not quarantined", name);
    cr_assert(!file || strstr(filter->reason, file), "'%s' does not name %s", filter->reason, file);
    cr_assert(strstr(filter->reason, reason), "'%s' does not say '%s'", filter->reason, reason);
    cr_assert_eq(loaded.loaded.quarantined, 1);
    cr_assert_eq(loaded.loaded.filters, 2);
    cr_assert(strstr(loaded.reports, filter->reason), "not reported: %s", loaded.reports);

    struct store_save_summary summary;
    rig_fill(rig_find(&loaded, strcmp(name, "one") == 0 ? "three" : "one"), 500, 5);
    cr_assert_eq(rig_save(&loaded, store, &summary, &err), 0, "%s", err.text);
    cr_assert_eq(summary.filters, 3);
    cr_assert_eq(summary.layers_written, 1);
    store_close(store);
    if (before) {
        unsigned char *after = file_read(AT("%s", file), &after_len);
        cr_assert(after_len == before_len && memcmp(before, after, before_len) == 0, "%s has been changed", file);
        free(after);
    }
    free(before);
    rig_deinit(&loaded);
    rig_init(&loaded);
    load();
    cr_assert_eq(loaded.loaded.quarantined, 1);
    cr_assert(rig_find(&loaded, name) && !rig_find(&loaded, name)->filter);
}

/* The start is refused with a message that has the texts, and nothing in the directory has changed. */
static void assert_refused(int status, const char *file, const char *reason)
{
    size_t before = dir_count(dir), filters = dir_count(AT("filters"));

    cr_assert_eq(rig_load(&loaded, dir, NULL, 1, &store, &err), status, "%s", err.text);
    store = NULL;
    cr_assert(strstr(err.text, file) && strstr(err.text, reason), "%s", err.text);
    cr_assert_eq(dir_count(dir), before);
    cr_assert_eq(dir_count(AT("filters")), filters);
}

Test(store_state, a_good_directory_loads_as_it_was_saved)
{
    load();
    assert_whole();
    cr_assert_eq(loaded.loaded.layers, 4);
    cr_assert_eq(store_next_id(store), 4);
    cr_assert_eq(store_count(store), 3);
    cr_assert_eq(dir_count(dir), 4, "LOCK, MANIFEST, MANIFEST.done and filters");
    cr_assert_eq(dir_count(AT("filters/two")), 2);
}

Test(store_state, a_directory_that_does_not_exist_is_made)
{
    struct tmp_path deep = tmp_path(dir, "sub");

    cr_assert_eq(rig_load(&loaded, deep.text, NULL, 1, &store, &err), 0, "%s", err.text);
    cr_assert_eq(loaded.count, 0);
    cr_assert(file_exists(AT("sub/MANIFEST")) && file_exists(AT("sub/filters")));
    cr_assert_eq(store_next_id(store), 1);
}

Test(store_state, an_empty_directory_is_a_new_one)
{
    mkdir(AT("empty"), 0700);
    cr_assert_eq(rig_load(&loaded, AT("empty"), NULL, 1, &store, &err), 0, "%s", err.text);
    cr_assert_eq(loaded.count, 0);
}

Test(store_state, a_log_without_a_MANIFEST_is_refused_and_nothing_is_made)
{
    mkdir(AT("lost"), 0700);
    mkdir(AT("lost/log"), 0700);
    file_write(AT("lost/log/00000001.log"), "x", 1);
    cr_assert_eq(rig_load(&loaded, AT("lost"), NULL, 1, &store, &err), STORE_DAMAGED);
    cr_assert(strstr(err.text, "lost/MANIFEST: missing, but") && strstr(err.text, "00000001.log"), "%s", err.text);
    cr_assert(!file_exists(AT("lost/filters")) && !file_exists(AT("lost/MANIFEST")));
}

Test(store_state, a_directory_in_a_directory_that_does_not_exist_is_refused)
{
    cr_assert_eq(rig_load(&loaded, AT("no/where"), NULL, 1, &store, &err), -ENOENT);
    cr_assert(strstr(err.text, "no/where"), "%s", err.text);
}

Test(store_state, a_missing_file_quarantines_its_filter)
{
    unlink(AT("filters/two/1-Filter.db"));
    assert_quarantined("two", "filters/two/1-Filter.db", "missing");
}

Test(store_state, a_missing_directory_quarantines_its_filter)
{
    unlink(AT("filters/one/0-Filter.db"));
    rmdir(AT("filters/one"));
    assert_quarantined("one", NULL, "filters/one: missing");
}

Test(store_state, a_truncated_file_quarantines_its_filter)
{
    file_truncate(AT("filters/one/0-Filter.db"), 50);
    assert_quarantined("one", "filters/one/0-Filter.db", "words but holds 5 and 2 bytes");
}

Test(store_state, an_empty_file_quarantines_its_filter)
{
    file_truncate(AT("filters/one/0-Filter.db"), 0);
    assert_quarantined("one", "filters/one/0-Filter.db", "empty file");
}

Test(store_state, an_enlarged_file_quarantines_its_filter)
{
    size_t len;
    free(file_read(AT("filters/three/0-Filter.db"), &len));
    file_truncate(AT("filters/three/0-Filter.db"), len + 3);
    assert_quarantined("three", "filters/three/0-Filter.db", "3 bytes behind the");
}

Test(store_state, a_flipped_bit_quarantines_its_filter)
{
    file_flip_bit(AT("filters/two/0-Filter.db"), 8 * 20 + 3);
    assert_quarantined("two", "filters/two/0-Filter.db", "checksum is");
}

Test(store_state, another_hash_count_quarantines_its_filter)
{
    file_flip_bit(AT("filters/one/0-Filter.db"), 8 * 3); /* 5 becomes 4 */
    assert_quarantined("one", "filters/one/0-Filter.db", "header says hash count 4, the MANIFEST 5");
}

Test(store_state, a_whole_file_of_another_size_quarantines_its_filter)
{
    file_copy(AT("filters/two/0-Filter.db"), AT("filters/one/0-Filter.db"));
    assert_quarantined("one", "filters/one/0-Filter.db", "the MANIFEST");
}

Test(store_state, a_whole_file_of_another_filter_quarantines_its_filter)
{
    file_copy(AT("filters/three/0-Filter.db"), AT("filters/one/0-Filter.db"));
    assert_quarantined("one", "filters/one/0-Filter.db", "checksum is");
}

Test(store_state, a_directory_in_the_place_of_a_file_quarantines_its_filter)
{
    unlink(AT("filters/one/0-Filter.db"));
    mkdir(AT("filters/one/0-Filter.db"), 0700);
    assert_quarantined("one", NULL, "filters/one/0-Filter.db: cannot read: Is a directory");
}

Test(store_state, a_fifo_in_the_place_of_a_file_quarantines_its_filter_and_does_not_hang)
{
    unlink(AT("filters/one/0-Filter.db"));
    mkfifo(AT("filters/one/0-Filter.db"), 0600);
    assert_quarantined("one", NULL, "filters/one/0-Filter.db: cannot read");
}

/* Permissions do not stop root, so the refusal comes from the fault layer. */
Test(store_state, an_unreadable_file_quarantines_its_filter)
{
    struct fault_fs fault;
    struct rig rig;

    for (size_t at = 1; at < 100; at++) {
        fault_fs_init(&fault, fsops_posix());
        fault_fs_arm(&fault, at, FAULT_ERROR, -EACCES, false);
        rig_init(&rig);
        int rc = rig_load(&rig, dir, &fault.ops, 1, &store, &err);
        bool found = rc == 0 && rig.loaded.quarantined == 1 && strcmp(fault.hit_op, "open") == 0;
        for (size_t i = 0; found && i < rig.count; i++)
            cr_assert(rig.filters[i].filter || strstr(rig.filters[i].reason, "0-Filter.db: cannot read: Permission denied"));
        if (rc == 0)
            store_close(store);
        store = NULL;
        rig_deinit(&rig);
        if (found)
            return;
    }
    cr_assert_fail("no open of a filter's file among the operations of a start");
}

Test(store_state, a_foreign_file_is_reported_and_left_alone)
{
    file_write(AT("filters/one/notes.txt"), "mine", 4);
    file_write(AT("filters/stray.txt"), "mine", 4);
    file_write(AT("filters/one/5-Filter.db"), "mine", 4);
    load();
    assert_whole();
    cr_assert_eq(loaded.loaded.foreign, 3);
    cr_assert(strstr(loaded.reports, "filters/one/notes.txt is not known"));
    cr_assert(strstr(loaded.reports, "filters/one/5-Filter.db is not known"));
    cr_assert(strstr(loaded.reports, "filters/stray.txt is not known"));
    rig_remove(&loaded, "one");
    cr_assert_eq(rig_save(&loaded, store, NULL, &err), 0, "%s", err.text);
    cr_assert(file_exists(AT("filters/one/notes.txt")) && file_exists(AT("filters/one/5-Filter.db")));
    cr_assert(!file_exists(AT("filters/one/0-Filter.db")));
}

Test(store_state, a_foreign_directory_is_reported_and_left_alone)
{
    mkdir(AT("filters/four"), 0700);
    file_write(AT("filters/four/0-Filter.db"), "mine", 4);
    load();
    assert_whole();
    cr_assert_eq(loaded.loaded.foreign, 1);
    cr_assert(strstr(loaded.reports, "filters/four is not known"), "%s", loaded.reports);
    cr_assert(file_exists(AT("filters/four/0-Filter.db")));
}

Test(store_state, leftovers_of_an_unfinished_save_are_removed)
{
    file_write(AT("filters/one/0-Filter.db.99"), "half", 4);
    mkdir(AT("filters/four"), 0700);
    file_write(AT("filters/four/0-Filter.db.100"), "half", 4);
    file_write(AT("MANIFEST.new"), "half", 4);
    file_write(AT("MANIFEST.spool"), "half", 4);
    load();
    assert_whole();
    cr_assert_eq(loaded.loaded.leftovers, 2);
    cr_assert_eq(loaded.loaded.foreign, 0, "%s", loaded.reports);
    cr_assert(!file_exists(AT("filters/one/0-Filter.db.99")) && !file_exists(AT("filters/four")));
    cr_assert_eq(dir_count(dir), 4);
}

/* A leftover may be a second name of a valid file (a rename that was not committed): it must never be written to. */
Test(store_state, a_leftover_link_to_a_valid_file_is_not_written_through)
{
    mkdir(AT("filters/four"), 0700);
    for (int generation = 1; generation < 20; generation++)
        cr_assert_eq(link(AT("filters/one/0-Filter.db"), AT("filters/four/0-Filter.db.%d", generation)), 0);
    struct store_options options = rig_options(&loaded, NULL);
    cr_assert_eq(store_open(dir, &options, &store, &err), 0);
    loaded.keep_unlisted = true;
    loaded.next_id = store_next_id(store);
    rig_fill(rig_add(&loaded, "four", &small, NULL), 3, 4);
    cr_assert_eq(rig_save(&loaded, store, NULL, &err), 0, "%s", err.text);
    store_close(store);
    rig_deinit(&loaded);
    rig_init(&loaded);
    load();
    cr_assert_eq(loaded.loaded.quarantined, 0, "%s", loaded.reports);
    cr_assert_eq(loaded.count, 4);
}

Test(store_state, a_committed_file_still_under_its_temporary_name_is_put_into_place)
{
    rename(AT("filters/one/0-Filter.db"), AT("filters/one/0-Filter.db.1"));
    file_copy(AT("filters/three/0-Filter.db"), AT("filters/one/0-Filter.db")); /* the version before, now superseded */
    load();
    assert_whole();
    cr_assert_eq(loaded.loaded.recovered, 1);
    cr_assert_eq(dir_count(AT("filters/one")), 1);
}

Test(store_state, a_committed_temporary_file_that_is_damaged_quarantines_its_filter)
{
    rename(AT("filters/one/0-Filter.db"), AT("filters/one/0-Filter.db.1"));
    file_flip_bit(AT("filters/one/0-Filter.db.1"), 200);
    assert_quarantined("one", "filters/one/0-Filter.db.1", "checksum is");
}

/* The MANIFEST says that a filter has been removed, but its files are still there. */
Test(store_state, files_of_a_removed_filter_are_removed_by_the_next_start)
{
    load();
    rig_remove(&loaded, "two");
    cr_assert_eq(rig_save(&loaded, store, NULL, &err), 0, "%s", err.text);
    store_close(store);
    cr_assert(!file_exists(AT("filters/two")));
    mkdir(AT("filters/two"), 0700);
    file_copy(AT("filters/one/0-Filter.db"), AT("filters/two/0-Filter.db"));
    file_copy(AT("filters/one/0-Filter.db"), AT("filters/two/1-Filter.db"));
    cr_assert_eq(unlink(AT("MANIFEST.done")), 0);
    rig_deinit(&loaded);
    rig_init(&loaded);
    load();
    cr_assert_eq(loaded.count, 2);
    cr_assert_eq(loaded.loaded.foreign, 0, "%s", loaded.reports);
    cr_assert(!file_exists(AT("filters/two")));
}

/* The same files, but the removal was finished before they appeared: somebody has put them there. */
Test(store_state, files_in_the_place_of_a_filter_removed_long_ago_are_foreign)
{
    load();
    rig_remove(&loaded, "two");
    cr_assert_eq(rig_save(&loaded, store, NULL, &err), 0, "%s", err.text);
    store_close(store);
    mkdir(AT("filters/two"), 0700);
    file_copy(AT("filters/one/0-Filter.db"), AT("filters/two/0-Filter.db"));
    rig_deinit(&loaded);
    rig_init(&loaded);
    load();
    cr_assert_eq(loaded.loaded.foreign, 1);
    cr_assert(file_exists(AT("filters/two/0-Filter.db")));
}

Test(store_state, no_manifest_but_filters_stops_the_start)
{
    unlink(AT("MANIFEST"));
    assert_refused(STORE_DAMAGED, "MANIFEST: missing", "is not empty");
    cr_assert(!file_exists(AT("MANIFEST")));
}

Test(store_state, a_truncated_manifest_stops_the_start)
{
    file_truncate(AT("MANIFEST"), 300);
    assert_refused(STORE_DAMAGED, "MANIFEST: line ", "the file ends here");
}

Test(store_state, an_empty_manifest_stops_the_start)
{
    file_truncate(AT("MANIFEST"), 0);
    assert_refused(STORE_DAMAGED, "MANIFEST: line 1", "the file is empty");
}

Test(store_state, a_damaged_manifest_stops_the_start)
{
    size_t len;
    char *text = (char *)file_read(AT("MANIFEST"), &len);
    strstr(text, "items=")[6] ^= 1;
    file_write(AT("MANIFEST"), text, len);
    free(text);
    assert_refused(STORE_DAMAGED, "MANIFEST: line ", "checksum");
}

Test(store_state, a_manifest_of_a_later_version_stops_the_start)
{
    size_t len;
    char *text = (char *)file_read(AT("MANIFEST"), &len);
    *strchr(text, '4') = '5';
    file_write(AT("MANIFEST"), text, len);
    free(text);
    assert_refused(STORE_DAMAGED, "MANIFEST: line 1", "format version '5'");
}

Test(store_state, a_directory_in_use_is_refused_with_the_process_that_uses_it)
{
    struct store *second = NULL;
    char pid[32];

    load();
    cr_assert_eq(store_open(dir, NULL, &second, &err), STORE_LOCKED);
    snprintf(pid, sizeof(pid), "process %ld", (long)getpid());
    cr_assert(strstr(err.text, "LOCK") && strstr(err.text, pid), "%s", err.text);
    store_close(store);
    cr_assert_eq(store_open(dir, NULL, &store, &err), 0, "the lock ends with its holder");
}
