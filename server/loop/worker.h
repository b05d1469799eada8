/* worker: one event loop in one thread, and the connections that it serves for their whole life.
 *
 * An iteration of the loop: the input of all readable connections is read, parsed and run, pipelined BF.ADD and
 * BF.EXISTS through the window (window.h), which overlaps their cache misses across connections. At the end of the
 * iteration each connection's replies leave in one write, and the worker goes offline for RCU while it sleeps in poll.
 *
 * Other threads post messages to a worker (mailbox.h).
 *
 * Thread rule: worker_post*(), worker_nconns() and worker_ticked_ms(): any. Everything else: the worker's own thread
 * ("loop"). */
#ifndef BLOOMERY_WORKER_H
#define BLOOMERY_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#include "admission.h"
#include "clock.h"
#include "conn_list.h"
#include "delivery.h"
#include "exclusive.h"
#include "handshakes.h"
#include "host.h"
#include "input.h"
#include "job.h"
#include "keyed.h"
#include "log_waits.h"
#include "mailbox.h"
#include "monitor.h"
#include "push.h"
#include "server.h"
#include "sleep.h"
#include "stats.h"
#include "timing.h"
#include "tracking.h"
#include "turns.h"
#include "window.h"

struct conn;

#define WORKER_TICK_MS (1000 / HOST_TICKS_PER_SECOND)

/* CLIENT KILLs that concern connections of the worker (host_close()). */
struct kills {
    _Atomic uint64_t posted, done;
};

/* The message that users have been changed (host_users_changed()). */
struct users_message {
    struct worker_message message;
    atomic_bool posted;
};

void worker_look_at_users(struct worker *worker, struct worker_message *message); /* its `run` */

/* Each part belongs to the module of its name. */
struct worker {
    struct server *server;
    unsigned index;
    bool online;        /* an RCU reader right now */
    bool stopping;      /* there are no connections any more */
    bool ended_at_gate; /* written under the gate's lock */
    int64_t now_ms;     /* monotonic, of this iteration */

    uv_loop_t loop;
    uv_thread_t thread;
    uv_prepare_t before_poll;
    uv_check_t after_poll;
    uv_timer_t tick; /* checks clients that are idle or do not read */

    struct conn *conns; /* all of them */
    _Atomic unsigned nconns;
    _Atomic int64_t ticked_ms;
    size_t slice_items; /* of the next slice of a command with many items: command_slice_items() */

    struct mailbox mailbox;
    struct input input;
    struct admission admission;
    struct window window;
    struct turns turns;
    struct handshakes handshakes;
    struct log_waits log;
    struct delivery delivery;
    struct push_queue push;
    struct section section;
    struct held_jobs jobs_held;
    struct sleepers sleepers;
    struct trackers trackers;
    struct monitor monitor;
    struct keyed keyed;
    struct kills kills;
    struct users_message users;
    struct stats stats;
    struct timing timing;
};

/* Starts the thread. 0, -ENOMEM or another -errno. */
int worker_start(struct worker **worker_out, struct server *server, unsigned index);

/* Ends the worker, unless a gate has done so: offers the replies to the kernel, closes the connections and joins the
 * thread. Other threads may still post: workers are destroyed after all have stopped. */
void worker_stop(struct worker *worker);
void worker_destroy(struct worker *worker);

/* Gives the worker a connected socket, of a port with TLS or without. 0 or -ENOMEM (the caller still owns it). */
int worker_post_connection(struct worker *worker, int fd, bool with_tls);

/* Posts a message in the caller's memory, which must stay valid until it has run. Never fails. */
void worker_post_message(struct worker *worker, struct worker_message *message);

/* Posts a call of run(worker, arg), under the rules of a message. 0 or -ENOMEM (nothing is posted). */
int worker_post(struct worker *worker, void (*run)(struct worker *worker, void *arg), void *arg);

/* Makes the worker finish its commands and then stand still until the gate opens: for the last save, which must see
 * every acknowledged add. */
struct worker_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned arrived;
    bool open;
    bool ends; /* decided before it opens: the workers end here, without running another command */
};
int worker_post_gate(struct worker *worker, struct worker_gate *gate);

unsigned worker_nconns(const struct worker *worker);

/* The time of its last tick, at which it has served its connections: clock_ms(). */
int64_t worker_ticked_ms(const struct worker *worker);

/* Reads the clock for a caller that needs the time, and passes it on to the current turn (turns.h). */
static inline uint64_t worker_clock_ns(struct worker *worker)
{
    uint64_t now_ns = clock_ns();
    turn_note(&worker->turns.current, now_ns);
    return now_ns;
}

/* Called at the start of every callback that uses shared structures. */
void worker_enter(struct worker *worker);

/* Counts memory of its connections, or of their deferred commands. */
static inline void worker_count_memory(struct worker *worker, int64_t bytes)
{
    _Atomic uint64_t *counter = &worker->server->memory.of_clients[worker->index].bytes;
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + (uint64_t)bytes,
                          memory_order_relaxed);
}

/* Ends the iteration: flushes the window, sends the replies, goes offline. */
void worker_finish(struct worker *worker);

/* Flushes the window and goes offline without sending: before a wait for other threads within an iteration. */
void worker_pause_reading(struct worker *worker);

#endif
