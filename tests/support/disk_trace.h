/* disk_trace: plays a record of disk.h on a file system that simulates crashes (crash_fs in fault_fs.h), and makes the
 * result a directory for the real daemon. So one run of a daemon under load yields any number of power failures, at any
 * of its file operations.
 *
 * Failures fail the test. Thread: one at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault_fs.h"

struct disk_trace;

/* Opens the record in a file, on top of `start`, which passes to the trace (NULL: an empty disk). A last operation that
 * is incomplete in the record does not count. */
struct disk_trace *disk_trace_open(const char *path, struct crash_fs *start);
void disk_trace_close(struct disk_trace *trace);

size_t disk_trace_count(const struct disk_trace *trace);

/* Plays up to `count` operations in total; there is no way back. */
void disk_trace_play(struct disk_trace *trace, size_t count);

/* The time when operation `n` (from 0) began: effects that clients saw earlier depend only on earlier operations.
 * INT64_MAX after the last. */
int64_t disk_trace_began_ns(const struct disk_trace *trace, size_t n);

/* The files that a crash at this point may leave (crash_fs_after()). */
struct crash_fs *disk_trace_crash(const struct disk_trace *trace, enum crash_mode mode, uint64_t seed);

/* Empties the directory and copies the files of `fs` below "data" into it. */
void crash_fs_export(struct crash_fs *fs, const char *dir);
