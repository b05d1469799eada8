/* io_helper: a thread that does one read or write at a time while its owner computes. Internal to persist.
 *
 * Lifetime: start to stop. Thread: one owner; between submit and wait the owner leaves the buffer and the file alone. */
#ifndef BLOOMERY_IO_HELPER_H
#define BLOOMERY_IO_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsops.h"

struct io_job {
    bool write;
    int fd;
    void *buf;
    size_t len;      /* bytes to be written; when reading, at least `need` and at most `len` */
    size_t need;
    uint64_t offset;
};

struct io_helper;

int io_helper_start(struct io_helper **helper_out, const struct fsops *fs); /* 0, -ENOMEM or -EAGAIN */
void io_helper_stop(struct io_helper *helper);                             /* NULL is fine; nothing may be under way */

void io_helper_submit(struct io_helper *helper, const struct io_job *job);
int io_helper_wait(struct io_helper *helper); /* what io_job_run() returned */

/* The same at once. 0 or -errno: -EIO when the file ends before. */
int io_job_run(const struct fsops *fs, const struct io_job *job);

#endif
