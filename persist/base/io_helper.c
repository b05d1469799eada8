#include "io_helper.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "check.h"
#include "lock.h"

struct slot {
    struct io_job job;
    sem_t done;
    int rc;
};

struct io_helper {
    const struct fsops *fs;
    pthread_t threads[IO_HELPER_THREADS];
    unsigned nthreads;
    sem_t work; /* submitted jobs that have not started, or stop */
    atomic_bool stop;
    struct slot slots[IO_HELPER_JOBS]; /* by number modulo their number */
    _Atomic uint64_t begun;
    uint64_t submitted; /* jobs so far; this and the next are the owner's */
    uint64_t waited;
};

static int run_job(const struct fsops *fs, const struct io_job *job)
{
    return job->write ? fs_write_all(fs, job->fd, job->buf, job->len, job->offset)
                      : fs_read_some(fs, job->fd, job->buf, job->need, job->len, job->offset);
}

static void *helper_main(void *arg)
{
    struct io_helper *helper = arg;

    for (;;) {
        lock_wait_for(&helper->work);
        if (atomic_load(&helper->stop))
            return NULL;
        struct slot *slot = &helper->slots[atomic_fetch_add(&helper->begun, 1) % IO_HELPER_JOBS];
        slot->rc = run_job(helper->fs, &slot->job);
        sem_post(&slot->done);
    }
}

int io_helper_start(struct io_helper **helper_out, const struct fsops *fs)
{
    struct io_helper *helper = calloc(1, sizeof(*helper));

    if (!helper)
        return -ENOMEM;
    helper->fs = fs;
    sem_init(&helper->work, 0, 0);
    for (unsigned i = 0; i < IO_HELPER_JOBS; i++)
        sem_init(&helper->slots[i].done, 0, 0);
    *helper_out = helper;
    return 0;
}

void io_helper_want(struct io_helper *helper, unsigned nthreads)
{
    CHECK(nthreads <= IO_HELPER_THREADS);
    while (helper->nthreads < nthreads &&
           pthread_create(&helper->threads[helper->nthreads], NULL, helper_main, helper) == 0)
        helper->nthreads++;
}

void io_helper_stop(struct io_helper *helper)
{
    if (!helper)
        return;
    atomic_store(&helper->stop, true);
    for (unsigned i = 0; i < helper->nthreads; i++)
        sem_post(&helper->work);
    for (unsigned i = 0; i < helper->nthreads; i++)
        pthread_join(helper->threads[i], NULL);
    for (unsigned i = 0; i < IO_HELPER_JOBS; i++)
        sem_destroy(&helper->slots[i].done);
    sem_destroy(&helper->work);
    free(helper);
}

void io_helper_submit(struct io_helper *helper, const struct io_job *job)
{
    struct slot *slot = &helper->slots[helper->submitted % IO_HELPER_JOBS];

    CHECK(helper->submitted - helper->waited < IO_HELPER_JOBS);
    helper->submitted++;
    slot->job = *job;
    if (helper->nthreads > 0) {
        sem_post(&helper->work);
        return;
    }
    atomic_fetch_add(&helper->begun, 1);
    slot->rc = run_job(helper->fs, job);
    sem_post(&slot->done);
}

int io_helper_wait(struct io_helper *helper)
{
    struct slot *slot = &helper->slots[helper->waited % IO_HELPER_JOBS];

    CHECK(helper->waited < helper->submitted);
    lock_wait_for(&slot->done);
    helper->waited++;
    return slot->rc;
}
