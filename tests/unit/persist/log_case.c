#include "log_case.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "log_frame.h"

struct crash_fs *fs;
const struct fsops *ops;

void log_case_begin(void)
{
    fs = crash_fs_create();
    ops = crash_fs_ops(fs);
    cr_assert_eq(ops->mkdir(ops->ctx, LOG_RIG_DIR), 0);
}

void log_case_end(void)
{
    crash_fs_destroy(fs);
}

void log_case_go_on_with(struct crash_fs *other)
{
    crash_fs_destroy(fs);
    fs = other;
    ops = crash_fs_ops(fs);
}

void read_log(bool accept_loss, struct log_rig_read *read)
{
    log_rig_read(ops, 0, accept_loss, read);
}

void write_frames(uint64_t first, uint64_t last, uint64_t every)
{
    struct log_rig_read before;
    struct errbuf err = {""};

    read_log(false, &before);
    cr_assert_eq(before.status, 0, "%s", before.err.text);
    struct log_writer *writer = log_rig_writer(ops, &before);
    for (uint64_t n = first; n <= last; n++) {
        cr_assert_eq(log_rig_append(writer, n, &err), 0, "%s", err.text);
        if (every && (n % every == 0 || n == last))
            cr_assert_eq(log_writer_sync(writer, &err), 0, "%s", err.text);
    }
    log_writer_destroy(writer);
}

void expect_frames(uint64_t n)
{
    struct log_rig_read read;

    read_log(false, &read);
    cr_assert_eq(read.status, 0, "%s", read.err.text);
    cr_assert(read.exact, "frame %llu", (unsigned long long)read.first_missing);
    cr_assert_eq(read.frames, n, "%llu", (unsigned long long)read.frames);
    cr_assert_eq(read.summary.frames, n);
    cr_assert_eq(read.summary.next_sequence, n + 1);
}

const char *segment(uint64_t number)
{
    static char path[64];
    char name[LOG_FILE_NAME];

    log_file_name(number, LOG_SEGMENT, name);
    snprintf(path, sizeof(path), "%s/log/%s", LOG_RIG_DIR, name);
    return path;
}

uint64_t last_segment(void)
{
    struct log_rig_read read;

    read_log(false, &read);
    return read.summary.next_segment - 1;
}

void change_byte(const char *path, uint64_t at)
{
    unsigned char byte;
    size_t n;
    int fd;

    cr_assert_eq(ops->open(ops->ctx, path, FS_READ | FS_WRITE, &fd), 0);
    cr_assert_eq(fs_read_all(ops, fd, &byte, 1, at), 0);
    byte ^= 0x55;
    cr_assert_eq(ops->pwrite(ops->ctx, fd, &byte, 1, at, &n), 0);
    cr_assert_eq(ops->close(ops->ctx, fd), 0);
}

void cut(const char *path, uint64_t size)
{
    int fd;

    cr_assert_eq(ops->open(ops->ctx, path, FS_WRITE, &fd), 0);
    cr_assert_eq(ops->truncate(ops->ctx, fd, size), 0);
    cr_assert_eq(ops->close(ops->ctx, fd), 0);
}
