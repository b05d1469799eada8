/* thread: names of the daemon's threads (for `top -H` and debuggers), their processors, and their priority.
 *
 * Clients wait for workers, and workers wait for the log. Threads that save, expire, free or move memory have time:
 * when there are more runnable threads than processors, those run last. They get a small share nevertheless, because
 * others may wait for their locks, and the log grows until a save is done.
 *
 * Thread: each thread calls thread_begin*() for itself, at its beginning; thread_pin() and thread_processors() are
 * called before a second thread exists. */
#ifndef BLOOMERY_THREAD_H
#define BLOOMERY_THREAD_H

#include <sched.h>

enum thread_kind {
    THREAD_SERVER,     /* main, workers; loaders, because nothing is served while they run */
    THREAD_BACKGROUND, /* everything else */
    THREAD_SAVER,
    THREAD_KINDS
};

/* Pins the threads of this kind to these processors; `got_out` receives those that the process may use. 0, or -EINVAL
 * with nothing changed if it may use none. */
int thread_pin(enum thread_kind kind, const cpu_set_t *wanted, cpu_set_t *got_out) __attribute__((warn_unused_result));

/* The number of processors that threads of the kind may use. */
unsigned thread_processors(enum thread_kind kind);

/* `name` has at most 15 bytes. Blocks SIGHUP in this thread: the main thread handles it. */
void thread_begin(enum thread_kind kind, const char *name);

/* Likewise for a background thread: lowers its priority and that of the threads it starts. */
void thread_begin_background(enum thread_kind kind, const char *name);

/* Gives this thread a stack for handlers of signals, unless it has one; thread_begin*() does so. Without one an
 * overflow of the stack could not be reported (crash_report.h). */
void thread_begin_signals(void);

/* For the main thread, which keeps its name: pins it to the processors of its kind. */
void thread_begin_main(void);

#endif
