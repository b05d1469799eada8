/* worker: one event loop in one thread, and the connections that it serves for their whole life.
 *
 * An iteration of the loop: what has arrived on all readable connections is read, parsed and run, pipelined BF.ADD and
 * BF.EXISTS through the window (window.h) that overlaps their cache misses across connections; at the end of the iteration
 * each connection's replies leave in one write, and the worker goes offline for RCU while it sleeps in poll.
 *
 * Thread rule: worker_post*() and worker_nconns(): any. Everything else: the worker's own thread ("loop"). */
#ifndef BLOOMERY_WORKER_H
#define BLOOMERY_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#include "resp_parse.h"
#include "server.h"
#include "stats.h"
#include "window.h"

struct conn;

#define WORKER_ARENA_SIZE (1024 * 1024) /* what one iteration reads before the window has to be emptied */
#define WORKER_READ_SIZE  (64 * 1024)   /* most that is read from one connection at a time */
#define WORKER_TICK_MS    100
#define WORKER_SPARE_BUFS 64            /* reply buffers kept for reuse */
#define WORKER_BUF_SIZE   (16 * 1024)

struct worker_message;

struct worker {
    struct server *server;
    unsigned index;
    uv_loop_t loop;
    uv_thread_t thread;
    uv_async_t wake;              /* the mailbox has something */
    uv_prepare_t before_poll;
    uv_check_t after_poll;
    uv_timer_t tick;              /* idle clients, and those that do not read */

    pthread_mutex_t mail_lock;
    struct worker_message *mail;  /* newest first */

    struct conn *conns;           /* all of them */
    _Atomic unsigned nconns;
    struct conn *with_replies;    /* those whose replies leave at the end of the iteration */

    size_t counter_bf_exists, counter_bf_add; /* command_index() of the two */
    bool online;                  /* an RCU reader right now */
    bool stopping;
    bool ended_at_gate;           /* written under the gate's lock */
    bool over_memory;             /* maxmemory is reached; looked at once per iteration */
    struct resp_limits limits;    /* the settings, copied once per iteration */
    struct resp_limits limits_noauth;
    size_t high_water;
    int64_t now_ms;               /* monotonic, of this iteration */

    char *arena;                  /* input of this iteration; slices of it are valid until the window is emptied */
    size_t arena_used;
    struct resp_args args;        /* lent to the parsers */
    struct window window;
    char *spare_bufs[WORKER_SPARE_BUFS];
    unsigned nspare;

    struct stats stats;
};

/* Starts the thread. 0, -ENOMEM or another -errno. */
int worker_start(struct worker **worker_out, struct server *server, unsigned index);

/* Ends it, unless a gate has ended it already: connections are closed after their replies were offered to the kernel; joins
 * the thread and frees the worker. */
void worker_stop(struct worker *worker);

/* Hands a connected socket over; the worker owns it from now on. 0 or -ENOMEM (the socket is still the caller's). */
int worker_post_connection(struct worker *worker, int fd);

/* Makes the worker finish what it has begun and then stand still until the gate opens: for the last save, which must see
 * every acknowledged add. */
struct worker_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned arrived;
    bool open;
    bool ends;    /* decided before it opens: the workers end here, without running another command */
};
int worker_post_gate(struct worker *worker, struct worker_gate *gate);

unsigned worker_nconns(const struct worker *worker);

/* To be called at the start of every callback that touches shared structures. */
void worker_enter(struct worker *worker);

/* Empties the window, sends the replies, goes offline. */
void worker_finish(struct worker *worker);

/* A reply buffer of WORKER_BUF_SIZE bytes, from the spare ones if there are any; NULL without memory. */
char *worker_buf_get(struct worker *worker);
void worker_buf_put(struct worker *worker, char *mem);

#endif
