/* Writing and reading the log: every state of its files. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log_append.h"
#include "log_case.h"
#include "log_frame.h"

TestSuite(log, .init = log_case_begin, .fini = log_case_end);

Test(log, no_log_is_an_empty_log)
{
    struct log_rig_read read;

    expect_frames(0);
    read_log(false, &read);
    cr_assert_eq(read.summary.next_segment, 1u);
    cr_assert_eq(read.summary.next_control, 1u);
}

/* Frames of several starts and many segments, in order, each once. */
Test(log, what_is_written_is_read)
{
    write_frames(1, 10, 1);
    expect_frames(10);
    write_frames(11, 11, 0);
    expect_frames(11);
    write_frames(12, 400, 7);
    expect_frames(400);
    cr_assert_gt(last_segment(), 8u);
    write_frames(401, 402, 1);
    expect_frames(402);
}

/* An unused writer makes no file. */
Test(log, a_start_without_writes_leaves_nothing)
{
    struct fs_stat st;

    write_frames(1, 0, 0);
    cr_assert_eq(ops->stat(ops->ctx, LOG_RIG_DIR "/log", &st), -ENOENT);
}

/* The tail that was not synced is cut at its first invalid byte and reported; nothing overwrites it: the next frames
 * go to a new segment. */
Test(log, a_torn_tail_is_cut)
{
    struct log_rig_read read;

    write_frames(1, 20, 20);
    write_frames(21, 25, 0);
    change_byte(segment(last_segment()), LOG_HEADER_BYTES + 40);
    read_log(false, &read);
    cr_assert_eq(read.status, 0, "%s", read.err.text);
    cr_assert_eq(read.frames, 20u);
    cr_assert(read.exact);
    cr_assert_gt(read.summary.torn_bytes, 0u);
    cr_assert(strstr(read.reports, "not known to be synced") != NULL, "%s", read.reports);
    write_frames(21, 30, 1);
    expect_frames(30);
}

/* The same byte is damage when a later frame states that it was synced. */
Test(log, damage_in_the_middle_is_refused_and_explained)
{
    struct log_rig_read read;

    write_frames(1, 30, 1);
    change_byte(segment(1), LOG_HEADER_BYTES + 500);
    read_log(false, &read);
    cr_assert_eq(read.status, LOG_DAMAGED);
    cr_assert(strstr(read.err.text, "00000001.log is damaged") != NULL, "%s", read.err.text);
    cr_assert(strstr(read.err.text, "states that it was synced") != NULL, "%s", read.err.text);

    /* A start that accepts the loss loses this frame only. */
    read_log(true, &read);
    cr_assert_eq(read.status, 0, "%s", read.err.text);
    cr_assert_eq(read.summary.damages, 1u);
    cr_assert_eq(read.summary.frames, 29u);
    cr_assert_eq(read.summary.next_sequence, 31u);
    cr_assert(strstr(read.reports, "the loss is accepted") != NULL, "%s", read.reports);
}

/* Every byte of a synced frame matters, no byte of the rest of the file does. */
Test(log, each_byte_of_the_log_is_watched)
{
    struct log_rig_read read;
    struct log_writer_info info;

    read_log(false, &read);
    struct log_writer *writer = log_rig_writer(ops, &read);
    for (uint64_t n = 1; n <= 4; n++) {
        cr_assert_eq(log_rig_append(writer, n, NULL), 0);
        cr_assert_eq(log_writer_sync(writer, NULL), 0);
        if (n == 3)
            log_writer_info(writer, &info);
    }
    log_writer_destroy(writer);
    for (uint64_t at = LOG_HEADER_BYTES; at < LOG_HEADER_BYTES + info.written; at++) {
        change_byte(segment(1), at);
        read_log(false, &read);
        cr_assert_eq(read.status, LOG_DAMAGED, "byte %llu", (unsigned long long)at);
        change_byte(segment(1), at);
    }
    for (uint64_t at = 0; at < 72; at++) {
        change_byte(segment(1), at);
        read_log(false, &read);
        cr_assert_eq(read.status, LOG_DAMAGED, "byte %llu of the header", (unsigned long long)at);
        change_byte(segment(1), at);
    }
    expect_frames(4);
}

static void move(const char *from, const char *to)
{
    cr_assert_eq(ops->rename(ops->ctx, from, to), 0, "%s", from);
}

/* The error names the missing file. */
Test(log, a_missing_segment_is_refused)
{
    struct log_rig_read read;
    uint64_t last;

    write_frames(1, 300, 3);
    last = last_segment();
    cr_assert_gt(last, 3u);
    for (uint64_t n = 1; n < last; n++) {
        char name[LOG_FILE_NAME];

        move(segment(n), LOG_RIG_DIR "/log/aside");
        read_log(false, &read);
        cr_assert_eq(read.status, LOG_DAMAGED, "segment %llu", (unsigned long long)n);
        cr_assert(strstr(read.err.text, "are missing") != NULL, "%s", read.err.text);
        log_file_name(n, LOG_SEGMENT, name);
        cr_assert(strstr(read.err.text, name) && strstr(read.err.text, "it is missing"), "%s", read.err.text);
        move(LOG_RIG_DIR "/log/aside", segment(n));
    }
    log_rig_read(ops, last + 1, false, &read);
    cr_assert_eq(read.status, LOG_DAMAGED, "the segment of the save is not there");
    expect_frames(300);
}

/* So is a segment that was cut, even within its header. */
Test(log, a_segment_that_was_cut_is_refused)
{
    static const uint64_t sizes[] = {0, 100, LOG_HEADER_BYTES, LOG_HEADER_BYTES + 100};
    static unsigned char bytes[1 << 18];
    struct log_rig_read read;
    char name[LOG_FILE_NAME];
    size_t len;
    int fd;

    write_frames(1, 300, 3);
    cr_assert_gt(last_segment(), 4u);
    log_file_name(3, LOG_SEGMENT, name);
    cr_assert_eq(ops->open(ops->ctx, segment(3), FS_READ | FS_WRITE, &fd), 0);
    cr_assert_eq(ops->pread(ops->ctx, fd, bytes, sizeof(bytes), 0, &len), 0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        cr_assert_eq(ops->truncate(ops->ctx, fd, sizes[i]), 0);
        read_log(false, &read);
        cr_assert_eq(read.status, LOG_DAMAGED, "to %llu bytes", (unsigned long long)sizes[i]);
        cr_assert(strstr(read.err.text, name), "to %llu bytes: %s", (unsigned long long)sizes[i], read.err.text);
        cr_assert_eq(fs_write_all(ops, fd, bytes, len, 0), 0);
    }
    ops->close(ops->ctx, fd);
    expect_frames(300);
}

/* Segments below the save's are ignored, with any contents. */
Test(log, segments_before_the_save_are_not_read)
{
    struct log_rig_read read;
    struct errbuf err = {""};
    uint64_t cut;

    write_frames(1, 100, 1);
    log_rig_read(ops, 0, false, &read);
    struct log_writer *writer = log_rig_writer(ops, &read);
    cr_assert_eq(log_writer_rotate(writer, &cut, &err), 0, "%s", err.text);
    uint64_t again;
    cr_assert_eq(log_writer_rotate(writer, &again, &err), 0, "%s", err.text);
    cr_assert_eq(again, cut, "an empty segment serves as well");
    cr_assert_eq(log_rig_append(writer, 1, &err), 0);
    cr_assert_eq(log_writer_sync(writer, &err), 0);
    log_writer_destroy(writer);
    change_byte(segment(2), 100);
    log_rig_read(ops, cut, false, &read);
    cr_assert_eq(read.status, 0, "%s", read.err.text);
    cr_assert_eq(read.summary.frames, 1u);
    cr_assert_eq(read.frames, 1u);
    cr_assert_eq(read.summary.next_sequence, 102u);
    cr_assert_eq(log_delete_before(ops, LOG_RIG_DIR, cut, &err), 0, "%s", err.text);
    log_rig_read(ops, cut, false, &read);
    cr_assert_eq(read.status, 0, "%s", read.err.text);
    cr_assert_eq(read.summary.next_segment, cut + 1);
    struct fs_stat st;
    cr_assert_eq(ops->stat(ops->ctx, segment(cut - 1), &st), -ENOENT);
}

/* Frames, of which those after `synced` are in a segment that has been made after a failure. */
static void write_repaired(uint64_t synced, uint64_t frames)
{
    struct log_rig_read read;
    struct errbuf err = {""};

    read_log(false, &read);
    struct log_writer *writer = log_rig_writer(ops, &read);
    for (uint64_t n = 1; n <= synced; n++)
        cr_assert_eq(log_rig_append(writer, n, &err), 0, "%s", err.text);
    cr_assert_eq(log_writer_sync(writer, &err), 0, "%s", err.text);
    cr_assert_eq(log_rig_repair(writer, frames, &err), 0, "%s", err.text);
    log_writer_destroy(writer);
}

/* The next start has settled it: nothing of it is torn, and all of it is known to be on the disk. */
Test(log, a_log_is_settled_before_it_goes_on)
{
    struct log_rig_read read;

    write_frames(1, 10, 5);
    write_frames(11, 15, 0);
    read_log(false, &read);
    cr_assert(read.summary.tail == 5 && read.summary.unsettled);
    change_byte(segment(last_segment()), LOG_HEADER_BYTES + 700);
    read_log(false, &read);
    cr_assert(read.summary.torn_bytes > 0 && read.frames > 10 && read.frames < 15);
    uint64_t frames = read.frames;
    write_frames(1, 0, 0);
    read_log(false, &read);
    cr_assert(read.status == 0 && read.exact && read.frames == frames && !read.summary.unsettled);
    cr_assert(read.summary.torn_bytes == 0 && read.summary.synced == frames);
    change_byte(segment(last_segment()), LOG_HEADER_BYTES + 60);
    read_log(false, &read);
    cr_assert_eq(read.status, LOG_DAMAGED, "it had been synced");
}

/* Only the header states that the frames of a segment written as a whole had been on the disk. The next start has
 * nothing to write again. */
Test(log, a_segment_that_was_made_as_a_whole_is_whole)
{
    struct log_rig_read read;

    write_repaired(10, 13);
    read_log(false, &read);
    uint64_t last = last_segment();
    cr_assert_eq(read.summary.tail, 0u);
    cr_assert_eq(read.summary.synced, 13u);
    write_frames(14, 13, 0);
    cr_assert_eq(last_segment(), last, "nothing has been written");
    change_byte(segment(last), LOG_HEADER_BYTES + 60);
    read_log(false, &read);
    cr_assert_eq(read.status, LOG_DAMAGED);
    cr_assert(strstr(read.err.text, "its header states that it was synced") != NULL, "%s", read.err.text);

    /* Here too, a start that accepts the loss loses this frame only. */
    read_log(true, &read);
    cr_assert_eq(read.status, 0, "%s", read.err.text);
    cr_assert_eq(read.summary.next_sequence, 14u);
    cr_assert_eq(read.summary.damages, 1u);
    cr_assert_eq(read.summary.frames, 12u);
    cr_assert_eq(read.summary.torn_bytes, 0u);
}

/* Cut anywhere, even at the end of a frame: the header states the former contents. */
Test(log, a_segment_that_was_made_as_a_whole_and_was_cut_is_damaged)
{
    struct log_rig_read read;
    uint64_t size;
    size_t n;
    int fd;

    write_repaired(0, 13);
    const char *path = segment(last_segment());
    cr_assert_eq(ops->open(ops->ctx, path, FS_READ, &fd), 0);
    cr_assert_eq(ops->size(ops->ctx, fd, &size), 0);
    unsigned char *bytes = malloc(size);
    cr_assert_eq(fs_read_all(ops, fd, bytes, size, 0), 0);
    cr_assert_eq(ops->close(ops->ctx, fd), 0);
    while (bytes[size - 1] == 0)
        size--;
    for (size_t cut = LOG_HEADER_BYTES; cut <= size; cut++) {
        cr_assert_eq(ops->open(ops->ctx, path, FS_WRITE | FS_TRUNCATE, &fd), 0);
        cr_assert_eq(ops->pwrite(ops->ctx, fd, bytes, cut, 0, &n), 0);
        cr_assert_eq(ops->close(ops->ctx, fd), 0);
        read_log(false, &read);
        cr_assert_eq(read.status, cut < size ? LOG_DAMAGED : 0, "cut at %zu of %zu", cut, (size_t)size);
        if (cut < size)
            cr_assert(strstr(read.err.text, "its header states that it was synced") != NULL, "%zu: %s", cut,
                      read.err.text);
    }
    cr_assert_eq(read.frames, 13u);
    free(bytes);
}

/* A file that is no segment is reported and left alone; a segment with another one's name is damage. */
Test(log, foreign_files)
{
    struct log_rig_read read;
    int fd;

    write_frames(1, 3, 1);
    cr_assert_eq(ops->open(ops->ctx, LOG_RIG_DIR "/log/notes", FS_WRITE | FS_CREATE, &fd), 0);
    ops->close(ops->ctx, fd);
    expect_frames(3);
    read_log(false, &read);
    cr_assert(strstr(read.reports, "notes") != NULL, "%s", read.reports);
    char from[64];
    strcpy(from, segment(1));
    cr_assert_eq(ops->link(ops->ctx, from, segment(2)), 0);
    read_log(false, &read);
    cr_assert_eq(read.status, LOG_DAMAGED);
    cr_assert(strstr(read.err.text, "created as segment 1") != NULL, "%s", read.err.text);
}

static const char *dangling;
static int dangling_error;

static int dangling_open(void *ctx, const char *path, unsigned flags, int *fd_out)
{
    return strcmp(path, dangling) == 0 ? dangling_error : ops->open(ctx, path, flags, fd_out);
}

/* A symbolic link without a target, say. A missing segment is damage; its loss can be accepted, as without the name. */
Test(log, a_name_that_leads_to_no_file_is_a_missing_segment)
{
    static const int errors[] = {-ENOENT, -ENOTDIR, -ELOOP, -EISDIR};
    struct fsops broken = *ops;
    struct log_rig_read read;
    char path[64];
    int fd;

    broken.open = dangling_open;
    dangling = path;
    write_frames(1, 300, 3);
    uint64_t last = last_segment();
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
        dangling_error = errors[i];
        for (uint64_t n = 1; n < last; n++) { /* the loss of the last one shows in nothing */
            char name[LOG_FILE_NAME];
            log_file_name(n, LOG_SEGMENT, name);
            strcpy(path, segment(n));
            log_rig_read(&broken, 0, false, &read);
            cr_assert(read.status == LOG_DAMAGED && strstr(read.err.text, name), "%s", read.err.text);
            log_rig_read(&broken, 0, true, &read);
            cr_assert(read.status == 0 && read.summary.damages == 1, "%s", read.err.text);
        }
        /* Nothing depends on this one. */
        cr_assert_eq(ops->open(ops->ctx, segment(last + 1), FS_WRITE | FS_CREATE, &fd), 0);
        ops->close(ops->ctx, fd);
        strcpy(path, segment(last + 1));
        log_rig_read(&broken, 0, false, &read);
        cr_assert(read.status == 0 && read.exact && read.frames == 300, "%s", read.err.text);
        cr_assert(strstr(read.reports, "the segment counts as missing"), "%s", read.reports);
        cr_assert_eq(read.summary.next_segment, last + 2);
        cr_assert_eq(ops->unlink(ops->ctx, path), 0);
    }
    dangling_error = -EIO;
    strcpy(path, segment(last));
    log_rig_read(&broken, 0, true, &read);
    cr_assert_eq(read.status, -EIO, "what cannot be read may be there");
}

/* A segment has its header when it gets its name: an empty one has been emptied, also if it is the newest. */
Test(log, a_segment_without_a_header_is_damaged)
{
    static const uint64_t sizes[] = {0, 100, LOG_HEADER_BYTES - 1};
    struct log_rig_read read;

    write_frames(1, 300, 3);
    for (uint64_t n = 1, last = last_segment(); n <= last; n++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
            struct crash_fs *kept = crash_fs_after(fs, CRASH_KEEP_ALL, 1);
            cut(segment(n), sizes[i]);
            read_log(false, &read);
            cr_assert(read.status == LOG_DAMAGED && strstr(read.err.text, "shorter than its header"), "%llu: %s",
                      (unsigned long long)n, read.err.text);
            log_case_go_on_with(kept);
        }
    }
}

Test(log, a_segment_that_another_program_has_cut_is_not_settled)
{
    const struct log_reader_options options = {.fs = ops, .dir = LOG_RIG_DIR};
    struct log_reader_summary summary;
    struct log_reader *reader;
    struct errbuf err = {""};

    write_frames(1, 20, 20);
    cr_assert_eq(log_reader_open(&options, &reader, &summary, &err), LOG_OK, "%s", err.text);
    cut(segment(last_segment()), LOG_HEADER_BYTES);
    cr_assert_eq(log_reader_settle(reader, NULL, &err), -EIO);
    cr_assert(strstr(err.text, "another program has cut it"), "%s", err.text);
    log_reader_close(reader);
}

/* ---- space ---- */

static unsigned grown; /* frames, or pieces of them, written after the end of the file */

static int watched_pwrite(void *ctx, int fd, const void *buf, size_t len, uint64_t offset, size_t *n_out)
{
    const unsigned char *bytes = buf;
    uint64_t size;
    size_t zeros = 0;
    cr_assert_eq(ops->size(ctx, fd, &size), 0);
    while (zeros < len && bytes[zeros] == 0)
        zeros++;
    grown += offset > 0 && zeros < len && offset + len > size;
    return ops->pwrite(ctx, fd, buf, len, offset, n_out);
}

static void append_adds(struct log_writer *writer, size_t n)
{
    struct errbuf err = {""};
    struct log_bytes payload = {0};
    struct bloom_replay_item *items = calloc(n, sizeof(*items));
    for (size_t i = 0; i < n; i++)
        items[i] = (struct bloom_replay_item){.hash = {i, i}, .ordinal = i};
    cr_assert_eq(log_payload_adds(&payload, 1, 0, items, n), 0);
    free(items);
    cr_assert_eq(log_append(writer, false, &payload, &err), 0, "%s", err.text);
    log_bytes_deinit(&payload);
    cr_assert_eq(log_writer_sync(writer, &err), 0, "%s", err.text);
}

/* Frames go into prepared space, so their sync changes only data; only a large frame makes its own space. */
Test(log, frames_go_where_space_has_been_made)
{
    const size_t adds[] = {1, 2000, 3000, 4000, 10000, 7, 10000};
    struct fsops watched = *ops;
    struct log_writer_options options = {
        .fs = &watched, .dir = LOG_RIG_DIR, .next_segment = 1, .next_sequence = 1, .salt = 42, .generation = 1};
    struct log_writer *writer;
    watched.pwrite = watched_pwrite;
    cr_assert_eq(log_writer_create(&options, &writer), 0);
    for (size_t i = 0; i < sizeof(adds) / sizeof(adds[0]); i++)
        append_adds(writer, adds[i]);
    cr_assert_eq(grown, 0);
    append_adds(writer, 100000);
    unsigned pieces = grown;
    cr_assert_gt(pieces, 0);
    append_adds(writer, 10000);
    cr_assert_eq(grown, pieces);
    log_writer_destroy(writer);
}
