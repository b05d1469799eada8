/* The store under faults and crashes: one scenario with all the work of a save. Each file operation fails in turn, and
 * the machine stops after each in turn. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fault_fs.h"
#include "rig.h"

#define DIR "data"

static const struct bloom_params small = {.capacity = 100, .error_rate = 0.01, .expansion = 0};
static const struct bloom_params scaling = {.capacity = 40, .error_rate = 0.05, .expansion = 2};

/* Sizes up to which filters go into packs: in the save before, and in the one under test. The scenario's filters have
 * 120 to 400 bytes: with SOME the larger ones have their own files, and some change sides. */
static struct {
    uint64_t before, now;
} packs;

#define NONE 0
#define SOME 150
#define ALL  65536

static void break_filter(const struct fsops *ops)
{
    struct rig_place place = rig_place(ops, DIR, "broken", 0);
    size_t n;
    int fd;

    cr_assert_eq(ops->open(ops->ctx, place.path, FS_WRITE, &fd), 0);
    cr_assert_eq(ops->pwrite(ops->ctx, fd, "!", 1, place.offset + 30, &n), 0);
    cr_assert_eq(ops->close(ops->ctx, fd), 0);
}

/* A file system on which the save before the one under test has been completed, with one damaged filter. */
static struct crash_fs *make_base(uint64_t *old_digest)
{
    static const char *const names[] = {"changed", "untouched", "renamed", "deleted",
                                        "again",   "left",      "right",   "broken"};
    struct crash_fs *fs = crash_fs_create();
    const struct fsops *ops = crash_fs_ops(fs);
    struct store_save_summary summary;
    struct store *store;
    struct errbuf err = {{0}};
    struct rig rig;

    rig_init(&rig);
    rig.pack_limit = packs.before;
    cr_assert_eq(rig_load(&rig, DIR, ops, 1, &store, &err), 0, "%s", err.text);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        rig_fill(rig_add(&rig, names[i], i % 2 ? &scaling : &small, NULL), 1000 * i, 90);
    rig_fill(rig_add(&rig, "growing", &scaling, NULL), 0, 100);
    cr_assert_eq(rig_save(&rig, store, &summary, &err), 0, "%s", err.text);
    for (size_t i = 0; i < 6; i++) /* less than half of the pack is needed then: the save under test rewrites it */
        rig_fill(&rig.filters[i], 3000, 1);
    cr_assert_eq(rig_save(&rig, store, &summary, &err), 0, "%s", err.text);
    store_close(store);

    break_filter(ops);
    rig_remove(&rig, "broken");
    *old_digest = rig_digest(&rig);
    rig_deinit(&rig);
    struct crash_fs *synced = crash_fs_after(fs, CRASH_KEEP_ALL, 0);
    crash_fs_destroy(fs);
    return synced;
}

/* The changes between the two saves. */
static void change(struct rig *rig)
{
    rig_fill(rig_find(rig, "changed"), 5000, 5);
    rig_fill(rig_find(rig, "growing"), 2000, 100);
    rig_rename(rig, "renamed", "renamed to");
    rig_remove(rig, "deleted");
    rig_remove(rig, "again"); /* two layers before, one now */
    rig_fill(rig_add(rig, "again", &small, NULL), 0, 3);
    rig_rename(rig, "left", "x");
    rig_rename(rig, "right", "left");
    rig_rename(rig, "x", "right");
    rig_find(rig, "untouched")->expires_ms = 12345;
    rig_fill(rig_add(rig, "new", &scaling, NULL), 0, 60);

    cr_assert_null(rig_find(rig, "broken")->filter);
    rig_remove(rig, "broken");
    rig_fill(rig_add(rig, "broken", &small, NULL), 0, 10);
}

struct state {
    uint64_t digest;
    size_t quarantined;
};

static struct state load_state(const struct fsops *ops, const char *what)
{
    struct errbuf err = {{0}};
    struct store *store;
    struct rig rig;

    rig_init(&rig);
    int rc = rig_load(&rig, DIR, ops, 1, &store, &err);
    cr_assert_eq(rc, 0, "%s: %s", what, err.text);
    cr_assert_eq(rig.loaded.foreign, 0, "%s: %s", what, rig.reports);
    struct state state = {rig_digest(&rig), rig.loaded.quarantined};
    store_close(store);
    rig_deinit(&rig);
    return state;
}

static bool is_old(struct state state, uint64_t old_digest)
{
    return state.digest == old_digest && state.quarantined == 1;
}

static bool is_new(struct state state, uint64_t new_digest)
{
    return state.digest == new_digest && state.quarantined == 0;
}

/* One run of the scenario with the fault at operation `at` of the save. */
struct run {
    struct crash_fs *fs;
    struct fault_fs fault;
    struct rig rig;
    struct store *store;
    uint64_t new_digest;
    struct store_save_summary summary;
    struct errbuf err;
    int rc;
    char what[128];
};

static void run_start(struct run *run, const struct crash_fs *base)
{
    memset(run, 0, sizeof(*run));
    run->fs = crash_fs_after(base, CRASH_KEEP_ALL, 0);
    fault_fs_init(&run->fault, crash_fs_ops(run->fs));
    rig_init(&run->rig);
    run->rig.pack_limit = packs.now;
    cr_assert_eq(rig_load(&run->rig, DIR, &run->fault.ops, 1, &run->store, &run->err), 0, "%s", run->err.text);
    change(&run->rig);
    run->new_digest = rig_digest(&run->rig);
}

static void run_save(struct run *run, size_t at, enum fault_kind kind, int error, bool dead)
{
    fault_fs_arm(&run->fault, at, kind, error, dead);
    run->rc = rig_save(&run->rig, run->store, &run->summary, &run->err);
    run->fault.fail_at = 0;
    snprintf(run->what, sizeof(run->what), "operation %zu (%s), kind %d, error %d, result %d", at,
             run->fault.hit ? run->fault.hit_op : "none", (int)kind, error, run->rc);
}

static void run_end(struct run *run)
{
    store_close(run->store);
    rig_deinit(&run->rig);
    crash_fs_destroy(run->fs);
}

static void check_failed_save(struct run *run, uint64_t old_digest)
{
    struct crash_fs *killed = crash_fs_after(run->fs, CRASH_KEEP_ALL, 0);
    struct state state = load_state(crash_fs_ops(killed), run->what);

    if (run->rc == 0)
        cr_assert(is_new(state, run->new_digest), "%s: saved, but not there", run->what);
    else if (run->rc == STORE_IN_DOUBT)
        cr_assert(is_new(state, run->new_digest) || is_old(state, old_digest), "%s: neither old nor new", run->what);
    else
        cr_assert(is_old(state, old_digest), "%s: failed, but not the old save", run->what);
    if (run->rc != 0)
        cr_assert(strlen(run->err.text) > 10, "%s: says nothing", run->what);
    crash_fs_destroy(killed);
}

static void sweep_one(enum fault_kind kind, int error)
{
    uint64_t old_digest;
    struct crash_fs *base = make_base(&old_digest);
    size_t failed = 0;
    size_t at = 1;

    for (bool hit = true; hit; at++) {
        struct run run;
        run_start(&run, base);
        run_save(&run, at, kind, error, false);
        hit = run.fault.hit;
        failed += run.rc != 0;
        check_failed_save(&run, old_digest);

        struct errbuf err = {{0}};
        cr_assert_eq(rig_save(&run.rig, run.store, &run.summary, &err), 0, "%s: later save: %s", run.what, err.text);
        /* Power loss right after the later save has returned. */
        struct crash_fs *lost = crash_fs_after(run.fs, CRASH_DROP_ALL, 0);
        cr_assert(is_new(load_state(crash_fs_ops(lost), run.what), run.new_digest), "%s: later save", run.what);
        crash_fs_destroy(lost);
        run_end(&run);
    }
    crash_fs_destroy(base);
    cr_assert_gt(at, packs.now ? 15 : 40, "the scenario has only %zu operations", at);
    if (kind != FAULT_SHORT)
        cr_assert_gt(failed, packs.now ? 8 : 30, "only %zu faults made a save fail", failed);
    else
        cr_assert_eq(failed, 0, "a short write is not an error: the rest is written");
}

/* With every mixture of filters in packs and in their own files, before and now. */
static const struct {
    uint64_t before, now;
} mixtures[] = {{NONE, NONE}, {ALL, ALL}, {NONE, ALL}, {ALL, NONE}, {SOME, SOME}, {NONE, SOME}, {ALL, SOME}};

#define FOR_EACH_MIXTURE                                                                             \
    for (size_t mix = 0; mix < sizeof(mixtures) / sizeof(*mixtures) &&                               \
                         (packs.before = mixtures[mix].before, packs.now = mixtures[mix].now, true); \
         mix++)

static void sweep(enum fault_kind kind, int error)
{
    FOR_EACH_MIXTURE
    sweep_one(kind, error);
}

Test(store_fault, a_save_with_an_io_error_at_any_operation_fails_as_a_whole_and_the_next_one_succeeds)
{
    sweep(FAULT_ERROR, -EIO);
}

Test(store_fault, a_save_on_a_full_disk_fails_as_a_whole_and_the_next_one_succeeds)
{
    sweep(FAULT_ERROR, -ENOSPC);
}

Test(store_fault, an_operation_that_is_done_and_yet_reports_an_error_is_survived)
{
    sweep(FAULT_LATE, -EIO);
}

Test(store_fault, short_writes_are_continued)
{
    sweep(FAULT_SHORT, 0);
}

/* A crash after any operation, with any part of the unsynced data. The loaded filters are then saved and loaded
 * again. */
static void check_crash(struct run *run, enum crash_mode mode, uint64_t seed, uint64_t old_digest)
{
    struct crash_fs *after = crash_fs_after(run->fs, mode, seed);
    char what[192];

    snprintf(what, sizeof(what), "%s, crash mode %d, seed %llu", run->what, (int)mode, (unsigned long long)seed);
    struct state state = load_state(crash_fs_ops(after), what);
    if (run->rc == 0)
        cr_assert(is_new(state, run->new_digest), "%s: saved, but lost", what);
    else
        cr_assert(is_new(state, run->new_digest) || is_old(state, old_digest), "%s: neither old nor new", what);

    /* The recovery has changed the directory: its result must be the same, also after a second crash. */
    struct crash_fs *again = crash_fs_after(after, seed % 2 ? CRASH_RANDOM : CRASH_DROP_ALL, seed);
    struct state second = load_state(crash_fs_ops(again), what);
    cr_assert(second.digest == state.digest && second.quarantined == state.quarantined, "%s: crash in recovery", what);
    crash_fs_destroy(again);
    crash_fs_destroy(after);
}

static void crash_everywhere(void)
{
    uint64_t old_digest;
    struct crash_fs *base = make_base(&old_digest);
    size_t at = 1;

    for (bool hit = true; hit; at++) {
        struct run run;
        run_start(&run, base);
        run_save(&run, at, FAULT_ERROR, -EIO, true);
        hit = run.fault.hit;
        check_crash(&run, CRASH_DROP_ALL, at, old_digest);
        check_crash(&run, CRASH_KEEP_ALL, at, old_digest);
        check_crash(&run, CRASH_NAMES_ONLY, at, old_digest);
        check_crash(&run, CRASH_DATA_ONLY, at, old_digest);
        for (uint64_t seed = 0; seed < 12; seed++)
            check_crash(&run, CRASH_RANDOM, at * 100 + seed, old_digest);
        run_end(&run);
    }
    crash_fs_destroy(base);
}

Test(store_fault, a_crash_at_any_moment_of_a_save_leaves_the_old_or_the_new_save, .timeout = 3000)
{
    FOR_EACH_MIXTURE
    crash_everywhere();
}

/* The process is killed in a save, and the next one starts on the data in the system's memory; then the machine stops,
 * during the start or after it. The filters that a start has loaded are there again. */
static void kill_start_and_crash(const struct crash_fs *base, uint64_t old_digest, size_t at, size_t start_ops,
                                 bool *hit_out)
{
    struct run run;
    struct rig rig;
    struct store *store;
    struct errbuf err = {{0}};

    run_start(&run, base);
    run_save(&run, at, FAULT_ERROR, -EIO, true);
    *hit_out = run.fault.hit;
    store_close(run.store);
    run.store = NULL;

    fault_fs_init(&run.fault, crash_fs_ops(run.fs));
    if (start_ops)
        fault_fs_arm(&run.fault, start_ops, FAULT_ERROR, -EIO, true);
    rig_init(&rig);
    int rc = rig_load(&rig, DIR, &run.fault.ops, 1, &store, &err);
    struct state state = {rig_digest(&rig), rig.loaded.quarantined};
    if (rc == 0)
        store_close(store);
    rig_deinit(&rig);
    cr_assert(start_ops || rc == 0, "%s: %s", run.what, err.text);
    for (uint64_t seed = 0; seed < 12; seed++) {
        enum crash_mode mode = seed < CRASH_RANDOM ? (enum crash_mode)seed : CRASH_RANDOM;
        struct crash_fs *after = crash_fs_after(run.fs, mode, at * 1000 + start_ops * 20 + seed);
        struct state second = load_state(crash_fs_ops(after), run.what);
        if (!start_ops)
            cr_assert(second.digest == state.digest && second.quarantined == state.quarantined,
                      "%s: what the start had loaded is not there after mode %d, seed %d", run.what, (int)mode,
                      (int)seed);
        cr_assert(is_new(second, run.new_digest) || is_old(second, old_digest),
                  "%s, start %zu: mode %d, seed %d: neither old nor new", run.what, start_ops, (int)mode, (int)seed);
        crash_fs_destroy(after);
    }
    run_end(&run);
}

static void kill_everywhere(void)
{
    uint64_t old_digest;
    struct crash_fs *base = make_base(&old_digest);

    for (size_t at = 1, hit = 1; hit; at++) {
        bool was_hit;
        kill_start_and_crash(base, old_digest, at, 0, &was_hit);
        for (size_t ops = 1 + at % 7; ops < 60; ops += 7)
            kill_start_and_crash(base, old_digest, at, ops, &was_hit);
        hit = was_hit;
    }
    crash_fs_destroy(base);
}

Test(store_fault, what_a_start_after_a_kill_has_found_stays, .timeout = 3000)
{
    FOR_EACH_MIXTURE
    kill_everywhere();
}

/* The same for a save that syncs everything at once, because it has many filters. */
Test(store_fault, a_crash_during_a_save_of_many_filters_leaves_the_old_or_the_new_save, .timeout = 3000)
{
    struct crash_fs *base = crash_fs_create();
    struct crash_fs *synced;
    struct store *store;
    struct errbuf err = {{0}};
    struct rig rig;

    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, DIR, crash_fs_ops(base), 1, &store, &err), 0);
    for (int i = 0; i < 45; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%d", i);
        rig_fill(rig_add(&rig, name, &small, NULL), (uint64_t)i, 20);
    }
    cr_assert_eq(rig_save(&rig, store, NULL, &err), 0, "%s", err.text);
    uint64_t old_digest = rig_digest(&rig);
    store_close(store);
    rig_deinit(&rig);
    synced = crash_fs_after(base, CRASH_DROP_ALL, 0);
    crash_fs_destroy(base);

    size_t at = 1;
    for (bool hit = true; hit; at += 3) {
        struct fault_fs fault;
        struct crash_fs *fs = crash_fs_after(synced, CRASH_KEEP_ALL, 0);
        fault_fs_init(&fault, crash_fs_ops(fs));
        rig_init(&rig);
        cr_assert_eq(rig_load(&rig, DIR, &fault.ops, 1, &store, &err), 0, "%s", err.text);
        for (size_t i = 0; i < rig.count; i++)
            rig_fill(&rig.filters[i], 1000, 5);
        fault_fs_arm(&fault, at, FAULT_ERROR, -EIO, true);
        int rc = rig_save(&rig, store, NULL, &err);
        hit = fault.hit;
        for (uint64_t seed = 0; seed < 5; seed++) {
            struct crash_fs *after =
                crash_fs_after(fs, seed < 2 ? (enum crash_mode)seed : CRASH_RANDOM, at * 10 + seed);
            uint64_t digest = load_state(crash_fs_ops(after), "many").digest;
            cr_assert(digest == rig_digest(&rig) || (rc != 0 && digest == old_digest), "operation %zu, seed %zu, rc %d",
                      at, (size_t)seed, rc);
            crash_fs_destroy(after);
        }
        store_close(store);
        rig_deinit(&rig);
        crash_fs_destroy(fs);
    }
    crash_fs_destroy(synced);
}

/* The same with a new directory: while it is made, and during the first save. */
static void crash_first_start(void)
{
    for (size_t at = 1, hit = 1; hit; at++) {
        struct crash_fs *fs = crash_fs_create();
        struct fault_fs fault;
        struct store *store;
        struct errbuf err = {{0}};
        struct rig rig;

        fault_fs_init(&fault, crash_fs_ops(fs));
        fault_fs_arm(&fault, at, FAULT_ERROR, -EIO, true);
        rig_init(&rig);
        rig.pack_limit = packs.now;
        int rc = rig_load(&rig, DIR, &fault.ops, 1, &store, &err);
        if (rc == 0) {
            rig_fill(rig_add(&rig, "first", &scaling, NULL), 0, 60);
            rc = rig_save(&rig, store, NULL, &err);
            store_close(store);
        }
        hit = fault.hit;
        for (uint64_t seed = 0; seed < 20; seed++) {
            struct crash_fs *after = crash_fs_after(fs, seed < 5 ? (enum crash_mode)seed : CRASH_RANDOM, seed);
            uint64_t digest = load_state(crash_fs_ops(after), "first start").digest;
            cr_assert((rc != 0 && digest == 0) || digest == rig_digest(&rig), "operation %zu (%s), seed %zu, rc %d", at,
                      fault.hit_op, (size_t)seed, rc);
            crash_fs_destroy(after);
        }
        rig_deinit(&rig);
        crash_fs_destroy(fs);
    }
}

Test(store_fault, a_crash_at_any_moment_of_the_first_start_leaves_an_empty_directory_or_the_first_save)
{
    FOR_EACH_MIXTURE
    crash_first_start();
}

/* Faults while loading: the load fails, or the filter concerned is quarantined; nothing is lost, and the next load has
 * everything. */
static void fault_start_everywhere(void)
{
    uint64_t old_digest;
    struct crash_fs *base = make_base(&old_digest);

    for (size_t at = 1; at < 400; at++) {
        struct crash_fs *fs = crash_fs_after(base, CRASH_KEEP_ALL, 0);
        struct fault_fs fault;
        struct store *store;
        struct errbuf err = {{0}};
        struct rig rig;

        fault_fs_init(&fault, crash_fs_ops(fs));
        fault_fs_arm(&fault, at, FAULT_ERROR, -EIO, false);
        rig_init(&rig);
        rig.pack_limit = packs.now;
        int rc = rig_load(&rig, DIR, &fault.ops, 1, &store, &err);
        fault.fail_at = 0;
        if (rc == 0) {
            for (size_t i = 0; i < rig.count; i++)
                cr_assert(rig.filters[i].filter || strlen(rig.filters[i].reason) > 10);
            cr_assert_eq(rig_save(&rig, store, NULL, &err), 0, "%s", err.text);
            store_close(store);
        } else {
            cr_assert_lt(rc, 0);
            cr_assert(strlen(err.text) > 5, "operation %zu (%s) says nothing", at, fault.hit_op);
        }
        bool hit = fault.hit;
        rig_deinit(&rig);
        cr_assert(is_old(load_state(crash_fs_ops(fs), "next start"), old_digest), "operation %zu (%s), rc %d", at,
                  fault.hit_op, rc);
        crash_fs_destroy(fs);
        if (!hit)
            break;
    }
    crash_fs_destroy(base);
}

Test(store_fault, an_io_error_at_any_operation_of_a_start_loses_nothing, .timeout = 3000)
{
    FOR_EACH_MIXTURE
    fault_start_everywhere();
}
