/* thread: what the threads of the daemon are called, in `top -H` and in debuggers, on which processors they run, and which
 * of them give way.
 *
 * Clients wait for workers, and workers for the log. What saves, expires, frees and moves memory has time: where there are
 * more threads that want to run than processors, it is to run when they do not. It must go on nevertheless, since others
 * may wait for its lock, and a save for ever would let the log grow for ever: so it gets a small share, not none.
 *
 * Thread: thread_begin*() is called by the thread that it is about, at its beginning; thread_pin() and thread_processors()
 * before there are others. */
#ifndef BLOOMERY_THREAD_H
#define BLOOMERY_THREAD_H

#include <sched.h>

enum thread_kind {
    THREAD_SERVER,     /* main, workers; loaders, in whose time there is nothing to serve */
    THREAD_BACKGROUND, /* everything else */
    THREAD_SAVER,
    THREAD_KINDS
};

/* Has the threads of this kind run on these processors; `got_out` has those of them that the process can have. 0, or
 * -EINVAL if it can have none of them: then nothing has changed. */
int thread_pin(enum thread_kind kind, const cpu_set_t *wanted, cpu_set_t *got_out) __attribute__((warn_unused_result));

/* On how many processors threads of the kind may run. */
unsigned thread_processors(enum thread_kind kind);

/* `name` has at most 15 bytes. SIGHUP is blocked from here on: it is the main thread's. */
void thread_begin(enum thread_kind kind, const char *name);

/* Likewise, for one that gives way, with the threads that it starts. */
void thread_begin_background(enum thread_kind kind, const char *name);

/* For the main thread, which has its name: it runs on the processors of its kind from here on. */
void thread_begin_main(void);

#endif
