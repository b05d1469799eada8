/* inlet: a list that many threads put links into, and that one thread takes as a whole. No lock: a put is one exchange
 * of the newest link, and a take leaves no link behind, so an address that comes again does no harm.
 *
 * A link is in memory of the caller's, which belongs to the taker from the put on. The thread that takes sees all
 * writes of a thread before its put. */
#pragma once

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "lock.h"

struct inlet_link {
    struct inlet_link *next; /* internal; after a take: the one put next, NULL after the last */
};

struct inlet {
    _Atomic(struct inlet_link *) newest; /* each points to the one put before it; NULL: empty */
};

/* The inlet was empty: the taker may have to be woken. Thread: any. */
static inline bool inlet_put(struct inlet *inlet, struct inlet_link *link)
{
    struct inlet_link *before = atomic_load_explicit(&inlet->newest, memory_order_relaxed);

    do
        link->next = before;
    while (!atomic_compare_exchange_weak(&inlet->newest, &before, link));
    return before == NULL;
}

/* All links in the order of their puts; NULL: none. Thread: one at a time. */
static inline struct inlet_link *inlet_take(struct inlet *inlet)
{
    struct inlet_link *newest = atomic_exchange(&inlet->newest, NULL), *oldest = NULL;

    while (newest) {
        struct inlet_link *before = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = before;
    }
    return oldest;
}

/* An inlet whose taker sleeps while it is empty. */
struct work_inlet {
    struct inlet inlet;
    sem_t wake;
    atomic_bool ended;
};

static inline void work_inlet_init(struct work_inlet *work)
{
    atomic_init(&work->inlet.newest, NULL);
    atomic_init(&work->ended, false);
    sem_init(&work->wake, 0, 0);
}

static inline void work_inlet_deinit(struct work_inlet *work)
{
    sem_destroy(&work->wake);
}

/* Makes the taker look, also without a link. Thread: any. */
static inline void work_inlet_wake(struct work_inlet *work)
{
    sem_post(&work->wake);
}

static inline void work_inlet_put(struct work_inlet *work, struct inlet_link *link)
{
    if (inlet_put(&work->inlet, link))
        work_inlet_wake(work);
}

/* Lets the taker end. Thread: any. */
static inline void work_inlet_end(struct work_inlet *work)
{
    atomic_store(&work->ended, true);
    work_inlet_wake(work);
}

/* As inlet_take(). `ended_out`: work_inlet_end() was called before the take, so all links put before it are taken. The
 * wakes are used up before both looks, so the puts that they announce are seen. */
static inline struct inlet_link *work_inlet_take(struct work_inlet *work, bool *ended_out)
{
    while (sem_trywait(&work->wake) == 0)
        continue;
    *ended_out = atomic_load(&work->ended);
    return inlet_take(&work->inlet);
}

/* Sleeps until a put or a wake since the last take. */
static inline void work_inlet_wait(struct work_inlet *work)
{
    lock_wait_for(&work->wake);
}
