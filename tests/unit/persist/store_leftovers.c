/* Files that no record needs any more are removed, unless a MANIFEST that was taken away may need them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault_fs.h"
#include "stage.h"

static struct fault_fs fault;

static void set_up(void)
{
    fault_fs_init(&fault, fsops_posix());
    stage_set_up(&fault.ops, 0);
}

TestSuite(store_leftovers, .init = set_up, .fini = stage_tear_down);

static int try_restart(void)
{
    stage_leave();
    rig.pack_limit = 16384;
    return rig_load(&rig, dir, &fault.ops, 2, &store, &err);
}

static void restart(void)
{
    cr_assert_eq(try_restart(), 0, "%s", err.text);
}

static void add(const char *name)
{
    rig_fill(rig_add(&rig, name, &small, NULL), 0, 50);
}

/* Not counting the mark of the last save. */
static size_t files(void)
{
    return dir_count(AT("filters")) - 1;
}

static void copy_file(const char *from, const char *to)
{
    size_t len;
    unsigned char *bytes = file_read(AT("%s", from), &len);

    file_write(AT("%s", to), bytes, len);
    free(bytes);
}

/* ---- files that cannot be deleted now ---- */

static void expect_to_go_with_a_start(void)
{
    add("a");
    save();
    add("b");
    fault.stuck = "filters/";
    rig.checkpoint_rc = -EIO;
    cr_assert_eq(rig_save(&rig, store, &summary, &err), -EIO);
    rig.checkpoint_rc = 0;
    cr_assert_eq(files(), 2);
    fault.stuck = NULL;
    restart();
    cr_assert_eq(rig.loaded.leftovers, 1, "%s", rig.reports);
    cr_assert_eq(files(), 1);
}

Test(store_leftovers, a_file_that_could_not_be_deleted_goes_with_a_start)
{
    expect_to_go_with_a_start();
}

Test(store_leftovers, a_pack_that_could_not_be_deleted_goes_with_a_start)
{
    rig.pack_limit = 16384;
    expect_to_go_with_a_start();
}

/* ---- an older MANIFEST ---- */

/* Two saves; then the MANIFEST of the first one is restored. */
static void put_older_manifest(uint64_t pack_limit)
{
    rig.pack_limit = pack_limit;
    add("a");
    save();
    copy_file("MANIFEST", "MANIFEST.mine");
    add("b");
    rig_fill(rig_find(&rig, "a"), 1000, 5);
    save();
    copy_file("MANIFEST", "MANIFEST.newest");
    copy_file("MANIFEST.mine", "MANIFEST");
}

Test(store_leftovers, an_older_manifest_is_refused_and_nothing_changes)
{
    put_older_manifest(16384);
    size_t before = files();
    cr_assert_eq(try_restart(), STORE_DAMAGED);
    cr_assert(strstr(err.text, "an older one has been put here") && strstr(err.text, ".saved"), "%s", err.text);
    cr_assert_eq(files(), before);
    copy_file("MANIFEST.newest", "MANIFEST");
    restart();
    cr_assert_eq(rig.loaded.filters, 2, "%s", rig.reports);
}

Test(store_leftovers, files_of_a_save_that_did_not_end_are_removed_at_once)
{
    add("a");
    save();
    file_write(AT("filters/na-50-big-Filter.db"), "half of a file", 14);
    restart();
    cr_assert_eq(rig.loaded.leftovers, 1);
    cr_assert(!file_exists(AT("filters/na-50-big-Filter.db")));
    cr_assert_geq(store_number(store), 50);
}

static void remove_marks(void)
{
    for (int i = 0; i < 100; i++)
        (void)unlink(AT("filters/%d.saved", i));
}

/* The process ended between the rename of the MANIFEST and the mark. */
Test(store_leftovers, a_mark_that_is_missing_is_made_by_the_next_start)
{
    add("a");
    save();
    remove_marks();
    restart();
    cr_assert_eq(dir_count(AT("filters")), 2);
    copy_file("MANIFEST", "MANIFEST.mine");
    add("b");
    save();
    copy_file("MANIFEST.mine", "MANIFEST");
    cr_assert_eq(try_restart(), STORE_DAMAGED);
}

/* A lost pack has thousands of filters. */
Test(store_leftovers, the_log_names_ten_filters_in_quarantine)
{
    size_t lines = 0;

    rig.pack_limit = 16384;
    for (unsigned i = 0; i < 31; i++) {
        char name[8];
        snprintf(name, sizeof(name), "f%02u", i);
        add(name);
    }
    save();
    unlink(rig_place(&fault.ops, dir, "f00", 0).path);
    restart();
    cr_assert_eq(rig.loaded.quarantined, 31);
    for (const char *line = rig.reports; (line = strstr(line, " is quarantined: filters/")); line++)
        lines++;
    cr_assert_eq(lines, 10, "%s", rig.reports);
    cr_assert(strstr(rig.reports, "21 more filters are quarantined"), "%s", rig.reports);
}
