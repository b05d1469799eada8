/* schedule_turns: passes the turn from one thread of a run to another. A thread runs from turn_pass() to it until it
 * passes the turn on.
 *
 * Where that is possible one thread of the system carries all: it takes the stack and the thread-local memory of the
 * next one, whose own thread of the system sleeps. That takes some 20 ns; to wake another thread takes 5 us.
 *
 * Lifetime: turn_create() to turn_join(), or turn_begin() to the end of the run. Thread: the one whose turn it is. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

struct turn {
    pthread_t thread;
    void (*body)(void *arg);
    void *arg;
    void *stack, *local; /* while another has the turn */
    _Atomic int goes;    /* futex: 1 when its thread of the system may go on */
    _Atomic int stands;  /* futex: 1 when that waits for it */
};

/* The calling thread is the one that has the first turn. */
void turn_begin(struct turn *own);

/* A thread that runs `body` from its first turn on. `body` ends with turn_end(). 0 or an error number. */
int turn_create(struct turn *turn, void (*body)(void *arg), void *arg);

/* Returns at the next turn of `own`. */
void turn_pass(struct turn *own, struct turn *to);

/* The last turn of `own`: `body` may return after it, and does nothing before. */
void turn_end(struct turn *own, struct turn *to);

/* After turn_end(): waits until the C library has ended the thread. */
void turn_join(struct turn *turn);
