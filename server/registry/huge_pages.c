#include "huge_pages.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "thread.h"

#define IDLE_NS      100000000             /* between looks when there is nothing to do */
#define AHEAD_MOST   (UINT64_C(256) << 20) /* bytes of filters that nobody has used; less on a small machine */
#define AHEAD_OF_ALL 16                    /* of its memory, so much is its share */

struct huge_pages {
    struct bloom_pool *pool;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    bool woken;
};

static int64_t time_ns(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* In the thread that has made a filter. */
static void wake(void *arg)
{
    struct huge_pages *hp = arg;
    pthread_mutex_lock(&hp->lock);
    hp->woken = true;
    pthread_cond_signal(&hp->wake);
    pthread_mutex_unlock(&hp->lock);
}

static uint64_t bytes_ahead(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    uint64_t all = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
    return all / AHEAD_OF_ALL < AHEAD_MOST ? all / AHEAD_OF_ALL : AHEAD_MOST;
}

/* Sleeps, or is woken: to stop, or for a new filter. Under the lock. */
static void pause_ns(struct huge_pages *hp, int64_t ns)
{
    int64_t until = time_ns(CLOCK_MONOTONIC) + ns;
    struct timespec ts = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    while (!hp->stop && !hp->woken && pthread_cond_timedwait(&hp->wake, &hp->lock, &ts) != ETIMEDOUT)
        ;
    hp->woken = false;
}

static int64_t pause_after(enum bloom_settled settled, int64_t took)
{
    switch (settled) {
    case BLOOM_SETTLED_AHEAD:
    case BLOOM_SETTLED_POPULATED:
        return 0;
    case BLOOM_SETTLED_HUGE:
        return took;
    case BLOOM_SETTLED_NOTHING:
        break;
    }
    return IDLE_NS;
}

/* Nobody waits for what is populated, and the thread gives way where processors are short (thread.h). While a page is made
 * huge users of the filter may wait for it: so that is done for less than half of the time. What counts is the time of the
 * processor, since waiting for one is pause enough. */
static void *huge_pages_main(void *arg)
{
    struct huge_pages *hp = arg;
    thread_begin_background(THREAD_BACKGROUND, "huge-pages");
    pthread_mutex_lock(&hp->lock);
    while (!hp->stop) {
        pthread_mutex_unlock(&hp->lock);
        int64_t start = time_ns(CLOCK_THREAD_CPUTIME_ID);
        enum bloom_settled settled = bloom_pool_settle(hp->pool);
        int64_t took = time_ns(CLOCK_THREAD_CPUTIME_ID) - start;
        pthread_mutex_lock(&hp->lock);
        pause_ns(hp, pause_after(settled, took));
    }
    pthread_mutex_unlock(&hp->lock);
    return NULL;
}

int huge_pages_create(struct huge_pages **huge_pages_out, struct bloom_pool *pool)
{
    struct huge_pages *hp = calloc(1, sizeof(*hp));
    if (!hp)
        return -ENOMEM;
    pthread_condattr_t attr;
    hp->pool = pool;
    pthread_mutex_init(&hp->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&hp->wake, &attr);
    pthread_condattr_destroy(&attr);
    int err = pthread_create(&hp->thread, NULL, huge_pages_main, hp);
    if (err) {
        pthread_cond_destroy(&hp->wake);
        pthread_mutex_destroy(&hp->lock);
        free(hp);
        return -err;
    }
    bloom_pool_set_ahead(pool, bytes_ahead(), wake, hp);
    *huge_pages_out = hp;
    return 0;
}

void huge_pages_destroy(struct huge_pages *hp)
{
    if (!hp)
        return;
    bloom_pool_set_ahead(hp->pool, 0, NULL, NULL);
    pthread_mutex_lock(&hp->lock);
    hp->stop = true;
    pthread_cond_signal(&hp->wake);
    pthread_mutex_unlock(&hp->lock);
    pthread_join(hp->thread, NULL);
    pthread_cond_destroy(&hp->wake);
    pthread_mutex_destroy(&hp->lock);
    free(hp);
}
