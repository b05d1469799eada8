/* Single filters written outside of saves, and the log's records about a directory: taken over, superseded, discarded,
 * found again after a crash at any moment. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_fs.h"
#include "stage.h"

#define CHAIN_LAYERS 40 /* more than are synced one by one */

static const struct bloom_params chain = {.capacity = 1, .error_rate = 0.05, .expansion = 1};
static struct store_record record; /* as the log would have it */

static void set_up(void)
{
    stage_set_up(NULL, 0);
}

static void tear_down(void)
{
    stage_tear_down();
    free(record.text);
}

TestSuite(store_write, .init = set_up, .fini = tear_down);

static int try_write(struct store *to, struct rig_filter *filter)
{
    struct store_item item = {.id = filter->id,
                              .name = filter->name,
                              .name_len = filter->name_len,
                              .filter = filter->filter,
                              .expires_ms = filter->expires_ms};

    free(record.text);
    record.text = NULL;
    return store_write(to, &item, &record, &err);
}

static void write_one(const char *name)
{
    cr_assert_eq(try_write(store, rig_find(&rig, name)), 0, "%s", err.text);
    rig_find(&rig, name)->dirty = false;
}

/* A new filter with `n` items: written, or written and published. */
static void make_written(const char *name, const struct bloom_params *params, uint64_t n)
{
    rig_fill(rig_add(&rig, name, params, NULL), 0, n);
    write_one(name);
}

static void make_published(const char *name, const struct bloom_params *params, uint64_t n)
{
    make_written(name, params, n);
    store_published(store, rig_find(&rig, name)->id);
}

static void replay(struct rig *to, struct store *opened)
{
    (void)to;
    cr_assert_eq(store_replay_written(opened, record.text, record.len, &err), 0, "%s", err.text);
}

/* Starts again, with the record from the log or without. */
static void restart(bool with_record, bool (*resolve)(struct rig *rig, struct store_filter *info))
{
    stage_leave();
    rig.replay = with_record ? replay : NULL;
    rig.resolve = resolve;
    stage_load(NULL, 2);
    rig.resolve = NULL;
}

static void assert_same(uint64_t digest, size_t count)
{
    cr_assert_eq(rig.loaded.quarantined + rig.loaded.foreign, 0, "%s", rig.reports);
    cr_assert_eq(rig.count, count);
    cr_assert_eq(rig_digest(&rig), digest);
}

static void restart_unchanged(bool with_record)
{
    uint64_t digest = rig_digest(&rig);
    size_t count = rig.count;

    restart(with_record, NULL);
    assert_same(digest, count);
}

Test(store_write, a_written_filter_is_found_by_its_record_and_taken_over_by_the_next_save)
{
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    rig_find(&rig, "a")->expires_ms = 5000;
    write_one("a");
    store_published(store, 1);
    restart_unchanged(true);
    cr_assert_eq(store_next_id(store), 2, "its id is not given out again");
    save();
    cr_assert_eq(summary.layers_written, 0);
    cr_assert_eq(summary.filters, 1);
    cr_assert_eq(FILES(), 2);
    restart_unchanged(false);
    cr_assert_eq(rig.loaded.leftovers, 0);
}

Test(store_write, a_written_filter_is_taken_over_without_a_start_between)
{
    make_published("a", &scaling, 100);
    save();
    cr_assert_eq(summary.layers_written, 0);
    save();
    cr_assert_eq(summary.layers_written, 0);
    restart_unchanged(false);
}

Test(store_write, a_written_filter_that_has_changed_is_written_anew_and_its_first_files_go)
{
    make_published("a", &scaling, 100);
    rig_fill(rig_find(&rig, "a"), 500, 1);
    save();
    cr_assert_eq(summary.layers_written, 2);
    cr_assert_eq(FILES(), 2);
    restart_unchanged(false);
    cr_assert_eq(rig.loaded.leftovers, 0);
}

/* The change must be remembered when the save that saw it fails. */
Test(store_write, a_failed_save_does_not_forget_that_a_written_filter_has_changed)
{
    make_published("a", &small, 10);
    rig_fill(rig_find(&rig, "a"), 500, 1);
    rig.checkpoint_rc = -EIO;
    cr_assert_eq(rig_save(&rig, store, &summary, &err), -EIO);
    cr_assert_eq(FILES(), 1, "what store_write() has made stays");
    rig.checkpoint_rc = 0;
    cr_assert(!rig_find(&rig, "a")->dirty);
    save();
    cr_assert_eq(summary.layers_written, 1);
    restart_unchanged(false);
}

Test(store_write, a_written_filter_that_was_renamed_keeps_its_files)
{
    make_published("a", &scaling, 100);
    rig_rename(&rig, "a", "b");
    save();
    cr_assert_eq(summary.layers_written, 0);
    cr_assert_eq(FILES(), 2);
    restart_unchanged(false);
    cr_assert_eq(rig.loaded.leftovers, 0);
}

Test(store_write, a_discarded_filter_leaves_nothing)
{
    make_written("a", &scaling, 100);
    cr_assert_eq(FILES(), 2);
    store_discard(store, 1);
    cr_assert_eq(FILES(), 0);
    store_discard(store, 1);
    store_published(store, 1);
}

/* No walk yields the filter before it is published, yet its files are needed. */
Test(store_write, a_save_spares_files_of_filters_that_are_not_published_yet)
{
    make_written("a", &small, 10);
    struct rig_filter filter = rig.filters[0];
    rig.count = 0;
    save();
    save();
    cr_assert_eq(FILES(), 1);
    rig.filters[0] = filter;
    rig.count = 1;
    store_published(store, 1);
    save();
    cr_assert_eq(summary.layers_written, 0);
    restart_unchanged(false);
}

Test(store_write, files_of_a_published_filter_that_was_deleted_go_with_the_next_save)
{
    make_published("a", &small, 10);
    rig_remove(&rig, "a");
    cr_assert_eq(FILES(), 1, "its deletion may not be on disk yet");
    save();
    cr_assert_eq(FILES(), 0);
}

Test(store_write, without_its_record_a_written_filter_is_a_leftover)
{
    make_written("a", &scaling, 100);
    restart(false, NULL);
    cr_assert_eq(rig.count, 0);
    cr_assert_eq(rig.loaded.leftovers, 2);
    cr_assert_eq(FILES(), 0);
}

static bool all_gone(struct rig *of, struct store_filter *info)
{
    (void)of, (void)info;
    return false;
}

static bool renamed(struct rig *of, struct store_filter *info)
{
    (void)of;
    info->name = "new name";
    info->name_len = 8;
    info->expires_ms = 77;
    return true;
}

Test(store_write, what_the_log_says_is_deleted_is_not_loaded_and_goes_with_the_next_save)
{
    rig_fill(rig_add(&rig, "saved", &scaling, NULL), 0, 100);
    save();
    make_written("a", &scaling, 100);
    restart(true, all_gone);
    cr_assert_eq(rig.count, 0);
    cr_assert_eq(FILES(), 4);
    cr_assert_eq(store_next_id(store), 3);
    save();
    cr_assert_eq(summary.filters, 0);
    cr_assert_eq(FILES(), 0);
}

Test(store_write, what_the_log_says_is_renamed_is_loaded_and_saved_under_its_new_name)
{
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    save();
    restart(false, renamed);
    cr_assert_eq(rig.count, 1);
    cr_assert_not_null(rig_find(&rig, "new name"));
    cr_assert_eq(rig_find(&rig, "new name")->expires_ms, 77);
    save();
    cr_assert_eq(summary.layers_written, 0);
    restart_unchanged(false);
}

Test(store_write, a_written_filter_whose_file_is_damaged_is_quarantined_through_saves_and_starts)
{
    make_written("a", &scaling, 100);
    rig.next_id = 2;
    file_flip_bit(AT("filters/na-2-big-Filter.db"), 99); /* the file of the second layer */
    for (int start = 0; start < 3; start++) {
        restart(start < 2, NULL); /* the second time the record is older than the save */
        cr_assert_eq(rig.loaded.quarantined, 1);
        cr_assert_eq(rig.count, 1);
        cr_assert(strstr(rig.filters[0].reason, "na-2-big-Filter.db: checksum is"), "%s", rig.filters[0].reason);
        cr_assert_eq(FILES(), 2);
        save();
        cr_assert_eq(summary.filters, 1);
    }
    rig_remove(&rig, "a");
    save();
    cr_assert_eq(FILES(), 0);
}

Test(store_write, records_that_are_none_are_refused)
{
    static const char *const none[] = {
        "",
        "x",
        "end\n",
        "filter id=1 name=a capacity=100 error-rate=0.01 expansion=0 variant=na expires-ms=0 layers=1\n",
        "gone id=1\n",
        "save number=1 next-id=2 log=0 control=0 frame=0 accepted=0\n",
        "layer k=1 words=1 items=0 xxh3=0000000000000000 file=1\n",
        "filter id=1 name=a pack=1 offset=40 capacity=100 error-rate=0.01 expansion=0 variant=na expires-ms=0 "
        "layers=1\n"
        "layer k=1 words=1 items=0 xxh3=0000000000000000\n"};
    struct store_options options = rig_options(&rig, NULL);

    make_written("a", &small, 10);
    store_close(store);
    cr_assert_eq(store_open(dir, &options, &store, &err), 0);
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
        cr_assert_eq(store_replay_written(store, none[i], strlen(none[i]), &err), STORE_DAMAGED, "%zu", i);
    for (size_t len = 0; len < record.len; len++)
        cr_assert_eq(store_replay_written(store, record.text, len, &err), STORE_DAMAGED, "%zu bytes", len);
    char *twice = malloc(2 * record.len);
    memcpy(twice, record.text, record.len);
    memcpy(twice + record.len, record.text, record.len);
    cr_assert_eq(store_replay_written(store, twice, 2 * record.len, &err), STORE_DAMAGED);
    free(twice);
    cr_assert_eq(store_replay_written(store, record.text, record.len, &err), 0);
    cr_assert_eq(store_replay_written(store, record.text, record.len, &err), 0, "once more is no harm");
}

/* ---- during a save ---- */

static void write_meanwhile(struct rig *of, size_t at)
{
    (void)of;
    if (at != 1)
        return;
    make_written("late", &small, 10); /* behind: this walk yields it */
}

Test(store_write, a_filter_written_and_published_during_a_save_is_in_it)
{
    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 10);
    rig_fill(rig_add(&rig, "b", &small, NULL), 0, 10);
    rig.on_next = write_meanwhile;
    save();
    rig.on_next = NULL;
    cr_assert_eq(summary.filters, 3);
    cr_assert_eq(summary.layers_written, 2);
    store_published(store, 3);
    restart_unchanged(false);
}

static void publish_and_delete_meanwhile(struct rig *of, size_t at)
{
    (void)of;
    if (at == 1)
        store_published(store, 77);
}

Test(store_write, a_filter_published_and_deleted_during_a_save_goes_with_it)
{
    struct store_item gone = {.id = 77, .name = "x", .name_len = 1};

    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 10);
    rig_fill(rig_add(&rig, "b", &small, NULL), 0, 10);
    rig_add(&rig, "x", &small, NULL)->id = 77;
    write_one("x");
    rig_remove(&rig, "x");
    rig.on_next = publish_and_delete_meanwhile;
    rig.extra = &gone;
    rig.nextra = 1;
    save();
    cr_assert_eq(FILES(), 2);
}

/* Files of unpublished filters are no leftovers of a failed save. */
Test(store_write, cleaning_up_after_a_failed_save_spares_written_files)
{
    static struct fault_fs fault; /* the store outlives the test by its tear-down */

    fault_fs_init(&fault, fsops_posix());
    stage_restart(&fault.ops, 1);
    rig_fill(rig_add(&rig, "a", &small, NULL), 0, 10);
    make_written("b", &small, 10);
    struct rig_filter b = rig.filters[1];
    rig.count = 1;
    fault.stuck = "/MANIFEST";
    cr_assert_eq(rig_save(&rig, store, &summary, &err), STORE_IN_DOUBT);
    fault.stuck = NULL;
    cr_assert_eq(FILES(), 2);
    save();
    cr_assert_eq(FILES(), 2, "that of b, and of a the new one");
    rig.filters[rig.count++] = b;
    store_published(store, b.id);
    save();
    cr_assert_eq(summary.layers_written, 0);
    restart_unchanged(false);
}

/* ---- crashes ---- */

struct scene {
    struct crash_fs *fs;
    struct fault_fs fault;
    struct rig rig;
    struct store *store;
};

/* One filter is saved, another one written under faults; then a save takes it over or writes it again. */
static int play(struct scene *scene, size_t at, const struct bloom_params *params, bool change, bool *written)
{
    struct rig_filter *b;

    memset(scene, 0, sizeof(*scene));
    scene->fs = crash_fs_create();
    fault_fs_init(&scene->fault, crash_fs_ops(scene->fs));
    rig_init(&scene->rig);
    cr_assert_eq(rig_load(&scene->rig, "data", &scene->fault.ops, 1, &scene->store, &err), 0, "%s", err.text);
    rig_fill(rig_add(&scene->rig, "a", &small, NULL), 0, 50);
    cr_assert_eq(rig_save(&scene->rig, scene->store, NULL, &err), 0, "%s", err.text);
    fault_fs_arm(&scene->fault, at, FAULT_ERROR, -EIO, true);
    b = rig_add(&scene->rig, "b", params, NULL);
    rig_fill(b, 100, 60);
    int rc = try_write(scene->store, b);
    *written = rc == 0;
    if (rc != 0)
        return rc;
    store_published(scene->store, b->id);
    b->dirty = change;
    if (change)
        rig_fill(b, 900, 1);
    scene->rig.checkpoint.control = 1; /* so that the log need not hand the record in after this save */
    return rig_save(&scene->rig, scene->store, NULL, &err);
}

/* After the crash the log hands in the record if the MANIFEST does not state that it is superseded. */
static void replay_if_needed(struct rig *to, struct store *opened)
{
    if (store_checkpoint(opened).control == 0 && record.text)
        replay(to, opened);
}

static void check_crash(struct scene *scene, enum crash_mode mode, uint64_t seed, bool written, bool change, int rc,
                        const char *what)
{
    struct crash_fs *after = crash_fs_after(scene->fs, mode, seed);
    struct store *found;
    struct rig loaded;

    rig_init(&loaded);
    loaded.replay = replay_if_needed;
    cr_assert_eq(rig_load(&loaded, "data", crash_fs_ops(after), 1, &found, &err), 0, "%s: %s", what, err.text);
    cr_assert_eq(loaded.loaded.quarantined + loaded.loaded.foreign, 0, "%s: %s", what, loaded.reports);
    cr_assert(rig_find(&loaded, "a") && rig_has(rig_find(&loaded, "a"), 49), "%s", what);
    struct rig_filter *b = rig_find(&loaded, "b");
    cr_assert(!written || b, "%s: the written filter is gone", what);
    for (uint64_t i = 100; b && i < 160; i++)
        cr_assert(rig_has(b, i), "%s: item %d", what, (int)i);
    cr_assert(!change || rc != 0 || rig_has(b, 900), "%s: saved, but lost", what);
    /* Afterwards it can be saved and loaded again. */
    cr_assert_eq(rig_save(&loaded, found, NULL, &err), 0, "%s: %s", what, err.text);
    uint64_t digest = rig_digest(&loaded);
    store_close(found);
    rig_deinit(&loaded);
    rig_init(&loaded);
    cr_assert_eq(rig_load(&loaded, "data", crash_fs_ops(after), 1, &found, &err), 0, "%s: %s", what, err.text);
    cr_assert(rig_digest(&loaded) == digest && loaded.loaded.leftovers == 0, "%s", what);
    store_close(found);
    rig_deinit(&loaded);
    crash_fs_destroy(after);
}

static void crash_everywhere(const struct bloom_params *params, bool change)
{
    size_t at = 1;

    for (bool hit = true; hit; at++) {
        struct scene scene;
        bool written;
        char what[64];
        int rc = play(&scene, at, params, change, &written);

        hit = scene.fault.hit;
        for (int seed = 0; seed < 25; seed++) {
            snprintf(what, sizeof(what), "operation %zu (%s), seed %d", at, hit ? scene.fault.hit_op : "none", seed);
            check_crash(&scene, seed < 5 ? (enum crash_mode)seed : CRASH_RANDOM, (uint64_t)seed, written, change, rc,
                        what);
        }
        store_close(scene.store);
        rig_deinit(&scene.rig);
        crash_fs_destroy(scene.fs);
    }
    cr_assert_gt(at, 15);
}

Test(store_write, a_crash_at_any_moment_loses_no_written_filter_that_a_save_takes_over, .timeout = 3000)
{
    crash_everywhere(&scaling, false);
}

Test(store_write, a_crash_at_any_moment_loses_no_written_filter_that_a_save_writes_anew, .timeout = 3000)
{
    crash_everywhere(&scaling, true);
}

Test(store_write, a_crash_at_any_moment_loses_no_chain_of_many_layers, .timeout = 3000)
{
    crash_everywhere(&chain, false);
}

static void fail_everywhere(const struct bloom_params *params, size_t least)
{
    static struct fault_fs fault; /* the store outlives the test by its tear-down */

    fault_fs_init(&fault, fsops_posix());
    stage_restart(&fault.ops, 1);
    rig_fill(rig_add(&rig, "a", params, NULL), 0, 100);
    for (size_t at = 1;; at++) {
        fault_fs_arm(&fault, at, FAULT_ERROR, -ENOSPC, false);
        int rc = try_write(store, &rig.filters[0]);
        if (rc == 0) {
            cr_assert_geq(at, least, "the scenario has only %zu operations", at);
            break;
        }
        cr_assert_eq(rc, -ENOSPC);
        cr_assert(strstr(err.text, "filter 'a'") && strstr(err.text, "No space left"), "%s", err.text);
        cr_assert_eq(FILES(), 0, "operation %zu (%s)", at, fault.hit_op);
    }
    cr_assert(!fault.hit);
}

Test(store_write, an_error_at_any_operation_of_a_write_leaves_nothing_behind)
{
    fail_everywhere(&scaling, 7);
}

Test(store_write, an_error_at_any_operation_of_a_write_of_many_layers_leaves_nothing_behind)
{
    fail_everywhere(&chain, 2 * CHAIN_LAYERS);
}

/* ---- syncs ---- */

static unsigned syncs;

static int count_sync(void *ctx, int fd)
{
    syncs++;
    return fsops_posix()->sync(ctx, fd);
}

static int count_sync_all(void *ctx, int fd)
{
    syncs++;
    return fsops_posix()->sync_all(ctx, fd);
}

Test(store_write, a_chain_of_many_layers_is_synced_at_once)
{
    static struct fsops counting;

    counting = *fsops_posix();
    counting.sync = count_sync;
    counting.sync_all = count_sync_all;
    stage_restart(&counting, 1);
    rig_fill(rig_add(&rig, "a", &chain, NULL), 0, 100);
    syncs = 0;
    write_one("a");
    cr_assert_geq(FILES(), CHAIN_LAYERS);
    cr_assert_eq(syncs, 1);
}
