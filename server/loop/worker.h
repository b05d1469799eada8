/* worker: one thread with an event loop, and the connections that it serves for their whole life. Puts the parts of the
 * loop together: io (sockets, io.h) and the runner of commands (runner.h).
 *
 * An iteration of the loop reads, parses and runs the input of all readable connections. Pipelined BF.ADD and BF.EXISTS
 * use the pipeline (pipeline.h), which overlaps their cache misses across connections. At the end of the iteration each
 * connection's replies leave in one write, and the worker goes offline for RCU while it sleeps in poll.
 *
 * Thread rule: worker_post*(), worker_nconns() and worker_ticked_ms(): any. Everything else: the worker's own thread
 * ("loop"). */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#include "host.h"
#include "runner.h"

#define WORKER_TICK_MS (1000 / HOST_TICKS_PER_SECOND)

/* CLIENT KILLs that concern connections of the worker (host_close()). */
struct kills {
    _Atomic uint64_t posted, done;
};

struct worker {
    struct runner runner; /* comes first: its connections point to it */
    uint64_t entered_ns;  /* when it came online: clock_ns() */
    _Atomic int64_t ticked_ms;
    struct kills kills;

    uv_thread_t thread;
    uv_prepare_t before_poll;
    uv_check_t after_poll;
    uv_timer_t tick; /* checks clients that are idle or do not read */
};

static inline struct worker *worker_of(struct io *io)
{
    return (struct worker *)(void *)io;
}

/* The notices that handlers cause are expected (host.c). */
void host_init(struct worker *worker);

/* io_calls.may_hear. */
bool host_may_hear(const struct conn *conn);

/* Starts the thread. 0, -ENOMEM or another -errno. */
int worker_start(struct worker **worker_out, struct server *server, unsigned index);

/* Ends the worker, unless a gate has done so: offers the replies to the kernel, closes the connections and joins the
 * thread. Other threads may still post: workers are destroyed after all have stopped. */
void worker_stop(struct worker *worker);
void worker_destroy(struct worker *worker);

/* Gives the worker a connected socket, of a port with TLS or without. 0 or -ENOMEM (the caller still owns it). */
int worker_post_connection(struct worker *worker, int fd, bool with_tls);

/* Posts a call of run(worker, arg), under the rules of a message. 0 or -ENOMEM (nothing is posted). */
int worker_post(struct worker *worker, void (*run)(struct worker *worker, void *arg), void *arg);

/* Makes the worker finish its commands and then stand still until the gate opens: for the last save, which must see
 * every acknowledged add. */
struct worker_gate {
    sem_t passed; /* each worker posts it when it arrives and when it continues */
    sem_t open;   /* posted for each worker */
    bool ends;    /* decided before it opens: the workers end here, without running another command */
};
int worker_post_gate(struct worker *worker, struct worker_gate *gate);

unsigned worker_nconns(const struct worker *worker);

/* The time of its last tick, at which it has served its connections: clock_ms(). */
int64_t worker_ticked_ms(const struct worker *worker);
