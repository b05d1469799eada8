/* schedule: runs the threads of this process one at a time. A seed chooses their order, and only the schedule moves
 * their clock. The program defines the C library's calls for threads, time and sockets itself (schedule_threads.c,
 * schedule_calls.c), also for libuv and liburcu. So the daemon runs unchanged: its locks, waits, sleeps and polls are
 * the points at which another thread may continue.
 *
 * Calls of threads from outside of a run go to the C library.
 *
 * Thread: the functions of a run are for its threads, of which one runs at a time. */
#pragma once

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
    unsigned switch_in;  /* another thread continues at one of this many points; 0: only where a thread waits */
    unsigned branch_in;  /* likewise of branches, in rooms that are compiled for it; 0: at none */
    unsigned point_ns;   /* time that passes between two points */
    uint64_t begin_ns;   /* the time at the beginning */
    uint64_t max_points; /* beyond them a thread never ends: the process aborts */
};

/* The calling thread becomes a thread of the run. Threads of an earlier run continue to wait. */
void schedule_begin(const struct schedule_options *options);
void schedule_end(void);

/* Whether the caller is a thread of a run. */
bool schedule_is_on(void);

/* Whether the caller has begun the run: the thread of the clients. */
bool schedule_is_client(void);

/* Another thread may continue here. */
void schedule_point(void);

/* A branch in a room that is compiled for it: at some branches another thread continues. Millions in a life. */
extern uint64_t schedule_branches; /* internal: up to the next switch; 0: there is none */
void schedule_branch_switch(void); /* internal */
static inline void schedule_branch(void)
{
    if (__builtin_expect(schedule_branches != 0, 1) && __builtin_expect(--schedule_branches == 0, 0))
        schedule_branch_switch();
}

/* Another thread continues if there is one that does not wait. */
void schedule_yield(void);

/* The time of the run. */
uint64_t schedule_now_ns(void);
void schedule_pass(uint64_t ns);
void schedule_sleep(uint64_t ns);

/* The time of day in Unix milliseconds, and how far it is ahead of the run's. */
uint64_t schedule_day_ms(void);
uint64_t schedule_day_ms_at(uint64_t ns, int64_t ahead_ms);
void schedule_set_day(int64_t ahead_ms);
void schedule_set_boot(uint64_t ns); /* when the time since the boot was 0 */
void schedule_stamp(
    const char *path); /* a real file or directory has changed now, by a clock of 4 ms as the kernel's */

/* Two sequences of numbers from the seed: the choices of clients do not depend on the number of points in the daemon.
 */
uint64_t schedule_random(void);
uint64_t schedule_client_random(void);

/* A key of a KEYED filter is one of a few, so that a model can know the hashes of items under each. The number `which`
 * of them. */
#define SCHEDULE_SECRETS      4
#define SCHEDULE_SECRET_BYTES 32
void schedule_secret(uint64_t which, unsigned char secret[SCHEDULE_SECRET_BYTES]);

/* A hash of all events so far: equal for equal runs. schedule_note() adds an event. */
uint64_t schedule_trace(void);
void schedule_note(uint64_t event);
uint64_t schedule_points(void);

/* Calls `end` at the point with this number, in the thread that is there. `end` does not return. */
void schedule_end_at(uint64_t point, void (*end)(void));

/* ---- for the calls ---- */

/* Waits until somebody wakes this address, or until a time (schedule_now_ns()). False: the time is over. */
bool schedule_wait(const void *address, uint64_t until_ns);
void schedule_wake(const void *address);
int schedule_wake_some(const void *address, int n); /* at most n, chosen at random; returns their number */

/* As epoll_wait() and poll(). */
int schedule_epoll(int epfd, struct epoll_event *events, int size, uint64_t until_ns);
int schedule_poll(struct pollfd *fds, nfds_t n, uint64_t until_ns);

/* A descriptor was read or written: polls look again. */
void schedule_io(void);

int schedule_start_thread(pthread_t *id_out, const pthread_attr_t *attr, void *(*run)(void *arg), void *arg);
bool schedule_has_started(pthread_t id); /* a thread of a run, past or present */
int schedule_join(pthread_t id, void **value_out);
int schedule_detach(pthread_t id);
unsigned schedule_self(void); /* a number above 0, of the calling thread */
void schedule_set_name(const char *name);
const char *schedule_name(void);

/* The C library's function of that name. */
void *schedule_real(const char *name);
