#include "huge_pages.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "thread.h"

#define IDLE_NS 100000000 /* between looks when there is nothing to do */

struct huge_pages {
    struct bloom_pool *pool;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
};

static int64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Sleeps, or is woken to stop. Under the lock. */
static void pause_ns(struct huge_pages *hp, int64_t ns)
{
    int64_t until = now_ns() + ns;
    struct timespec ts = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    while (!hp->stop && pthread_cond_timedwait(&hp->wake, &hp->lock, &ts) != ETIMEDOUT)
        ;
}

/* Populates for half of the time at most, which leaves half of a processor to others, and collapses for a tenth of it.
 */
static void *huge_pages_main(void *arg)
{
    struct huge_pages *hp = arg;
    thread_begin_background("huge-pages");
    pthread_mutex_lock(&hp->lock);
    while (!hp->stop) {
        pthread_mutex_unlock(&hp->lock);
        int64_t start = now_ns();
        enum bloom_settled settled = bloom_pool_settle(hp->pool);
        int64_t took = now_ns() - start;
        pthread_mutex_lock(&hp->lock);
        pause_ns(hp, settled == BLOOM_SETTLED_HUGE ? 9 * took : settled == BLOOM_SETTLED_POPULATED ? took : IDLE_NS);
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
    *huge_pages_out = hp;
    return 0;
}

void huge_pages_destroy(struct huge_pages *hp)
{
    if (!hp)
        return;
    pthread_mutex_lock(&hp->lock);
    hp->stop = true;
    pthread_cond_signal(&hp->wake);
    pthread_mutex_unlock(&hp->lock);
    pthread_join(hp->thread, NULL);
    pthread_cond_destroy(&hp->wake);
    pthread_mutex_destroy(&hp->lock);
    free(hp);
}
