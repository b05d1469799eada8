#include "main_loop.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_pool.h"
#include "clock.h"
#include "half_loads.h"
#include "log_text.h"
#include "persistence.h"
#include "rcu.h"
#include "residency.h"
#include "saver.h"
#include "server_files.h"
#include "worker.h"

#define TICK_MS           100
#define LOADING_REPORT_MS 2000 /* interval of progress lines of a long start */

/* ---- large filters move to huge pages ---- */

/* Between two pages: a read section ends, as merges and the reclaimer wait for that. */
static bool settling_goes_on(void *ctx)
{
    struct settler *settler = ctx;
    rcu_reader_offline();
    rcu_reader_online();
    return !atomic_load_explicit(&settler->stop, memory_order_relaxed);
}

static void settle(uv_work_t *work)
{
    struct settler *settler = work->data;
    rcu_reader_begin();
    bloom_pool_settle(settler->pool, settling_goes_on, settler);
    rcu_reader_end();
}

static void settled(uv_work_t *work, int status)
{
    struct settler *settler = work->data;
    (void)status;
    settler->running = false;
}

/* Starts a pass over the filters, unless the last one is still running. Not in a replay, which writes without locks. */
static void settler_tick(struct settler *settler)
{
    if (settler->running || settler->stop || bloom_pool_is_settled(settler->pool))
        return;
    settler->running = true;
    settler->work.data = settler;
    uv_queue_work(settler->loop, &settler->work, settle, settled);
}

/* ---- the tick ---- */

/* The time of the last tick of the event loop that has not ticked for longest. */
static int64_t earliest_tick(const struct server *server)
{
    int64_t earliest = clock_ms();
    for (unsigned i = 0; i < server->threads.nworkers; i++)
        if (worker_ticked_ms(server->threads.workers[i]) < earliest)
            earliest = worker_ticked_ms(server->threads.workers[i]);
    return earliest;
}

/* To the supervisor, and to the log when a start takes long. */
static void report(struct main_loop *ml)
{
    const struct load_progress *load = &ml->server->persistence->load;
    int64_t now = clock_ms();
    if (!server_loading(ml->server)) {
        supervisor_alive(&ml->supervisor, now, earliest_tick(ml->server));
        return;
    }
    uint64_t done = atomic_load_explicit(&load->done_bytes, memory_order_relaxed);
    uint64_t total = atomic_load_explicit(&load->total_bytes, memory_order_relaxed);
    if (total < done)
        total = done;
    supervisor_loading(&ml->supervisor, now, total ? (unsigned)(100 * (double)done / (double)total) : 100);
    if (now - load->started_ms < LOADING_REPORT_MS || now - ml->load.reported_ms < LOADING_REPORT_MS)
        return;
    ml->load.reported_ms = now;
    log_notice(&ml->server->log, "loading: %s of %s, files and log, after %" PRId64 " s", log_bytes(done).text,
               log_bytes(total).text, (now - load->started_ms) / 1000);
}

static void try_to_end(struct main_loop *ml);

static void on_tick(uv_timer_t *timer)
{
    struct main_loop *ml = timer->data;
    report(ml);
    if (!ml->accepting)
        listen_accept(ml, true);
    rcu_reader_online();
    if (!server_loading(ml->server)) {
        saver_tick(ml->server->persistence->saver);
        settler_tick(&ml->settler);
        residency_tick(ml->server);
    }
    half_loads_expire(ml->server->clients.half_loads, ml->server->registry,
                      clock_ms() - server_config(ml->server)->filters.load_timeout * 1000);
    rcu_reader_offline();
    server_sample(ml->server);
    if (ending_is_due(&ml->end, clock_ms()))
        try_to_end(ml);
}

/* ---- the end ---- */

/* Until then another signal counts as the first one: timeout(1) and others send it to the process and to its group. */
static _Atomic(int64_t) first_until_ms;

static void end_at_once(int signum)
{
    if (clock_ms() < atomic_load(&first_until_ms))
        return;
    signal(signum, SIG_DFL);
    raise(signum);
}

void main_loop_watch_ends(bool yes)
{
    static const struct sigaction at_once = {.sa_handler = end_at_once, .sa_flags = SA_RESTART};
    static struct sigaction watched[2];
    sigaction(SIGTERM, yes ? &watched[0] : &at_once, yes ? NULL : &watched[0]);
    sigaction(SIGINT, yes ? &watched[1] : &at_once, yes ? NULL : &watched[1]);
}

static void mask_sighup(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(how, &set, NULL);
}

void main_loop_end(struct main_loop *ml, enum end_event event)
{
    lock_take(&ml->lock);
    ending_step(&ml->end, event);
    lock_give(&ml->lock);
    if (ending_is_decided(&ml->end))
        uv_stop(&ml->loop);
}

void main_loop_loaded(struct server *server)
{
    struct main_loop *ml = server->threads.main_loop;
    lock_take(&ml->lock);
    ml->load.state = LOAD_IS_OVER;
    uv_async_send(&ml->wake);
    lock_give(&ml->lock);
}

static void join_load(struct main_loop *ml)
{
    int status = load_join(ml->server, &ml->load.failure);
    lock_take(&ml->lock);
    ml->load.state = status ? LOAD_FAILED : LOAD_SUCCEEDED;
    lock_give(&ml->lock);
}

bool main_loop_is_loading(struct main_loop *ml)
{
    lock_take(&ml->lock);
    bool loading = ml->load.state <= LOAD_IS_OVER;
    lock_give(&ml->lock);
    return loading;
}

static void look_at_load(struct main_loop *ml)
{
    struct server *server = ml->server;
    lock_take(&ml->lock);
    bool over = ml->load.state == LOAD_IS_OVER;
    lock_give(&ml->lock);
    if (!over)
        return;
    join_load(ml);
    if (ml->load.state == LOAD_FAILED) {
        main_loop_end(ml, END_AGREED);
        return;
    }
    char where[512];
    listen_names(ml, where, sizeof(where));
    log_notice(&server->log, "ready: listening on %s; %s, %s", where,
               log_count(registry_count(server->registry), "filter").text,
               log_count(server->threads.nworkers, "thread").text);
    server_keys_warn(server);
    supervisor_ready(&ml->supervisor);
}

/* ---- requests of other threads ---- */

struct main_loop_task {
    struct main_loop_task *next;
    bool done, ends;
    const struct shutdown_request *request;
    struct errbuf *err;
};

static void on_wake(uv_async_t *async)
{
    struct main_loop *ml = async->data;
    look_at_load(ml);
    for (;;) {
        lock_take(&ml->lock);
        struct main_loop_task *task = ml->tasks;
        if (task)
            ml->tasks = task->next;
        lock_give(&ml->lock);
        if (!task)
            return;
        task->ends = ending_is_decided(&ml->end) || ending_try(ml, task->request, task->err);
        lock_take(&ml->lock);
        task->done = true;
        pthread_cond_broadcast(&ml->done);
        lock_give(&ml->lock);
    }
}

/* Has the main thread try it, and waits. Once the end is decided main may have ended. */
static bool shut_down(struct server *server, const struct shutdown_request *request, struct errbuf *err)
{
    struct main_loop *ml = server->threads.main_loop;
    struct main_loop_task task = {.ends = true, .request = request, .err = err};
    lock_take(&ml->lock);
    if (!ending_is_decided(&ml->end)) {
        task.next = ml->tasks;
        ml->tasks = &task;
        uv_async_send(&ml->wake);
        while (!task.done)
            lock_wait(&ml->done, &ml->lock);
    }
    lock_give(&ml->lock);
    return task.ends;
}

/* Certificates and keys are read in a thread of the pool: their files may be on a disk that hangs. */
static void reload_tls(uv_work_t *work)
{
    server_tls_reload(work->data);
    server_keys_reload(work->data);
}

static void tls_reloaded(uv_work_t *work, int status);

static void reload(struct main_loop *ml)
{
    ml->reloads_again = ml->reloads;
    if (!ml->reloads && !ending_is_decided(&ml->end))
        ml->reloads = uv_queue_work(&ml->loop, &ml->reload, reload_tls, tls_reloaded) == 0;
}

static void tls_reloaded(uv_work_t *work, int status)
{
    struct server *server = work->data;
    struct main_loop *ml = server->threads.main_loop;
    (void)status;
    ml->reloads = false;
    if (ml->reloads_again)
        reload(ml);
}

/* ---- signals ---- */

/* The tick repeats the attempts for a signal. At the last attempt nothing delays the end. */
static void try_to_end(struct main_loop *ml)
{
    struct ending *end = &ml->end;
    struct errbuf err = {""};
    int64_t now = clock_ms();
    ending_attempt(end, now);
    if (ending_try(ml, &end->request, &err))
        return;
    if (end->state == END_SIGNALLED)
        log_warning(&ml->server->log,
                    "not ending yet, as changes would be lost: trying again for %" PRId64
                    " seconds (shutdown-timeout); a second signal ends the daemon immediately",
                    (end->until_ms - now + 999) / 1000);
    end->next_ms = clock_ms() + END_RETRY_MS; /* the attempt may have taken long */
    main_loop_end(ml, END_REFUSED);
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct main_loop *ml = handle->data;
    struct ending *end = &ml->end;
    struct errbuf err = {""};
    if (signum == SIGHUP) {
        if (log_reopen(&ml->server->log, &err) != 0)
            log_warning(&ml->server->log, "cannot reopen the log: %s", err.text);
        reload(ml);
        return;
    }
    log_notice(&ml->server->log, "%s received", signum == SIGTERM ? "SIGTERM" : "SIGINT");
    if (clock_ms() < atomic_load(&first_until_ms))
        return;
    main_loop_end(ml, END_SIGNAL);
    if (end->state == END_KILLED)
        end_at_once(signum);
    if (end->state != END_SIGNALLED)
        return;
    atomic_store(&first_until_ms, clock_ms() + FIRST_SIGNAL_MS);
    rcu_reader_online();
    end->until_ms = clock_ms() + server_config(ml->server)->data.shutdown_timeout * 1000;
    rcu_reader_offline();
    end->request = (struct shutdown_request){.save = SHUTDOWN_SAVE_BY_RULES};
    try_to_end(ml);
}

/* ---- the loop ---- */

int main_loop_init(struct main_loop *ml, struct server *server)
{
    *ml = (struct main_loop){.server = server, .reload.data = server};
    TRY(uv_loop_init(&ml->loop));
    server->calls.shutdown = shut_down;
    supervisor_init(&ml->supervisor);
    ml->settler = (struct settler){.loop = &ml->loop, .pool = server->pool};
    lock_init(&ml->lock, RANK_MAIN_LOOP);
    pthread_cond_init(&ml->done, NULL);
    TRY(uv_async_init(&ml->loop, &ml->wake, on_wake));
    uv_signal_init(&ml->loop, &ml->sigterm);
    uv_signal_init(&ml->loop, &ml->sigint);
    uv_signal_init(&ml->loop, &ml->sighup);
    uv_timer_init(&ml->loop, &ml->tick);
    ml->wake.data = ml->sigterm.data = ml->sigint.data = ml->sighup.data = ml->tick.data = ml;
    return 0;
}

void main_loop_watch_signals(struct main_loop *ml)
{
    atomic_store(&first_until_ms, 0);
    uv_signal_start(&ml->sigterm, on_signal, SIGTERM);
    uv_signal_start(&ml->sigint, on_signal, SIGINT);
    uv_signal_start(&ml->sighup, on_signal, SIGHUP);
    mask_sighup(SIG_UNBLOCK);
}

void main_loop_run(struct main_loop *ml)
{
    rcu_reader_begin(); /* for looking at the settings */
    rcu_reader_offline();
    uv_timer_start(&ml->tick, on_tick, TICK_MS, TICK_MS);
    listen_accept(ml, true);
    uv_run(&ml->loop, UV_RUN_DEFAULT);
    mask_sighup(SIG_BLOCK); /* without a handler it would end the process before the tear-down is done */
    listen_accept(ml, false);
    uv_timer_stop(&ml->tick);
    atomic_store(&ml->settler.stop, true); /* a running pass ends within milliseconds, and none starts afterwards */
    while (ml->settler.running)
        uv_run(&ml->loop, UV_RUN_ONCE);
    on_wake(&ml->wake);                                         /* answers requests of the end that came meanwhile */
    if (main_loop_is_loading(ml) && server_journal(ml->server)) /* the thread is at its end */
        join_load(ml);
    /* If the load is done by now clients may have written, and the daemon ends as usual. */
    if (!main_loop_is_loading(ml) && ml->load.state != LOAD_FAILED && ml->end.state == END_EARLY) {
        ml->end.request.force = true;
        (void)ending_try(ml, &ml->end.request, &(struct errbuf){""});
    }
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
    listen_close(ml);
    uv_walk(&ml->loop, close_handle, NULL);
    uv_run(&ml->loop, UV_RUN_DEFAULT);
    int status = uv_loop_close(&ml->loop);
    if (status)
        log_warning(&ml->server->log, "the main loop did not close: %s", uv_strerror(status));
    supervisor_deinit(&ml->supervisor);
    pthread_cond_destroy(&ml->done);
    lock_deinit(&ml->lock);
}
