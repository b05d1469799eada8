/* log_tail: the file TAIL of the data directory, which states where the log ends: with a frame, or in the files of
 * pending records (log_pending.h) of processes that have not ended. Without it nobody would miss a file that is gone.
 *
 * A process that begins is appended, and nothing is synced: it counts only while the machine runs and TAIL is no copy,
 * as only then all of the process's records must be there. An end replaces the file, synced. So TAIL never states what
 * a power failure could take back. Bytes: docs/FORMAT.md section 13.
 *
 * Thread: one at a time for each directory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "fsops.h"

struct log_tail {
    bool valid;          /* it has a record */
    uint64_t frame;      /* the log has all frames up to this one; 0: none, or not known */
    uint64_t *processes; /* each has a file of pending records, unless the log says that it has ended */
    size_t n, size;
};

/* LOG_OK, also when there is no such file or it is damaged: then nothing is known. LOG_NEWER, -ENOMEM or another
 * -errno. Zero-initialise; the caller frees `processes`. */
int log_tail_read(const struct fsops *fs, const char *dir, struct log_tail *tail, struct errbuf *err)
    __attribute__((warn_unused_result));

/* This process has made its file, which is whole. 0 or -errno. */
int log_tail_begin(const struct fsops *fs, const char *dir, uint64_t process) __attribute__((warn_unused_result));

/* The frames up to this one are on the disk, and no process has other records. 0 or -errno. */
int log_tail_end(const struct fsops *fs, const char *dir, uint64_t frame) __attribute__((warn_unused_result));
