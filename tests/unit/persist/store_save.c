/* The work of a save, and the files it leaves alone. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "fault_fs.h"
#include "layer_file.h"
#include "stage.h"

static void set_up(void)
{
    stage_set_up(NULL, 0);
}

TestSuite(store_save, .init = set_up, .fini = stage_tear_down);

/* The directory, loaded again, has the filters of the rig. */
static void assert_saved(void)
{
    struct rig loaded;

    store_close(store);
    rig_init(&loaded);
    cr_assert_eq(rig_load(&loaded, dir, NULL, 3, &store, &err), 0, "%s", err.text);
    cr_assert_eq(loaded.loaded.quarantined + loaded.loaded.foreign + loaded.loaded.leftovers, 0, "%s", loaded.reports);
    cr_assert_eq(loaded.count, rig.count);
    cr_assert_eq(rig_digest(&loaded), rig_digest(&rig));
    rig_deinit(&loaded);
}

Test(store_save, filters_of_all_kinds_come_back)
{
    struct bloom_shape ka = {.nwords = 77, .k = 21, .variant = BLOOM_KA};
    struct bloom_shape me = {.nwords = 1, .k = 1, .variant = BLOOM_ME};

    rig_fill(rig_add(&rig, "fixed", &small, NULL), 0, 50);
    rig_fill(rig_add(&rig, "scaling", &scaling, NULL), 0, 1000);
    rig_fill(rig_add(&rig, "ka", &small, &ka), 0, 100);
    rig_fill(rig_add(&rig, "me", &scaling, &me), 0, 200);
    rig_add(&rig, "empty", &small, NULL);
    rig_find(&rig, "fixed")->expires_ms = INT64_MAX;
    save();
    cr_assert_eq(summary.filters, 5);
    assert_saved();
}

/* Larger than a piece, and not a multiple of a block: direct I/O with a padded end. */
Test(store_save, large_filters_come_back_with_and_without_direct_io)
{
    struct bloom_shape shape = {.nwords = 300001, .k = 3, .variant = BLOOM_ME};
    struct bloom_shape huge = {
        .nwords = LAYER_HELP_MIN / 8 + 200001, .k = 21, .variant = BLOOM_NA}; /* by two threads */
    struct fault_fs fault;

    rig_fill(rig_add(&rig, "large", &small, &shape), 0, 100);
    rig_fill(rig_add(&rig, "huge", &small, &huge), 0, 100);
    save();
    cr_assert_eq(summary.bytes, 8 + 8 * 300001 + 8 + 8 * huge.nwords);
    assert_saved();

    store_close(store);
    fault_fs_init(&fault, fsops_posix());
    fault.refuse_direct = true;
    struct rig other;
    rig_init(&other);
    cr_assert_eq(rig_load(&other, dir, &fault.ops, 1, &store, &err), 0, "%s", err.text);
    cr_assert_eq(rig_digest(&other), rig_digest(&rig));
    rig_fill(rig_find(&other, "large"), 500, 1);
    rig_fill(rig_find(&rig, "large"), 500, 1);
    rig_fill(rig_find(&other, "huge"), 500, 1);
    rig_fill(rig_find(&rig, "huge"), 500, 1);
    cr_assert_eq(rig_save(&other, store, &summary, &err), 0, "%s", err.text);
    rig_deinit(&other);
    assert_saved();
}

Test(store_save, buffers_take_no_more_than_they_may)
{
    static const uint64_t limits[] = {0, 1, 6 << 20, 8 << 20, 15 << 20, 64 << 20, UINT64_MAX};

    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
        struct layer_io io;
        uint64_t limit = limits[i] > LAYER_IO_MIN_MEMORY ? limits[i] : LAYER_IO_MIN_MEMORY;
        cr_assert_eq(layer_io_init(&io, fsops_posix(), limits[i]), 0);
        cr_expect_leq(LAYER_SMALL_BYTES + (uint64_t)io.npieces * LAYER_PIECE_BYTES, limit, "limit %zu", i);
        cr_expect_geq(io.npieces, 2);
        layer_io_deinit(&io);
    }
}

/* Either of the two threads may find the error. */
Test(store_save, an_error_in_the_middle_of_a_large_file_fails_the_save_or_quarantines_the_filter)
{
    static struct fault_fs fault; /* the store outlives the test by its tear-down */
    struct bloom_shape huge = {.nwords = LAYER_HELP_MIN / 8 + 200001, .k = 21, .variant = BLOOM_NA};
    int failed = 0, quarantined = 0;

    for (size_t at = 1; at < 20; at++) {
        fault_fs_init(&fault, fsops_posix());
        stage_restart(&fault.ops, 1);
        if (!rig_find(&rig, "huge"))
            rig_add(&rig, "huge", &small, &huge);
        rig_fill(rig_find(&rig, "huge"), at, 1);
        fault_fs_arm(&fault, at, FAULT_ERROR, -EIO, false);
        failed += rig_save(&rig, store, &summary, &err) != 0;
        fault.fail_at = 0;
        if (rig_save(&rig, store, &summary, &err) != 0)
            cr_assert_fail("%s", err.text);
        uint64_t digest = rig_digest(&rig);
        stage_leave();
        fault_fs_init(&fault, fsops_posix());
        fault_fs_arm(&fault, at, FAULT_ERROR, -EIO, false);
        int rc = rig_load(&rig, dir, &fault.ops, 1, &store, &err);
        cr_assert(rc == -EIO || rig.loaded.quarantined == 1 || rig_digest(&rig) == digest, "operation %zu", at);
        quarantined += rc == 0 && rig.loaded.quarantined == 1;
        if (rc == 0)
            continue;
        fault.fail_at = 0;
        rig_deinit(&rig);
        rig_init(&rig);
        cr_assert_eq(rig_load(&rig, dir, &fault.ops, 1, &store, &err), 0, "%s", err.text);
    }
    cr_assert_gt(failed, 4);
    cr_assert_gt(quarantined, 2);
}

Test(store_save, what_has_not_changed_is_not_written_again)
{
    struct stat before, after;

    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 50);
    rig_fill(rig_add(&rig, "b", &small, NULL), 0, 50);
    save();
    cr_assert_eq(summary.layers_written, 2);
    struct rig_place place = rig_place(NULL, dir, "a", 0);
    stat(place.path, &before);
    rig_fill(rig_find(&rig, "b"), 50, 5);
    save();
    cr_assert_eq(summary.layers_written, 1);
    cr_assert_eq(summary.filters, 2);
    stat(place.path, &after);
    cr_assert_str_eq(LAYER("a", 0), place.path);
    cr_assert(before.st_ino == after.st_ino && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
    save();
    cr_assert_eq(summary.layers_written, 0);
    assert_saved();
}

/* Only the newest layer of a chain takes items. */
Test(store_save, older_layers_of_a_changed_filter_are_not_written_again)
{
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 250);
    unsigned nlayers = bloom_filter_nlayers(rig.filters[0].filter);
    cr_assert_geq(nlayers, 3);
    save();
    cr_assert_eq(summary.layers_written, nlayers);
    rig_fill(&rig.filters[0], 1000, 3);
    cr_assert_eq(bloom_filter_nlayers(rig.filters[0].filter), nlayers);
    save();
    cr_assert_eq(summary.layers_written, 1);
    assert_saved();
}

/* Late bits in an older layer (from an add under way) are written, whatever the counts state. */
Test(store_save, an_older_layer_whose_bits_have_changed_is_written)
{
    struct bloom_layer_view view;

    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 250);
    save();
    bloom_filter_layer(rig.filters[0].filter, 0, &view);
    uint64_t i = 0;
    while (view.words[i] == UINT64_MAX)
        i++;
    view.words[i] |= view.words[i] + 1;
    rig.filters[0].dirty = true;
    save();
    cr_assert_eq(summary.layers_written, 2);
    assert_saved();
}

/* Names are in the MANIFEST only. */
Test(store_save, a_renamed_filter_keeps_its_files)
{
    rig_fill(rig_add(&rig, "from", &scaling, NULL), 0, 100);
    save();
    struct rig_place first = rig_place(NULL, dir, "from", 0), second = rig_place(NULL, dir, "from", 1);
    rig_rename(&rig, "from", "to");
    rig_find(&rig, "to")->expires_ms = 4711;
    save();
    cr_assert_eq(summary.layers_written, 0);
    cr_assert_eq(summary.removed, 0);
    cr_assert(strcmp(LAYER("to", 0), first.path) == 0 && strcmp(LAYER("to", 1), second.path) == 0);
    assert_saved();
}

Test(store_save, two_filters_can_swap_names)
{
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    rig_fill(rig_add(&rig, "b", &small, NULL), 7, 10);
    save();
    struct rig_place a = rig_place(NULL, dir, "a", 0), b = rig_place(NULL, dir, "b", 0);
    rig_rename(&rig, "a", "x");
    rig_rename(&rig, "b", "a");
    rig_rename(&rig, "x", "b");
    save();
    cr_assert_eq(summary.layers_written, 0);
    cr_assert(strcmp(LAYER("a", 0), b.path) == 0 && strcmp(LAYER("b", 0), a.path) == 0);
    assert_saved();
}

/* A file is written once; changed data gets another file, and the first one is removed. */
Test(store_save, no_file_is_ever_written_to_again)
{
    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 10);
    save();
    struct rig_place first = rig_place(NULL, dir, "a", 0);
    cr_assert_eq(link(first.path, AT("held")), 0); /* like a backup by cp -al */
    size_t len;
    unsigned char *bytes = file_read(first.path, &len);
    rig_fill(rig_find(&rig, "a"), 500, 50);
    save();
    cr_assert(file_is(AT("held"), bytes, len), "its bytes have been changed");
    cr_assert(!file_exists(first.path));
    cr_assert_gt(rig_place(NULL, dir, "a", 0).number, first.number);
    free(bytes);
    unlink(AT("held"));
    assert_saved();
}

Test(store_save, removed_filters_go_and_their_ids_are_not_used_again)
{
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    rig_fill(rig_add(&rig, "b", &small, NULL), 7, 10);
    save();
    rig_remove(&rig, "b");
    save();
    cr_assert_eq(summary.removed, 1);
    cr_assert_eq(FILES(), 2, "those of the two layers of a");
    rig_remove(&rig, "a");
    save();
    assert_saved();
    cr_assert_eq(store_next_id(store), 3);
}

/* The last item with an id counts: 1 is renamed after the walk has passed, 2 is deleted, 3 takes the old name of 1. */
Test(store_save, what_is_renamed_or_deleted_during_the_walk_is_saved_as_it_became)
{
    struct rig_filter *a = rig_add(&rig, "a", &scaling, NULL);
    rig_fill(a, 0, 100);
    rig_fill(rig_add(&rig, "b", &small, NULL), 7, 10);
    struct rig_filter *c = rig_add(&rig, "c", &small, NULL);
    rig_fill(c, 70, 10);
    struct store_item extra[] = {
        {.id = 1, .name = "a2", .name_len = 2, .filter = rig.filters[0].filter},
        {.id = 2, .name = "b", .name_len = 1},
        {.id = 3, .name = "a", .name_len = 1, .filter = rig.filters[2].filter},
        {.id = 99, .name = "never saved", .name_len = 11},
    };
    rig.extra = extra;
    rig.nextra = 4;
    save();
    cr_assert_eq(summary.filters, 2);
    rig.nextra = 0;
    rig_remove(&rig, "b");
    rig_rename(&rig, "a", "a2");
    rig_rename(&rig, "c", "a");
    assert_saved();
    cr_assert_eq(FILES(), 3, "two layers of the first, one of the third");
    cr_assert_eq(store_next_id(store), 100);
}

/* Yielded as changed, then again as unchanged under another name: the change must not be lost. */
Test(store_save, a_changed_filter_that_is_renamed_during_the_walk_is_saved_with_the_change)
{
    struct store_item extra = {.id = 1, .name = "b", .name_len = 1};

    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 50);
    save();
    rig_fill(rig_find(&rig, "a"), 50, 5);
    extra.filter = rig_find(&rig, "a")->filter;
    rig.extra = &extra;
    rig.nextra = 1;
    save();
    cr_assert_eq(summary.layers_written, 1, "its bits are written once, under whichever name");
    rig.nextra = 0;
    rig_rename(&rig, "a", "b");
    assert_saved();
    cr_assert_eq(FILES(), 1);
}

/* Records superseded within one save stay in its MANIFEST as gone; the next save drops them. */
Test(store_save, records_that_are_gone_leave_the_manifest_with_the_next_save)
{
    struct store_item extra[] = {{.id = 1, .name = "b", .name_len = 1},
                                 {.id = 1, .name = "c", .name_len = 1, .dirty = true},
                                 {.id = 2, .name = "gone", .name_len = 4},
                                 {.id = 1, .name = "d", .name_len = 1}};
    size_t len;

    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    rig_fill(rig_add(&rig, "gone", &small, NULL), 0, 50);
    rig_fill(rig_add(&rig, "stays", &small, NULL), 0, 50);
    for (int i = 0; i < 4; i++)
        extra[i].filter = i == 2 ? NULL : rig_find(&rig, "a")->filter;
    rig.extra = extra;
    rig.nextra = 4;
    save();
    cr_assert_eq(summary.filters, 2);
    cr_assert_eq(FILES(), 3);
    rig.nextra = 0;
    rig_rename(&rig, "a", "d");
    rig_remove(&rig, "gone");
    assert_saved();
    char *text = (char *)file_read(AT("MANIFEST"), &len);
    cr_assert(memmem(text, len, "\ngone id=1\n", 11) && memmem(text, len, "\ngone id=2\n", 11));
    free(text);
    rig_fill(rig_find(&rig, "stays"), 90, 1);
    save();
    text = (char *)file_read(AT("MANIFEST"), &len);
    cr_assert(!memmem(text, len, "\ngone ", 6), "%.*s", (int)len, text);
    free(text);
    assert_saved();
}

Test(store_save, ids_that_were_given_out_and_never_saved_are_not_given_out_again)
{
    rig.next_id = 1000;
    save();
    assert_saved();
    cr_assert_eq(store_next_id(store), 1000);
}

Test(store_save, a_failed_save_removes_its_files)
{
    static struct fault_fs fault; /* the store outlives the test by its tear-down */

    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    save();
    for (size_t at = 1;; at++) {
        stage_leave();
        fault_fs_init(&fault, fsops_posix());
        stage_load(&fault.ops, 1);
        cr_assert_eq(rig.loaded.leftovers, 0);
        size_t files = FILES();
        rig_fill(rig_find(&rig, "a"), 500, 50);
        rig_fill(rig_add(&rig, "b", &small, NULL), 0, 50);
        fault_fs_arm(&fault, at, FAULT_ERROR, -28, false);
        int rc = rig_save(&rig, store, &summary, &err);
        if (rc == 0 && strcmp(fault.hit_op, "stat") == 0) { /* a file that cannot be checked is written again */
            rig_remove(&rig, "b");
            save();
            continue;
        }
        if (rc >= 0) {
            cr_assert_gt(at, 15);
            return; /* from here on the save takes place, or is in doubt */
        }
        cr_assert_eq(dir_count(dir), 3, "%s", fault.hit_op);
        cr_assert_eq(FILES(), files, "%s", fault.hit_op);
    }
}

/* The bits that a failed save has marked as seen are written by the next one. */
Test(store_save, a_failed_save_does_not_forget_what_was_dirty)
{
    struct fault_fs fault;

    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 50);
    save();
    fault_fs_init(&fault, fsops_posix());
    stage_restart(&fault.ops, 1);
    rig_fill(rig_find(&rig, "a"), 50, 5);
    fault_fs_arm(&fault, 4, FAULT_ERROR, -5, true);
    cr_assert_lt(rig_save(&rig, store, &summary, &err), 0);
    fault.fail_at = 0;
    cr_assert(!rig.filters[0].dirty);
    cr_assert_eq(rig_save(&rig, store, &summary, &err), 0, "%s", err.text);
    cr_assert_eq(summary.layers_written, 1);
    assert_saved();
}

Test(store_save, a_deleted_filter_in_quarantine_goes_with_its_files_and_its_name_is_free)
{
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    save();
    file_flip_bit(LAYER("a", 1), 99);
    stage_restart(NULL, 1);
    cr_assert_null(rig.filters[0].filter);
    save();
    cr_assert_eq(FILES(), 2, "it stays in each save");
    rig_remove(&rig, "a");
    rig_fill(rig_add(&rig, "a", &small, NULL), 3, 5);
    save();
    cr_assert_eq(FILES(), 1);
    assert_saved();
}

/* Every byte, alone and in company, in names of every length that matters. */
Test(store_save, any_name_can_be_saved)
{
    static const size_t lengths[] = {0, 66, 67, 200, 201, 255, 256, 4096, 65535};
    char *name = malloc(65535);

    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        memset(name,
               "\xff"
               "a"
               "/"[i % 3],
               lengths[i]);
        rig_fill(rig_add_bytes(&rig, name, lengths[i], &small, NULL), i, 5);
    }
    for (int i = 0; i < 256; i++)
        name[i] = (char)i;
    rig_fill(rig_add_bytes(&rig, name, 256, &small, NULL), 100, 5);
    for (int i = 0; i < 8; i++)
        rig_fill(rig_add_bytes(&rig, name + 32 * i, 32, &small, NULL), 200, 5);
    static const char *const odd[] = {".", "..", "a/b", "../x", "%~",      "%2F",
                                      "A", "a",  "-",   "a.b",  ".hidden", "MANIFEST"};
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++)
        rig_fill(rig_add(&rig, odd[i], &small, NULL), i, 7);
    save();
    cr_assert_eq(summary.filters, rig.count);
    cr_assert_eq(FILES(), rig.count);
    assert_saved();
    free(name);
}

Test(store_save, many_filters_are_found_by_name)
{
    for (int i = 0; i < 60; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        rig_fill(rig_add(&rig, name, &small, NULL), (uint64_t)i, 3);
    }
    save();
    for (int i = 0; i < 60; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        cr_assert_eq(store_find(store, name, strlen(name), &err), 0);
    }
    cr_assert_eq(store_find(store, "n60", 3, &err), STORE_NOT_FOUND);
    assert_saved();
}
