/* The end of the log: marks, and cut bytes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "log_case.h"

TestSuite(log_mark, .init = log_case_begin, .fini = log_case_end);

/* Appends frames first .. last, syncs, and marks the sync. */
static void write_marked(uint64_t first, uint64_t last)
{
    struct log_rig_read before;
    struct errbuf err = {""};

    read_log(false, &before);
    struct log_writer *writer = log_rig_writer(ops, &before);
    for (uint64_t n = first; n <= last; n++)
        cr_assert_eq(log_rig_append(writer, n, &err), 0, "%s", err.text);
    cr_assert_eq(log_writer_mark(writer, false, &err), 0, "not synced yet: nothing to be said");
    cr_assert_eq(log_writer_sync(writer, &err), 0, "%s", err.text);
    cr_assert_eq(log_writer_mark(writer, false, &err), 0, "%s", err.text);
    cr_assert_eq(log_rig_append(writer, last + 1, &err), 0, "%s", err.text);
    cr_assert_eq(log_writer_sync(writer, &err), 0, "%s", err.text);
    cr_assert_eq(log_writer_mark(writer, false, &err), 0, "%s", err.text);
    log_writer_destroy(writer);
}

/* A mark states of the last frame what a next frame would: nothing must be written again, and damage in it is
 * damage. */
Test(log_mark, a_mark_says_that_the_last_frame_is_synced)
{
    struct log_rig_read read;

    write_marked(1, 20);
    expect_frames(21);
    read_log(false, &read);
    cr_assert_eq(read.summary.synced, 21u);
    cr_assert_eq(read.summary.tail, 0u);
    write_marked(22, 30);
    expect_frames(31);
    read_log(false, &read);
    const char *path = segment(read.summary.last_segment);
    unsigned char byte;
    size_t n, end = 0;
    int fd;
    cr_assert_eq(ops->open(ops->ctx, path, FS_READ, &fd), 0);
    for (size_t at = 0; ops->pread(ops->ctx, fd, &byte, 1, at, &n) == 0 && n; at++)
        end = byte ? at : end;
    ops->close(ops->ctx, fd);
    change_byte(path, end - 20);
    read_log(false, &read);
    cr_assert_eq(read.status, LOG_DAMAGED);
    cr_assert(strstr(read.err.text, "states that it was synced") != NULL, "%s", read.err.text);
    read_log(true, &read);
    cr_assert_eq(read.status, 0, "%s", read.err.text);
    cr_assert_eq(read.summary.frames, 30u);
    cr_assert_eq(read.summary.next_sequence, 32u);
    change_byte(path, end - 20);
    change_byte(path, end); /* of the mark itself: no frame depends on it */
    expect_frames(31);
}

/* Drops everything that was not synced. */
static void lose_power(void)
{
    log_case_go_on_with(crash_fs_after(fs, CRASH_DROP_ALL, 0));
}

/* Frames are on the disk once their sync has returned; so is a mark, without a frame after it. */
Test(log_mark, a_sync_and_a_mark_survive_a_power_failure)
{
    struct log_rig_read before, read;
    struct errbuf err = {""};

    cr_assert_eq(ops->sync_dir(ops->ctx, LOG_RIG_DIR "/.."), 0);
    for (uint64_t n = 1; n <= 3; n++) {
        read_log(false, &before);
        struct log_writer *writer = log_rig_writer(ops, &before);
        cr_assert_eq(log_rig_append(writer, n, &err), 0, "%s", err.text);
        cr_assert_eq(log_writer_sync(writer, &err), 0, "%s", err.text);
        if (n == 3)
            cr_assert_eq(log_writer_mark(writer, false, &err), 0, "%s", err.text);
        log_writer_destroy(writer); /* writes nothing */
        lose_power();
        expect_frames(n);
        read_log(false, &read);
        cr_assert_eq(read.summary.synced, n == 3 ? n : n - 1);
    }
}
