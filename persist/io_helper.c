#include "io_helper.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "check.h"

struct slot {
    struct io_job job;
    bool done;
    int rc;
};

struct io_helper {
    const struct fsops *fs;
    pthread_t threads[IO_HELPER_THREADS];
    unsigned nthreads;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t work;   /* a job has been handed over, or stop */
    pthread_cond_t done;
    bool stop;
    struct slot slots[IO_HELPER_JOBS]; /* by number modulo their number */
    uint64_t submitted;                /* jobs so far */
    uint64_t begun;
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

    pthread_mutex_lock(&helper->mutex);
    while (!helper->stop) {
        if (helper->begun == helper->submitted) {
            pthread_cond_wait(&helper->work, &helper->mutex);
            continue;
        }
        struct slot *slot = &helper->slots[helper->begun++ % IO_HELPER_JOBS];
        pthread_mutex_unlock(&helper->mutex);
        int rc = run_job(helper->fs, &slot->job);
        pthread_mutex_lock(&helper->mutex);
        slot->rc = rc;
        slot->done = true;
        pthread_cond_signal(&helper->done);
    }
    pthread_mutex_unlock(&helper->mutex);
    return NULL;
}

int io_helper_start(struct io_helper **helper_out, const struct fsops *fs)
{
    struct io_helper *helper = calloc(1, sizeof(*helper));

    if (!helper)
        return -ENOMEM;
    helper->fs = fs;
    pthread_mutex_init(&helper->mutex, NULL);
    pthread_cond_init(&helper->work, NULL);
    pthread_cond_init(&helper->done, NULL);
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
    pthread_mutex_lock(&helper->mutex);
    helper->stop = true;
    pthread_cond_broadcast(&helper->work);
    pthread_mutex_unlock(&helper->mutex);
    for (unsigned i = 0; i < helper->nthreads; i++)
        pthread_join(helper->threads[i], NULL);
    pthread_cond_destroy(&helper->done);
    pthread_cond_destroy(&helper->work);
    pthread_mutex_destroy(&helper->mutex);
    free(helper);
}

void io_helper_submit(struct io_helper *helper, const struct io_job *job)
{
    struct slot *slot = &helper->slots[helper->submitted % IO_HELPER_JOBS];

    CHECK(helper->submitted - helper->waited < IO_HELPER_JOBS);
    *slot = (struct slot){.job = *job}; /* nobody looks at it before the number is raised */
    if (helper->nthreads == 0)
        *slot = (struct slot){.done = true, .rc = run_job(helper->fs, job)};
    pthread_mutex_lock(&helper->mutex);
    helper->submitted++;
    if (helper->nthreads == 0)
        helper->begun++;
    else
        pthread_cond_signal(&helper->work);
    pthread_mutex_unlock(&helper->mutex);
}

int io_helper_wait(struct io_helper *helper)
{
    struct slot *slot = &helper->slots[helper->waited % IO_HELPER_JOBS];

    CHECK(helper->waited < helper->submitted);
    pthread_mutex_lock(&helper->mutex);
    while (!slot->done)
        pthread_cond_wait(&helper->done, &helper->mutex);
    helper->waited++;
    pthread_mutex_unlock(&helper->mutex);
    return slot->rc;
}
