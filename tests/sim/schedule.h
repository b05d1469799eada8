/* schedule: runs the threads of this process one at a time, in an order that a seed chooses, under a clock that only
 * the schedule moves. The program's own definitions of the C library's calls for threads, time and sockets
 * (schedule_threads.c, schedule_calls.c) lead here; libuv and liburcu call them, too. So the daemon runs as it is: its
 * locks, waits, sleeps and polls are the points at which another thread may continue.
 *
 * A thread that was started outside of a run is left alone: its calls go to the C library.
 *
 * Thread: the functions of a run are for its threads, of which one runs at a time. */
#ifndef BLOOMERY_SIM_SCHEDULE_H
#define BLOOMERY_SIM_SCHEDULE_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

#define SCHEDULE_THREADS 96
#define SCHEDULE_FOREVER UINT64_MAX

struct schedule_options {
    uint64_t seed;
    unsigned switch_in;  /* at one in so many points another thread continues; 0: only where a thread waits */
    unsigned branch_in;  /* and at one in so many branches of the rooms that are compiled for it; 0: at none */
    unsigned point_ns;   /* time that passes between two points */
    uint64_t begin_ns;   /* the time at the beginning */
    uint64_t max_points; /* more are a thread that never ends: the process aborts */
};

/* The calling thread becomes a thread of the run. Threads that have stayed from the last run continue waiting. */
void schedule_begin(const struct schedule_options *options);
void schedule_end(void);

/* Whether the caller is a thread of a run. */
bool schedule_is_on(void);

/* Whether it has begun the run: the clients' thread. */
bool schedule_is_client(void);

/* Another thread may continue here. */
void schedule_point(void);

/* A branch of the rooms that are compiled for it: at some of them another thread goes on. */
void schedule_branch(void);

/* Another thread that can go on does. */
void schedule_yield(void);

/* The time of the run. */
uint64_t schedule_now_ns(void);
void schedule_pass(uint64_t ns);
void schedule_sleep(uint64_t ns);

/* Numbers of the seed; each of the two sequences is its own, so that the choices of clients stay as they are when the
 * daemon reaches another number of points. */
uint64_t schedule_random(void);
uint64_t schedule_client_random(void);

/* What has happened so far, in one number: equal for equal runs. schedule_note() adds to it. */
uint64_t schedule_trace(void);
void schedule_note(uint64_t what);
uint64_t schedule_points(void);

/* Calls `end` at the point with this number, in whichever thread is there; it does not return. */
void schedule_end_at(uint64_t point, void (*end)(void));

/* ---- for the calls ---- */

/* Waits until somebody wakes this address, or until then (schedule_now_ns()). False: the time is over. */
bool schedule_wait(const void *address, uint64_t until_ns);
void schedule_wake(const void *address);
int schedule_wake_some(const void *address, int n); /* chosen at random; their number */

/* As epoll_wait() and poll(). */
int schedule_epoll(int epfd, struct epoll_event *events, int size, uint64_t until_ns);
int schedule_poll(struct pollfd *fds, nfds_t n, uint64_t until_ns);

/* A descriptor was read or written: polls look again. */
void schedule_io(void);

int schedule_start_thread(pthread_t *id_out, const pthread_attr_t *attr, void *(*run)(void *arg), void *arg);
bool schedule_has_started(pthread_t id); /* it is a thread of a run, past or present */
int schedule_join(pthread_t id, void **value_out);
int schedule_detach(pthread_t id);
unsigned schedule_self(void); /* a number above 0, of the calling thread */

/* The C library's function of that name. */
void *schedule_real(const char *name);

#endif
