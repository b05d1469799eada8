/* The save's knowledge of the log: how far it had been synced, and which of its damage has been accepted. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "log_append.h"
#include "log_case.h"

TestSuite(log_reach, .init = log_case_begin, .fini = log_case_end);

/* Frames up to `reached` had been synced when the save was made. */
static void read_saved(uint64_t reached, uint64_t accepted, bool accept_loss, struct log_rig_read *read)
{
    log_rig_read_save(ops,
                      &(struct log_reader_options){
                          .reached = reached, .accepted = accepted, .on_damage = accept_loss ? LOG_ACCEPT : LOG_REFUSE},
                      read);
}

static void go_on_after(const struct log_rig_read *read, uint64_t frames)
{
    struct log_writer *writer = log_rig_writer(ops, read);

    for (uint64_t n = 0; n < frames; n++)
        cr_assert_eq(log_rig_append(writer, read->summary.next_sequence + n, NULL), 0);
    cr_assert_eq(log_writer_sync(writer, NULL), 0);
    log_writer_destroy(writer);
}

/* As in a copy whose log was taken before its MANIFEST: the log itself does not show it. */
Test(log_reach, a_log_that_ends_before_the_save_knows_is_refused)
{
    struct log_rig_read read;

    write_frames(1, 20, 1);
    for (uint64_t reached = 0; reached <= 20; reached++) {
        read_saved(reached, 0, false, &read);
        cr_assert(read.status == 0 && read.exact && read.frames == 20, "%llu: %s", (unsigned long long)reached,
                  read.err.text);
        cr_assert_eq(read.summary.next_sequence, 21u);
    }
    read_saved(21, 0, false, &read);
    cr_assert_eq(read.status, LOG_DAMAGED);
    cr_assert(strstr(read.err.text, "00000001.log is damaged: it ends before frame 21") &&
                  strstr(read.err.text, "the log is older than the MANIFEST"),
              "%s", read.err.text);
}

/* A start that accepts the loss continues after it, so that no later frame is taken for a missing one. */
Test(log_reach, a_log_that_ends_too_early_goes_on_behind_what_is_missing)
{
    struct log_rig_read read;

    write_frames(1, 20, 1);
    read_saved(30, 0, true, &read);
    cr_assert(read.status == 0 && read.exact && read.frames == 20, "%s", read.err.text);
    cr_assert(read.summary.damages == 1 && read.summary.next_sequence == 31 && read.summary.tail == 0);
    go_on_after(&read, 12);
    read_saved(30, 0, false, &read);
    cr_assert_eq(read.status, LOG_DAMAGED, "the gap is there until a save has made it superfluous");
    cr_assert(strstr(read.err.text, "frames 21 to 30 were written and are missing"), "%s", read.err.text);

    /* Or until a save has recorded the acceptance. */
    read_saved(30, 2, false, &read);
    cr_assert_eq(read.status, 0, "%s", read.err.text);
    cr_assert(read.summary.damages == 0 && read.summary.accepted == 1 && read.summary.frames == 32);
    cr_assert(strstr(read.reports, "an earlier start has accepted the loss"), "%s", read.reports);
}

/* No other frame states that these frames were synced: the save does. */
Test(log_reach, what_the_save_knows_of_is_no_torn_tail)
{
    struct log_rig_read read;

    write_frames(1, 20, 20);
    read_saved(20, 0, false, &read);
    cr_assert(read.status == 0 && read.summary.tail == 0 && read.summary.synced == 20, "%s", read.err.text);
    read_saved(10, 0, false, &read);
    cr_assert(read.status == 0 && read.summary.tail == 10 && read.summary.synced == 10, "%s", read.err.text);

    change_byte(segment(1), LOG_HEADER_BYTES + 40);
    read_saved(0, 0, false, &read);
    cr_assert(read.status == 0 && read.summary.torn_bytes > 0, "%s", read.err.text);
    read_saved(20, 0, false, &read);
    cr_assert_eq(read.status, LOG_DAMAGED);
    cr_assert(strstr(read.err.text, "but the MANIFEST states that it was synced"), "%s", read.err.text);
    read_saved(20, 0, true, &read);
    cr_assert(read.status == 0 && read.summary.damages == 1 && read.summary.frames == 19, "%s", read.err.text);
    cr_assert_eq(read.summary.next_sequence, 21u);
    read_saved(40, 0, true, &read);
    cr_assert(read.status == 0 && read.summary.damages == 2 && read.summary.next_sequence == 41, "%s", read.err.text);
}

Test(log_reach, a_log_of_which_the_save_knows_and_nothing_is_left_is_refused)
{
    struct log_rig_read read;

    read_saved(7, 0, false, &read);
    cr_assert_eq(read.status, LOG_DAMAGED);
    cr_assert(strstr(read.err.text, "it is missing"), "%s", read.err.text);
    read_saved(7, 0, true, &read);
    cr_assert(read.status == 0 && read.summary.damages == 1 && read.summary.next_sequence == 8, "%s", read.err.text);
}

/* A whole frame with an invalid payload: it is not written again, where it would be new damage. */
Test(log_reach, a_frame_without_sense_is_accepted_once)
{
    struct log_rig_read read;

    write_frames(1, 5, 5);
    read_saved(0, 0, false, &read);
    struct log_writer *writer = log_rig_writer(ops, &read);
    cr_assert_eq(log_append(writer, false, &(struct log_bytes){(unsigned char[]){255, 255, 255}, 3, 3}, NULL), 0);
    log_writer_destroy(writer);
    read_saved(0, 0, false, &read);
    cr_assert_eq(read.status, LOG_DAMAGED);
    cr_assert(strstr(read.err.text, "of the payload is invalid"), "%s", read.err.text);
    read_saved(0, 0, true, &read);
    cr_assert(read.status == 0 && read.frames == 5 && read.summary.damages == 1 && read.summary.tail == 0, "%s",
              read.err.text);
    uint64_t accepted = read.summary.next_segment;
    go_on_after(&read, 3);
    read_saved(0, accepted, false, &read);
    cr_assert(read.status == 0 && read.summary.damages == 0 && read.summary.accepted == 1, "%s", read.err.text);
}

/* Each kind of damage, in an earlier segment and in a later one. */
Test(log_reach, only_damage_of_which_the_loss_was_accepted_is_passed_over)
{
    struct log_rig_read read;

    write_frames(1, 300, 3);
    uint64_t last = last_segment();
    cr_assert_gt(last, 6u);
    for (int what = 0; what < 4; what++) {
        for (uint64_t n = 2; n < last; n++) {
            struct crash_fs *kept = crash_fs_after(fs, CRASH_KEEP_ALL, 1);
            if (what == 0)
                change_byte(segment(n), LOG_HEADER_BYTES + 40);
            else if (what == 1)
                change_byte(segment(n), 30); /* in its header */
            else if (what == 2)
                cr_assert_eq(ops->unlink(ops->ctx, segment(n)), 0);
            else
                cut(segment(n), LOG_HEADER_BYTES + 50);
            read_saved(300, 4, false, &read);
            cr_assert_eq(read.status, n < 4 ? 0 : LOG_DAMAGED, "%d, segment %llu: %s", what, (unsigned long long)n,
                         read.err.text);
            cr_assert(n >= 4 || (read.summary.accepted > 0 && read.summary.damages == 0), "%d, segment %llu: %s", what,
                      (unsigned long long)n, read.reports);
            log_case_go_on_with(kept);
        }
    }
}
