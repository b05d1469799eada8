/* One test per state of a data directory. Each begins with the directory after a good save. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuckoo.h"
#include "fault_fs.h"
#include "rig.h"
#include "tmpdir.h"

static const struct bloom_params small = {.capacity = 100, .error_rate = 0.01, .expansion = 0};
static const struct bloom_params scaling = {.capacity = 40, .error_rate = 0.05, .expansion = 2};

static char dir[TMPDIR_SIZE];
static struct rig saved;  /* the filters in the directory */
static struct rig loaded; /* the filters loaded from it */
static struct store *store;
static struct errbuf err;

#define AT(...) (tmp_path(dir, __VA_ARGS__).text)

/* The path of a layer's file. */
#define LAYER(name, layer) (rig_place(NULL, dir, name, layer).path)

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

/* Expects the filter quarantined for a reason with both texts and the others loaded; the bytes of the file (NULL: none
 * to compare) stay unchanged, also through a save and another start. */
static void assert_quarantined(const char *name, const char *file, const char *reason)
{
    size_t before_len = 0, after_len = 0;
    unsigned char *before = file && file_exists(file) ? file_read(file, &before_len) : NULL;

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
        unsigned char *after = file_read(file, &after_len);
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

/* The start is refused with a message that contains the texts, and the directory is unchanged. */
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
    cr_assert_eq(dir_count(dir), 3, "LOCK, MANIFEST and filters");
    cr_assert_eq(dir_count(AT("filters")), 5, "four layers and the mark of the save");
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
    unlink(LAYER("two", 1));
    assert_quarantined("two", LAYER("two", 1), "missing");
}

Test(store_state, a_missing_directory_quarantines_its_filters)
{
    rename(AT("filters"), AT("elsewhere"));
    load();
    cr_assert_eq(loaded.loaded.quarantined, 3);
    cr_assert(strstr(rig_find(&loaded, "one")->reason, "-Filter.db: missing"), "%s", rig_find(&loaded, "one")->reason);
    store_close(store);
    tmpdir_remove(AT("filters")); /* made again by the start */
    rename(AT("elsewhere"), AT("filters"));
    rig_deinit(&loaded);
    rig_init(&loaded);
    load();
    assert_whole();
}

Test(store_state, a_truncated_file_quarantines_its_filter)
{
    file_truncate(LAYER("one", 0), 50);
    assert_quarantined("one", LAYER("one", 0), "bytes expected, 50 found");
}

Test(store_state, an_empty_file_quarantines_its_filter)
{
    file_truncate(LAYER("one", 0), 0);
    assert_quarantined("one", LAYER("one", 0), "empty file");
}

Test(store_state, an_enlarged_file_quarantines_its_filter)
{
    size_t len;
    free(file_read(LAYER("three", 0), &len));
    file_truncate(LAYER("three", 0), len + 3);
    assert_quarantined("three", LAYER("three", 0), "3 bytes behind the");
}

Test(store_state, a_flipped_bit_quarantines_its_filter)
{
    file_flip_bit(LAYER("two", 0), 8 * 20 + 3);
    assert_quarantined("two", LAYER("two", 0), "checksum is");
}

Test(store_state, another_hash_count_quarantines_its_filter)
{
    file_flip_bit(LAYER("one", 0), 8 * 3); /* 5 becomes 4 */
    assert_quarantined("one", LAYER("one", 0), "header says hash count 4, the MANIFEST 5");
}

Test(store_state, a_whole_file_of_another_size_quarantines_its_filter)
{
    file_copy(LAYER("two", 0), LAYER("one", 0));
    assert_quarantined("one", LAYER("one", 0), "the MANIFEST");
}

Test(store_state, a_whole_file_of_another_filter_quarantines_its_filter)
{
    file_copy(LAYER("three", 0), LAYER("one", 0));
    assert_quarantined("one", LAYER("one", 0), "checksum is");
}

Test(store_state, a_directory_in_the_place_of_a_file_quarantines_its_filter)
{
    unlink(LAYER("one", 0));
    mkdir(LAYER("one", 0), 0700);
    assert_quarantined("one", NULL, "-Filter.db: cannot read: Is a directory");
}

Test(store_state, a_fifo_in_the_place_of_a_file_quarantines_its_filter_and_does_not_hang)
{
    unlink(LAYER("one", 0));
    mkfifo(LAYER("one", 0), 0600);
    assert_quarantined("one", NULL, "-Filter.db: cannot read");
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
            cr_assert(rig.filters[i].filter ||
                      strstr(rig.filters[i].reason, "-Filter.db: cannot read: Permission denied"));
        if (rc == 0)
            store_close(store);
        store = NULL;
        rig_deinit(&rig);
        if (found)
            return;
    }
    cr_assert_fail("no open of a filter's file among the operations of a start");
}

/* Names that the store never gives. A link or a directory with such a name is not its file either. */
Test(store_state, what_is_not_ours_is_reported_and_left_alone)
{
    static const char *const names[] = {"notes.txt",
                                        "0-Filter.db",
                                        "na-01-big-Filter.db",
                                        "nb-1-big-Filter.db",
                                        "na-1-big-Filter.db.2",
                                        "na-+1-big-Filter.db",
                                        "01.pack",
                                        "0.pack",
                                        "-1.saved"};
    const size_t n = sizeof(names) / sizeof(*names);

    for (size_t i = 0; i < n; i++)
        file_write(AT("filters/%s", names[i]), "mine", 4);
    mkdir(AT("filters/na-77-big-Filter.db"), 0700);
    mkdir(AT("filters/one"), 0700);
    load();
    assert_whole();
    cr_assert_eq(loaded.loaded.foreign, n + 2, "%s", loaded.reports);
    cr_assert(strstr(loaded.reports, "filters/notes.txt is not known"), "%s", loaded.reports);
    cr_assert(strstr(loaded.reports, "filters/one is not known"), "%s", loaded.reports);
    rig_fill(rig_find(&loaded, "one"), 500, 5);
    rig_remove(&loaded, "two");
    cr_assert_eq(rig_save(&loaded, store, NULL, &err), 0, "%s", err.text);
    for (size_t i = 0; i < n; i++)
        cr_assert(file_is(AT("filters/%s", names[i]), "mine", 4), "%s", names[i]);
    cr_assert(file_exists(AT("filters/na-77-big-Filter.db")) && file_exists(AT("filters/one")));
}

/* A name of another layout with the number of a needed file: the MANIFEST does not name it. */
Test(store_state, a_file_of_another_layout_with_a_number_in_use_is_not_taken_for_it)
{
    char other[512];
    struct rig_place place = rig_place(NULL, dir, "one", 0);

    snprintf(other, sizeof(other), "%s/filters/ka-%llu-big-Filter.db", dir, (unsigned long long)place.number);
    file_copy(place.path, other);
    load();
    assert_whole();
    cr_assert(!file_exists(other) && file_exists(place.path), "it is a file that nothing names");
}

Test(store_state, leftovers_of_an_unfinished_save_are_removed)
{
    file_write(AT("filters/na-99-big-Filter.db"), "half", 4);
    file_write(AT("filters/100.pack"), "half", 4);
    file_write(AT("MANIFEST.new"), "half", 4);
    load();
    assert_whole();
    cr_assert_eq(loaded.loaded.leftovers, 2);
    cr_assert_eq(loaded.loaded.foreign, 0, "%s", loaded.reports);
    cr_assert(!file_exists(AT("filters/na-99-big-Filter.db")) && !file_exists(AT("filters/100.pack")));
    cr_assert_eq(dir_count(dir), 3);
    cr_assert_geq(store_number(store), 100, "a number that was on the disk is not given out again");
}

/* The next name of a save is taken: the save takes another one, and does not write through a link. */
Test(store_state, a_name_that_is_taken_is_left_alone)
{
    load();
    uint64_t next = store_number(store) + 1;
    cr_assert_eq(link(LAYER("one", 0), AT("filters/na-%d-big-Filter.db", (int)next)), 0);
    file_write(AT("filters/%d.pack", (int)next + 3), "mine", 4);
    rig_fill(rig_add(&loaded, "four", &small, NULL), 3, 4);
    cr_assert_eq(rig_save(&loaded, store, NULL, &err), 0, "%s", err.text);
    loaded.pack_limit = 1000;
    rig_fill(rig_add(&loaded, "five", &small, NULL), 3, 4);
    cr_assert_eq(rig_save(&loaded, store, NULL, &err), 0, "%s", err.text);
    cr_assert(file_is(AT("filters/%d.pack", (int)next + 3), "mine", 4));
    uint64_t digest = rig_digest(&loaded);
    store_close(store);
    rig_deinit(&loaded);
    rig_init(&loaded);
    load();
    cr_assert_eq(loaded.loaded.quarantined, 0, "%s", loaded.reports);
    cr_assert_eq(rig_digest(&loaded), digest);
}

/* The process ended after the rename of the MANIFEST and before the removal of superfluous files. */
Test(store_state, superseded_files_are_removed_by_the_next_start)
{
    struct rig_place one = rig_place(NULL, dir, "one", 0);

    file_copy(one.path, AT("copy"));
    load();
    rig_fill(rig_find(&loaded, "one"), 500, 5);
    rig_fill(rig_find(&saved, "one"), 500, 5);
    cr_assert_eq(rig_save(&loaded, store, NULL, &err), 0, "%s", err.text);
    store_close(store);
    cr_assert(!file_exists(one.path), "its number is in use no more");
    rename(AT("copy"), one.path);
    rig_deinit(&loaded);
    rig_init(&loaded);
    load();
    assert_whole();
    cr_assert_eq(loaded.loaded.leftovers, 1);
    cr_assert(!file_exists(one.path));
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

/* The slots have the count; by a smaller one deletions would go below 0. */
Test(store_state, a_forged_count_of_a_cuckoo_filter_does_no_harm)
{
    const struct cuckoo_numbers numbers = {.capacity = 100, .bucket_size = 2, .iterations = 20, .expansion = 1};
    struct bloom_params params;
    struct bloom_shape shape;
    struct cuckoo_state state;
    size_t len;

    load();
    cr_assert_eq(cuckoo_plan(&numbers, &params, &shape, &err), BLOOM_OK, "%s", err.text);
    struct bloom_filter *filter = rig_add(&loaded, "cuckoo", &params, &shape)->filter;
    for (uint64_t i = 0; i < 20; i++)
        cr_assert_eq(cuckoo_add(filter, cuckoo_hash(&i, sizeof(i)), false, NULL, &err), BLOOM_ADDED);
    cr_assert_eq(rig_save(&loaded, store, NULL, &err), 0, "%s", err.text);
    store_close(store);
    rig_deinit(&loaded);
    rig_init(&loaded);

    char *text = (char *)file_read(AT("MANIFEST"), &len), *end = strstr(text, "\nend ") + 1;
    memcpy(strstr(strstr(text, " name=cuckoo "), "items=20"), "items=10", 8);
    sprintf(strstr(end, "xxh3=") + 5, "%016llx\n", (unsigned long long)XXH3_64bits(text, (size_t)(end - text)));
    file_write(AT("MANIFEST"), text, len);
    free(text);
    load();
    filter = rig_find(&loaded, "cuckoo")->filter;
    for (uint64_t i = 0; i < 20; i++)
        cr_assert(cuckoo_delete(filter, cuckoo_hash(&i, sizeof(i)), NULL));
    cuckoo_state(filter, &state);
    cr_assert_eq(state.items, 0, "%llu", (unsigned long long)state.items);
}

Test(store_state, a_manifest_of_a_later_version_stops_the_start)
{
    size_t len;
    char *text = (char *)file_read(AT("MANIFEST"), &len);
    *strchr(text, '1') = '5';
    file_write(AT("MANIFEST"), text, len);
    free(text);
    assert_refused(STORE_NEWER, "MANIFEST: line 1", "format version '5'");
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
