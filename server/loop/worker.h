/* worker: one event loop in one thread, and the connections that it serves for their whole life.
 *
 * An iteration of the loop: what has arrived on all readable connections is read, parsed and run, pipelined BF.ADD and
 * BF.EXISTS through the window (window.h) that overlaps their cache misses across connections; at the end of the
 * iteration each connection's replies leave in one write, and the worker goes offline for RCU while it sleeps in poll.
 *
 * Threads talk to a worker by posting messages: functions that run on its loop, in the order in which they were
 * posted.
 *
 * Thread rule: worker_post*() and worker_nconns(): any. Everything else: the worker's own thread ("loop"). */
#ifndef BLOOMERY_WORKER_H
#define BLOOMERY_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#include "conn_list.h"
#include "resp_parse.h"
#include "server.h"
#include "stats.h"
#include "timing.h"
#include "window.h"

struct conn;
struct job;
struct worker;

#define WORKER_ARENA_SIZE (1024 * 1024) /* what one iteration reads before the window has to be emptied */
#define WORKER_READ_SIZE  (64 * 1024)   /* most that is read from one connection at a time */
#define WORKER_TICK_MS    100
#define WORKER_SPARE_BUFS 64            /* reply buffers kept for reuse */
#define WORKER_BUF_SIZE   (16 * 1024)

/* A message: `run` is called once, on the worker's loop, after worker_enter(). It may post, write to connections, and
 * free what the message is in. When the daemon ends it is called as well, with worker->stopping set: there are no
 * connections any more then and everything that it owns has to be given back. It must not block. */
struct worker_message {
    struct worker_message *next; /* internal */
    void (*run)(struct worker *worker, struct worker_message *message);
};

struct worker {
    struct server *server;
    unsigned index;
    uv_loop_t loop;
    uv_thread_t thread;
    uv_async_t wake;              /* the mailbox has something */
    uv_prepare_t before_poll;
    uv_check_t after_poll;
    uv_idle_t next_turns;         /* active while there are `turns`: the loop does not sleep */
    uv_timer_t tick;              /* idle clients, and those that do not read */

    pthread_mutex_t mail_lock;
    struct worker_message *mail;  /* newest first */
    bool deaf;                    /* under mail_lock: `wake` is closed */
    _Atomic bool has_room;        /* worker_post_room() has been called */
    _Atomic uint64_t durable;     /* the highest ticket of worker_post_durable() */
    _Atomic uint64_t kills_posted, kills; /* CLIENT KILLs that concern it, and those that are done */
    _Atomic bool sleeps;          /* it will not look at `durable` by itself */

    struct worker_message push_mail; /* posted when there are messages for clients of this worker (push.h) */
    struct worker_message room_mail; /* posted when those who publish may go on */
    _Atomic bool room_posted;
    _Atomic bool publishers_wait;
    struct conn_link publishers;  /* those with CONN_WAITS_PUBLISH */
    struct buf monitor_lines;     /* of this iteration (monitor.h) */
    bool monitored;               /* somebody monitors, as of the latest input */

    struct conn *conns;           /* all of them */
    _Atomic unsigned nconns;
    struct conn_link with_replies; /* those whose replies leave at the end of the iteration */
    struct conn_link turns;       /* those with kept input that may run now, in the order of their turns */
    struct conn_link no_room;     /* those with CONN_WAITS_ROOM */
    struct conn_link not_durable; /* those with CONN_WAITS_DURABLE, in the order of their tickets */

    struct conn_link exclusive_waiters;  /* those with CONN_WAITS_EXCLUSIVE */
    struct conn_link pause_waiters;      /* those with CONN_WAITS_PAUSE */
    struct worker_message gate_message;  /* of exclusive.c */
    struct job *jobs_held, **jobs_held_end; /* deferred commands that start after the exclusive section */
    bool exclusive;               /* all other workers stand still */

    size_t counter_bf_exists, counter_bf_add; /* command_index() of the two */
    bool online;                  /* an RCU reader right now */
    bool stopping;
    bool ended_at_gate;           /* written under the gate's lock */
    struct journal_ring *ring;    /* where adds of this iteration are recorded; NULL: nowhere */
    bool ring_full;               /* so much waits for the log thread that writes must, too */
    bool refuses_writes;          /* persistence_refuses(), looked at once per iteration */
    bool loading;                 /* server_loading(), too */
    bool over_memory;             /* maxmemory is reached; looked at once per iteration */
    enum pause paused;            /* CLIENT PAUSE; likewise */
    bool no_window_query;         /* so BF.EXISTS has to go through all checks */
    bool no_window_add;           /* so BF.ADD has to */
    size_t slice_items;           /* of commands that run in slices: command_slice_items() */
    uint64_t slice_resume_ns;     /* while that is few: when the next slice may begin, if there is other input */
    uint64_t slice_reads;         /* stats.reads_processed after the last slice */
    struct resp_limits limits;    /* the settings, copied once per iteration */
    struct resp_limits limits_noauth;
    size_t high_water;
    size_t reply_limits[CONFIG_CLIENT_CLASSES];
    int64_t now_ms;               /* monotonic, of this iteration */

    char *arena;                  /* input of this iteration; slices of it are valid until the window is emptied */
    size_t arena_used;
    struct resp_args args;        /* lent to the parsers */
    struct window window;
    char *spare_bufs[WORKER_SPARE_BUFS];
    unsigned nspare;

    struct stats stats;
    struct timing timing;
    struct sleeper *sleepers;     /* commands that wait for time to pass (sleep.h) */
    struct sleeper *log_waits;    /* and for the log */
    uint64_t log_seen;            /* `durable` when they were last looked at */
    _Atomic unsigned nsleepers;
};

/* Starts the thread. 0, -ENOMEM or another -errno. */
int worker_start(struct worker **worker_out, struct server *server, unsigned index);

/* Ends it, unless a gate has ended it already: connections are closed after their replies were offered to the kernel;
 * joins the thread. Others may still post: a worker is destroyed when all have been stopped. */
void worker_stop(struct worker *worker);
void worker_destroy(struct worker *worker);

/* Hands a connected socket over; the worker owns it from now on. 0 or -ENOMEM (the socket is still the caller's). */
int worker_post_connection(struct worker *worker, int fd);

/* Posts a message in the caller's memory, which must stay valid until it has run. Never fails. */
void worker_post_message(struct worker *worker, struct worker_message *message);

/* Posts a call of run(worker, arg), under the rules of a message. 0 or -ENOMEM (nothing is posted). */
int worker_post(struct worker *worker, void (*run)(struct worker *worker, void *arg), void *arg);

/* Says that everything up to this ticket is on disk: replies that waited for it leave (journal.h). Tickets
 * only rise. Never fails; wakes the worker only if it sleeps. */
void worker_post_durable(struct worker *worker, uint64_t ticket);

/* Says that there is room in the log again: connections that waited for it have their turn. Never fails. */
void worker_post_room(struct worker *worker);

/* Makes a connection wait for room in the log (CONN_WAITS_ROOM). */
void worker_hold_for_room(struct worker *worker, struct conn *conn);

/* Gives a connection a turn, once, in the next round of the loop: see conn_take_turn(). */
void worker_give_turn(struct worker *worker, struct conn *conn);

/* Makes the worker finish what it has begun and then stand still until the gate opens: for the last save, which must
 * see every acknowledged add. */
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

/* Empties the window and goes offline without sending: before waiting for others in the middle of an iteration. */
void worker_pause_reading(struct worker *worker);

/* Looks again at what CLIENT PAUSE has set; wakes those it held back if it is over. */
void worker_look_at_pause(struct worker *worker);

/* Makes a connection wait for the end of the pause. */
void worker_hold_paused(struct worker *worker, struct conn *conn);

/* A reply buffer of WORKER_BUF_SIZE bytes, from the spare ones if there are any; NULL without memory. */
char *worker_buf_get(struct worker *worker);
void worker_buf_put(struct worker *worker, char *mem);

#endif
