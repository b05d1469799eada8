/* Files that cannot be moved or deleted, full disks, saves that fail at their last step, MANIFESTs written by hand:
 * trouble with one filter must not stop the others, and must not pile up. */
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

static void restart(void)
{
    stage_restart(&fault.ops, 2);
}

static void assert_saved(void)
{
    stage_expect_saved(&fault.ops);
}

static void assert_nothing_left_over(void)
{
    cr_assert_eq(rig.loaded.foreign + rig.loaded.leftovers, 0, "%s", rig.reports);
}

/* ---- full disks ---- */

/* The records of the files written so far are known, although they could not be written either. */
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
            cr_assert_gt(at, 15, "the scenario has only %zu operations", at);
            break;
        }
        cr_assert_eq(rc, -ENOSPC, "operation %zu: %s", at, err.text);
        cr_assert_eq(dir_count(dir), 3, "operation %zu (%s): %s", at, fault.hit_op, err.text);
        cr_assert_eq(FILES(), 2, "operation %zu (%s)", at, fault.hit_op);
        cr_assert_lt(at, 200);
    }
    save();
    assert_saved();
    assert_nothing_left_over();
}

/* ---- files that cannot be removed ---- */

Test(store_trouble, a_file_that_cannot_be_removed_does_not_stop_later_saves_and_goes_with_a_start)
{
    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 50);
    rig_fill(rig_add(&rig, "b", &small, NULL), 0, 50);
    save();
    struct rig_place a = rig_place(NULL, dir, "a", 0);
    fault.stuck = a.file;
    rig_remove(&rig, "a");
    save();
    cr_assert(strstr(rig.reports, a.file) && strstr(rig.reports, "cannot be removed: Operation not permitted"), "%s",
              rig.reports);
    rig_fill(rig_find(&rig, "b"), 100, 5);
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 7, 80);
    save();
    cr_assert(file_exists(a.path));
    fault.stuck = NULL;
    restart();
    cr_assert_eq(rig.loaded.leftovers, 1);
    cr_assert(!file_exists(a.path));
    assert_saved();
    assert_nothing_left_over();
}

/* The same by a start: nothing will name an unnamed file later, so its removal can wait. */
Test(store_trouble, a_file_that_a_start_cannot_remove_goes_with_another_start)
{
    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 50);
    save();
    file_write(AT("filters/na-1000-big-Filter.db"), "half", 4);
    fault.stuck = "na-1000-";
    restart();
    cr_assert_eq(rig.loaded.foreign, 1);
    save();
    cr_assert(file_exists(AT("filters/na-1000-big-Filter.db")));
    fault.stuck = NULL;
    restart();
    cr_assert_eq(rig.loaded.leftovers, 1);
    assert_saved();
    assert_nothing_left_over();
}

/* ---- quarantine ---- */

Test(store_trouble, the_right_file_in_its_place_repairs_a_filter)
{
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    rig_fill(rig_add(&rig, "b", &small, NULL), 7000, 50);
    save();
    uint64_t digest = rig_digest(&rig);
    struct rig_place a = rig_place(NULL, dir, "a", 1);
    file_copy(a.path, AT("whole"));
    for (size_t bit = 64; bit < 500; bit++)
        file_flip_bit(a.path, bit);
    restart();
    cr_assert_eq(rig.loaded.quarantined, 1);
    rig_fill(rig_find(&rig, "b"), 7000, 1); /* already present: the digest stays */
    save();
    stage_leave();
    rename(AT("whole"), a.path);
    stage_load(&fault.ops, 1);
    cr_assert_eq(rig.loaded.quarantined, 0, "%s", rig.reports);
    cr_assert_eq(rig_digest(&rig), digest, "bits of the damaged file are in it");
}

Test(store_trouble, a_quarantined_filter_that_is_renamed_keeps_its_new_name_and_its_files)
{
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    save();
    struct rig_place a = rig_place(NULL, dir, "a", 1);
    file_flip_bit(a.path, 99);
    restart();
    rig_rename(&rig, "a", "b");
    rig_find(&rig, "b")->expires_ms = 4711;
    rig_fill(rig_add(&rig, "a", &small, NULL), 7, 20);
    save();
    restart();
    cr_assert_eq(rig.count, 2);
    cr_assert(rig_find(&rig, "b") && !rig_find(&rig, "b")->filter && rig_find(&rig, "b")->expires_ms == 4711);
    cr_assert(rig_find(&rig, "a") && rig_has(rig_find(&rig, "a"), 7));
    cr_assert_str_eq(LAYER("b", 1), a.path);
    save();
    rig_remove(&rig, "b");
    save();
    assert_saved();
    assert_nothing_left_over();
}

/* ---- the last step ---- */

static int fail_rename_of_manifest(void)
{
    fault.stuck = "/MANIFEST";
    int rc = rig_save(&rig, store, &summary, &err);
    fault.stuck = NULL;
    return rc;
}

/* After any number of tries there are the files of the last save, and of one attempt at most. */
Test(store_trouble, saves_that_fail_at_their_last_step_do_not_pile_up)
{
    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 50);
    save();
    for (int i = 0; i < 5; i++) {
        rig_fill(rig_find(&rig, "a"), 100 + (uint64_t)i, 1);
        cr_assert_eq(fail_rename_of_manifest(), STORE_IN_DOUBT);
        cr_assert_leq(FILES(), 2);
    }
    save();
    cr_assert_eq(FILES(), 1);
    assert_saved();
    assert_nothing_left_over();
}

/* ---- foreign MANIFESTs ---- */

/* Writes a MANIFEST with a correct last line. */
static void write_manifest(const char *body, unsigned nfilters)
{
    char text[4096];
    int len = snprintf(text, sizeof(text), "bloomery-manifest 1\n%s", body);
    uint64_t hash = XXH3_64bits(text, (size_t)len);

    len += snprintf(text + len, sizeof(text) - (size_t)len, "end filters=%u xxh3=%016llx\n", nfilters,
                    (unsigned long long)hash);
    file_write(AT("MANIFEST"), text, (size_t)len);
}

#define FILTER(id, file)                                                                                          \
    "filter id=" #id " name=a" #id " capacity=100 error-rate=0.01 expansion=0 variant=na expires-ms=0 layers=1\n" \
    "layer k=1 words=1 items=0 xxh3=0000000000000000 file=" #file "\n"
#define SAVE(number, next_id, rest) "save number=" #number " next-id=" #next_id " " rest "\n"
#define NO_LOG                      "log=0 control=0 frame=0 accepted=0"

Test(store_trouble, manifests_that_would_do_harm_are_refused)
{
    static const struct {
        const char *body;
        unsigned nfilters;
        const char *reason;
    } table[] = {
        {SAVE(4611686018427387904, 2, NO_LOG), 0, "out of range"},
        {SAVE(1, 4611686018427387904, NO_LOG), 0, "out of range"},
        {SAVE(1, 2, "log=4611686018427387904 control=0 frame=0 accepted=0"), 0, "out of range"},
        {SAVE(1, 2, "log=0 control=4611686018427387904 frame=0 accepted=0"), 0, "out of range"},
        {SAVE(1, 2, "log=0 control=0 frame=1152921504606846976 accepted=0"), 0, "out of range"},
        {SAVE(1, 2, "log=0 control=0 frame=0 accepted=2305843009213693953"), 0, "out of range"},
        {SAVE(18446744073709551615, 2, NO_LOG), 0, "line 2"},
        {FILTER(1, 1) SAVE(1, 1, NO_LOG), 1, "not above the filter id 1"},
        {FILTER(1, 2) SAVE(1, 2, NO_LOG), 1, "number="},
        {FILTER(1, 1) FILTER(1, 2) SAVE(2, 2, NO_LOG), 2, "a second filter with the id 1"},
        {FILTER(1, 1) FILTER(2, 1) SAVE(2, 3, NO_LOG), 2, "a second layer in the file with the number 1"},
        {FILTER(1, 1) "gone id=2\n" SAVE(2, 3, NO_LOG), 0, "no filter before this line has the id 2"},
        {FILTER(1, 1) "gone id=1\ngone id=1\n" SAVE(2, 3, NO_LOG), 0, "gone"},
        {FILTER(1, 1) "gone id=1\n" FILTER(1, 1) FILTER(2, 1) SAVE(2, 3, NO_LOG), 2, "a second layer in the file"},
        {FILTER(1, 1) "gone id=1\n" SAVE(2, 1, NO_LOG), 0, "not above the filter id 1"},
    };
    store_close(store);
    store = NULL;
    file_write(AT("filters/na-1-big-Filter.db"), "mine", 4);
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        struct rig other;
        rig_init(&other);
        write_manifest(table[i].body, table[i].nfilters);
        cr_assert_eq(rig_load(&other, dir, NULL, 1, &store, &err), STORE_DAMAGED, "row %zu: %s", i, err.text);
        store = NULL;
        cr_assert(strstr(err.text, table[i].reason), "row %zu: %s", i, err.text);
        cr_assert(file_exists(AT("filters/na-1-big-Filter.db")));
        rig_deinit(&other);
    }
}

/* A gone filter may return, even with the same file: so a save writes filters renamed after the walk has passed. */
Test(store_trouble, what_has_gone_may_come_again)
{
    store_close(store);
    store = NULL;
    write_manifest(FILTER(1, 1) "gone id=1\n" FILTER(1, 1) FILTER(2, 2) "gone id=2\n" SAVE(2, 3, NO_LOG), 1);
    rig_deinit(&rig);
    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, dir, &fault.ops, 1, &store, &err), 0, "%s", err.text);
    cr_assert_eq(rig.loaded.quarantined, 1);
    cr_assert_eq(rig.loaded.filters, 0);
}

/* The highest numbers can be read; no save writes higher ones, which no start would read. */
Test(store_trouble, a_save_that_no_start_could_read_fails)
{
    store_close(store);
    store = NULL;
    write_manifest(SAVE(2305843009213693951, 2, NO_LOG), 0);
    rig_deinit(&rig);
    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, dir, &fault.ops, 1, &store, &err), 0, "%s", err.text);
    save(); /* nothing to save: the additional number is the MANIFEST's own */
    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 50);
    cr_assert_eq(rig_save(&rig, store, &summary, &err), -EOVERFLOW);
    cr_assert(strstr(err.text, "out of range"), "%s", err.text);
    rig_remove(&rig, "a");
    assert_saved();
}

/* Records of unchanged filters are taken over as they are, unless they differ from the verified ones. */
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
    cr_assert_eq(FILES(), 2);
    cr_assert(pwrite(fd, digit, 1, digit - text) == 1);
    close(fd);
    free(text);
    save();
    assert_saved();
}

/* ---- places of files ---- */

/* The directory was removed, and another process has made it again: files written there would be the other's. */
Test(store_trouble, a_directory_that_was_replaced_is_not_saved_to)
{
    struct store *other = NULL;
    struct rig second;

    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 50);
    save();
    cr_assert_eq(store_still_ours(store, &err), 0);
    cr_assert_eq(rename(dir, AT("../moved-%d", (int)getpid())), 0);
    cr_assert_eq(store_still_ours(store, &err), -ESTALE);
    rig_init(&second);
    cr_assert_eq(rig_load(&second, dir, NULL, 1, &other, &err), 0, "%s", err.text);
    rig_fill(rig_add(&second, "b", &small, NULL), 0, 50);
    cr_assert_eq(rig_save(&second, other, NULL, &err), 0, "%s", err.text);
    rig_fill(rig_find(&rig, "a"), 100, 5);
    cr_assert_eq(rig_save(&rig, store, &summary, &err), -ESTALE);
    cr_assert(strstr(err.text, "LOCK: not the file that this process has locked"), "%s", err.text);
    cr_assert_eq(store_find(other, "b", 1, &err), 0);
    uint64_t digest = rig_digest(&second);
    store_close(other);
    rig_deinit(&second);
    rig_init(&second);
    cr_assert_eq(rig_load(&second, dir, NULL, 1, &other, &err), 0, "%s", err.text);
    cr_assert(rig_digest(&second) == digest && second.loaded.leftovers == 0, "%s", second.reports);
    store_close(other);
    rig_deinit(&second);
    tmpdir_remove(AT("../moved-%d", (int)getpid()));
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

/* ---- the log's place ---- */

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
    cr_assert_eq(FILES(), 1);
    restart();
    cr_assert_neq(rig_digest(&rig), digest);
    checkpoint = store_checkpoint(store);
    cr_assert(checkpoint.log == 7 && checkpoint.control == 1234 && checkpoint.frame == 99 && checkpoint.accepted == 5);
}

/* ---- the map of ids ---- */

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
