/* Small filters in packs: their places, the cost of a damaged pack, the removal of superseded ones, and moves of
 * filters between packs and their own files. Faults and crashes: store_fault.c. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_fs.h"
#include "pack.h"
#include "stage.h"

static struct fault_fs fault;

static void set_up(void)
{
    fault_fs_init(&fault, fsops_posix());
    stage_set_up(&fault.ops, MANIFEST_MAX_PACKED);
}

TestSuite(store_pack, .init = set_up, .fini = stage_tear_down);

static void restart(void)
{
    stage_restart(&fault.ops, 2);
}

/* A start loads the rig's current filters, and nothing else. */
static void assert_saved(void)
{
    stage_expect_saved(&fault.ops);
    cr_assert_eq(rig.loaded.foreign + rig.loaded.leftovers, 0, "%s", rig.reports);
}

static void add_many(unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%u", i);
        rig_fill(rig_add(&rig, name, &small, NULL), 100 * i, 20);
    }
}

static size_t packs(void)
{
    size_t count = 0;
    DIR *list = opendir(AT("filters"));

    for (struct dirent *entry; list && (entry = readdir(list));)
        count += strstr(entry->d_name, ".pack") != NULL;
    closedir(list);
    return count;
}

static size_t layers(void)
{
    return FILES() - packs();
}

static bool in_pack(const char *name)
{
    return strstr(LAYER_NAME(name, 0), ".pack") != NULL;
}

Test(store_pack, small_filters_of_a_save_are_in_one_file_and_large_ones_in_their_own)
{
    add_many(0, 10);
    rig_fill(rig_add(&rig, "two", &scaling, NULL), 0, 100);
    rig_fill(rig_add(&rig, "large", &(struct bloom_params){.capacity = 100000, .error_rate = 0.01}, NULL), 0, 100);
    save();
    cr_assert_eq(summary.layers_written, 13);
    cr_assert_eq(summary.filters, 12);
    cr_assert_eq(packs(), 1);
    cr_assert_eq(layers(), 1);
    cr_assert(!in_pack("large"));
    assert_saved();
    cr_assert_eq(rig.loaded.layers, 13);
    save();
    cr_assert_eq(summary.layers_written, 0);
    cr_assert_eq(packs(), 1);
    assert_saved();
}

/* The bytes that dd takes out of a pack equal the file that the filter would have. */
Test(store_pack, a_layer_in_a_pack_is_the_bytes_of_its_file)
{
    size_t pack_len, len;

    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    save();
    struct rig_place place = rig_place(NULL, dir, "a", 0);
    unsigned char *pack = file_read(place.path, &pack_len);
    rig.pack_limit = 0;
    rig_find(&rig, "a")->dirty = true;
    save();
    for (int i = 0; i < 2; i++) {
        unsigned char *file = file_read(LAYER("a", (unsigned)i), &len);
        cr_assert(place.offset + len <= pack_len && memcmp(pack + place.offset, file, len) == 0, "layer %d", i);
        place.offset += len;
        free(file);
    }
    cr_assert_eq(place.offset, pack_len, "nothing follows");
    free(pack);
}

Test(store_pack, filters_move_between_packs_and_files_as_they_change)
{
    rig.pack_limit = 0;
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 30);
    rig_fill(rig_add(&rig, "b", &scaling, NULL), 0, 100);
    save();
    cr_assert_eq(layers(), 3);

    rig.pack_limit = 16384;
    save();
    cr_assert_eq(summary.layers_written, 0, "what has not changed stays where it is");
    rig_fill(rig_find(&rig, "a"), 1000, 1);
    save();
    cr_assert_eq(layers(), 2, "those of b; its own are superfluous");
    cr_assert_eq(packs(), 1);
    assert_saved();

    rig.pack_limit = 100; /* the filter is too large now */
    rig_fill(rig_find(&rig, "a"), 2000, 100);
    save();
    cr_assert_gt(layers(), 3);
    cr_assert_eq(packs(), 0, "nothing needs the pack any more");
    assert_saved();
}

Test(store_pack, what_does_not_fit_by_one_byte_has_a_file)
{
    struct bloom_shape shape = {.nwords = 20, .k = 5, .variant = BLOOM_NA};

    rig.pack_limit = 8 + 8 * 20;
    rig_add(&rig, "fits", &small, &shape);
    shape.nwords = 21;
    rig_add(&rig, "does-not", &small, &shape);
    save();
    cr_assert_eq(layers(), 1);
    cr_assert(in_pack("fits") && !in_pack("does-not"));
    rig.pack_limit = UINT64_MAX;
    shape.nwords = MANIFEST_MAX_PACKED / 8 - 1;
    rig_add(&rig, "largest", &small, &shape);
    shape.nwords++;
    rig_add(&rig, "larger", &small, &shape);
    save();
    cr_assert(in_pack("largest") && !in_pack("larger"));
    assert_saved();
}

Test(store_pack, a_renamed_filter_and_one_with_another_expiry_stay_in_their_pack)
{
    add_many(0, 5);
    save();
    rig_rename(&rig, "f1", "renamed");
    rig_rename(&rig, "f2", "f1");
    rig_find(&rig, "f3")->expires_ms = 4711;
    save();
    cr_assert_eq(summary.layers_written, 0);
    cr_assert_eq(packs(), 1);
    assert_saved();
}

/* Yielded as changed, then deleted or renamed after the walk has passed. */
Test(store_pack, what_is_renamed_or_deleted_during_the_walk_is_saved_as_it_became)
{
    add_many(0, 3);
    save();
    for (int i = 0; i < 3; i++)
        rig_fill(&rig.filters[i], 5000, 3);
    struct store_item extra[] = {{.id = 1, .name = "new", .name_len = 3, .filter = rig.filters[0].filter},
                                 {.id = 2, .name = "f1", .name_len = 2},
                                 {.id = 3, .name = "f0", .name_len = 2, .filter = rig.filters[2].filter}};
    rig.extra = extra;
    rig.nextra = 3;
    save();
    cr_assert_eq(summary.filters, 2);
    rig.nextra = 0;
    rig_remove(&rig, "f1");
    rig_rename(&rig, "f0", "new");
    rig_rename(&rig, "f2", "f0");
    assert_saved();
}

/* ---- reclaiming ---- */

Test(store_pack, a_pack_of_which_less_than_half_is_needed_is_rewritten_by_the_next_save)
{
    add_many(0, 40);
    save();
    for (unsigned i = 0; i < 18; i++)
        rig_fill(&rig.filters[i], 9000, 1);
    save();
    cr_assert_eq(summary.layers_written, 18);
    cr_assert_eq(packs(), 2, "more than half of the first one is needed");
    for (unsigned i = 18; i < 22; i++)
        rig_fill(&rig.filters[i], 9000, 1);
    save();
    cr_assert_eq(packs(), 3);
    save();
    cr_assert_geq(summary.layers_written, 18, "the rest of the first pack");
    cr_assert_leq(packs(), 2);
    assert_saved();
    save();
    cr_assert_eq(summary.layers_written, 0);
}

/* One filter changes before each save, never the same one: there would be as many packs as saves. */
Test(store_pack, small_packs_are_put_together)
{
    uint64_t written = 0;

    add_many(0, 60);
    save();
    for (unsigned i = 0; i < 60; i++) {
        rig_fill(&rig.filters[i], 7000 + i, 1);
        save();
        written += summary.layers_written;
        cr_assert_leq(packs(), 7, "%zu packs after %u saves", packs(), i);
    }
    cr_assert_leq(written, 60 * 8, "%llu layers written for 60 changes", (unsigned long long)written);
    assert_saved();
}

Test(store_pack, a_deleted_filter_and_its_pack_go)
{
    add_many(0, 2);
    save();
    rig_remove(&rig, "f0");
    rig_remove(&rig, "f1");
    save();
    cr_assert_eq(summary.removed, 2);
    cr_assert_eq(packs(), 0);
    assert_saved();
}

Test(store_pack, a_failed_save_leaves_no_pack)
{
    add_many(0, 3);
    save();
    for (size_t at = 1;; at++) {
        rig_fill(&rig.filters[0], 1000 + at, 1);
        fault_fs_arm(&fault, at, FAULT_ERROR, -ENOSPC, false);
        int rc = rig_save(&rig, store, &summary, &err);
        fault.fail_at = 0;
        if (rc >= 0)
            break;
        cr_assert_eq(packs(), 1, "operation %zu (%s)", at, fault.hit_op);
        cr_assert_lt(at, 100);
    }
    save();
    assert_saved();
}

Test(store_pack, saves_that_fail_at_their_last_step_do_not_pile_up)
{
    add_many(0, 2);
    save();
    for (unsigned i = 0; i < 5; i++) {
        rig_fill(&rig.filters[0], 1000 + i, 1);
        fault.stuck = "/MANIFEST";
        cr_assert_eq(rig_save(&rig, store, &summary, &err), STORE_IN_DOUBT);
        fault.stuck = NULL;
        cr_assert_leq(packs(), 2);
    }
    save();
    save();
    cr_assert_eq(packs(), 1);
    assert_saved();
}

/* ---- damage ---- */

/* Expects one filter quarantined for this reason. All others are loaded, and stay through a save that would rewrite
 * the pack and through another start. So do the bytes of the quarantined one. */
static void assert_one_quarantined(const char *name, const char *reason, size_t of)
{
    restart();
    struct rig_filter *filter = rig_find(&rig, name);
    cr_assert(filter && !filter->filter, "%s", rig.reports);
    cr_assert(strstr(filter->reason, reason), "'%s' does not say '%s'", filter->reason, reason);
    cr_assert_eq(rig.loaded.quarantined, 1, "%s", rig.reports);
    cr_assert_eq(rig.loaded.filters, of - 1);
    for (size_t i = 0; i < rig.count; i++) {
        if (rig.filters[i].filter)
            rig_fill(&rig.filters[i], 9000, 2);
    }
    for (int i = 0; i < 4; i++) {
        save();
        cr_assert_leq(packs(), 2);
        cr_assert(i < 2 || summary.layers_written == 0, "it is rewritten for ever");
    }
    uint64_t digest = rig_digest(&rig);
    restart();
    cr_assert_eq(rig.loaded.quarantined, 1);
    cr_assert_eq(rig_digest(&rig), digest);
}

Test(store_pack, a_damaged_record_quarantines_its_filter_only)
{
    add_many(0, 6);
    save();
    struct rig_place place = rig_place(NULL, dir, "f3", 0);
    file_flip_bit(place.path, 8 * (place.offset + 20));
    assert_one_quarantined("f3", "layer 0, at byte", 6);
    cr_assert(strstr(rig_find(&rig, "f3")->reason, "checksum is"));
}

Test(store_pack, a_damaged_header_in_a_pack_quarantines_its_filter_only)
{
    add_many(0, 6);
    save();
    struct rig_place place = rig_place(NULL, dir, "f0", 0);
    file_flip_bit(place.path, 8 * (place.offset + 3));
    assert_one_quarantined("f0", "header says hash count", 6);
}

/* The header of a record is needed only if the MANIFEST is lost. */
Test(store_pack, a_damaged_record_header_costs_nothing)
{
    add_many(0, 3);
    save();
    struct rig_place place = rig_place(NULL, dir, "f1", 0);
    file_flip_bit(place.path, 8 * (place.offset - 2 - 10));
    assert_saved();
}

Test(store_pack, a_truncated_pack_quarantines_what_was_behind_its_end)
{
    add_many(0, 6);
    save();
    struct rig_place place = rig_place(NULL, dir, "f5", 0);
    file_truncate(place.path, place.offset + 100);
    assert_one_quarantined("f5", "ends before byte", 6);
}

Test(store_pack, a_missing_pack_quarantines_its_filters_and_brought_back_it_repairs_them)
{
    add_many(0, 3);
    save();
    add_many(3, 6);
    rig.filters[0].dirty = true;
    save();
    uint64_t digest = rig_digest(&rig);
    struct rig_place place = rig_place(NULL, dir, "f2", 0);
    cr_assert_eq(rename(place.path, AT("saved")), 0);
    restart();
    cr_assert_eq(rig.loaded.quarantined, 2, "%s", rig.reports);
    cr_assert(strstr(rig_find(&rig, "f2")->reason, ".pack: missing"), "%s", rig_find(&rig, "f2")->reason);
    save();
    cr_assert_eq(rename(AT("saved"), place.path), 0);
    restart();
    cr_assert_eq(rig.loaded.quarantined, 0, "%s", rig.reports);
    cr_assert_eq(rig_digest(&rig), digest);
}

Test(store_pack, a_directory_in_the_place_of_a_pack_quarantines_its_filters)
{
    add_many(0, 3);
    save();
    struct rig_place place = rig_place(NULL, dir, "f2", 0);
    unlink(place.path);
    mkdir(place.path, 0700);
    restart();
    cr_assert_eq(rig.loaded.quarantined, 3);
    cr_assert(strstr(rig.filters[0].reason, "cannot read: Is a directory"), "%s", rig.filters[0].reason);
}

Test(store_pack, a_deleted_filter_in_quarantine_leaves_its_pack)
{
    add_many(0, 2);
    rig_fill(rig_add(&rig, "bad", &scaling, NULL), 0, 100);
    save();
    struct rig_place place = rig_place(NULL, dir, "bad", 0);
    file_flip_bit(place.path, 8 * (place.offset + 20));
    restart();
    cr_assert_eq(rig.loaded.quarantined, 1, "%s", rig.reports);
    rig_remove(&rig, "bad");
    rig_fill(rig_add(&rig, "bad", &small, NULL), 3, 5);
    save();
    assert_saved();
    rig_fill(rig_find(&rig, "f0"), 7000, 1);
    rig_fill(rig_find(&rig, "f1"), 7000, 1);
    save();
    cr_assert(!file_exists(place.path), "nothing needs it any more");
}

/* ---- the file itself ---- */

/* More than one pack, more than one buffer, and packs that are read in turns. */
Test(store_pack, large_saves_fill_several_packs)
{
    struct bloom_shape shape = {.nwords = MANIFEST_MAX_PACKED / 8 - 1, .k = 5, .variant = BLOOM_KA};
    struct rig_filter *filter = rig_add(&rig, "large", &small, &shape);

    rig_fill(filter, 0, 90);
    static struct store_item many[1100]; /* 72 MB of records of one filter; the last one counts */
    for (unsigned i = 0; i < 1100; i++)
        many[i] = (struct store_item){.id = 1, .name = "large", .name_len = 5, .filter = filter->filter, .dirty = true};
    rig.extra = many;
    rig.nextra = 1100;
    save();
    cr_assert_eq(summary.layers_written, 1101);
    cr_assert_eq(packs(), 1, "nothing is needed of the first one");
    rig.nextra = 0;
    assert_saved();
    save();
    cr_assert_eq(summary.layers_written, 1, "most of the pack was superseded at once");
    assert_saved();
}
