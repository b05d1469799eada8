/* lock: the mutexes of all rooms, each with a place in one order: base/locks.def, the only list of them.
 *
 * A thread takes only locks whose rank is above those of all locks that it holds: so no two threads wait for each
 * other. In dev builds (BLOOMERY_VERIFY) a list per thread checks this at each lock_take() and lock_wait(), and a fault
 * ends the process with the names of both locks. In a release a lock is a pthread_mutex_t and nothing else.
 *
 * Lifetime: lock_init() or LOCK_INITIALIZER, to lock_deinit(). Thread: any; the thread that takes a lock gives it. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <time.h>

enum lock_rank {
#define LOCK(rank, guards) RANK_##rank,
#include "locks.def"
#undef LOCK
};

struct lock {
    pthread_mutex_t mutex;
#ifdef BLOOMERY_VERIFY
    enum lock_rank rank;
#endif
};

#ifdef BLOOMERY_VERIFY
#define LOCK_INITIALIZER(of_rank)                             \
    {                                                         \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (of_rank) \
    }

/* For locks that are no mutexes, too: `lock` will be taken now, has been given, will be waited with now. Of RANK_ADDS
 * one thread may hold several, taken in the order of their addresses. */
void lock_check_take(enum lock_rank rank, const void *lock);
void lock_check_give(enum lock_rank rank, const void *lock);
void lock_check_wait(enum lock_rank rank, const void *lock);
#define LOCK_CHECK(what, lock) lock_check_##what((lock)->rank, lock)
#else
#define LOCK_INITIALIZER(of_rank)          \
    {                                      \
        .mutex = PTHREAD_MUTEX_INITIALIZER \
    }
#define lock_check_take(rank, lock) ((void)0)
#define lock_check_give(rank, lock) ((void)0)
#define LOCK_CHECK(what, lock)      ((void)0)
#endif

void lock_init(struct lock *lock, enum lock_rank rank);

/* For holds under a microsecond: a thread spins a little before it sleeps, and saves a call of the kernel. */
void lock_init_spinning(struct lock *lock, enum lock_rank rank);

static inline void lock_deinit(struct lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

static inline void lock_take(struct lock *lock)
{
    LOCK_CHECK(take, lock);
    pthread_mutex_lock(&lock->mutex);
}

static inline void lock_give(struct lock *lock)
{
    LOCK_CHECK(give, lock);
    pthread_mutex_unlock(&lock->mutex);
}

/* Waits for a signal of the condition without the lock, and takes it again: the lock must be the last one taken. */
static inline void lock_wait(pthread_cond_t *condition, struct lock *lock)
{
    LOCK_CHECK(wait, lock);
    pthread_cond_wait(condition, &lock->mutex);
}

/* The same, until the clock shows that time at the latest. False: it does. */
static inline bool lock_wait_until(pthread_cond_t *condition, struct lock *lock, clockid_t clock,
                                   const struct timespec *until)
{
    LOCK_CHECK(wait, lock);
    return pthread_cond_clockwait(condition, &lock->mutex, clock, until) != ETIMEDOUT;
}

/* A lock that several threads may hold for reading at a time, under the same rules. */
struct lock_rw {
    pthread_rwlock_t rwlock;
#ifdef BLOOMERY_VERIFY
    enum lock_rank rank;
#endif
};

void lock_rw_init(struct lock_rw *lock, enum lock_rank rank);

static inline void lock_rw_deinit(struct lock_rw *lock)
{
    pthread_rwlock_destroy(&lock->rwlock);
}

static inline void lock_rw_read(struct lock_rw *lock)
{
    LOCK_CHECK(take, lock);
    pthread_rwlock_rdlock(&lock->rwlock);
}

static inline void lock_rw_write(struct lock_rw *lock)
{
    LOCK_CHECK(take, lock);
    pthread_rwlock_wrlock(&lock->rwlock);
}

static inline void lock_rw_give(struct lock_rw *lock)
{
    LOCK_CHECK(give, lock);
    pthread_rwlock_unlock(&lock->rwlock);
}

/* Waits for a semaphore, through signals. No lock is needed if a thread waits for one event of another. */
static inline void lock_wait_for(sem_t *event)
{
    while (sem_wait(event) != 0 && errno == EINTR)
        ;
}
