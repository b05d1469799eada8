#include "thread.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

/* A tenth of the share of others. SCHED_IDLE would give next to none, and a thread that holds the lock of the address space
 * would keep the workers waiting for it: ten times as long in the slowest requests, measured. */
#define GIVES_WAY 10

#define NICE_MAX 19

void thread_begin(const char *name)
{
    (void)pthread_setname_np(pthread_self(), name);
}

/* Whatever of it is not permitted changes nothing but times. */
static void give_way(void)
{
    id_t self = (id_t)gettid();
    struct sched_param none = {0};
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, self); /* may be -1 */
    if (errno == 0)
        (void)setpriority(PRIO_PROCESS, self, nice + GIVES_WAY < NICE_MAX ? nice + GIVES_WAY : NICE_MAX);
    (void)sched_setscheduler(0, SCHED_BATCH, &none); /* when it wakes up it does not take a processor from others */
}

void thread_begin_background(const char *name)
{
    give_way();
    thread_begin(name); /* last: who finds the name finds the share, too */
}
