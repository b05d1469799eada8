#include "main_loop.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "exclusive.h"
#include "half_loads.h"
#include "memory_reserve.h"
#include "journal.h"
#include "load.h"
#include "log_text.h"
#include "residency.h"
#include "saver.h"
#include "server_tls.h"
#include "worker.h"

#define TICK_MS 100

/* At the end clients are served for so long at most while the first of the two saves runs: the saver gives way to
 * workers, and clients that keep all processors busy could hold the end up for ever. */
#define SERVED_MS         15000
#define ACCEPT_BURST      64   /* connections accepted before other events */
#define LOADING_REPORT_MS 2000 /* interval of progress lines of a long start */
#define LOADING_STATUS_MS 500  /* a start on a terminal that takes longer shows a bar */
#define LOADING_BAR       30

/* ---- accepting ---- */

static void on_connection(uv_poll_t *poll, int status, int events);

static void accept_all(struct main_loop *ml, bool yes)
{
    ml->accepting = yes;
    for (size_t i = 0; i < ml->nlisteners; i++) {
        if (yes)
            uv_poll_start(&ml->listeners[i].poll, UV_READABLE, on_connection);
        else
            uv_poll_stop(&ml->listeners[i].poll);
    }
}

/* The worker with the fewest connections, so that they stay evenly spread while clients come and go. */
static struct worker *least_loaded(struct server *server)
{
    struct worker *best = server->workers[0];
    for (unsigned i = 1; i < server->nworkers; i++)
        if (worker_nconns(server->workers[i]) < worker_nconns(best))
            best = server->workers[i];
    return best;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = poll->data;
    struct main_loop *ml = listener->main_loop;
    struct server *server = ml->server;
    (void)status, (void)events;
    for (int i = 0; i < ACCEPT_BURST; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (fd < 0) {
            /* Out of descriptors or memory: the event would come back at once, again and again. */
            log_limited(&server->log, &server->limits.accept, clock_ms(), LOG_LEVEL_WARNING,
                        "cannot take a connection on %s: %s", listener->name, strerror(errno));
            accept_all(ml, false);
            return;
        }
        if (worker_post_connection(least_loaded(server), fd, listener->with_tls) != 0 &&
            (!memory_reserve_spend(server) ||
             worker_post_connection(least_loaded(server), fd, listener->with_tls) != 0))
            close(fd);
    }
}

/* Logs the progress of a long start. */
static void report_loading(struct main_loop *ml)
{
    const struct load_progress *load = &ml->server->load;
    int64_t now = clock_ms();
    if (!server_loading(ml->server) || now - load->started_ms < LOADING_STATUS_MS)
        return;
    uint64_t done = atomic_load_explicit(&load->done_bytes, memory_order_relaxed);
    uint64_t total = atomic_load_explicit(&load->total_bytes, memory_order_relaxed);
    if (total < done)
        total = done;
    unsigned bar = total ? (unsigned)((double)done / (double)total * LOADING_BAR) : 0;
    if (log_status(&ml->server->log, "loading [%.*s%*s] %s of %s, files and log, after %" PRId64 " s", (int)bar,
                   "##############################", (int)(LOADING_BAR - bar), "", log_bytes(done).text,
                   log_bytes(total).text, (now - load->started_ms) / 1000) ||
        now - load->started_ms < LOADING_REPORT_MS || now - ml->loading_reported_ms < LOADING_REPORT_MS)
        return;
    ml->loading_reported_ms = now;
    log_notice(&ml->server->log, "loading: %s of %s, files and log, after %" PRId64 " s", log_bytes(done).text,
               log_bytes(total).text, (now - load->started_ms) / 1000);
}

/* The time of the last tick of the event loop that has not ticked for longest. */
static int64_t earliest_tick(const struct server *server)
{
    int64_t earliest = clock_ms();
    for (unsigned i = 0; i < server->nworkers; i++)
        if (worker_ticked_ms(server->workers[i]) < earliest)
            earliest = worker_ticked_ms(server->workers[i]);
    return earliest;
}

static void tell_supervisor(struct main_loop *ml)
{
    const struct load_progress *load = &ml->server->load;
    uint64_t done = atomic_load_explicit(&load->done_bytes, memory_order_relaxed);
    uint64_t total = atomic_load_explicit(&load->total_bytes, memory_order_relaxed);
    if (server_loading(ml->server))
        supervisor_loading(&ml->supervisor, clock_ms(),
                           done < total ? (unsigned)(100.0 * (double)done / (double)total) : 100);
    else
        supervisor_alive(&ml->supervisor, clock_ms(), earliest_tick(ml->server));
}

static void on_tick(uv_timer_t *timer)
{
    struct main_loop *ml = timer->data;
    report_loading(ml);
    tell_supervisor(ml);
    if (!ml->accepting)
        accept_all(ml, true);
    rcu_reader_online();
    if (!server_loading(ml->server)) {
        saver_tick(ml->server->saver);
        settler_tick(&ml->settler);
        residency_tick(ml->server);
    }
    half_loads_expire(ml->server->half_loads, ml->server->registry,
                      clock_ms() - server_config(ml->server)->bf_load_timeout * 1000);
    rcu_reader_offline();
    memory_reserve_keep(ml->server);
    server_sample(ml->server);
}

/* ---- the end ---- */

struct shutdown_waiter {
    struct shutdown_waiter *next;
    struct shutdown_request request;
    struct errbuf *err;
    bool done;
    bool ends;
};

/* All workers stand still between gate_close() and gate_open(): no add runs, and all acknowledged adds are in memory.
 */
static void gate_close(struct server *server, struct worker_gate *gate)
{
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, NULL);
    exclusive_order_lock(server->exclusive);
    for (unsigned i = 0; i < server->nworkers; i++)
        while (worker_post_gate(server->workers[i], gate) != 0)
            usleep(1000);
    exclusive_order_unlock(server->exclusive);
    pthread_mutex_lock(&gate->lock);
    while (gate->arrived < server->nworkers)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static void gate_open(struct worker_gate *gate, bool ends)
{
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    gate->ends = ends;
    pthread_cond_broadcast(&gate->changed);
    while (gate->arrived)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->lock);
}

static void on_signal(uv_signal_t *handle, int signum);

static void watch_ends(struct main_loop *ml)
{
    uv_signal_start(&ml->sigterm, on_signal, SIGTERM);
    uv_signal_start(&ml->sigint, on_signal, SIGINT);
}

static void mask_sighup(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(how, &set, NULL);
}

/* The save at the end, in two parts: the earlier changes while clients are still served, then behind the gate the few
 * later ones. */
static bool save_at_the_end(struct main_loop *ml, int64_t most_ms, struct errbuf *err)
{
    if (saver_run_final(ml->server->saver, most_ms, err) >= 0) /* SAVER_BUSY: it goes on behind the gate */
        return true;
    log_warning(&ml->server->log, "the last save failed: %s", err->text);
    return false;
}

/* Whether the log is incomplete (switched on at run time, or after a failed write) and its next save has not committed
 * yet. */
static bool log_needs_save(struct server *server)
{
    struct journal *journal = server_journal(server);
    return journal && !journal_is_whole(journal);
}

/* Ends the log without a save: changes that it lacks are lost. NOSAVE accepts that, as a kill would. */
static bool log_at_the_end(struct main_loop *ml, const struct shutdown_request *request, struct errbuf *err)
{
    struct journal *journal = server_journal(ml->server);
    if (!journal || !journal_records(journal))
        return true;
    if (journal_sync(journal, err) == 0) {
        if (journal_is_whole(journal)) {
            log_notice(&ml->server->log,
                       "ending without a save: the log has every change, and the next start replays it");
            return true;
        }
        errbuf_set(err, "some changes are neither in the log nor in a save");
    }
    bool ends = request->force || request->save == SHUTDOWN_NOSAVE;
    log_warning(&ml->server->log, "%s: %s",
                ends ? "ending, and changes that are not on the disk are lost"
                     : "not ending, as changes that are not on the disk would be lost",
                err->text);
    return ends;
}

/* After a failed save: an end loses nothing if the log has every change; but an explicit request of a save must report
 * the failure. */
static bool log_stands_in(struct main_loop *ml, const struct shutdown_request *request)
{
    const struct journal *journal = server_journal(ml->server);
    return request->save == SHUTDOWN_SAVE_BY_RULES && journal && journal_records(journal) && journal_is_whole(journal);
}

/* Behind the gate, where nothing changes any more: whether the daemon may end. */
static bool finish(struct main_loop *ml, const struct shutdown_request *request, bool save, struct errbuf *err)
{
    if (save && save_at_the_end(ml, 0, err))
        return true;
    if (save && !log_stands_in(ml, request))
        return request->force;
    return log_at_the_end(ml, request, err);
}

static void stop(struct main_loop *ml)
{
    pthread_mutex_lock(&ml->lock);
    ml->ended = true;
    pthread_mutex_unlock(&ml->lock);
    uv_stop(&ml->loop);
}

/* Ends the daemon, unless the last save (or the log, without one) fails and the request does not insist. During the
 * load, before there is a log, no data has changed, and there is nothing to wait for. */
static bool end(struct main_loop *ml, const struct shutdown_request *request, struct errbuf *err)
{
    struct server *server = ml->server;
    if (server_loading(server) && !server_journal(server)) {
        ml->ended_early = true;
        ml->early = *request;
        stop(ml);
        return true;
    }
    rcu_reader_online();
    bool rules = server_config(server)->save.count > 0;
    rcu_reader_offline();
    bool save = request->save == SHUTDOWN_SAVE ||
                (request->save == SHUTDOWN_SAVE_BY_RULES && (rules || log_needs_save(server)));
    if (server_loading(server))
        save = false; /* no data can have changed, and not all is loaded */
    struct worker_gate gate = {.arrived = 0};
    if (save || server_journal(server)) {
        /* While the main thread waits for the disk, a second signal has its default effect and ends the process at
         * once. The data directory is safe then: it holds the previous save and the log. */
        uv_signal_stop(&ml->sigterm);
        uv_signal_stop(&ml->sigint);
    }
    /* Logged now: on a disk that hangs it is the last line that the operator reads. */
    if (save)
        log_notice(&server->log,
                   "saving before the end; a second signal ends it at once, with the previous save and the log so far");
    else if (server_journal(server) && journal_records(server_journal(server)))
        log_notice(&server->log,
                   "waiting until the disk has all of the log; a second signal ends it at once, with the log so far");
    supervisor_pause(&ml->supervisor);
    bool saved = save && save_at_the_end(ml, SERVED_MS, err);
    bool ends = !save || saved || request->force || log_stands_in(ml, request);
    if (ends) {
        gate_close(server, &gate);
        ends = finish(ml, request, saved, err);
        pthread_mutex_lock(&ml->lock);
        ml->ended = ends;
        pthread_mutex_unlock(&ml->lock);
        gate_open(&gate, ends);
    }
    if (ends) {
        supervisor_stopping(&ml->supervisor);
        uv_stop(&ml->loop);
    } else {
        supervisor_resume(&ml->supervisor);
        watch_ends(ml);
    }
    return ends;
}

static void decide(struct main_loop *ml, struct shutdown_waiter *waiter)
{
    bool ends = ml->ended || end(ml, &waiter->request, waiter->err);
    pthread_mutex_lock(&ml->lock);
    waiter->ends = ends;
    waiter->done = true;
    pthread_cond_broadcast(&ml->decided);
    pthread_mutex_unlock(&ml->lock);
}

static void log_ready(struct main_loop *ml)
{
    struct server *server = ml->server;
    char where[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < ml->nlisteners && used < sizeof(where); i++)
        used += (size_t)snprintf(where + used, sizeof(where) - used, "%s%s", i ? ", " : "", ml->listeners[i].name);
    log_notice(&server->log, "ready: listening on %s; %s, %s", where,
               log_count(registry_count(server->registry), "filter").text, log_count(server->nworkers, "thread").text);
}

void main_loop_loaded(struct server *server)
{
    struct main_loop *ml = server->main_loop;
    pthread_mutex_lock(&ml->lock);
    ml->load_done = true;
    uv_async_send(&ml->wake);
    pthread_mutex_unlock(&ml->lock);
}

static void join_load(struct main_loop *ml)
{
    ml->loading = false;
    ml->failed = load_join(ml->server, &ml->failure) != 0;
}

static void look_at_load(struct main_loop *ml)
{
    pthread_mutex_lock(&ml->lock);
    bool ended = ml->load_done && ml->loading;
    pthread_mutex_unlock(&ml->lock);
    if (!ended)
        return;
    join_load(ml);
    if (!ml->failed) {
        log_ready(ml);
        supervisor_ready(&ml->supervisor);
        return;
    }
    stop(ml);
}

static void on_wake(uv_async_t *async)
{
    struct main_loop *ml = async->data;
    look_at_load(ml);
    for (;;) {
        pthread_mutex_lock(&ml->lock);
        struct shutdown_waiter *waiter = ml->waiters;
        if (waiter)
            ml->waiters = waiter->next;
        pthread_mutex_unlock(&ml->lock);
        if (!waiter)
            return;
        decide(ml, waiter);
    }
}

static bool shut_down(struct server *server, const struct shutdown_request *request, struct errbuf *err)
{
    struct main_loop *ml = server->main_loop;
    struct shutdown_waiter waiter = {.request = *request, .err = err};
    pthread_mutex_lock(&ml->lock);
    if (ml->ended) { /* the decision was made, and the main thread has ended */
        pthread_mutex_unlock(&ml->lock);
        return true;
    }
    waiter.next = ml->waiters;
    ml->waiters = &waiter;
    uv_async_send(&ml->wake);
    while (!waiter.done)
        pthread_cond_wait(&ml->decided, &ml->lock);
    pthread_mutex_unlock(&ml->lock);
    return waiter.ends;
}

/* Certificates are read in a thread of the pool: their files may be on a disk that hangs. */
static void reload_tls(uv_work_t *work)
{
    server_tls_reload(work->data);
}

static void tls_reloaded(uv_work_t *work, int status);

static void start_tls_reload(struct main_loop *ml)
{
    ml->tls_again = ml->tls_reloading;
    if (ml->tls_reloading)
        return;
    ml->tls_reloading = true;
    ml->tls_reload.data = ml->server;
    uv_queue_work(&ml->loop, &ml->tls_reload, reload_tls, tls_reloaded);
}

static void tls_reloaded(uv_work_t *work, int status)
{
    struct server *server = work->data;
    (void)status;
    server->main_loop->tls_reloading = false;
    if (server->main_loop->tls_again && !server->main_loop->ended)
        start_tls_reload(server->main_loop);
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct main_loop *ml = handle->data;
    struct errbuf err = {""};
    if (signum == SIGHUP) {
        if (log_reopen(&ml->server->log, &err) != 0)
            log_warning(&ml->server->log, "cannot reopen the log: %s", err.text);
        start_tls_reload(ml);
        return;
    }
    log_notice(&ml->server->log, "%s received", signum == SIGTERM ? "SIGTERM" : "SIGINT");
    if (!ml->ended && !end(ml, &(struct shutdown_request){.save = SHUTDOWN_SAVE_BY_RULES}, &err))
        log_warning(&ml->server->log, "not stopping, to lose nothing; SHUTDOWN NOSAVE stops without saving");
}

/* ---- the loop ---- */

int main_loop_init(struct main_loop *ml, struct server *server)
{
    *ml = (struct main_loop){.server = server, .loading = true};
    int status = uv_loop_init(&ml->loop);
    if (status)
        return status;
    server->calls.shutdown = shut_down;
    supervisor_init(&ml->supervisor);
    ml->settler = (struct settler){.loop = &ml->loop, .pool = server->pool};
    pthread_mutex_init(&ml->lock, NULL);
    pthread_cond_init(&ml->decided, NULL);
    status = uv_async_init(&ml->loop, &ml->wake, on_wake);
    if (status)
        return status;
    uv_signal_init(&ml->loop, &ml->sigterm);
    uv_signal_init(&ml->loop, &ml->sigint);
    uv_signal_init(&ml->loop, &ml->sighup);
    uv_timer_init(&ml->loop, &ml->tick);
    ml->wake.data = ml->sigterm.data = ml->sigint.data = ml->sighup.data = ml->tick.data = ml;
    return 0;
}

void main_loop_watch_signals(struct main_loop *ml)
{
    watch_ends(ml);
    uv_signal_start(&ml->sighup, on_signal, SIGHUP);
    mask_sighup(SIG_UNBLOCK);
}

/* An end was requested during the load. If the load is done by now clients may have written, and the daemon ends as
 * usual. */
static void end_of_load(struct main_loop *ml)
{
    struct errbuf err = {""};
    if (ml->loading && server_journal(ml->server)) /* the thread is at its end */
        join_load(ml);
    if (ml->loading || ml->failed || !ml->ended_early)
        return;
    ml->early.force = true;
    (void)end(ml, &ml->early, &err);
}

void main_loop_run(struct main_loop *ml)
{
    rcu_reader_begin(); /* for looking at the settings */
    rcu_reader_offline();
    uv_timer_start(&ml->tick, on_tick, TICK_MS, TICK_MS);
    accept_all(ml, true);
    uv_run(&ml->loop, UV_RUN_DEFAULT);
    mask_sighup(SIG_BLOCK); /* without a handler it would end the process before the tear-down is done */
    accept_all(ml, false);
    uv_timer_stop(&ml->tick);
    settler_stop(&ml->settler);
    on_wake(&ml->wake); /* answers requests of the end that came meanwhile */
    end_of_load(ml);
    rcu_reader_end();
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void main_loop_deinit(struct main_loop *ml)
{
    uv_walk(&ml->loop, close_handle, NULL);
    uv_run(&ml->loop, UV_RUN_DEFAULT);
    for (size_t i = 0; i < ml->nlisteners; i++)
        close(ml->listeners[i].fd);
    if (ml->unixsocket)
        unlink(ml->unixsocket);
    free(ml->unixsocket);
    int status = uv_loop_close(&ml->loop);
    if (status)
        log_warning(&ml->server->log, "the main loop did not close: %s", uv_strerror(status));
    supervisor_deinit(&ml->supervisor);
    pthread_cond_destroy(&ml->decided);
    pthread_mutex_destroy(&ml->lock);
}
