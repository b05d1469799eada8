/* main_loop: the main thread's work beside the workers: it accepts connections and spreads them, handles signals,
 * drives save rules and gauges by a timer, and ends the daemon.
 *
 * Thread: the main thread's, except the request of the end (server_calls.shutdown). */
#ifndef BLOOMERY_MAIN_LOOP_H
#define BLOOMERY_MAIN_LOOP_H

#include <pthread.h>
#include <uv.h>

#include "errbuf.h"
#include "server.h"
#include "settler.h"
#include "supervisor.h"

#define LISTENERS_MAX 32

struct listener {
    uv_poll_t poll;
    struct main_loop *main_loop;
    int fd;
    bool with_tls;
    char name[144]; /* "127.0.0.1:6379", "[::1]:6380 (TLS)" or the path of a Unix socket */
};

struct shutdown_waiter; /* a thread that has requested the end and waits for the decision */

struct main_loop {
    struct server *server;
    uv_loop_t loop;
    struct listener listeners[LISTENERS_MAX];
    size_t nlisteners;
    bool accepting; /* false for a moment after descriptors ran out */
    uv_signal_t sigterm, sigint, sighup;
    uv_timer_t tick;
    uv_work_t tls_reload;          /* on SIGHUP */
    bool tls_reloading, tls_again; /* it runs; another SIGHUP has come meanwhile */
    int64_t loading_reported_ms;   /* time of the last progress line of the start */
    struct settler settler;
    struct supervisor supervisor;
    uv_async_t wake;
    char *unixsocket; /* path to remove at the end, or NULL */

    pthread_mutex_t lock;
    pthread_cond_t decided;
    struct shutdown_waiter *waiters;
    bool ended;       /* set once, under the lock */
    bool load_done;   /* the same */
    bool loading;     /* load_join() has not been called yet */
    bool ended_early; /* ended during the load, without waiting, by this request: */
    struct shutdown_request early;
    bool failed; /* the load has failed */
    struct errbuf failure;
};

/* Opens the listening sockets of the settings (listen.c). 0, or -1 with the reason in `err`; main_loop_deinit() closes
 * them in any case. */
int main_loop_listen(struct main_loop *ml, struct errbuf *err);

/* Initialises the loop without running it. 0 or -errno. */
int main_loop_init(struct main_loop *ml, struct server *server);
void main_loop_deinit(struct main_loop *ml);

/* From here on the loop handles signals: SIGTERM and SIGINT, which end it, and SIGHUP, which reopens the log and reads
 * certificates again. SIGHUP
 * was blocked until now, and is again after main_loop_run(); other threads block it (thread.h). */
void main_loop_watch_signals(struct main_loop *ml);

/* The loading thread has ended: for load_start(). Thread: any. */
void main_loop_loaded(struct server *server);

/* Accepts connections until the load fails or the daemon ends; then the workers stand still and the last save is
 * done. */
void main_loop_run(struct main_loop *ml);

#endif
