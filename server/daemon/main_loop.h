/* main_loop: the loop of the main thread. It accepts connections and spreads them over the workers, handles signals,
 * drives save rules and gauges by a timer, and ends the daemon.
 *
 * Thread: the main thread's, except the request of the end (server_calls.shutdown). */
#ifndef BLOOMERY_MAIN_LOOP_H
#define BLOOMERY_MAIN_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "config.h"
#include "errbuf.h"
#include "lock.h"
#include "main_loop_states.h"
#include "server.h"
#include "supervisor.h"

struct listener;       /* listen.c */
struct main_loop_task; /* a request of a thread that waits for it */

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
    uv_work_t reload; /* of certificates */
    enum reload_state reload_state;
    struct settler settler;
    struct supervisor supervisor;
    char *unixsocket; /* path to remove at the end, or NULL */

    struct lock lock;
    pthread_cond_t done;
    struct main_loop_task *tasks;
    struct ending end;
    struct loading load;
};

/* Opens the listening sockets of the settings. 0, or -1 with the reason in `err`; main_loop_deinit() closes them in any
 * case. */
int main_loop_listen(struct main_loop *ml, struct errbuf *err);

/* Initialises the loop without running it. 0 or -errno. */
int main_loop_init(struct main_loop *ml, struct server *server);
void main_loop_deinit(struct main_loop *ml);

/* From here on the loop handles signals: SIGTERM and SIGINT, which end it, and SIGHUP, which reopens the log and reads
 * certificates again. SIGHUP was blocked until now, and is again after main_loop_run(); other threads block it
 * (thread.h). */
void main_loop_watch_signals(struct main_loop *ml);

/* For ending.c: whether the loop handles SIGTERM and SIGINT, or they end the process immediately; and a step towards
 * the end, which leaves the loop after the decision. */
void main_loop_watch_ends(struct main_loop *ml, bool yes);
void main_loop_end(struct main_loop *ml, enum end_event event);

/* The loading thread has ended: for load_start(). Thread: any. */
void main_loop_loaded(struct server *server);

/* Accepts connections until the load fails or the daemon ends; then the workers stand still and the last save is
 * done. */
void main_loop_run(struct main_loop *ml);

/* After main_loop_run(): whether the daemon ends before all is loaded. */
bool main_loop_is_loading(struct main_loop *ml);

/* ending: ends the daemon with its last save, or with the log in place of one, and logs what is lost. */

/* Ends the daemon. If the end would lose changes that the request does not give up, the daemon continues and `err` has
 * the reason. Lost changes are logged; end.lost is set, too, if a signal asked for the end but not for the loss. During
 * the load, before there is a log, no data has changed and the daemon ends immediately. */
bool ending_try(struct main_loop *ml, const struct shutdown_request *request, struct errbuf *err);

/* listen: the listening sockets: TCP addresses of `bind`, and a Unix socket; accepted connections go to the workers. */

/* Opens the listeners of these settings that are not open yet; connections wait there until listen_settle(). 0, or -1
 * with the reason, which names the address, and nothing new is open. */
int listen_open(struct main_loop *ml, const struct config *config, struct errbuf *err);

/* The settings in force have been listened for: accepts at their addresses, closes the others, after it has taken the
 * connections that wait there, and publishes the ports. Never fails. */
void listen_settle(struct main_loop *ml);

/* Accepts, or lets connections wait. */
void listen_accept(struct main_loop *ml, bool yes);

/* "127.0.0.1:6379, [::1]:6380 (TLS), /run/bloomery.sock" */
void listen_names(const struct main_loop *ml, char *text_out, size_t size);

/* Closes all, and removes the Unix socket. The loop then runs the callbacks of closing. */
void listen_close(struct main_loop *ml);

#endif
