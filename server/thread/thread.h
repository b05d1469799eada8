/* thread: what the threads of the daemon are called, in `top -H` and in debuggers, and which of them give way.
 *
 * Clients wait for workers, and workers for the log. What saves, expires, frees and moves memory has time: where there are
 * more threads that want to run than processors, it is to run when they do not. It must go on nevertheless, since others
 * may wait for its lock, and a save for ever would let the log grow for ever: so it gets a small share, not none.
 *
 * Thread: each function is called by the thread that it is about, at its beginning. */
#ifndef BLOOMERY_THREAD_H
#define BLOOMERY_THREAD_H

/* `name` has at most 15 bytes. */
void thread_begin(const char *name);

/* Likewise, for one that gives way, with the threads that it starts. */
void thread_begin_background(const char *name);

#endif
