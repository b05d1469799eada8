#include "io_helper.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

enum state { IDLE, SUBMITTED, DONE, STOPPED };

struct io_helper {
    const struct fsops *fs;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum state state;
    struct io_job job;
    int rc;
};

int io_job_run(const struct fsops *fs, const struct io_job *job)
{
    if (job->write)
        return fs_write_all(fs, job->fd, job->buf, job->len, job->offset);
    for (size_t done = 0; done < job->need;) {
        size_t n = 0;
        int rc = fs->pread(fs->ctx, job->fd, (char *)job->buf + done, job->len - done, job->offset + done, &n);

        if (rc != 0)
            return rc;
        if (n == 0)
            return -EIO;
        done += n;
    }
    return 0;
}

static void *helper_main(void *arg)
{
    struct io_helper *helper = arg;

    pthread_mutex_lock(&helper->mutex);
    while (helper->state != STOPPED) {
        if (helper->state != SUBMITTED) {
            pthread_cond_wait(&helper->changed, &helper->mutex);
            continue;
        }
        pthread_mutex_unlock(&helper->mutex);
        int rc = io_job_run(helper->fs, &helper->job);
        pthread_mutex_lock(&helper->mutex);
        helper->rc = rc;
        helper->state = DONE;
        pthread_cond_broadcast(&helper->changed);
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
    pthread_cond_init(&helper->changed, NULL);
    int rc = pthread_create(&helper->thread, NULL, helper_main, helper);
    if (rc != 0) {
        pthread_cond_destroy(&helper->changed);
        pthread_mutex_destroy(&helper->mutex);
        free(helper);
        return -rc;
    }
    *helper_out = helper;
    return 0;
}

static void set_state(struct io_helper *helper, enum state state)
{
    pthread_mutex_lock(&helper->mutex);
    helper->state = state;
    pthread_cond_broadcast(&helper->changed);
    pthread_mutex_unlock(&helper->mutex);
}

void io_helper_stop(struct io_helper *helper)
{
    if (!helper)
        return;
    set_state(helper, STOPPED);
    pthread_join(helper->thread, NULL);
    pthread_cond_destroy(&helper->changed);
    pthread_mutex_destroy(&helper->mutex);
    free(helper);
}

void io_helper_submit(struct io_helper *helper, const struct io_job *job)
{
    helper->job = *job; /* nothing is under way */
    set_state(helper, SUBMITTED);
}

int io_helper_wait(struct io_helper *helper)
{
    pthread_mutex_lock(&helper->mutex);
    while (helper->state == SUBMITTED)
        pthread_cond_wait(&helper->changed, &helper->mutex);
    helper->state = IDLE;
    int rc = helper->rc;
    pthread_mutex_unlock(&helper->mutex);
    return rc;
}
