/* Deferred freeing: the reclaimer's thread takes the whole queue of removed objects, waits for one grace period, and
 * frees them all. So a burst of a million deletions costs a few grace periods, not a million. */
#include "rcu.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <urcu-qsbr.h>

#include "inlet.h"
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
#define WAIT_NS        (200 * 1000)      /* reclaimer_wait() and reclaimer_flush() look again after this time */
#define WAIT_TIMES     5000

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
    struct inlet_link link; /* the first member */
    int (*fn)(void *object);
    void *object;
    uint64_t bytes;
};

struct reclaimer {
    pthread_t thread;
    struct work_inlet queue;
    _Atomic uint64_t bytes;         /* of the objects that have not been tried yet */
    _Atomic uint64_t given_up;      /* objects that could not be queued for lack of memory: leaked */
    _Atomic uint64_t queued, freed; /* objects ever queued and freed; reclaimer_flush() waits for them to meet */
};

/* Frees the unpinned objects of a list whose grace period is over. Returns the list of the others. */
static struct inlet_link *free_list(struct reclaimer *r, struct inlet_link *list)
{
    struct inlet_link *kept = NULL, **end = &kept, *next;
    uint64_t freed = 0;
    for (struct inlet_link *link = list; link; link = next) {
        struct deferred *item = (struct deferred *)(void *)link;
        next = link->next;
        if (item->fn(item->object) == 0) {
            free(item);
            freed++;
        } else {
            *end = link;
            end = &link->next;
        }
    }
    *end = NULL;
    atomic_fetch_add(&r->freed, freed);
    return kept;
}

static uint64_t bytes_of(const struct inlet_link *list)
{
    uint64_t bytes = 0;
    for (const struct inlet_link *link = list; link; link = link->next)
        bytes += ((const struct deferred *)(const void *)link)->bytes;
    return bytes;
}

static void *reclaimer_main(void *arg)
{
    struct reclaimer *r = arg;
    struct inlet_link *pinned = NULL;

    thread_begin_background("reclaimer");
    for (;;) {
        bool ended;
        struct inlet_link *fresh = work_inlet_take(&r->queue, &ended);
        if (!fresh && !pinned && ended)
            break;
        if (!fresh && !pinned)
            work_inlet_wait(&r->queue);
        if (pinned) { /* few: a running save holds at most a handful */
            nanosleep(&(struct timespec){.tv_nsec = RETRY_DELAY_NS}, NULL);
            pinned = free_list(r, pinned);
        }
        if (fresh) {
            rcu_wait_for_readers();
            uint64_t bytes = bytes_of(fresh);
            struct inlet_link **end = &pinned;
            while (*end)
                end = &(*end)->next;
            *end = free_list(r, fresh);
            atomic_fetch_sub(&r->bytes, bytes);
        }
    }
    return NULL;
}

int reclaimer_create(struct reclaimer **reclaimer_out)
{
    struct reclaimer *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    work_inlet_init(&r->queue);
    int err = pthread_create(&r->thread, NULL, reclaimer_main, r);
    if (err) {
        free(r);
        return -err;
    }
    *reclaimer_out = r;
    return 0;
}

bool reclaimer_destroy(struct reclaimer *r)
{
    if (!r)
        return true;
    work_inlet_end(&r->queue);
    pthread_join(r->thread, NULL);
    work_inlet_deinit(&r->queue);
    bool all_freed = atomic_load(&r->given_up) == 0;
    free(r);
    return all_freed;
}

void reclaimer_defer(struct reclaimer *r, int (*fn)(void *object), void *object, uint64_t bytes)
{
    struct deferred *item = malloc(sizeof(*item));
    if (!item) {
        atomic_fetch_add_explicit(&r->given_up, 1, memory_order_relaxed);
        return;
    }
    *item = (struct deferred){.fn = fn, .object = object, .bytes = bytes};
    atomic_fetch_add(&r->bytes, bytes);
    atomic_fetch_add(&r->queued, 1);
    work_inlet_put(&r->queue, &item->link);
}

void reclaimer_counts(struct reclaimer *r, uint64_t *waiting_out, uint64_t *freed_out)
{
    *freed_out = atomic_load(&r->freed);
    *waiting_out = atomic_load(&r->queued) - *freed_out;
}

uint64_t reclaimer_bytes(const struct reclaimer *r)
{
    return atomic_load(&r->bytes);
}

void reclaimer_announce(struct reclaimer *r, int64_t bytes)
{
    atomic_fetch_add(&r->bytes, (uint64_t)bytes);
}

void reclaimer_wait(struct reclaimer *r)
{
    for (int i = 0; i < WAIT_TIMES && reclaimer_bytes(r) > 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
}

void reclaimer_flush(struct reclaimer *r)
{
    uint64_t target = atomic_load(&r->queued);
    while (atomic_load(&r->freed) < target)
        nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
}
