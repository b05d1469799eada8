/* The log under faults and crashes. After any failure and any crash, the frames promised by a sync are read again; the
 * frames read are those appended, in order, without a gap; none of them is reported as damaged. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fault_fs.h"
#include "log_frame.h"
#include "log_rig.h"
#include "rng.h"

#define FRAMES 60

struct outcome {
    uint64_t appended;
    uint64_t written;  /* frames up to this number are in a file, synced or not */
    uint64_t promised; /* frames that a sync, a rotation or a repair said are on the disk */
    uint64_t failures;
    uint64_t cut; /* a rotation's segment, 0: none */
};

static void note_sync(struct log_writer *writer, int rc, struct outcome *outcome)
{
    struct log_writer_info info;

    log_writer_info(writer, &info);
    if (rc == 0)
        cr_assert_eq(info.synced, info.sequence);
    cr_assert_geq(info.synced, outcome->promised, "a promise is never taken back");
    outcome->promised = info.synced;
    if (outcome->written < info.synced)
        outcome->written = info.synced;
    if (rc != 0)
        outcome->failures++;
}

/* Appends, syncs and rotates as `seed` decides; tries a few repairs after a failure. The process ends after
 * `stop_after` file operations of `fault`. */
static void work(const struct fsops *ops, uint64_t seed, const struct fault_fs *fault, size_t stop_after,
                 struct outcome *outcome)
{
    struct rng rng = {.state = {seed, 7, 7, 7}};
    struct log_rig_read before;
    struct errbuf err = {""};

    memset(outcome, 0, sizeof(*outcome));
    log_rig_read(ops, 0, false, &before);
    if (before.status != 0)
        return;
    struct log_writer *writer = log_rig_writer(ops, &before);
    while (outcome->appended < FRAMES && (!stop_after || fault->calls < stop_after)) {
        if (log_writer_failed(writer)) {
            note_sync(writer, log_rig_repair(writer, outcome->appended, &err), outcome);
            if (rng_below(&rng, 4)) /* sometimes with appends during the failure */
                continue;
        }
        int rc = log_rig_append(writer, ++outcome->appended, &err);
        cr_assert_leq(rc, 0);
        outcome->failures += rc != 0;
        if (rc == 0)
            outcome->written = outcome->appended;
        if (rng_below(&rng, 3) == 0)
            note_sync(writer, log_writer_sync(writer, &err), outcome);
        if (rng_below(&rng, 6) == 0)
            outcome->failures += log_writer_mark(writer, false, &err) != 0;
        if (rng_below(&rng, 25) == 0)
            note_sync(writer, log_writer_rotate(writer, &outcome->cut, &err), outcome);
    }
    log_writer_destroy(writer);
}

static void expect_promise(const struct fsops *ops, const struct outcome *outcome, const char *what, size_t at)
{
    struct log_rig_read read;

    log_rig_read(ops, 0, false, &read);
    cr_assert_eq(read.status, 0, "%s %zu: %s", what, at, read.err.text);
    cr_assert(read.exact, "%s %zu: frame %llu", what, at, (unsigned long long)read.first_missing);
    cr_assert_geq(read.frames, outcome->promised, "%s %zu: %llu of %llu", what, at, (unsigned long long)read.frames,
                  (unsigned long long)outcome->promised);
    cr_assert_leq(read.frames, outcome->appended, "%s %zu", what, at);
    cr_assert_geq(read.summary.next_sequence, outcome->promised + 1);
}

static struct crash_fs *new_fs(void)
{
    struct crash_fs *fs = crash_fs_create();
    const struct fsops *ops = crash_fs_ops(fs);

    cr_assert_eq(ops->mkdir(ops->ctx, LOG_RIG_DIR), 0);
    struct crash_fs *synced = crash_fs_after(fs, CRASH_KEEP_ALL, 0);
    crash_fs_destroy(fs);
    return synced;
}

/* A start after the crash continues writing; then it crashes too. */
static void go_on(const struct fsops *ops, const struct outcome *outcome, size_t at)
{
    struct log_rig_read read;
    struct errbuf err = {""};

    log_rig_read(ops, 0, false, &read);
    struct log_writer *writer = log_rig_writer(ops, &read);
    struct outcome second = {.appended = read.frames, .promised = outcome->promised};
    for (int i = 0; i < 10; i++)
        cr_assert_eq(log_rig_append(writer, ++second.appended, &err), 0, "%s", err.text);
    cr_assert_eq(log_writer_sync(writer, &err), 0, "%s", err.text);
    second.promised = second.appended;
    for (int i = 0; i < 5; i++)
        cr_assert_eq(log_rig_append(writer, ++second.appended, &err), 0, "%s", err.text);
    log_writer_destroy(writer);
    expect_promise(ops, &second, "second life", at);
}

/* The file before the last one is lost afterwards: that is noticed if only it had a promised frame. Nothing states that
 * there was a last one. */
static void lose_a_segment(const struct crash_fs *fs, const struct outcome *outcome, size_t at)
{
    struct crash_fs *copy = crash_fs_after(fs, CRASH_KEEP_ALL, 0);
    const struct fsops *ops = crash_fs_ops(copy);
    char name[LOG_FILE_NAME], path[64];
    struct log_rig_read read;
    bool is_last = true;

    log_rig_read(ops, 0, false, &read);
    for (uint64_t number = read.summary.next_segment; --number > 0;) {
        int fd;

        log_file_name(number, LOG_SEGMENT, name);
        snprintf(path, sizeof(path), "%s/log/%s", LOG_RIG_DIR, name);
        if (is_last && ops->open(ops->ctx, path, FS_READ, &fd) == 0) {
            is_last = false;
            ops->close(ops->ctx, fd);
        } else if (!is_last && ops->unlink(ops->ctx, path) == 0) {
            break;
        }
    }
    log_rig_read(ops, 0, false, &read);
    cr_assert(read.status == LOG_DAMAGED || read.frames >= outcome->promised,
              "%s lost after operation %zu: %llu of %llu", name, at, (unsigned long long)read.frames,
              (unsigned long long)outcome->promised);
    crash_fs_destroy(copy);
}

static void crash_in_every_way(struct crash_fs *fs, const struct outcome *outcome, size_t at)
{
    static const enum crash_mode modes[] = {CRASH_DROP_ALL,   CRASH_KEEP_ALL,  CRASH_RANDOM,
                                            CRASH_NAMES_ONLY, CRASH_DATA_ONLY, CRASH_RANDOM};

    for (size_t m = 0; m < sizeof(modes) / sizeof(*modes); m++) {
        struct crash_fs *after = crash_fs_after(fs, modes[m], at * 31 + m);

        expect_promise(crash_fs_ops(after), outcome, "crash after operation", at);
        if (modes[m] == CRASH_KEEP_ALL) {
            struct outcome killed = {.appended = outcome->appended, .promised = outcome->written};
            expect_promise(crash_fs_ops(after), &killed, "kill after operation", at);
        }
        if (modes[m] == CRASH_DROP_ALL)
            lose_a_segment(after, outcome, at);
        go_on(crash_fs_ops(after), outcome, at);
        struct crash_fs *twice = crash_fs_after(after, CRASH_RANDOM, at * 37 + m);
        expect_promise(crash_fs_ops(twice),
                       &(struct outcome){.appended = outcome->appended + 15, .promised = outcome->promised},
                       "second crash after operation", at);
        crash_fs_destroy(twice);
        crash_fs_destroy(after);
    }
}

/* The machine stops after any file operation. */
Test(log_fault, a_crash_at_any_moment_keeps_what_was_promised, .timeout = 3000)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        size_t total = 1;

        for (size_t stop = 1; stop <= total; stop++) {
            struct crash_fs *fs = new_fs();
            struct fault_fs fault;
            struct outcome outcome;

            fault_fs_init(&fault, crash_fs_ops(fs));
            work(&fault.ops, seed, &fault, stop, &outcome);
            if (stop == 1) {
                struct crash_fs *all = new_fs();
                struct outcome whole;
                fault_fs_init(&fault, crash_fs_ops(all));
                work(&fault.ops, seed, &fault, 0, &whole);
                cr_assert_eq(whole.appended, (uint64_t)FRAMES);
                cr_assert_eq(whole.failures, 0u);
                total = fault.calls;
                cr_assert_gt(total, 60u);
                crash_fs_destroy(all);
            }
            crash_in_every_way(fs, &outcome, stop);
            crash_fs_destroy(fs);
        }
    }
}

/* Each operation fails once; the log repairs itself and has all frames, also if the machine stops then. */
static void sweep(enum fault_kind kind, int error, uint64_t seed)
{
    for (size_t at = 1;; at++) {
        struct crash_fs *fs = new_fs();
        struct fault_fs fault;
        struct outcome outcome;

        fault_fs_init(&fault, crash_fs_ops(fs));
        fault_fs_arm(&fault, at, kind, error, false);
        work(&fault.ops, seed, &fault, 0, &outcome);
        bool hit = fault.hit;
        if (hit && kind != FAULT_SHORT && outcome.appended)
            cr_assert(outcome.failures > 0 || strcmp(fault.hit_op, "unlink") == 0 || strcmp(fault.hit_op, "open") == 0,
                      "%zu: %s failed and nobody noticed", at, fault.hit_op);
        if (outcome.appended)
            cr_assert_eq(outcome.appended, (uint64_t)FRAMES);
        crash_in_every_way(fs, &outcome, at);
        crash_fs_destroy(fs);
        if (!hit) {
            cr_assert_gt(at, 60u, "the scenario has only %zu operations", at);
            break;
        }
        cr_assert_lt(at, 5000u);
    }
}

Test(log_fault, each_operation_fails_once_with_eio, .timeout = 3000)
{
    sweep(FAULT_ERROR, -EIO, 1);
}

Test(log_fault, each_operation_fails_once_with_enospc, .timeout = 3000)
{
    sweep(FAULT_ERROR, -ENOSPC, 2);
}

/* An ENOMEM of the system, which does not mean that the frame was refused. */
Test(log_fault, each_operation_fails_once_with_enomem, .timeout = 3000)
{
    sweep(FAULT_ERROR, -ENOMEM, 5);
}

Test(log_fault, each_write_is_short_once, .timeout = 3000)
{
    sweep(FAULT_SHORT, 0, 3);
}

Test(log_fault, each_operation_takes_place_and_reports_an_error, .timeout = 3000)
{
    sweep(FAULT_LATE, -EIO, 4);
}

/* ---- a failed sync, then the end of the process ---- */

static struct {
    struct fsops ops;
    struct crash_fs *fs;
    const struct fsops *below;
    size_t syncs;
    size_t fail_at;      /* this sync fails, and the data for it is forgotten; 0: none */
    size_t failed_after; /* operations of the fault_fs above at that time */
    const struct fault_fs *fault;
} losing;

static int losing_sync(void *ctx, int fd)
{
    if (++losing.syncs != losing.fail_at)
        return losing.below->sync(ctx, fd);
    crash_fs_sync_failed(losing.fs, fd);
    losing.failed_after = losing.fault ? losing.fault->calls : 0;
    return -EIO;
}

/* Works until `stop` operations are done; the fail_at-th sync fails and loses its data. */
static struct crash_fs *work_and_lose(size_t fail_at, size_t stop, struct outcome *outcome)
{
    struct fault_fs fault;

    losing.fs = new_fs();
    losing.below = crash_fs_ops(losing.fs);
    losing.ops = *losing.below;
    losing.ops.sync = losing_sync;
    losing.syncs = losing.failed_after = 0;
    losing.fail_at = fail_at;
    losing.fault = &fault;
    fault_fs_init(&fault, &losing.ops);
    /* The process ends there, in the middle of any step. */
    if (stop)
        fault_fs_arm(&fault, stop, FAULT_ERROR, -EIO, true);
    work(&fault.ops, 6, &fault, stop, outcome);
    losing.fault = NULL;
    return losing.fs;
}

/* The process ends at any moment of the repair: the next one finds all written frames and continues with them. It must
 * not assume that readable data is on the disk: then the machine stops. */
static void end_after_failure(size_t fail_at, size_t stop)
{
    struct outcome outcome;
    struct crash_fs *fs = work_and_lose(fail_at, stop, &outcome);
    struct outcome killed = {.appended = outcome.appended, .promised = outcome.written};
    struct log_rig_read read;

    expect_promise(crash_fs_ops(fs), &killed, "kill after a failed sync, operation", stop);
    log_rig_read(crash_fs_ops(fs), 0, false, &read);
    struct outcome second = {.appended = read.frames + 15, .promised = read.frames + 10};
    go_on(crash_fs_ops(fs), &outcome, stop);
    struct crash_fs *after = crash_fs_after(fs, CRASH_DROP_ALL, 0);
    expect_promise(crash_fs_ops(after), &second, "power loss after a start, operation", stop);
    crash_fs_destroy(after);
    crash_fs_destroy(fs);
}

Test(log_fault, what_a_failed_sync_has_lost_is_not_relied_on, .timeout = 3000)
{
    struct outcome outcome;
    size_t syncs;

    crash_fs_destroy(work_and_lose(0, 0, &outcome));
    syncs = losing.syncs;
    cr_assert_gt(syncs, 15u);
    for (size_t at = 1; at <= syncs; at++) {
        crash_fs_destroy(work_and_lose(at, 0, &outcome));
        size_t failed = losing.failed_after;
        for (size_t stop = failed; stop < failed + 12; stop++)
            end_after_failure(at, stop);
    }
}

/* While everything fails the caller keeps the frames; they are on the disk once it works again. */
Test(log_fault, a_disk_that_is_full_for_long)
{
    struct crash_fs *fs = new_fs();
    struct fault_fs fault;
    struct log_rig_read read;
    struct log_writer_info info;
    struct errbuf err = {""};

    fault_fs_init(&fault, crash_fs_ops(fs));
    log_rig_read(&fault.ops, 0, false, &read);
    struct log_writer *writer = log_rig_writer(&fault.ops, &read);
    for (uint64_t n = 1; n <= 10; n++)
        cr_assert_eq(log_rig_append(writer, n, &err), 0);
    cr_assert_eq(log_writer_sync(writer, &err), 0);
    cr_assert_eq(log_rig_append(writer, 11, &err), 0);
    fault_fs_arm(&fault, 1, FAULT_ERROR, -ENOSPC, true);
    cr_assert_eq(log_writer_sync(writer, &err), -ENOSPC);
    cr_assert(strstr(err.text, "No space left") != NULL, "%s", err.text);
    for (uint64_t n = 12; n <= 20; n++) {
        cr_assert_eq(log_rig_append(writer, n, &err), -ENOSPC);
        cr_assert_eq(log_rig_repair(writer, n, &err), -ENOSPC);
        cr_assert(log_writer_failed(writer));
    }
    log_writer_info(writer, &info);
    cr_assert_eq(info.synced, 10u);
    fault.fail_at = 0;
    fault.from_then_on = false;
    cr_assert_eq(log_rig_repair(writer, 20, &err), 0, "%s", err.text);
    cr_assert_eq(log_rig_append(writer, 21, &err), 0);
    cr_assert_eq(log_writer_sync(writer, &err), 0);
    log_writer_destroy(writer);
    struct crash_fs *after = crash_fs_after(fs, CRASH_DROP_ALL, 0);
    struct outcome outcome = {.appended = 21, .promised = 21};
    expect_promise(crash_fs_ops(after), &outcome, "full", 0);
    crash_fs_destroy(after);
    crash_fs_destroy(fs);
}

/* ---- a disk with a long failure ---- */

static void append_synced(struct log_writer *writer, uint64_t from, uint64_t to)
{
    struct errbuf err = {""};

    for (uint64_t n = from; n <= to; n++)
        cr_assert_eq(log_rig_append(writer, n, &err), 0, "%s", err.text);
    cr_assert_eq(log_writer_sync(writer, &err), 0, "%s", err.text);
}

/* The error does not name the next number, which no segment may ever have had. */
Test(log_fault, the_missing_segment_that_is_named_is_the_one_that_was_there)
{
    struct crash_fs *fs = new_fs();
    struct fault_fs fault;
    struct log_rig_read read;
    struct log_writer_info info;
    struct errbuf err = {""};
    char name[LOG_FILE_NAME], path[64];
    uint64_t cut;

    fault_fs_init(&fault, crash_fs_ops(fs));
    log_rig_read(&fault.ops, 0, false, &read);
    struct log_writer *writer = log_rig_writer(&fault.ops, &read);
    append_synced(writer, 1, 3);
    for (int skipped = 0; skipped < 2; skipped++) {
        fault_fs_arm(&fault, 1, FAULT_ERROR, -EIO, true);
        cr_assert_eq(log_writer_rotate(writer, &cut, &err), -EIO);
        for (int i = 0; i < 3; i++)
            cr_assert_eq(log_rig_repair(writer, 3, &err), -EIO);
        fault.fail_at = 0;
        fault.from_then_on = false;
        cr_assert_eq(log_rig_repair(writer, 3, &err), 0, "%s", err.text);
        if (skipped == 0) {
            log_writer_info(writer, &info);
            append_synced(writer, 4, 6);
        }
    }
    append_synced(writer, 7, 9);
    log_writer_destroy(writer);
    cr_assert_gt(info.segment, 2u);
    log_file_name(info.segment, LOG_SEGMENT, name);
    snprintf(path, sizeof(path), "%s/log/%s", LOG_RIG_DIR, name);
    cr_assert_eq(fault.ops.unlink(fault.ops.ctx, path), 0, "%s", path);
    log_rig_read(&fault.ops, 0, false, &read);
    cr_assert_eq(read.status, LOG_DAMAGED);
    cr_assert(strstr(read.err.text, name) && strstr(read.err.text, "it is missing"), "%s: %s", name, read.err.text);
    crash_fs_destroy(fs);
}
