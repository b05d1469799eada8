/* Saves that fail at their last step, the rename of the MANIFEST or its sync: nobody can know then which save the
 * disk has. Either is whole after a power failure, also at any later moment, until a save has succeeded. After any
 * number of attempts there are files of two saves at most, and in the end of one. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client.h"
#include "daemon.h"
#include "log_clients.h"
#include "power.h"

#define DOUBTS 7

static struct daemon daemon_under_test;
static struct daemon probe; /* started on disk images after power failures */
static struct power power;
static redisContext *client;
static int64_t saved_ns;
static int items; /* 0 .. items - 1 are in "f" */
static int saved; /* the number of items when the first save succeeded */

/* Without a log, so that only the saves decide; in separate files, which are counted. */
static const char *const args[] = {"--appendonly", "no", "--threads", "1", "--save-pack-limit", "0", NULL};

static void begin(void)
{
    power_attach(&power, &daemon_under_test);
    client = client_start(&daemon_under_test, args);
    items = saved = 20;
    client_add_items(client, "f", 0, items);
    expect(client, "+OK", "SAVE");
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    saved_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void discard(void)
{
    daemon_discard(&daemon_under_test);
    daemon_discard(&probe);
    power_detach(&power);
}

TestSuite(doubt, .init = begin, .fini = discard, .timeout = 3000);

/* A save with one more item fails at its `nth` operation like this, and may have taken place. */
static void be_in_doubt(enum disk_fault fault, const char *operation, long nth)
{
    client_add_items(client, "f", items, items + 1);
    items++;
    disk_fail_only(operation, nth, fault, EIO);
    const char *reply = client_ask(client, "SAVE");
    cr_assert(strstr(reply, "either save may be found"), "%s", reply);
    cr_assert_eq(atomic_load(&disk->hits), 1);
    disk_mend();
    cr_assert_leq(daemon_layer_files(&daemon_under_test), 2u, "%zu files", daemon_layer_files(&daemon_under_test));
}

/* Each possible content of the disk, now or at a moment since the first save, is that save or a later one. */
static void try_images(void)
{
    struct disk_trace *trace = power_trace(&power);
    size_t count = disk_trace_count(trace), first = 0;
    char what[120];

    while (first < count && disk_trace_began_ns(trace, first) < saved_ns)
        first++;
    daemon_prepare(&probe);
    for (size_t at = first; at <= count; at += 2) {
        disk_trace_play(trace, at);
        /* At every other moment with only the synced data: seeds divisible by 7 mean this. */
        crash_fs_destroy(power_image(&power, trace, &probe, at % 4 < 2 ? 7 * at : at));
        snprintf(what, sizeof(what), "operation %zu of %zu, %s", at, count, power.what);
        const char *output;
        cr_assert_eq(check_tool(&probe, &output), 0, "%s: %s", what, output);
        redisContext *asks = client_start(&probe, args);
        long long found = client_number(asks, "BF.CARD f");
        cr_assert(found >= saved && found <= items, "%s: %lld items, not %d to %d", what, found, saved, items);
        client_expect_items(asks, "f", 0, (int)found);
        client_kill(asks, &probe);
    }
    power_end(&power, trace, &daemon_under_test, count);
}

/* The disk is well again: one save, and after any power failure the disk has that save or an earlier one. */
static void end_doubt(void)
{
    expect(client, "+OK", "SAVE");
    cr_assert_eq(daemon_layer_files(&daemon_under_test), 1u, "the files of a save that was in doubt are still there");
    client_kill(client, &daemon_under_test);
    try_images();
    client = client_restart(&daemon_under_test);
    cr_assert_geq(client_number(client, "BF.CARD f"), saved);
    client_stop(client, &daemon_under_test);
}

/* From the second failure on, a save first puts the MANIFEST of the last good save back: in some rounds that fails. */
static void play(enum disk_fault fault, const char *operation)
{
    for (int i = 0; i < DOUBTS; i++)
        be_in_doubt(fault, operation, i % 3 == 2 ? 2 : 1);
    end_doubt();
}

Test(doubt, a_manifest_whose_rename_fails)
{
    play(DISK_ERROR, "rename data/MANIFEST.new");
}

Test(doubt, a_manifest_whose_rename_takes_place_and_reports_an_error)
{
    play(DISK_LATE, "rename data/MANIFEST.new");
}

Test(doubt, a_manifest_whose_sync_fails)
{
    play(DISK_ERROR, "fsync data");
}

/* The effect of a later sync of the same file is unknown. */
Test(doubt, a_draft_whose_sync_has_failed_is_not_used_again)
{
    be_in_doubt(DISK_ERROR, "rename data/MANIFEST.new", 1);
    disk_fail_only("fdatasync data/MANIFEST.new", 1, DISK_ERROR, EIO);
    const char *reply = client_ask(client, "SAVE");
    cr_assert(strstr(reply, "cannot be undone"), "%s", reply);
    cr_assert_eq(atomic_load(&disk->hits), 1);
    disk_mend();
    end_doubt();
}
