/* thread: names of the daemon's threads (for `top -H` and debuggers) and their priority.
 *
 * Clients wait for workers, and workers wait for the log. Threads that save, expire, free or move memory have time:
 * when there are more runnable threads than processors, those run last. They get a small share nevertheless, because
 * others may wait for their locks, and the log grows until a save is done.
 *
 * Thread: each thread calls thread_begin*() for itself, at its beginning. */
#pragma once

/* The number of processors that this process may use. */
unsigned thread_processors(void);

/* `name` has at most 15 bytes. Blocks SIGHUP in this thread: the main thread handles it. */
void thread_begin(const char *name);

/* Likewise for a background thread: lowers its priority and that of the threads it starts. */
void thread_begin_background(const char *name);

/* Gives this thread a stack for handlers of signals, unless it has one; thread_begin*() does so. Without one an
 * overflow of the stack could not be reported (log.h). */
void thread_begin_signals(void);
