#include "pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "thread.h"
#include "lock.h"

#define THREADS_MAX 1024 /* libuv's own limit */

/* As libuv reads it. */
static unsigned threads_of_pool(void)
{
    const char *text = getenv("UV_THREADPOOL_SIZE");
    int n = text ? atoi(text) : 4;
    return n == 0 ? 1 : n < 0 || n > THREADS_MAX ? THREADS_MAX : (unsigned)n;
}

static void wait_for_end(void *end)
{
    lock_wait_for(end);
}

/* Tests whether this many threads can exist, by starting and ending them. */
static int rehearse(unsigned n, uv_thread_t *threads)
{
    sem_t end;
    unsigned started = 0;
    int status = 0;
    sem_init(&end, 0, 0);
    while (started < n && status == 0) {
        status = uv_thread_create(&threads[started], wait_for_end, &end);
        started += status == 0;
    }
    for (unsigned i = 0; i < started; i++)
        sem_post(&end);
    while (started > 0)
        uv_thread_join(&threads[--started]);
    sem_destroy(&end);
    return status;
}

/* Each thread of the pool takes one of these, as none ends before all have begun. */
struct first_work {
    uv_work_t work;
    pthread_barrier_t *all;
};

static void first_run(uv_work_t *work)
{
    struct first_work *first = work->data;
    thread_begin_background(THREAD_BACKGROUND, "pool"); /* long commands must not take time from short ones */
    pthread_barrier_wait(first->all);
}

static int run_first(unsigned n, struct first_work *works)
{
    pthread_barrier_t all;
    uv_loop_t loop;
    int status = uv_loop_init(&loop);
    if (status)
        return status;
    pthread_barrier_init(&all, NULL, n);
    for (unsigned i = 0; i < n; i++) {
        works[i].all = &all;
        works[i].work.data = &works[i];
        uv_queue_work(&loop, &works[i].work, first_run, NULL);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    pthread_barrier_destroy(&all);
    return uv_loop_close(&loop);
}

int pool_start(struct errbuf *err)
{
    unsigned n = threads_of_pool();
    uv_thread_t *threads = calloc(n, sizeof(*threads));
    struct first_work *works = calloc(n, sizeof(*works));
    int status = threads && works ? rehearse(n, threads) : -ENOMEM;
    if (status == 0)
        status = run_first(n, works);
    free(threads);
    free(works);
    if (status)
        errbuf_set(err, "cannot start %u threads: %s (the limits of processes and of memory: ulimit -u, ulimit -v)", n,
                   strerror(-status));
    return status;
}
