/* disk_trace: a record of disk.h is played again on a file system that knows what a crash may leave (crash_fs, in
 * fault_fs.h); what is left becomes a directory for the real daemon. So one run of a daemon under load yields as many
 * power failures as one likes, at any of its file operations.
 *
 * Failures fail the test. Thread: one at a time. */
#ifndef BLOOMERY_TEST_DISK_TRACE_H
#define BLOOMERY_TEST_DISK_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault_fs.h"

struct disk_trace;

/* The record in a file, on top of `start`, which it takes over (NULL: nothing was there). A last operation that the end
 * of the process has cut off did not take place. */
struct disk_trace *disk_trace_open(const char *path, struct crash_fs *start);
void disk_trace_close(struct disk_trace *trace);

size_t disk_trace_count(const struct disk_trace *trace);

/* Plays until `count` operations have been played; back is not possible. */
void disk_trace_play(struct disk_trace *trace, size_t count);

/* When operation `n` (from 0) began: whatever was seen before rests on the operations before it. INT64_MAX after the
 * last. */
int64_t disk_trace_began_ns(const struct disk_trace *trace, size_t n);

/* The files that a crash now may leave (crash_fs_after()). */
struct crash_fs *disk_trace_crash(const struct disk_trace *trace, enum crash_mode mode, uint64_t seed);

/* Puts what `fs` has under "data" into the directory, which is emptied first. */
void crash_fs_export(struct crash_fs *fs, const char *dir);

#endif
