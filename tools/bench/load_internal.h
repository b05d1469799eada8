/* load, inside: the threads of a run and their connections. load.c has the threads, load_client.c one connection. */
#ifndef BLOOMERY_BENCH_LOAD_INTERNAL_H
#define BLOOMERY_BENCH_LOAD_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "load.h"
#include "schedule.h"

#define LOAD_READ_SIZE (256 * 1024)

/* One connection. Requests under way: sent but not answered, oldest first in `since`, a ring. */
struct client {
    int fd;
    bool wants_write;
    unsigned under_way;
    unsigned oldest; /* place in `since` */
    uint64_t *since; /* ns, from when each request under way is charged to the server */
    char *out;       /* requests not taken by the kernel yet */
    size_t out_start, out_end;
    struct reply_reader reader;
};

struct worker {
    struct load_run *run;
    unsigned index;
    pthread_t thread;
    int epoll;
    struct client *clients;
    unsigned nclients;
    unsigned turn; /* open loop: the connection that is next */
    struct items items;
    uint64_t requests_left;   /* of this thread's share; UINT64_MAX: no limit */
    double rate;              /* of this thread; 0: closed loop */
    struct schedule schedule; /* open loop */
    uint64_t left_out;
    bool measuring;
    uint64_t answered; /* while measuring */
    _Atomic uint64_t answered_ever;
    double cpu_start, cpu;
    uint64_t began, ended; /* ns, of the measurement */
    char *input;
    struct hdr latency, lateness;
    int status;
    struct errbuf err;
};

struct load_run {
    const struct load_options *options;
    struct worker *workers;
    _Atomic bool stop;
    _Atomic unsigned running;
};

static inline uint64_t load_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Notes why the thread ends, and returns `status`. */
int worker_fail(struct worker *worker, int status, const char *what);

/* All of these: 0, or what worker_fail() has noted. */

int client_open(struct worker *worker, struct client *client, struct errbuf *err);
void client_close(struct client *client);

/* Hands to the kernel what it takes. */
int client_flush(struct worker *worker, struct client *client);

/* Puts a request into the buffer, charged from `since`. There is room for `pipeline` of them. */
void client_put(struct worker *worker, struct client *client, uint64_t since);

/* Closed loop: the next batch, when the one before is answered. */
int client_send_batch(struct worker *worker, struct client *client, uint64_t now);

/* Reads what has arrived, once. */
int client_take_replies(struct worker *worker, struct client *client);

#endif
