#include "thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

/* Nice value of background threads: a tenth of the share of others. SCHED_IDLE would give next to none, and workers
 * would wait for a thread that holds the lock of the address space: the slowest requests took ten times as long,
 * measured. */
#define GIVES_WAY 10

#define NICE_MAX 19

/* Of a thread: the frame of a signal has up to 11 KB where processors have large registers, and the unwinder takes
 * some. */
#define SIGNAL_STACK 65536

/* Set before there is a second thread. A thread inherits the processors of the thread that starts it, which may be of
 * another kind. So once any kind is pinned, each thread sets its own processors, if only to those of the process's
 * start. */
static struct {
    bool any;
    bool pinned[THREAD_KINDS];
    cpu_set_t of[THREAD_KINDS];
    cpu_set_t of_process;
} processors;

/* Asks the kernel for the processors of a list that the process may use: it leaves out those that do not exist or that
 * the container's cpuset excludes. */
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

static void set_affinity(enum thread_kind kind)
{
    if (!processors.any)
        return;
    if (kind == THREAD_SAVER && !processors.pinned[kind])
        kind = THREAD_BACKGROUND;
    const cpu_set_t *set = processors.pinned[kind] ? &processors.of[kind] : &processors.of_process;
    (void)sched_setaffinity(0, sizeof(*set), set);
}

/* The main thread handles SIGHUP. At the end of the daemon nothing handles it any more, and it would end the
 * process. */
static void leave_sighup_alone(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void thread_begin_signals(void)
{
    static _Thread_local char stack[SIGNAL_STACK];
    stack_t now, own = {.ss_sp = stack, .ss_size = sizeof(stack)};
    if (sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_DISABLE)) /* otherwise it is a sanitizer's */
        (void)sigaltstack(&own, NULL);
}

void thread_begin(enum thread_kind kind, const char *name)
{
    thread_begin_signals();
    leave_sighup_alone();
    set_affinity(kind);
    (void)pthread_setname_np(pthread_self(), name); /* last: a reader of the name finds the other settings done */
}

void thread_begin_main(void)
{
    set_affinity(THREAD_SERVER);
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

void thread_begin_background(enum thread_kind kind, const char *name)
{
    lower_priority();
    thread_begin(kind, name);
}
