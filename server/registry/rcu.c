/* Deferred freeing: removed objects are queued under a mutex; the reclaimer's thread takes the whole queue, waits for
 * one grace period, and frees them all, so that a burst of a million deletions costs a few grace periods, not a
 * million. */
#include "rcu.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <urcu-qsbr.h>

#include "thread.h"

#if defined(__SANITIZE_THREAD__)
/* liburcu is not instrumented: without these ThreadSanitizer would not know that a grace period orders the last read of
 * an object before its freeing. */
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
static char grace_period;
#define GRACE_RELEASE() __tsan_release(&grace_period)
#define GRACE_ACQUIRE() __tsan_acquire(&grace_period)
#else
#define GRACE_RELEASE() ((void)0)
#define GRACE_ACQUIRE() ((void)0)
#endif

#define RETRY_DELAY_NS (5 * 1000 * 1000) /* a pinned object is retried after this time */

void rcu_reader_begin(void)
{
    urcu_qsbr_register_thread();
}

void rcu_reader_end(void)
{
    GRACE_RELEASE();
    urcu_qsbr_unregister_thread();
}

void rcu_reader_online(void)
{
    urcu_qsbr_thread_online();
}

void rcu_reader_offline(void)
{
    GRACE_RELEASE();
    urcu_qsbr_thread_offline();
}

bool rcu_reader_is_online(void)
{
    return urcu_qsbr_read_ongoing();
}

void rcu_wait_for_readers(void)
{
    urcu_qsbr_synchronize_rcu();
    GRACE_ACQUIRE();
}

struct deferred {
    int (*fn)(void *object);
    void *object;
};

struct deferred_list {
    struct deferred *items;
    size_t count;
    size_t size;
};

struct reclaimer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* an object was queued, or stop */
    pthread_cond_t idle; /* a batch has been freed */
    struct deferred_list queue;
    _Atomic uint64_t given_up; /* objects that could not be queued for lack of memory: leaked */
    uint64_t queued, freed;    /* objects ever queued and freed; reclaimer_flush() waits for them to meet */
    bool stop;
};

static bool list_push(struct deferred_list *list, struct deferred item)
{
    if (list->count == list->size) {
        size_t size = list->size ? list->size * 2 : 64;
        struct deferred *items = realloc(list->items, size * sizeof(*items));
        if (!items)
            return false;
        list->items = items;
        list->size = size;
    }
    list->items[list->count++] = item;
    return true;
}

/* Frees the unpinned objects of a batch whose grace period is over; keeps the others at its front. */
static size_t free_batch(struct deferred_list *batch)
{
    size_t kept = 0, freed = 0;
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->items[i].fn(batch->items[i].object) == 0)
            freed++;
        else
            batch->items[kept++] = batch->items[i];
    }
    batch->count = kept;
    return freed;
}

static void wait_a_little(void)
{
    struct timespec delay = {.tv_nsec = RETRY_DELAY_NS};
    nanosleep(&delay, NULL);
}

static void *reclaimer_main(void *arg)
{
    struct reclaimer *r = arg;
    struct deferred_list batch = {0};

    thread_begin_background(THREAD_BACKGROUND, "reclaimer");
    pthread_mutex_lock(&r->lock);
    while (!r->stop || r->queue.count || batch.count) {
        if (!r->queue.count && !batch.count) {
            pthread_cond_wait(&r->wake, &r->lock);
            continue;
        }
        /* Few objects of the last batch are pinned: a running save holds at most a handful. */
        struct deferred_list fresh = r->queue;
        r->queue = (struct deferred_list){0};
        pthread_mutex_unlock(&r->lock);

        size_t freed = 0;
        if (batch.count) {
            wait_a_little();
            freed += free_batch(&batch);
        }
        if (fresh.count) {
            rcu_wait_for_readers();
            freed += free_batch(&fresh);
            for (size_t i = 0; i < fresh.count; i++)
                while (!list_push(&batch, fresh.items[i]))
                    wait_a_little();
        }
        free(fresh.items);

        pthread_mutex_lock(&r->lock);
        r->freed += freed;
        pthread_cond_broadcast(&r->idle);
    }
    pthread_mutex_unlock(&r->lock);
    free(batch.items);
    return NULL;
}

int reclaimer_create(struct reclaimer **reclaimer_out)
{
    struct reclaimer *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->wake, NULL);
    pthread_cond_init(&r->idle, NULL);
    int err = pthread_create(&r->thread, NULL, reclaimer_main, r);
    if (err) {
        free(r);
        return -err;
    }
    *reclaimer_out = r;
    return 0;
}

void reclaimer_destroy(struct reclaimer *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    pthread_cond_destroy(&r->idle);
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
    free(r->queue.items);
    free(r);
}

void reclaimer_defer(struct reclaimer *r, int (*fn)(void *object), void *object)
{
    pthread_mutex_lock(&r->lock);
    bool queued = list_push(&r->queue, (struct deferred){fn, object});
    if (queued) {
        r->queued++;
        pthread_cond_signal(&r->wake);
    }
    pthread_mutex_unlock(&r->lock);
    if (!queued)
        atomic_fetch_add_explicit(&r->given_up, 1, memory_order_relaxed);
}

void reclaimer_counts(struct reclaimer *r, uint64_t *waiting_out, uint64_t *freed_out)
{
    pthread_mutex_lock(&r->lock);
    *waiting_out = r->queued - r->freed;
    *freed_out = r->freed;
    pthread_mutex_unlock(&r->lock);
}

void reclaimer_flush(struct reclaimer *r)
{
    pthread_mutex_lock(&r->lock);
    uint64_t target = r->queued;
    while (r->freed < target)
        pthread_cond_wait(&r->idle, &r->lock);
    pthread_mutex_unlock(&r->lock);
}
