/* main_loop: what the main thread does while the workers serve: accepting connections and spreading them, signals, the
 * timer behind save rules and gauges, and the end of the daemon.
 *
 * Thread: the main thread's, but for server_shutdown() (server.h). */
#ifndef BLOOMERY_MAIN_LOOP_H
#define BLOOMERY_MAIN_LOOP_H

#include <pthread.h>
#include <uv.h>

#include "errbuf.h"
#include "server.h"

#define LISTENERS_MAX 16

struct listener {
    uv_poll_t poll;
    struct main_loop *main_loop;
    int fd;
    char name[128]; /* "127.0.0.1:6379" or the path of a Unix socket */
};

struct shutdown_waiter; /* a server_shutdown() that waits for its decision */

struct main_loop {
    struct server *server;
    uv_loop_t loop;
    struct listener listeners[LISTENERS_MAX];
    size_t nlisteners;
    bool accepting;                   /* false for a moment after descriptors ran out */
    uv_signal_t sigterm, sigint, sighup;
    uv_timer_t tick;
    uv_async_t wake;
    char *unixsocket;                 /* path to remove at the end, or NULL */

    pthread_mutex_t lock;
    pthread_cond_t decided;
    struct shutdown_waiter *waiters;
    bool ended;                       /* set once, under the lock */
    bool load_done;                   /* the same */
    bool loading;                     /* load_join() has not been called yet */
    bool ended_early;                 /* while it loaded, without waiting for anything, by this request: */
    struct shutdown_request early;
    bool failed;                      /* what was to be loaded could not be */
    struct errbuf failure;
};

/* Opens the listening sockets of the settings (listen.c). 0, or -1 with the reason in `err`; what was opened is closed by
 * main_loop_deinit() in any case. */
int main_loop_listen(struct main_loop *ml, struct errbuf *err);

/* Puts the loop together, without running it. 0 or -errno. */
int main_loop_init(struct main_loop *ml, struct server *server);
void main_loop_deinit(struct main_loop *ml);

/* From here on signals wait for the loop: SIGTERM and SIGINT, which end it, and SIGHUP, which opens the log anew. The latter
 * has been blocked until now, and is again when main_loop_run() has returned; other threads have it blocked (thread.h). */
void main_loop_watch_signals(struct main_loop *ml);

/* The loading thread has ended: for load_start(). Thread: any. */
void main_loop_loaded(struct server *server);

/* Accepts, and serves until the loading has failed or the daemon is to end; the workers stand still then and all that was to be saved is. */
void main_loop_run(struct main_loop *ml);

#endif
