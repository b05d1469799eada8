#include "worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "io.h"
#include "journal.h"
#include "log.h"
#include "persistence.h"
#include "rcu.h"
#include "dispatch.h"
#include "thread.h"
#include "usage.h"
#include "lock.h"

/* ---- messages ---- */

struct call_message {
    struct message message;
    struct worker *worker;
    void (*run)(struct worker *worker, void *arg);
    void *arg;
};

static void run_call(struct message *message, bool ending)
{
    struct call_message call = *(struct call_message *)message;
    (void)ending; /* each call checks io.stopping */
    free(message);
    call.run(call.worker, call.arg);
}

int worker_post(struct worker *worker, void (*run)(struct worker *worker, void *arg), void *arg)
{
    struct call_message *call = malloc(sizeof(*call));
    if (!call)
        return -ENOMEM;
    *call = (struct call_message){.message.run = run_call, .worker = worker, .run = run, .arg = arg};
    mailbox_post(&worker->runner.io.mailbox, &call->message);
    return 0;
}

static void open_connection(struct worker *worker, void *arg)
{
    struct io *io = &worker->runner.io;
    bool with_tls = (intptr_t)arg & 1;
    int fd = (int)((intptr_t)arg >> 1);
    int err = UV_ECANCELED;
    if (io->stopping)
        close(fd);
    else
        err = conn_open(io, fd, with_tls);
    if (err)
        atomic_fetch_sub_explicit(&io->nconns, 1, memory_order_relaxed);
    if (err && !io->stopping)
        log_limited(&io->server->log, &io->server->log.limits.accept, io->now_ms, LOG_LEVEL_WARNING,
                    "cannot accept a connection: %s", uv_strerror(err));
}

int worker_post_connection(struct worker *worker, int fd, bool with_tls)
{
    /* Counted from here on, so that a burst of connections is spread evenly, too. */
    atomic_fetch_add_explicit(&worker->runner.io.nconns, 1, memory_order_relaxed);
    int err = worker_post(worker, open_connection, (void *)((intptr_t)fd << 1 | with_tls));
    if (err)
        atomic_fetch_sub_explicit(&worker->runner.io.nconns, 1, memory_order_relaxed);
    return err;
}

static void release_durable(struct runner *runner)
{
    sleepers_look_at_log(&runner->sleepers);
    log_waits_release_durable(&runner->log);
}

static void finish(struct io *io);

static void close_everything(struct worker *worker)
{
    struct runner *runner = &worker->runner;
    struct io *io = &runner->io;
    if (io->stopping)
        return;
    io->stopping = true;
    finish(io); /* ready replies leave first, and so do those whose records are synced now */
    release_durable(runner);
    finish(io);
    conns_close_all(io);
    sleepers_wake(&runner->sleepers, true);
    jobs_start_held(&runner->jobs); /* they end the loop when they come back */
    conns_close(io);
    uv_close((uv_handle_t *)&worker->before_poll, NULL);
    uv_close((uv_handle_t *)&worker->after_poll, NULL);
    uv_close((uv_handle_t *)&worker->tick, NULL);
}

static void wait_at_gate(struct worker *worker, void *arg)
{
    struct worker_gate *gate = arg;
    finish(&worker->runner.io);
    sem_post(&gate->passed);
    lock_wait_for(&gate->open);
    bool ends = gate->ends;
    sem_post(&gate->passed);
    if (ends)
        close_everything(worker);
}

int worker_post_gate(struct worker *worker, struct worker_gate *gate)
{
    return worker_post(worker, wait_at_gate, gate);
}

static void run_mail(struct io *io)
{
    for (struct message *message = mailbox_take(&io->mailbox), *next; message; message = next) {
        next = mailbox_next(message); /* running it may free it */
        if (!io->stopping)
            io_enter(io);
        message->run(message, io->stopping);
    }
}

static void on_wake(uv_async_t *async)
{
    struct runner *runner = async->data;
    release_durable(runner);
    log_waits_release_room(&runner->log);
    run_mail(&runner->io);
}

/* ---- the iteration ---- */

static void enter(struct io *io)
{
    struct runner *runner = runner_of(io);
    rcu_reader_online();
    io->online = true;
    worker_of(io)->entered_ns = clock_ns();
    turns_begin_round(&io->turns, worker_of(io)->entered_ns);
    atomic_store_explicit(&runner->log.sleeps, false, memory_order_relaxed);
    io->now_ms = (int64_t)uv_now(&io->loop);
    conns_refresh(io, server_config(io->server));
    fetches_look(&runner->fetches);
    bool loading = server_loading(io->server); /* before the ring: if the load ends in between, the ring is there */
    admission_look(&runner->admission, loading, log_waits_look(&runner->log));
}

static void settle(struct io *io)
{
    pipeline_flush(&runner_of(io)->pipeline);
}

static void go_offline(struct io *io)
{
    io->online = false;
    stats_add(&io->stats.loop_ns, clock_ns() - worker_of(io)->entered_ns);
    rcu_reader_offline();
}

static void finish(struct io *io)
{
    struct runner *runner = runner_of(io);
    if (!io->online)
        return;
    pipeline_flush(&runner->pipeline);
    monitor_flush(&runner->monitor);
    log_waits_hold_replies(&runner->log);
    conns_send(io);
    client_limit_keep(io);
    if (runner->log.ring)
        journal_poke(server_journal(io->server), io->index);
    io->input.used = 0;
    go_offline(io);
}

static void pause_iteration(struct io *io)
{
    settle(io);
    if (io->online)
        go_offline(io);
}

static const struct io_calls calls = {
    .conn_size = sizeof(struct client),
    .enter = enter,
    .settle = settle,
    .pause = pause_iteration,
    .finish = finish,
    .open = client_open,
    .run = requests_run,
    .memory = client_memory,
    .may_hear = host_may_hear,
    .unsubscribe = client_unsubscribe,
    .close = client_close,
};

static void on_before_poll(uv_prepare_t *handle)
{
    struct runner *runner = handle->data;
    stats_add(&runner->io.stats.loop_cycles, 1);
    do {
        finish(&runner->io);
        atomic_store(&runner->log.sleeps, true);
        release_durable(runner);
    } while (runner->io.online);
}

/* Syncs that ended during the iteration are handled now, without another iteration. */
static void on_after_poll(uv_check_t *handle)
{
    struct runner *runner = handle->data;
    release_durable(runner);
    finish(&runner->io);
}

static void on_tick(uv_timer_t *timer)
{
    struct worker *worker = timer->data;
    struct io *io = &worker->runner.io;
    io_enter(io);
    atomic_store_explicit(&worker->ticked_ms, io->now_ms, memory_order_relaxed);
    conns_tick(io);
    sleepers_wake(&worker->runner.sleepers, false);
}

unsigned worker_nconns(const struct worker *worker)
{
    return atomic_load_explicit(&worker->runner.io.nconns, memory_order_relaxed);
}

int64_t worker_ticked_ms(const struct worker *worker)
{
    return atomic_load_explicit(&worker->ticked_ms, memory_order_relaxed);
}

/* ---- start and stop ---- */

static void worker_main(void *arg)
{
    struct io *io = arg;
    char name[16];
    snprintf(name, sizeof(name), "worker %u", io->index);
    thread_begin(name);
    rcu_reader_begin();
    rcu_reader_offline();
    uv_run(&io->loop, UV_RUN_DEFAULT);
    rcu_reader_end();
}

static void worker_free(struct worker *worker)
{
    struct io *io = &worker->runner.io;
    runner_deinit(&worker->runner);
    timing_deinit(&io->timing);
    free(io->stats.usage);
    conns_deinit(io);
    free(worker);
}

static int init_parts(struct worker *worker, struct server *server, unsigned index)
{
    struct io *io = &worker->runner.io;
    int err = conns_init(io, server, index, &calls);
    timing_init(&io->timing, &io->stats, server->stats.slowlog);
    io->stats.usage = usage_create();
    if (!io->stats.usage)
        err = -ENOMEM;
    int runner_err = runner_init(&worker->runner);
    host_init(worker);
    uv_prepare_init(&io->loop, &worker->before_poll);
    uv_check_init(&io->loop, &worker->after_poll);
    uv_timer_init(&io->loop, &worker->tick);
    worker->before_poll.data = worker->after_poll.data = &worker->runner;
    worker->tick.data = worker;
    uv_prepare_start(&worker->before_poll, on_before_poll);
    uv_check_start(&worker->after_poll, on_after_poll);
    uv_timer_start(&worker->tick, on_tick, WORKER_TICK_MS, WORKER_TICK_MS);
    return err ? err : runner_err;
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

int worker_start(struct worker **worker_out, struct server *server, unsigned index)
{
    struct worker *worker = NULL;
    if (posix_memalign((void **)&worker, 64, sizeof(*worker)) != 0)
        return -ENOMEM;
    *worker = (struct worker){0};
    struct io *io = &worker->runner.io;
    int err = uv_loop_init(&io->loop);
    if (err) {
        free(worker);
        return err;
    }
    err = init_parts(worker, server, index);
    if (!err)
        err = mailbox_open(&io->mailbox, &io->loop, on_wake, &worker->runner);
    if (!err) {
        counters_add(server->stats.counters, &io->stats, &io->timing);
        server->threads.mailboxes[index] = &io->mailbox;
        err = uv_thread_create(&worker->thread, worker_main, io);
        if (!err) {
            *worker_out = worker;
            return 0;
        }
        counters_remove(server->stats.counters, &io->stats);
        close_everything(worker);
    }
    uv_walk(&io->loop, close_handle, NULL);
    uv_run(&io->loop, UV_RUN_DEFAULT);
    uv_loop_close(&io->loop);
    worker_free(worker);
    return err;
}

struct stop_message {
    struct message message;
    struct worker *worker;
};

static void stop(struct message *message, bool ending)
{
    (void)ending;
    close_everything(((struct stop_message *)message)->worker);
}

void worker_stop(struct worker *worker)
{
    struct stop_message message = {.message.run = stop, .worker = worker};
    mailbox_post(&worker->runner.io.mailbox, &message.message); /* without effect if it has ended at the gate */
    uv_thread_join(&worker->thread);
    run_mail(&worker->runner.io); /* messages posted too late for the loop */
}

void worker_destroy(struct worker *worker)
{
    struct io *io = &worker->runner.io;
    run_mail(io);
    counters_remove(io->server->stats.counters, &io->stats);
    int err = uv_loop_close(&io->loop);
    if (err) /* a handle was left open: a bug, so log it */
        log_warning(&io->server->log, "worker %u: loop did not close: %s", io->index, uv_strerror(err));
    worker_free(worker);
}
