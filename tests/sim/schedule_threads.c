/* The C library's calls for threads within a run of the schedule. Mutexes and the like keep their state in the
 * library's types, whose zeros mean the same. A thread waits for the address of such an object. */
#include "schedule.h"

#include <errno.h>
#include <semaphore.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* Declares `real` as the C library's function, for threads outside of a run. */
#define REAL(name)                 \
    static __typeof__(&name) real; \
    if (!real)                     \
    *(void **)&real = schedule_real(#name)

static uint64_t time_of(const struct timespec *until, clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    int64_t left = ((int64_t)until->tv_sec - now.tv_sec) * 1000000000 + until->tv_nsec - now.tv_nsec;
    return schedule_now_ns() + (left > 0 ? (uint64_t)left : 0);
}

/* ---- threads ---- */

int pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    REAL(pthread_create);
    return schedule_is_on() ? schedule_start_thread(id, attr, run, arg) : real(id, attr, run, arg);
}

int pthread_join(pthread_t id, void **value)
{
    REAL(pthread_join);
    if (!schedule_is_on() && schedule_has_started(id))
        return 0; /* the end of the process, for which libuv would wait for its pool */
    return schedule_is_on() ? schedule_join(id, value) : real(id, value);
}

int pthread_detach(pthread_t id)
{
    REAL(pthread_detach);
    return schedule_is_on() ? schedule_detach(id) : real(id);
}

int pthread_setname_np(pthread_t id, const char *name)
{
    REAL(pthread_setname_np);
    if (!schedule_is_on())
        return real(id, name);
    schedule_set_name(name); /* threads name themselves */
    return 0;
}

int prctl(int option, ...)
{
    static int (*real)(int, ...);
    unsigned long a[4];
    va_list arguments;
    va_start(arguments, option);
    for (int i = 0; i < 4; i++)
        a[i] = va_arg(arguments, unsigned long);
    va_end(arguments);
    if (!real)
        *(void **)&real = schedule_real("prctl");
    if (!schedule_is_on() || option != PR_GET_NAME)
        return real(option, a[0], a[1], a[2], a[3]);
    strcpy((char *)a[0], schedule_name()); // NOLINT(performance-no-int-to-ptr)
    return 0;
}

/* ---- mutexes ---- */

static bool take(pthread_mutex_t *mutex)
{
    bool recursive = (mutex->__data.__kind & 3) == PTHREAD_MUTEX_RECURSIVE;
    if (mutex->__data.__lock && !(recursive && mutex->__data.__owner == (int)schedule_self()))
        return false;
    mutex->__data.__lock = 1;
    mutex->__data.__owner = (int)schedule_self();
    mutex->__data.__count++;
    return true;
}

static void give(pthread_mutex_t *mutex)
{
    if (--mutex->__data.__count > 0)
        return;
    mutex->__data.__lock = 0;
    mutex->__data.__owner = 0;
    schedule_wake(mutex);
}

static int take_in_turn(pthread_mutex_t *mutex)
{
    while (!take(mutex))
        schedule_wait(mutex, SCHEDULE_FOREVER);
    return 0;
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    REAL(pthread_mutex_lock);
    if (!schedule_is_on())
        return real(mutex);
    schedule_point();
    return take_in_turn(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    REAL(pthread_mutex_trylock);
    if (!schedule_is_on())
        return real(mutex);
    schedule_point();
    return take(mutex) ? 0 : EBUSY;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    REAL(pthread_mutex_unlock);
    if (!schedule_is_on())
        return real(mutex);
    give(mutex);
    schedule_point();
    return 0;
}

/* ---- conditions ---- */

static int wait_with(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ns)
{
    give(mutex);
    bool woken = schedule_wait(cond, until_ns);
    take_in_turn(mutex);
    return woken ? 0 : ETIMEDOUT;
}

int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    REAL(pthread_cond_wait);
    return schedule_is_on() ? wait_with(cond, mutex, SCHEDULE_FOREVER) : real(cond, mutex);
}

/* Called by libuv only, whose conditions use the monotonic clock. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
    REAL(pthread_cond_timedwait);
    return schedule_is_on() ? wait_with(cond, mutex, time_of(until, CLOCK_MONOTONIC)) : real(cond, mutex, until);
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
    REAL(pthread_cond_clockwait);
    return schedule_is_on() ? wait_with(cond, mutex, time_of(until, clock)) : real(cond, mutex, clock, until);
}

int pthread_cond_signal(pthread_cond_t *cond)
{
    REAL(pthread_cond_signal);
    if (!schedule_is_on())
        return real(cond);
    schedule_wake_some(cond, 1);
    schedule_point();
    return 0;
}

int pthread_cond_broadcast(pthread_cond_t *cond)
{
    REAL(pthread_cond_broadcast);
    if (!schedule_is_on())
        return real(cond);
    schedule_wake(cond);
    schedule_point();
    return 0;
}

/* ---- locks of readers and writers ---- */

static bool take_to_read(pthread_rwlock_t *lock)
{
    if (lock->__data.__cur_writer)
        return false;
    lock->__data.__readers++;
    return true;
}

static bool take_to_write(pthread_rwlock_t *lock)
{
    if (lock->__data.__cur_writer || lock->__data.__readers)
        return false;
    lock->__data.__cur_writer = (int)schedule_self();
    return true;
}

int pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
    REAL(pthread_rwlock_rdlock);
    if (!schedule_is_on())
        return real(lock);
    schedule_point();
    while (!take_to_read(lock))
        schedule_wait(lock, SCHEDULE_FOREVER);
    return 0;
}

int pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
    REAL(pthread_rwlock_wrlock);
    if (!schedule_is_on())
        return real(lock);
    schedule_point();
    while (!take_to_write(lock))
        schedule_wait(lock, SCHEDULE_FOREVER);
    return 0;
}

int pthread_rwlock_tryrdlock(pthread_rwlock_t *lock)
{
    REAL(pthread_rwlock_tryrdlock);
    if (!schedule_is_on())
        return real(lock);
    return take_to_read(lock) ? 0 : EBUSY;
}

int pthread_rwlock_trywrlock(pthread_rwlock_t *lock)
{
    REAL(pthread_rwlock_trywrlock);
    if (!schedule_is_on())
        return real(lock);
    return take_to_write(lock) ? 0 : EBUSY;
}

int pthread_rwlock_unlock(pthread_rwlock_t *lock)
{
    REAL(pthread_rwlock_unlock);
    if (!schedule_is_on())
        return real(lock);
    if (lock->__data.__cur_writer)
        lock->__data.__cur_writer = 0;
    else
        lock->__data.__readers--;
    schedule_wake(lock);
    schedule_point();
    return 0;
}

/* ---- semaphores: the value is the first word, as sem_init() leaves it ---- */

static bool take_one(sem_t *sem)
{
    unsigned *value = (unsigned *)(void *)sem;
    if (*value == 0)
        return false;
    --*value;
    return true;
}

static int take_one_until(sem_t *sem, uint64_t until_ns)
{
    schedule_point();
    while (!take_one(sem))
        if (!schedule_wait(sem, until_ns)) {
            errno = ETIMEDOUT;
            return -1;
        }
    return 0;
}

int sem_wait(sem_t *sem)
{
    REAL(sem_wait);
    return schedule_is_on() ? take_one_until(sem, SCHEDULE_FOREVER) : real(sem);
}

int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until)
{
    REAL(sem_clockwait);
    return schedule_is_on() ? take_one_until(sem, time_of(until, clock)) : real(sem, clock, until);
}

int sem_trywait(sem_t *sem)
{
    REAL(sem_trywait);
    if (!schedule_is_on())
        return real(sem);
    schedule_point();
    if (take_one(sem))
        return 0;
    errno = EAGAIN;
    return -1;
}

int sem_post(sem_t *sem)
{
    REAL(sem_post);
    if (!schedule_is_on())
        return real(sem);
    ++*(unsigned *)(void *)sem;
    schedule_wake(sem);
    schedule_point();
    return 0;
}

/* ---- barriers, and pthread_once() ---- */

struct barrier {
    unsigned size, arrived;
    uint64_t round;
};
_Static_assert(sizeof(struct barrier) <= sizeof(pthread_barrier_t), "a barrier has room");

int pthread_barrier_init(pthread_barrier_t *barrier, const pthread_barrierattr_t *attr, unsigned size)
{
    REAL(pthread_barrier_init);
    if (!schedule_is_on())
        return real(barrier, attr, size);
    *(struct barrier *)(void *)barrier = (struct barrier){.size = size};
    return 0;
}

int pthread_barrier_destroy(pthread_barrier_t *barrier)
{
    REAL(pthread_barrier_destroy);
    return schedule_is_on() ? 0 : real(barrier);
}

int pthread_barrier_wait(pthread_barrier_t *barrier)
{
    REAL(pthread_barrier_wait);
    if (!schedule_is_on())
        return real(barrier);
    struct barrier *b = (struct barrier *)(void *)barrier;
    if (++b->arrived == b->size) {
        b->arrived = 0;
        b->round++;
        schedule_wake(b);
        return PTHREAD_BARRIER_SERIAL_THREAD;
    }
    for (uint64_t round = b->round; round == b->round;)
        schedule_wait(b, SCHEDULE_FOREVER);
    return 0;
}

enum once { ONCE_NOT, ONCE_RUNS, ONCE_DONE };

/* Before a run there is one thread, or there are those of a fuzzer, which use other objects. */
int pthread_once(pthread_once_t *once, void (*run)(void))
{
    if (*once == ONCE_DONE)
        return 0;
    while (schedule_is_on() && *once == ONCE_RUNS)
        schedule_wait(once, SCHEDULE_FOREVER);
    if (*once != ONCE_NOT)
        return 0;
    *once = ONCE_RUNS;
    run();
    *once = ONCE_DONE;
    if (schedule_is_on())
        schedule_wake(once);
    return 0;
}
