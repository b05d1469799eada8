/* load, inside: the threads of a run and their connections. load.c has the threads, load_client.c one connection. */
#ifndef BLOOMERY_BENCH_LOAD_INTERNAL_H
#define BLOOMERY_BENCH_LOAD_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "buf.h"
#include "load.h"
#include "schedule.h"
#include "clock.h"

#define LOAD_READ_SIZE (256 * 1024)
#define LOAD_RECORDS   ((size_t)1 << 30) /* of a connection on their way, at most */

/* One connection. Requests under way: sent but not answered, oldest first in `since`, a ring. */
struct client {
    int fd;
    bool wants_write;
    unsigned under_way;
    unsigned oldest; /* place in `since` */
    uint64_t *since; /* ns, from when each request under way is charged to the server */
    char *out;       /* requests not taken by the kernel yet */
    size_t out_start, out_end;
    struct tls_stream *tls; /* NULL: none; then requests become records at once: */
    struct buf records;     /* not taken by the kernel yet */
    struct reply_reader reader;
};

/* Of one thread, from the end of the warm-up on. */
struct measurement {
    bool on;
    uint64_t began, ended; /* ns */
    double cpu_start, cpu; /* seconds of the thread */
    uint64_t answered;
    uint64_t left_out;
    struct hdr latency, lateness;
};

struct worker {
    struct load_run *run;
    unsigned index;
    pthread_t thread;
    int epoll;
    struct client *clients;
    unsigned nclients;
    unsigned turn; /* open loop: the next connection */
    struct items items;
    uint64_t requests_left;   /* of this thread's share; UINT64_MAX: no limit */
    double rate;              /* of this thread; 0: closed loop */
    struct schedule schedule; /* open loop */
    struct measurement measured;
    _Atomic uint64_t answered_ever;
    char *input;
    char *received; /* with TLS: the encrypted bytes of `input` */
    int status;
    struct errbuf err;
};

struct load_run {
    const struct load_options *options;
    struct worker *workers;
    _Atomic bool stop;
    _Atomic unsigned running;
};

/* Notes the reason for which the thread ends, and returns `status`. */
int worker_fail(struct worker *worker, int status, const char *what);

/* All of these return 0, or the status given to worker_fail(). */

int client_open(struct worker *worker, struct client *client, struct errbuf *err);
void client_close(struct client *client);

/* Writes as much as the kernel accepts. */
int client_flush(struct worker *worker, struct client *client);

/* Puts a request into the buffer, charged from `since`. There is room for `pipeline` of them. */
void client_put(struct worker *worker, struct client *client, uint64_t since);

/* Closed loop: the next batch, when the one before is answered. */
int client_send_batch(struct worker *worker, struct client *client, uint64_t now);

/* Reads the arrived data once. */
int client_take_replies(struct worker *worker, struct client *client);

#endif
