/* main_loop: the loop of the main thread. It accepts connections and spreads them over the workers, handles signals,
 * drives save rules and gauges by a timer, and ends the daemon.
 *
 * Thread: the main thread's, except the request of the end (server_calls.shutdown). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "config.h"
#include "errbuf.h"
#include "lock.h"
#include "server.h"
#include "check.h"
#include "supervisor.h"

/* The states of the end of the daemon.
 *
 * Thread: the main thread's; others read the states under the main loop's lock, which every change takes. */

/* ---- the end ---- */

#define END_RETRY_MS    1000 /* between attempts to end after a signal */
#define FIRST_SIGNAL_MS 2000 /* after the first signal: later ones end the daemon at once */

enum end_state {
    END_NONE,      /* the daemon runs */
    END_SIGNALLED, /* a signal has asked for the end, which is tried */
    END_RETRYING,  /* it would have lost changes: it is tried again until shutdown-timeout */
    END_KILLED,    /* the second signal ends the process at once */
    END_EARLY,     /* requested while filters were being loaded: nothing is waited for */
    END_DECIDED,   /* the loop is left */
};

enum end_event {
    END_SIGNAL,  /* SIGTERM or SIGINT */
    END_REFUSED, /* an attempt for a signal has failed */
    END_LEAVE,   /* the end was requested during the load, before there was a log */
    END_AGREED,  /* an attempt has succeeded, for a signal or SHUTDOWN; or the load has failed */
};

static const struct state_row end_rows[] = {
    {END_NONE, END_SIGNAL, END_SIGNALLED},      /* The first signal: it is tried at once. */
    {END_NONE, END_LEAVE, END_EARLY},           /* SHUTDOWN during the load. */
    {END_NONE, END_AGREED, END_DECIDED},        /* SHUTDOWN, or the load has failed. */
    {END_SIGNALLED, END_REFUSED, END_RETRYING}, /* The tick tries again. */
    {END_SIGNALLED, END_LEAVE, END_EARLY},      /* A signal during the load. */
    {END_SIGNALLED, END_AGREED, END_DECIDED},   /* The usual end. */
    {END_RETRYING, END_SIGNAL, END_KILLED},     /* The operator does not want to wait. */
    {END_RETRYING, END_REFUSED, END_RETRYING},  /* The disk still refuses. */
    {END_RETRYING, END_AGREED, END_DECIDED},    /* The disk works again, the time is over, or SHUTDOWN has come. */
    {END_EARLY, END_SIGNAL, END_EARLY},         /* It ends anyway. */
    {END_EARLY, END_AGREED, END_DECIDED},       /* The load was at its end: changes are saved after all. */
    {END_DECIDED, END_SIGNAL, END_DECIDED},     /* It ends anyway. */
    {END_DECIDED, END_AGREED, END_DECIDED},     /* The load has failed after all. */
};

/* The end, and the request that a signal, or a client during the load, has made of it. */
struct ending {
    enum end_state state;
    struct shutdown_request request;
    int64_t until_ms; /* monotonic: an attempt from then on ends the daemon in any case */
    int64_t next_ms;  /* the next attempt, in END_RETRYING */
    bool lost;        /* the end for a signal has lost changes */
};

static inline bool ending_is_decided(const struct ending *end)
{
    return end->state >= END_EARLY;
}

/* Whether a signal waits for the end. */
static inline bool ending_is_signalled(const struct ending *end)
{
    return end->state == END_SIGNALLED || end->state == END_RETRYING;
}

static inline void ending_step(struct ending *end, enum end_event event)
{
    end->state = (enum end_state)STATE_NEXT(end_rows, end->state, event);
}

/* Before each attempt for a signal: at the last one nothing delays the end. */
static inline void ending_attempt(struct ending *end, int64_t now_ms)
{
    end->request.force |= now_ms >= end->until_ms;
    end->next_ms = now_ms + END_RETRY_MS;
}

static inline bool ending_is_due(const struct ending *end, int64_t now_ms)
{
    return end->state == END_RETRYING && now_ms >= end->next_ms;
}

/* ---- the load ---- */

/* In their order: its thread runs, has ended, and was joined. */
enum load_state { LOAD_RUNS, LOAD_IS_OVER, LOAD_SUCCEEDED, LOAD_FAILED };
struct loading {
    enum load_state state;
    int64_t reported_ms; /* time of the last progress line */
    struct errbuf failure;
};

struct listener;       /* listen.c */
struct main_loop_task; /* a request of the end, of a thread that waits for it */

/* Moves large filters to huge pages (bloom_pool_settle()), in a thread of libuv's pool. */
struct settler {
    uv_work_t work;
    uv_loop_t *loop;
    struct bloom_pool *pool;
    bool running;
    atomic_bool stop;
};

struct main_loop {
    struct server *server;
    uv_loop_t loop;
    struct listener *listeners; /* in the order of the settings */
    bool accepting;             /* false for a moment after descriptors ran out */
    uv_signal_t sigterm, sigint, sighup;
    uv_timer_t tick;
    uv_async_t wake;
    uv_work_t reload;            /* of certificates */
    bool reloads, reloads_again; /* their files may have changed since they were read */
    struct settler settler;
    struct supervisor supervisor;
    char *unixsocket; /* path to remove at the end, or NULL */

    struct lock lock;
    pthread_cond_t done;
    struct main_loop_task *tasks;
    struct ending end;
    struct loading load;
};

/* Initialises the loop without running it. 0 or -errno. */
int main_loop_init(struct main_loop *ml, struct server *server);
void main_loop_deinit(struct main_loop *ml);

/* From here on the loop handles signals: SIGTERM and SIGINT, which end it, and SIGHUP, which reopens the log and reads
 * certificates again. SIGHUP was blocked until now, and is again after main_loop_run(); other threads block it
 * (thread.h). */
void main_loop_watch_signals(struct main_loop *ml);

/* For ending.c: whether the loop handles SIGTERM and SIGINT, or they end the process at once (FIRST_SIGNAL_MS); and a
 * step towards the end, which leaves the loop after the decision. */
void main_loop_watch_ends(bool yes);
void main_loop_end(struct main_loop *ml, enum end_event event);

/* The loading thread has ended: for load_start(). Thread: any. */
void main_loop_loaded(struct server *server);

/* Accepts connections until the load fails or the daemon ends; then workers stand still and the last save is done. */
void main_loop_run(struct main_loop *ml);

/* After main_loop_run(): whether the daemon ends before all is loaded. */
bool main_loop_is_loading(struct main_loop *ml);

/* ending: ends the daemon with its last save, or with the log in place of one, and logs what is lost. */

/* Ends the daemon. If the end would lose changes that the request does not give up, the daemon continues and `err` has
 * the reason. Lost changes are logged; end.lost is set, too, if a signal asked for the end but not for the loss. During
 * the load, before there is a log, no data has changed and the daemon ends immediately. */
bool ending_try(struct main_loop *ml, const struct shutdown_request *request, struct errbuf *err);

/* listen: the listening sockets: TCP addresses of `bind`, and a Unix socket; accepted connections go to the workers. */

/* Opens the listeners of the settings, and publishes their ports; connections wait there until listen_accept(). 0, or
 * -1 with the reason, which names the address. */
int listen_open(struct main_loop *ml, struct errbuf *err);

/* Accepts, or lets connections wait. */
void listen_accept(struct main_loop *ml, bool yes);

/* "127.0.0.1:6379, [::1]:6380 (TLS), /run/bloomery.sock" */
void listen_names(const struct main_loop *ml, char *text_out, size_t size);

/* Closes all, and removes the Unix socket. The loop then runs the callbacks of closing. */
void listen_close(struct main_loop *ml);
