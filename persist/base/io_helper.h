/* io_helper: threads that read and write pieces of files while their owner computes. Internal to persist.
 *
 * Jobs start in the order in which they are submitted. The owner waits for them in that order.
 *
 * Lifetime: start to stop. Thread: one owner; between submit and the wait for it the owner leaves the buffer alone. */
#ifndef BLOOMERY_IO_HELPER_H
#define BLOOMERY_IO_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsops.h"

#define IO_HELPER_JOBS    16 /* submitted, and not yet waited for */
#define IO_HELPER_THREADS 4

struct io_job {
    bool write;
    int fd;
    void *buf;
    size_t len; /* bytes to be written; when reading, at least `need` and at most `len` */
    size_t need;
    uint64_t offset;
};

struct io_helper;

/* Without any thread at first: each job then runs while it is submitted. 0 or -ENOMEM. */
int io_helper_start(struct io_helper **helper_out, const struct fsops *fs);
void io_helper_stop(struct io_helper *helper); /* NULL is fine; no job may be under way */

/* Has this many threads from now on (at most IO_HELPER_THREADS), or as many as the system allows. */
void io_helper_want(struct io_helper *helper, unsigned nthreads);

void io_helper_submit(struct io_helper *helper, const struct io_job *job);
int io_helper_wait(struct io_helper *helper); /* for the oldest one: 0 or -errno, FS_ENDS when the file ends before */

#endif
