#include "worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "conn.h"
#include "conn_tls.h"
#include "job.h"
#include "journal.h"
#include "log.h"
#include "monitor.h"
#include "push.h"
#include "memory_reserve.h"
#include "memory_use.h"
#include "rcu.h"
#include "sleep.h"
#include "tracking.h"
#include "thread.h"
#include "usage.h"

/* ---- messages ---- */

void worker_post_message(struct worker *worker, struct worker_message *message)
{
    mailbox_post(&worker->mailbox, message);
}

struct call_message {
    struct worker_message message;
    void (*run)(struct worker *worker, void *arg);
    void *arg;
};

static void run_call(struct worker *worker, struct worker_message *message)
{
    struct call_message call = *(struct call_message *)message;
    free(message);
    call.run(worker, call.arg);
}

int worker_post(struct worker *worker, void (*run)(struct worker *worker, void *arg), void *arg)
{
    struct call_message *call = malloc(sizeof(*call));
    if (!call)
        return -ENOMEM;
    *call = (struct call_message){.message.run = run_call, .run = run, .arg = arg};
    worker_post_message(worker, &call->message);
    return 0;
}

static void open_connection(struct worker *worker, void *arg)
{
    bool with_tls = (intptr_t)arg & 1;
    int fd = (int)((intptr_t)arg >> 1);
    int err = UV_ECANCELED;
    if (worker->stopping)
        close(fd);
    else
        err = conn_open(worker, fd, with_tls);
    if (err)
        atomic_fetch_sub_explicit(&worker->nconns, 1, memory_order_relaxed);
    if (err && !worker->stopping)
        log_limited(&worker->server->log, &worker->server->limits.accept, worker->now_ms, LOG_LEVEL_WARNING,
                    "cannot take a connection: %s", uv_strerror(err));
}

int worker_post_connection(struct worker *worker, int fd, bool with_tls)
{
    /* Counted from here on, so that a burst of connections is spread evenly, too. */
    atomic_fetch_add_explicit(&worker->nconns, 1, memory_order_relaxed);
    int err = worker_post(worker, open_connection, (void *)((intptr_t)fd << 1 | with_tls));
    if (err)
        atomic_fetch_sub_explicit(&worker->nconns, 1, memory_order_relaxed);
    return err;
}

static void close_everything(struct worker *worker)
{
    if (worker->stopping)
        return;
    worker->stopping = true;
    worker_finish(worker); /* ready replies leave first, and so do those whose records are synced now */
    log_waits_release_durable(worker);
    worker_finish(worker);
    while (worker->conns)
        conn_close(worker->conns);
    while (!conn_list_empty(&worker->turns.waiting)) { /* closed connections with subscriptions left */
        struct conn *conn = CONN_OF(worker->turns.waiting.next, turn);
        conn_list_remove(&conn->turn);
        conn_take_turn(conn);
    }
    sleepers_wake(worker, true);
    job_start_held(worker); /* they end the loop when they come back */
    mailbox_close(&worker->mailbox);
    turns_close(worker);
    handshakes_close(worker);
    uv_close((uv_handle_t *)&worker->before_poll, NULL);
    uv_close((uv_handle_t *)&worker->after_poll, NULL);
    uv_close((uv_handle_t *)&worker->tick, NULL);
    uv_close((uv_handle_t *)&worker->trackers.timer, NULL);
}

static void wait_at_gate(struct worker *worker, void *arg)
{
    struct worker_gate *gate = arg;
    worker_finish(worker);
    pthread_mutex_lock(&gate->lock);
    gate->arrived++;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    bool ends = gate->ends;
    worker->ended_at_gate = ends;
    gate->arrived--;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
    if (ends)
        close_everything(worker);
}

int worker_post_gate(struct worker *worker, struct worker_gate *gate)
{
    return worker_post(worker, wait_at_gate, gate);
}

static void run_mail(struct worker *worker)
{
    for (struct worker_message *message = mailbox_take(&worker->mailbox), *next; message; message = next) {
        next = message->next; /* running it may free it */
        if (!worker->stopping)
            worker_enter(worker);
        message->run(worker, message);
    }
}

static void on_wake(uv_async_t *async)
{
    struct worker *worker = async->data;
    log_waits_release_durable(worker);
    log_waits_release_room(worker);
    run_mail(worker);
}

/* ---- the iteration ---- */

void worker_enter(struct worker *worker)
{
    if (worker->online)
        return;
    rcu_reader_online();
    worker->online = true;
    atomic_store_explicit(&worker->log.sleeps, false, memory_order_relaxed);
    worker->now_ms = (int64_t)uv_now(&worker->loop);

    const struct config *config = server_config(worker->server);
    input_refresh(&worker->input, config);
    delivery_refresh(&worker->delivery, config);
    admission_look(worker, log_waits_look(worker));
}

void worker_finish(struct worker *worker)
{
    if (!worker->online)
        return;
    window_flush(worker);
    monitor_flush(worker);
    log_waits_hold_replies(worker);
    delivery_send(&worker->delivery);
    if (worker->log.ring)
        journal_poke(server_journal(worker->server), worker->index);
    worker->input.used = 0;
    worker->online = false;
    rcu_reader_offline();
}

void worker_pause_reading(struct worker *worker)
{
    window_flush(worker);
    if (worker->online)
        rcu_reader_offline();
    worker->online = false;
}

static void on_before_poll(uv_prepare_t *handle)
{
    struct worker *worker = handle->data;
    do {
        worker_finish(worker);
        atomic_store(&worker->log.sleeps, true);
        log_waits_release_durable(worker);
    } while (worker->online);
}

/* Syncs that ended during the iteration are handled now, without another iteration. */
static void on_after_poll(uv_check_t *handle)
{
    struct worker *worker = handle->data;
    log_waits_release_durable(worker);
    worker_finish(worker);
}

/* Closes clients that were idle for longer than `timeout`; reads on from clients that are stuck on their own
 * replies. */
static void on_tick(uv_timer_t *timer)
{
    struct worker *worker = timer->data;
    worker_enter(worker);
    atomic_store_explicit(&worker->ticked_ms, worker->now_ms, memory_order_relaxed);
    int64_t timeout_ms = server_config(worker->server)->timeout * 1000;
    for (struct conn *conn = worker->conns, *next; conn; conn = next) {
        next = conn->next;
        bool listens = conn->session.subscribed || session_monitors(&conn->session);
        if (timeout_ms > 0 && !conn->waits && !listens && worker->now_ms - conn->session.last_ms > timeout_ms)
            conn_close(conn);
        else if (!conn_tls_over_time(conn) && !conn_over_half_closed(conn) && !conn_over_soft_limit(conn) &&
                 (buf_len(&conn->output.buf) || conn->output.pause))
            conn_unstick(conn);
    }
    sleepers_wake(worker, false);
    memory_reserve_keep(worker->server); /* memory that clients free is in the workers' heaps */
}

unsigned worker_nconns(const struct worker *worker)
{
    return atomic_load_explicit(&worker->nconns, memory_order_relaxed);
}

int64_t worker_ticked_ms(const struct worker *worker)
{
    return atomic_load_explicit(&worker->ticked_ms, memory_order_relaxed);
}

/* ---- start and stop ---- */

static void worker_main(void *arg)
{
    struct worker *worker = arg;
    char name[16];
    snprintf(name, sizeof(name), "worker %u", worker->index);
    thread_begin(THREAD_SERVER, name);
    rcu_reader_begin();
    rcu_reader_offline();
    uv_run(&worker->loop, UV_RUN_DEFAULT);
    rcu_reader_end();
}

static void worker_free(struct worker *worker)
{
    delivery_deinit(&worker->delivery);
    buf_deinit(&worker->monitor.lines);
    keyed_deinit(&worker->keyed);
    timing_deinit(&worker->timing);
    input_deinit(&worker->input);
    handshakes_deinit(worker);
    window_deinit(&worker->window);
    usage_destroy(worker->stats.usage);
    mailbox_deinit(&worker->mailbox);
    free(worker);
}

static void init_handles(struct worker *worker)
{
    uv_prepare_init(&worker->loop, &worker->before_poll);
    uv_check_init(&worker->loop, &worker->after_poll);
    turns_open(worker);
    handshakes_open(worker);
    uv_timer_init(&worker->loop, &worker->tick);
    tracking_init(worker);
    worker->before_poll.data = worker->after_poll.data = worker->tick.data = worker;
    uv_prepare_start(&worker->before_poll, on_before_poll);
    uv_check_start(&worker->after_poll, on_after_poll);
    uv_timer_start(&worker->tick, on_tick, WORKER_TICK_MS, WORKER_TICK_MS);
}

/* What needs no loop. */
static int init_parts(struct worker *worker)
{
    struct server *server = worker->server;
    mailbox_init(&worker->mailbox);
    worker->users.message.run = worker_look_at_users;
    buf_init(&worker->monitor.lines, SIZE_MAX);
    timing_init(&worker->timing, &worker->stats, server->slowlog, server->latency);
    worker->stats.usage = usage_create();
    push_init(worker);
    delivery_init(&worker->delivery);
    turns_init(worker);
    handshakes_init(worker);
    log_waits_init(worker);
    section_init(&worker->section);
    held_jobs_init(&worker->jobs_held);
    worker->slice_items = COMMAND_SLICE;
    int err = worker->stats.usage ? input_init(&worker->input) : -ENOMEM;
    if (!err)
        err = window_init(&worker->window);
    admission_init(worker);
    return err;
}

int worker_start(struct worker **worker_out, struct server *server, unsigned index)
{
    struct worker *worker = NULL;
    if (posix_memalign((void **)&worker, 64, sizeof(*worker)) != 0)
        return -ENOMEM;
    *worker = (struct worker){.server = server, .index = index};
    int err = init_parts(worker);
    if (!err)
        err = uv_loop_init(&worker->loop);
    if (err) {
        worker_free(worker);
        return err;
    }
    err = mailbox_open(&worker->mailbox, &worker->loop, on_wake, worker);
    if (!err) {
        init_handles(worker);
        counters_add(server->counters, &worker->stats, &worker->timing);
        err = uv_thread_create(&worker->thread, worker_main, worker);
        if (!err) {
            *worker_out = worker;
            return 0;
        }
        counters_remove(server->counters, &worker->stats);
        close_everything(worker);
        uv_run(&worker->loop, UV_RUN_DEFAULT);
    }
    uv_loop_close(&worker->loop);
    worker_free(worker);
    return err;
}

static void stop(struct worker *worker, struct worker_message *message)
{
    (void)message;
    close_everything(worker);
}

void worker_stop(struct worker *worker)
{
    struct worker_message message = {.run = stop};
    if (!worker->ended_at_gate)
        worker_post_message(worker, &message);
    uv_thread_join(&worker->thread);
    run_mail(worker); /* messages posted too late for the loop */
}

void worker_destroy(struct worker *worker)
{
    run_mail(worker);
    counters_remove(worker->server->counters, &worker->stats);
    int err = uv_loop_close(&worker->loop);
    if (err) /* a handle was left open: a bug, so say it */
        log_warning(&worker->server->log, "worker %u: loop did not close: %s", worker->index, uv_strerror(err));
    worker_free(worker);
}
