#include "lock.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef BLOOMERY_VERIFY
#define SET_RANK(lock, of_rank) ((lock)->rank = (of_rank))
#else
#define SET_RANK(lock, of_rank) ((void)(of_rank))
#endif

void lock_init(struct lock *lock, enum lock_rank rank)
{
    pthread_mutex_init(&lock->mutex, NULL);
    SET_RANK(lock, rank);
}

void lock_init_spinning(struct lock *lock, enum lock_rank rank)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&lock->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    SET_RANK(lock, rank);
}

void lock_rw_init(struct lock_rw *lock, enum lock_rank rank)
{
    pthread_rwlock_init(&lock->rwlock, NULL);
    SET_RANK(lock, rank);
}

#ifdef BLOOMERY_VERIFY
#define HELD_MAX 16

struct held {
    enum lock_rank rank;
    const void *lock;
};

static _Thread_local struct held held[HELD_MAX]; /* in the order of their taking */
static _Thread_local size_t nheld;

static const char *name_of(enum lock_rank rank)
{
    static const char *const names[] = {
#define LOCK(rank, guards) #rank,
#include "locks.def"
#undef LOCK
    };
    return names[rank];
}

static void fault(const char *what, enum lock_rank rank, enum lock_rank other)
{
    fprintf(stderr, "bug: the lock %s is %s the lock %s (base/locks.def)\n", name_of(rank), what, name_of(other));
    abort();
}

void lock_check_take(enum lock_rank rank, const void *lock)
{
    for (size_t i = 0; i < nheld; i++) {
        bool rises = held[i].rank < rank || (held[i].rank == rank && rank == RANK_ADDS && held[i].lock < lock);
        if (!rises)
            fault("taken under", rank, held[i].rank);
    }
    if (nheld == HELD_MAX)
        fault("one too many under", rank, held[nheld - 1].rank);
    held[nheld++] = (struct held){rank, lock};
}

void lock_check_give(enum lock_rank rank, const void *lock)
{
    size_t i = nheld;
    while (i > 0 && held[i - 1].lock != lock)
        i--;
    if (i == 0)
        fault("given and not held; of", rank, rank);
    for (nheld--; i <= nheld; i++)
        held[i - 1] = held[i];
}

void lock_check_wait(enum lock_rank rank, const void *lock)
{
    if (nheld == 0)
        fault("waited with and not held; of", rank, rank);
    if (held[nheld - 1].lock != lock)
        fault("waited with under", rank, held[nheld - 1].rank);
}
#endif
