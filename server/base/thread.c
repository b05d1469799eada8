#include "thread.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

/* Nice value of background threads: a tenth of the share of others. SCHED_IDLE would give next to none, and workers
 * would wait for a thread with the lock of the address space: the slowest requests took ten times as long. */
#define GIVES_WAY 10

#define NICE_MAX 19

/* Of a thread: the frame of a signal has up to 11 KB where processors have large registers, the unwinder takes some. */
#ifndef SIGNAL_STACK
#define SIGNAL_STACK 65536
#endif

unsigned thread_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return (unsigned)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN); /* more processors than the set can name */
    return n > 0 ? (unsigned)n : 1;
}

void thread_begin_signals(void)
{
    static _Thread_local char stack[SIGNAL_STACK];
    stack_t now, own = {.ss_sp = stack, .ss_size = sizeof(stack)};
    if (sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_DISABLE)) /* otherwise it is a sanitizer's */
        (void)sigaltstack(&own, NULL);
}

void thread_begin(const char *name)
{
    thread_begin_signals();
    sigset_t set; /* the main thread handles it; at the end of the daemon nothing does, and it would end the process */
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    (void)pthread_setname_np(pthread_self(), name); /* last: a reader of the name finds the other settings done */
}

/* A call that is not permitted changes timing only. */
static void lower_priority(void)
{
    id_t self = (id_t)gettid();
    struct sched_param none = {0};
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, self); /* may be -1 */
    if (errno == 0)
        (void)setpriority(PRIO_PROCESS, self, nice + GIVES_WAY < NICE_MAX ? nice + GIVES_WAY : NICE_MAX);
    (void)sched_setscheduler(0, SCHED_BATCH, &none); /* a wake-up does not preempt other threads */
}

void thread_begin_background(const char *name)
{
    lower_priority();
    thread_begin(name);
}
