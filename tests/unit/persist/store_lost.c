/* Files of the last save that are removed or cut while a process has the directory: the next save writes them again
 * from memory. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bloom_resident.h"
#include "manifest.h"
#include "stage.h"

static void set_up(void)
{
    stage_set_up(NULL, MANIFEST_MAX_PACKED);
}

TestSuite(store_lost, .init = set_up, .fini = stage_tear_down);

static const struct bloom_params other_small = {.capacity = 90, .error_rate = 0.02, .expansion = 0};

/* "packed" and "also packed" are in a pack, "alone" has a file and "chain" several. */
static void save_four(void)
{
    static const struct bloom_params large = {.capacity = 60000, .error_rate = 0.01};
    static const struct bloom_params long_chain = {.capacity = 60000, .error_rate = 0.01, .expansion = 2};

    rig_fill(rig_add(&rig, "packed", &small, NULL), 0, 50);
    rig_fill(rig_add(&rig, "also packed", &other_small, NULL), 0, 50);
    rig_fill(rig_add(&rig, "alone", &large, NULL), 0, 500);
    rig_fill(rig_add(&rig, "chain", &long_chain, NULL), 0, 70000);
    save();
    cr_assert_eq(bloom_filter_nlayers(rig_find(&rig, "chain")->filter), 2);
}

static void expect_saved(void)
{
    stage_expect_saved(NULL);
    cr_assert_eq(rig.loaded.foreign + rig.loaded.leftovers, 0, "%s", rig.reports);
}

static void expect_written_again(const char *says)
{
    rig.reports[0] = '\0';
    save();
    cr_assert_not_null(strstr(rig.reports, says), "no '%s' in '%s'", says, rig.reports);
    rig.reports[0] = '\0';
    save();
    cr_assert_str_empty(rig.reports);
    cr_assert_eq(summary.layers_written, 0);
    expect_saved();
}

Test(store_lost, a_file_that_was_removed_is_written_again_by_the_next_save)
{
    save_four();
    cr_assert_eq(unlink(LAYER("alone", 0)), 0);
    expect_written_again("-Filter.db is missing: the previous save needs it; written again from memory: 1 filter");
    cr_assert_eq(unlink(LAYER("chain", 0)), 0);
    rig_fill(rig_find(&rig, "chain"), 100000, 5); /* only the newest layer has changed */
    expect_written_again("-Filter.db is missing");
    cr_assert_eq(unlink(LAYER("packed", 0)), 0);
    expect_written_again(".pack is missing: the previous save needs it; written again from memory: 2 filters");
}

Test(store_lost, a_file_that_was_cut_is_written_again_by_the_next_save)
{
    save_four();
    cr_assert_eq(truncate(LAYER("alone", 0), 100), 0);
    expect_written_again("-Filter.db has another length");
    cr_assert_eq(truncate(LAYER("chain", 1), 0), 0);
    expect_written_again("-Filter.db has another length");
    cr_assert_eq(truncate(LAYER("also packed", 0), 100), 0);
    expect_written_again(".pack has another length");
}

Test(store_lost, a_directory_of_files_that_was_removed_is_made_again_by_the_next_save)
{
    save_four();
    cr_assert_eq(rename(AT("filters"), AT("aside")), 0);
    expect_written_again("is missing, and 3 more files like it");
}

Test(store_lost, a_manifest_that_was_removed_is_made_again_by_the_next_save)
{
    save_four();
    cr_assert_eq(unlink(AT("MANIFEST")), 0);
    save();
    expect_saved();
}

/* The bits are nowhere else. All other filters are saved, and a report names the loss. */
Test(store_lost, a_file_of_bits_that_are_not_in_memory_is_reported_and_does_not_stop_the_save)
{
    save_four();
    struct rig_filter *alone = rig_find(&rig, "alone");
    bloom_filter_drop(alone->filter);
    cr_assert(store_has_bits(store, alone->id));
    struct rig_place place = rig_place(NULL, dir, "alone", 0);
    cr_assert_eq(rename(place.path, AT("aside")), 0);
    rig_fill(rig_find(&rig, "packed"), 1000, 5);
    rig.reports[0] = '\0';
    save();
    cr_assert_not_null(strstr(rig.reports, "the bits of 1 filter are in this file only"), "%s", rig.reports);
    cr_assert_not(store_has_bits(store, alone->id));
    cr_assert_eq(rename(AT("aside"), place.path), 0);
    rig.reports[0] = '\0';
    save();
    cr_assert_str_empty(rig.reports);
    cr_assert(store_has_bits(store, alone->id));
}

/* Written by store_write(), in no save yet. */
Test(store_lost, a_file_that_a_save_was_to_take_over_is_written_again)
{
    struct store_record record;

    save_four();
    struct rig_filter *filter = rig_add(&rig, "written", &scaling, NULL);
    rig_fill(filter, 0, 30);
    rig.pack_limit = 0;
    const struct store_item item = {
        .id = filter->id, .name = filter->name, .name_len = filter->name_len, .filter = filter->filter};
    cr_assert_eq(store_write(store, &item, &record, &err), 0, "%s", err.text);
    store_published(store, filter->id);
    free(record.text);
    filter->dirty = false;
    cr_assert_eq(unlink(AT("filters/na-%llu-big-Filter.db", (unsigned long long)store_number(store))), 0);
    expect_written_again("is missing");
}
