/* Files that cannot be moved or deleted, disks that fill up, saves that fail at their last step, MANIFESTs that somebody has
 * written by hand: what one of these does to one filter must not stop the others, and must not pile up. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "fault_fs.h"
#include "id_map.h"
#include "rng.h"
#include "stage.h"

static struct fault_fs fault;

static void set_up(void)
{
    fault_fs_init(&fault, fsops_posix());
    stage_set_up(&fault.ops, 0);
}

TestSuite(store_trouble, .init = set_up, .fini = stage_tear_down);

/* Starts anew from the directory; `rig` holds then what was found. */
static void restart(void)
{
    stage_leave();
    stage_load(&fault.ops, 2);
}

/* A start finds what the rig holds now. */
static void assert_saved(void)
{
    uint64_t digest = rig_digest(&rig);
    size_t count = rig.count;

    restart();
    cr_assert_eq(rig.loaded.quarantined, 0, "%s", rig.reports);
    cr_assert_eq(rig.count, count);
    cr_assert_eq(rig_digest(&rig), digest);
}

static void assert_nothing_left_over(void)
{
    cr_assert_eq(rig.loaded.foreign + rig.loaded.leftovers + rig.loaded.recovered, 0, "%s", rig.reports);
}

/* ---- full disks ---------------------------------------------------------------------------------------------------------- */

/* The records of what has been written so far are known although they could not be written either. */
Test(store_trouble, a_save_that_fills_the_disk_removes_its_files_at_once)
{
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    save();
    for (size_t at = 1;; at++) {
        rig_fill(rig_find(&rig, "a"), 1000 + at, 1);
        rig_fill(rig_add(&rig, "b", &small, NULL), 0, 50);
        rig_fill(rig_add(&rig, "c", &scaling, NULL), 0, 50);
        fault_fs_arm(&fault, at, FAULT_FULL, 0, true);
        int rc = rig_save(&rig, store, &summary, &err);
        fault.fail_at = 0;
        rig_remove(&rig, "b");
        rig_remove(&rig, "c");
        if (rc == 0) {
            cr_assert_gt(at, 20, "the scenario has only %zu operations", at);
            break;
        }
        cr_assert_eq(rc, -ENOSPC, "operation %zu: %s", at, err.text);
        cr_assert_eq(dir_count(dir), 4, "operation %zu (%s): %s", at, fault.hit_op, err.text);
        cr_assert_eq(dir_count(AT("filters")), 1, "operation %zu (%s)", at, fault.hit_op);
        cr_assert_eq(dir_count(AT("filters/a")), 2, "operation %zu (%s)", at, fault.hit_op);
        cr_assert_lt(at, 200);
    }
    save();
    assert_saved();
    assert_nothing_left_over();
}

/* ---- what cannot be removed ------------------------------------------------------------------------------------------------ */

Test(store_trouble, a_file_that_cannot_be_deleted_does_not_stop_later_saves_and_goes_when_it_can)
{
    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 50);
    rig_fill(rig_add(&rig, "b", &small, NULL), 0, 50);
    save();
    fault.stuck = "filters/a/";
    rig_remove(&rig, "a");
    save();
    cr_assert(summary.unfinished);
    cr_assert(strstr(rig.reports, "filters/a/0-Filter.db: Operation not permitted"), "%s", rig.reports);
    rig_fill(rig_find(&rig, "b"), 100, 5);
    save();
    cr_assert(summary.unfinished);
    assert_saved();
    cr_assert(file_exists(AT("filters/a/0-Filter.db")));

    /* A new filter of the name cannot have the place. */
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 7, 80);
    save();
    cr_assert_eq(summary.displaced, 1, "%s", rig.reports);
    assert_saved();

    fault.stuck = NULL;
    save();
    cr_assert(!summary.unfinished);
    cr_assert(!file_exists(AT("filters/a")));
    rig_fill(rig_find(&rig, "a"), 500, 1);
    save();
    assert_saved();
    assert_nothing_left_over();
    cr_assert(file_exists(AT("filters/a/1-Filter.db")));
    cr_assert_eq(dir_count(AT("filters")), 2);
}

Test(store_trouble, a_file_that_cannot_be_replaced_makes_the_filter_move)
{
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    rig_fill(rig_add(&rig, "b", &small, NULL), 0, 50);
    save();
    fault.stuck = "filters/a/1-Filter.db"; /* with or without a generation */
    rig_fill(rig_find(&rig, "a"), 1000, 2);
    save();
    cr_assert(summary.unfinished);
    assert_saved();
    cr_assert_eq(rig.loaded.recovered, 1);

    rig_fill(rig_find(&rig, "b"), 1000, 2);
    save();
    cr_assert_eq(summary.displaced, 1, "%s", rig.reports);
    cr_assert(summary.unfinished, "the files that cannot be moved are still there");
    assert_saved();
    cr_assert_eq(rig.loaded.recovered, 0);
    cr_assert_eq(dir_count(AT("filters/%%~1-1")), 2);

    fault.stuck = NULL;
    rig_fill(rig_find(&rig, "a"), 2000, 2);
    save();
    cr_assert(!summary.unfinished);
    assert_saved();
}

/* Nothing is overwritten that an operator wants to keep: the new filter of the same name waits, then goes elsewhere. */
Test(store_trouble, files_of_a_given_up_filter_that_cannot_be_moved_are_not_overwritten)
{
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    save();
    file_flip_bit(AT("filters/a/0-Filter.db"), 99);
    restart();
    size_t len;
    unsigned char *bytes = file_read(AT("filters/a/0-Filter.db"), &len);

    fault.stuck = "filters/a/0-Filter.db";
    cr_assert_eq(store_forget(store, 1), 0);
    rig_remove(&rig, "a");
    rig_fill(rig_add(&rig, "a", &small, NULL), 7, 20);
    save();
    cr_assert(summary.unfinished);
    assert_saved();
    save();
    assert_saved();
    cr_assert(file_is(AT("filters/a/0-Filter.db"), bytes, len));

    fault.stuck = NULL;
    save();
    cr_assert(!summary.unfinished, "%s", rig.reports);
    assert_saved();
    assert_nothing_left_over();
    cr_assert(file_is(AT("quarantine/a-1/0-Filter.db"), bytes, len));
    cr_assert_eq(dir_count(AT("quarantine/a-1")), 2);
    free(bytes);
}

/* The same where it is the place to move to that is missing: nothing but the store's own care keeps the file. */
Test(store_trouble, files_of_a_given_up_filter_without_a_place_to_go_to_are_not_overwritten)
{
    size_t len;

    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    save();
    file_flip_bit(AT("filters/a/0-Filter.db"), 99);
    restart();
    unsigned char *bytes = file_read(AT("filters/a/0-Filter.db"), &len);
    file_write(AT("quarantine"), "mine", 4);
    cr_assert_eq(store_forget(store, 1), 0);
    rig_remove(&rig, "a");
    rig_fill(rig_add(&rig, "a", &small, NULL), 7, 20);
    save();
    cr_assert(summary.unfinished);
    assert_saved();
    save();
    cr_assert_eq(summary.displaced, 1);
    assert_saved();
    cr_assert(file_is(AT("filters/a/0-Filter.db"), bytes, len));
    unlink(AT("quarantine"));
    save();
    cr_assert_eq(dir_count(AT("quarantine/a-1")), 2);
    assert_saved();
    assert_nothing_left_over();
    free(bytes);
}

/* ---- quarantine ---------------------------------------------------------------------------------------------------------------- */

/* A committed file that a crash has left under its temporary name, and that is damaged; beside it the one before. */
static void leave_damaged_newest_file(void)
{
    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 2);
    rig_fill(rig_add(&rig, "b", &small, NULL), 7000, 50);
    save(); /* "a" has generation 1 */
    file_copy(AT("filters/a/0-Filter.db"), AT("older"));
    rename(AT("filters/a/0-Filter.db"), AT("filters/a/0-Filter.db.1"));
    for (size_t bit = 64; bit < 900; bit++)
        file_flip_bit(AT("filters/a/0-Filter.db.1"), bit);
    file_copy(AT("filters/b/0-Filter.db"), AT("filters/a/0-Filter.db"));
    restart();
    cr_assert_eq(rig.loaded.quarantined, 1);
}

Test(store_trouble, a_given_up_filter_keeps_its_newest_file_though_it_has_no_name_yet)
{
    size_t len;

    leave_damaged_newest_file();
    cr_assert_eq(store_forget(store, 1), 0);
    rig_remove(&rig, "a");
    save();
    cr_assert(file_exists(AT("quarantine/a-1/0-Filter.db.1")) && file_exists(AT("quarantine/a-1/0-Filter.db")));
    free(file_read(AT("quarantine/a-1/0-Filter.db.1"), &len));
    cr_assert_gt(len, 8);
    assert_saved();
}

Test(store_trouble, completing_a_save_does_not_replace_files_of_quarantined_filters)
{
    leave_damaged_newest_file();
    fault.stuck = "filters/b/0-Filter.db"; /* so that there is something to complete */
    rig_fill(rig_find(&rig, "b"), 500, 1);
    save();
    cr_assert(summary.unfinished);
    fault.stuck = NULL;
    rig_fill(rig_find(&rig, "b"), 600, 1);
    save();
    cr_assert(file_exists(AT("filters/a/0-Filter.db.1")) && file_exists(AT("filters/a/0-Filter.db")));
    restart();
    cr_assert_eq(rig.loaded.quarantined, 1);
}

static uint64_t bloom_digest(const struct rig_filter *filter)
{
    struct bloom_layer_view view;

    bloom_filter_layer(filter->filter, 0, &view);
    return XXH3_64bits((const void *)view.words, 8 * view.shape.nwords);
}

Test(store_trouble, the_right_file_in_its_final_place_repairs_a_filter_whose_newest_file_is_damaged)
{
    rig_fill(rig_add(&rig, "c", &small, NULL), 0, 2); /* what "a" must be again */
    uint64_t whole = bloom_digest(rig_find(&rig, "c"));
    rig_remove(&rig, "c");
    rig.next_id = 1;
    leave_damaged_newest_file();
    store_close(store);
    store = NULL;
    rename(AT("older"), AT("filters/a/0-Filter.db")); /* the one that the MANIFEST means */
    rig_deinit(&rig);
    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, dir, &fault.ops, 1, &store, &err), 0);
    cr_assert_eq(rig.loaded.quarantined, 0, "%s", rig.reports);
    cr_assert_eq(bloom_digest(rig_find(&rig, "a")), whole, "bits of the damaged file are in it");
}

Test(store_trouble, a_quarantined_filter_that_is_renamed_keeps_its_new_name_and_its_files)
{
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    save();
    file_flip_bit(AT("filters/a/1-Filter.db"), 99);
    restart();
    rig_rename(&rig, "a", "b");
    rig_find(&rig, "b")->expires_ms = 4711;
    rig_fill(rig_add(&rig, "a", &small, NULL), 7, 20); /* who has the name now goes elsewhere */
    save();
    cr_assert_eq(summary.displaced, 1);
    restart();
    cr_assert_eq(rig.count, 2);
    cr_assert(rig_find(&rig, "b") && !rig_find(&rig, "b")->filter && rig_find(&rig, "b")->expires_ms == 4711);
    cr_assert(rig_find(&rig, "a") && rig_has(rig_find(&rig, "a"), 7));
    cr_assert_eq(dir_count(AT("filters/a")), 2);
    cr_assert_eq(dir_count(AT("filters/%%~2-1")), 1);
    save();
    cr_assert_eq(store_forget(store, 1), 0);
    rig_remove(&rig, "b");
    save();
    cr_assert_eq(dir_count(AT("quarantine/a-1")), 2);
    assert_saved();
    assert_nothing_left_over();
}

/* ---- the last step ------------------------------------------------------------------------------------------------------------- */

static int fail_rename_of_manifest(void)
{
    fault.stuck = "/MANIFEST";
    int rc = rig_save(&rig, store, &summary, &err);
    fault.stuck = NULL;
    return rc;
}

/* However often it is tried, the files of one attempt at most are there beside those of the save before. */
Test(store_trouble, saves_that_fail_at_their_last_step_do_not_pile_up)
{
    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 50);
    save();
    for (int i = 0; i < 5; i++) {
        rig_fill(rig_find(&rig, "a"), 100 + (uint64_t)i, 1);
        cr_assert_eq(fail_rename_of_manifest(), STORE_IN_DOUBT);
        cr_assert_leq(dir_count(AT("filters/a")), 2);
    }
    save();
    cr_assert_eq(dir_count(AT("filters/a")), 1);
    assert_saved();
    assert_nothing_left_over();
}

/* ---- other people's MANIFESTs ---------------------------------------------------------------------------------------------------- */

/* Writes a MANIFEST with a right last line. */
static void write_manifest(const char *body, unsigned nfilters, unsigned nremoved)
{
    char text[4096];
    int len = snprintf(text, sizeof(text), "bloomery-manifest 4\n%s", body);
    uint64_t hash = XXH3_64bits(text, (size_t)len);

    len += snprintf(text + len, sizeof(text) - (size_t)len, "end filters=%u removed=%u xxh3=%016llx\n", nfilters, nremoved,
                    (unsigned long long)hash);
    file_write(AT("MANIFEST"), text, (size_t)len);
}

#define FILTER_A                                                                                                       \
    "filter id=1 name=a capacity=100 error-rate=0.01 expansion=0 variant=na expires-ms=0 layers=1\n"                   \
    "layer k=1 words=1 items=0 xxh3=0000000000000000 generation=1\n"

Test(store_trouble, manifests_that_would_do_harm_are_refused)
{
    static const struct {
        const char *body;
        unsigned nfilters, nremoved;
        const char *reason;
    } table[] = {
        {"save generation=4611686018427387904 next-id=2 log=0 control=0 frame=0 accepted=0\n", 0, 0, "no directory has seen as many"},
        {"save generation=1 next-id=4611686018427387904 log=0 control=0 frame=0 accepted=0\n", 0, 0, "no directory has seen as many"},
        {"save generation=1 next-id=2 log=4611686018427387904 control=0 frame=0 accepted=0\n", 0, 0, "no directory has seen as many"},
        {"save generation=1 next-id=2 log=0 control=4611686018427387904 frame=0 accepted=0\n", 0, 0, "no directory has seen as many"},
        {"save generation=1 next-id=2 log=0 control=0 frame=1152921504606846976 accepted=0\n", 0, 0,
         "no directory has seen as many"},
        {"save generation=1 next-id=2 log=0 control=0 frame=0 accepted=2305843009213693953\n", 0, 0,
         "no directory has seen as many"},
        {"save generation=18446744073709551615 next-id=2 log=0 control=0 frame=0 accepted=0\n", 0, 0, "line 2"},
        {"save generation=1 next-id=1 log=0 control=0 frame=0 accepted=0\n" FILTER_A, 1, 0, "not above the filter id 1"},
        {"save generation=1 next-id=2 log=0 control=0 frame=0 accepted=0\n"
         "removed delete id=2 dir=x placed=1 shared=0 owner=0 generations=1\n",
         0, 1, "not above the filter id 2"},
        {"save generation=1 next-id=3 log=0 control=0 frame=0 accepted=0\n" FILTER_A
         "removed delete id=2 dir=a placed=1 shared=0 owner=0 generations=1\n",
         1, 1, "a removed filter in the directory a"},
        {"save generation=2 next-id=3 log=0 control=0 frame=0 accepted=0\n" FILTER_A
         "removed keep id=2 dir=a placed=1 shared=1 owner=2 generations=1\n",
         1, 1, "a removed filter in the directory a"},
        {"save generation=1 next-id=3 log=0 control=0 frame=0 accepted=0\n" FILTER_A
         "filter id=2 name=b dir=a capacity=100 error-rate=0.01 expansion=0 variant=na expires-ms=0 layers=1\n"
         "layer k=1 words=1 items=0 xxh3=0000000000000000 generation=1\n",
         2, 0, "a second filter in the directory a"},
    };
    store_close(store);
    store = NULL;
    mkdir(AT("filters/a"), 0700);
    file_write(AT("filters/a/0-Filter.db"), "mine", 4);
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        struct rig other;
        rig_init(&other);
        write_manifest(table[i].body, table[i].nfilters, table[i].nremoved);
        cr_assert_eq(rig_load(&other, dir, NULL, 1, &store, &err), STORE_DAMAGED, "row %zu: %s", i, err.text);
        store = NULL;
        cr_assert(strstr(err.text, table[i].reason), "row %zu: %s", i, err.text);
        cr_assert(file_exists(AT("filters/a/0-Filter.db")));
        rig_deinit(&other);
    }
}

/* Numbers that are as high as can be are read, and no save writes higher ones, which no start would read. */
Test(store_trouble, a_save_that_no_start_could_read_fails)
{
    store_close(store);
    store = NULL;
    write_manifest("save generation=2305843009213693951 next-id=2 log=0 control=0 frame=0 accepted=0\n", 0, 0);
    rig_deinit(&rig);
    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, dir, &fault.ops, 1, &store, &err), 0, "%s", err.text);
    save(); /* there is nothing to save: the one number more is the MANIFEST's own */
    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 50);
    cr_assert_eq(rig_save(&rig, store, &summary, &err), -EOVERFLOW);
    cr_assert(strstr(err.text, "no directory has seen as many"), "%s", err.text);
    rig_remove(&rig, "a");
    assert_saved();
}

/* A MANIFEST may have a filter in the directory of another name: who has the name goes elsewhere, and neither harms the other. */
Test(store_trouble, two_filters_that_want_one_directory_get_two)
{
    char body[2048];
    size_t len;

    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 50);
    save();
    store_close(store);
    store = NULL;
    char *text = (char *)file_read(AT("MANIFEST"), &len);
    char *name = strstr(text, "name=a "), *end = strstr(text, "\nend ");
    cr_assert(name && end && len < sizeof(body) - 10);
    snprintf(body, sizeof(body), "%.*sname=b dir=a %.*s\n", (int)(name - strchr(text, '\n') - 1), strchr(text, '\n') + 1,
             (int)(end - name - 7), name + 7);
    free(text);
    write_manifest(body, 1, 0);
    rig_deinit(&rig);
    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, dir, &fault.ops, 1, &store, &err), 0, "%s", err.text);

    rig_fill(rig_add(&rig, "a", &small, NULL), 100, 50);
    save();
    cr_assert_eq(summary.displaced, 1);
    cr_assert(strstr(rig.reports, "filter 'a' is saved in filters/%~2-1: filters/a belongs to filter 1"), "%s", rig.reports);
    assert_saved();
    cr_assert(rig_has(rig_find(&rig, "b"), 7) && rig_has(rig_find(&rig, "a"), 107));
    rig_remove(&rig, "b");
    rig_fill(rig_find(&rig, "a"), 200, 1);
    save();
    save();
    assert_saved();
    assert_nothing_left_over();
}

/* Records of filters that have not changed are taken over as they are: not when they are no longer what was verified. */
Test(store_trouble, a_manifest_that_is_changed_under_the_store_is_not_taken_over)
{
    size_t len;

    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 50);
    rig_fill(rig_add(&rig, "b", &small, NULL), 0, 50);
    save();
    char *text = (char *)file_read(AT("MANIFEST"), &len);
    char *digit = strstr(text, "items=") + 6;
    int fd = open(AT("MANIFEST"), O_WRONLY);
    cr_assert(fd >= 0 && pwrite(fd, *digit == '4' ? "5" : "4", 1, digit - text) == 1);
    rig_fill(rig_find(&rig, "b"), 50, 5);
    cr_assert_eq(rig_save(&rig, store, &summary, &err), -EIO);
    cr_assert(strstr(err.text, "MANIFEST: has changed since it was verified"), "%s", err.text);
    cr_assert_eq(dir_count(AT("filters/b")), 1);
    cr_assert(pwrite(fd, digit, 1, digit - text) == 1);
    close(fd);
    free(text);
    save();
    assert_saved();
}

/* ---- where things are ------------------------------------------------------------------------------------------------------------ */

Test(store_trouble, a_directory_on_another_file_system_is_not_used)
{
    mkdir(AT("filters/a"), 0700);
    fault.mounted = "filters/a";
    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 50);
    save();
    cr_assert_eq(summary.displaced, 1);
    cr_assert(strstr(rig.reports, "filters/a is on another file system"), "%s", rig.reports);
    assert_saved();
}

Test(store_trouble, filters_on_another_file_system_than_the_manifest_are_refused)
{
    struct store *second;
    struct store_options options;

    store_close(store);
    store = NULL;
    fault.mounted = "/filters";
    options = rig_options(&rig, &fault.ops);
    cr_assert_eq(store_open(dir, &options, &second, &err), -EXDEV);
    cr_assert(strstr(err.text, "/filters is on another file system"), "%s", err.text);
}

/* ---- the log's place ------------------------------------------------------------------------------------------------------------- */

Test(store_trouble, the_checkpoint_of_a_save_is_kept_and_one_that_fails_fails_the_save)
{
    struct store_checkpoint checkpoint = store_checkpoint(store);

    cr_assert(checkpoint.log == 0 && checkpoint.control == 0);
    rig.checkpoint = (struct store_checkpoint){7, 1234, 99, 5};
    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 50);
    save();
    checkpoint = store_checkpoint(store);
    cr_assert(checkpoint.log == 7 && checkpoint.control == 1234 && checkpoint.frame == 99 && checkpoint.accepted == 5);
    rig_fill(rig_find(&rig, "a"), 50, 5);
    uint64_t digest = rig_digest(&rig);
    rig.checkpoint = (struct store_checkpoint){8, 2000, 120, 6};
    rig.checkpoint_rc = -EIO;
    cr_assert_eq(rig_save(&rig, store, &summary, &err), -EIO);
    cr_assert_str_eq(err.text, "the log says no");
    cr_assert_eq(dir_count(AT("filters/a")), 1);
    restart();
    cr_assert_neq(rig_digest(&rig), digest);
    checkpoint = store_checkpoint(store);
    cr_assert(checkpoint.log == 7 && checkpoint.control == 1234 && checkpoint.frame == 99 && checkpoint.accepted == 5);
}

/* ---- the map of ids ---------------------------------------------------------------------------------------------------------------- */

Test(store_trouble, a_map_of_ids_holds_what_was_put_into_it_and_not_taken_out)
{
    enum { IDS = 300 };
    struct id_map map = {0};
    bool there[IDS + 1] = {false};
    size_t count = 0;
    struct rng rng;

    rng_init(&rng, 3);
    cr_assert_null(id_map_get(&map, 5));
    cr_assert_null(id_map_remove(&map, 5));
    for (int i = 0; i < 200000; i++) {
        uint64_t id = 1 + rng_below(&rng, IDS);
        uint64_t spread = id * UINT64_C(0x10000000000001); /* neighbours and far ones */

        if (rng_below(&rng, 2)) {
            cr_assert_eq(id_map_set(&map, spread, &there[id]), 0);
            count += !there[id];
            there[id] = true;
        } else {
            cr_assert_eq(id_map_remove(&map, spread), there[id] ? &there[id] : NULL);
            count -= there[id];
            there[id] = false;
        }
        uint64_t other = 1 + rng_below(&rng, IDS);
        cr_assert_eq(id_map_has(&map, other * UINT64_C(0x10000000000001)), there[other]);
        cr_assert_eq(map.count, count);
    }
    id_map_deinit(&map);
}
