#include "thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

/* A tenth of the share of others. SCHED_IDLE would give next to none, and a thread that holds the lock of the address space
 * would keep the workers waiting for it: ten times as long in the slowest requests, measured. */
#define GIVES_WAY 10

#define NICE_MAX 19

/* Set before there is a second thread. A thread has the processors of the one that has started it, which may be of another
 * kind: so once any kind is pinned each thread sets its own, if only to those that the process has begun with. */
static struct {
    bool any;
    bool pinned[THREAD_KINDS];
    cpu_set_t of[THREAD_KINDS];
    cpu_set_t of_process;
} processors;

/* What the kernel makes of a list: it leaves out what is not there, or not ours by the cpuset of a container. */
static int try_processors(const cpu_set_t *wanted, cpu_set_t *got_out)
{
    if (sched_setaffinity(0, sizeof(*wanted), wanted) != 0 || sched_getaffinity(0, sizeof(*got_out), got_out) != 0)
        return -errno;
    CPU_AND(got_out, got_out, wanted);
    return 0;
}

int thread_pin(enum thread_kind kind, const cpu_set_t *wanted, cpu_set_t *got_out)
{
    if (!processors.any && sched_getaffinity(0, sizeof(processors.of_process), &processors.of_process) != 0)
        return -errno;
    int status = try_processors(wanted, got_out);
    (void)sched_setaffinity(0, sizeof(processors.of_process), &processors.of_process);
    if (status)
        return status;
    processors.of[kind] = *got_out;
    processors.pinned[kind] = processors.any = true;
    return 0;
}

unsigned thread_processors(enum thread_kind kind)
{
    if (processors.pinned[kind])
        return (unsigned)CPU_COUNT(&processors.of[kind]);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 1;
}

static void take_place(enum thread_kind kind)
{
    if (!processors.any)
        return;
    if (kind == THREAD_SAVER && !processors.pinned[kind])
        kind = THREAD_BACKGROUND;
    const cpu_set_t *set = processors.pinned[kind] ? &processors.of[kind] : &processors.of_process;
    (void)sched_setaffinity(0, sizeof(*set), set);
}

/* A SIGHUP is for the main thread. At the end, when nobody watches for it, it would end the process. */
static void leave_sighup_alone(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void thread_begin(enum thread_kind kind, const char *name)
{
    leave_sighup_alone();
    take_place(kind);
    (void)pthread_setname_np(pthread_self(), name); /* last: who finds the name finds the rest, too */
}

void thread_begin_main(void)
{
    take_place(THREAD_SERVER);
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

void thread_begin_background(enum thread_kind kind, const char *name)
{
    give_way();
    thread_begin(kind, name);
}
