#include "worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "conn.h"
#include "job.h"
#include "journal.h"
#include "log.h"
#include "monitor.h"
#include "push.h"
#include "persistence.h"
#include "rcu.h"
#include "sleep.h"
#include "thread.h"
#include "usage.h"

/* ---- mailbox ----------------------------------------------------------------------------------------------------- */

void worker_post_message(struct worker *worker, struct worker_message *message)
{
    pthread_mutex_lock(&worker->mail_lock);
    message->next = worker->mail;
    worker->mail = message;
    if (!worker->deaf)
        uv_async_send(&worker->wake);
    pthread_mutex_unlock(&worker->mail_lock);
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
    int fd = (int)(intptr_t)arg;
    int err = UV_ECANCELED;
    if (worker->stopping)
        close(fd);
    else
        err = conn_open(worker, fd);
    if (err)
        atomic_fetch_sub_explicit(&worker->nconns, 1, memory_order_relaxed);
    if (err && !worker->stopping)
        log_limited(&worker->server->log, &worker->server->limits.accept, worker->now_ms, LOG_LEVEL_WARNING,
                    "cannot take a connection: %s", uv_strerror(err));
}

int worker_post_connection(struct worker *worker, int fd)
{
    /* Counted from here on, so that a burst of connections is spread evenly too. */
    atomic_fetch_add_explicit(&worker->nconns, 1, memory_order_relaxed);
    int err = worker_post(worker, open_connection, (void *)(intptr_t)fd);
    if (err)
        atomic_fetch_sub_explicit(&worker->nconns, 1, memory_order_relaxed);
    return err;
}

static void release_durable(struct worker *worker);

static void close_everything(struct worker *worker)
{
    if (worker->stopping)
        return;
    worker->stopping = true;
    worker_finish(worker); /* replies that are ready leave first, and those that the disk has caught up with */
    release_durable(worker);
    worker_finish(worker);
    while (worker->conns)
        conn_close(worker->conns);
    sleepers_wake(worker, true);
    job_start_held(worker); /* they end the loop when they come back */
    pthread_mutex_lock(&worker->mail_lock);
    worker->deaf = true;
    pthread_mutex_unlock(&worker->mail_lock);
    uv_close((uv_handle_t *)&worker->wake, NULL);
    uv_close((uv_handle_t *)&worker->before_poll, NULL);
    uv_close((uv_handle_t *)&worker->after_poll, NULL);
    uv_close((uv_handle_t *)&worker->next_turns, NULL);
    uv_close((uv_handle_t *)&worker->tick, NULL);
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

static void release_durable(struct worker *worker)
{
    uint64_t done = atomic_load(&worker->durable);
    if (worker->log_waits && done != worker->log_seen) {
        worker->log_seen = done;
        worker_enter(worker);
        sleepers_look_at_log(worker);
    }
    while (!conn_list_empty(&worker->not_durable)) {
        struct conn *conn = CONN_OF(worker->not_durable.next, durable);
        if (conn->ticket > done)
            break;
        worker_enter(worker);
        conn_list_remove(&conn->durable);
        conn_ready(conn, CONN_WAITS_DURABLE);
    }
}

/* The worker says that it is about to sleep and then looks at `durable`; here it is the other way round. */
void worker_post_durable(struct worker *worker, uint64_t ticket)
{
    atomic_store(&worker->durable, ticket);
    if (!atomic_load(&worker->sleeps))
        return;
    pthread_mutex_lock(&worker->mail_lock);
    if (!worker->deaf)
        uv_async_send(&worker->wake);
    pthread_mutex_unlock(&worker->mail_lock);
}

static void release_room(struct worker *worker)
{
    if (!atomic_exchange(&worker->has_room, false))
        return;
    while (!conn_list_empty(&worker->no_room)) {
        struct conn *conn = CONN_OF(worker->no_room.next, waiter);
        worker_enter(worker);
        conn_list_remove(&conn->waiter);
        conn_ready(conn, CONN_WAITS_ROOM);
    }
}

void worker_post_room(struct worker *worker)
{
    atomic_store(&worker->has_room, true);
    pthread_mutex_lock(&worker->mail_lock);
    if (!worker->deaf)
        uv_async_send(&worker->wake);
    pthread_mutex_unlock(&worker->mail_lock);
}

void worker_hold_for_room(struct worker *worker, struct conn *conn)
{
    conn_wait(conn, CONN_WAITS_ROOM);
    conn_list_append(&worker->no_room, &conn->waiter);
}

static void run_mail(struct worker *worker)
{
    struct worker_message *mail, *in_order = NULL;

    pthread_mutex_lock(&worker->mail_lock);
    mail = worker->mail;
    worker->mail = NULL;
    pthread_mutex_unlock(&worker->mail_lock);
    while (mail) {
        struct worker_message *next = mail->next;
        mail->next = in_order;
        in_order = mail;
        mail = next;
    }
    while (in_order) {
        struct worker_message *message = in_order;
        in_order = message->next; /* running it may free it */
        if (!worker->stopping)
            worker_enter(worker);
        message->run(worker, message);
    }
}

static void on_wake(uv_async_t *async)
{
    struct worker *worker = async->data;
    release_durable(worker);
    release_room(worker);
    run_mail(worker);
}

/* ---- the iteration ----------------------------------------------------------------------------------------------- */

static void on_turns(uv_idle_t *handle);

/* What an iteration records beyond this is one input arena's worth of adds at most, and is not refused. */
static void look_at_log(struct worker *worker)
{
    struct journal *journal = server_journal(worker->server);
    bool records = journal && journal_records(journal);
    worker->ring = records ? journal_ring(journal, worker->index) : NULL;
    worker->ring_full = records && journal_is_full(journal, worker->index);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void worker_enter(struct worker *worker)
{
    if (worker->online)
        return;
    rcu_reader_online();
    worker->online = true;
    atomic_store_explicit(&worker->sleeps, false, memory_order_relaxed);
    worker->now_ms = (int64_t)uv_now(&worker->loop);

    const struct config *config = server_config(worker->server);
    worker->limits = (struct resp_limits){
        .max_args = (size_t)config->proto_max_args,
        .max_bulk = (size_t)config->proto_max_bulk_len,
        .max_inline = (size_t)config->proto_inline_max_size,
    };
    worker->limits_noauth = (struct resp_limits){
        .max_args = least(worker->limits.max_args, (size_t)config->proto_max_args_noauth),
        .max_bulk = least(worker->limits.max_bulk, (size_t)config->proto_max_bulk_noauth),
        .max_inline = worker->limits.max_inline,
    };
    worker->high_water = (size_t)config->reply_buffer_high_water;
    for (int i = 0; i < CONFIG_CLIENT_CLASSES; i++) {
        uint64_t hard = config->client_output_buffer_limit.classes[i].hard;
        worker->reply_limits[i] =
            (size_t)(hard && hard < config->reply_buffer_limit ? hard : config->reply_buffer_limit);
    }
    timing_refresh(&worker->timing, config);
    worker->over_memory = config->maxmemory && bloom_pool_bytes(worker->server->pool) >= config->maxmemory;
    worker->loading = server_loading(worker->server);
    worker->refuses_writes = persistence_refuses(worker->server);
    look_at_log(worker);
    worker_look_at_pause(worker);
}

void worker_look_at_pause(struct worker *worker)
{
    struct server *server = worker->server;
    enum pause pause = (enum pause)atomic_load_explicit(&server->pause, memory_order_acquire);
    if (pause && worker->now_ms >= atomic_load_explicit(&server->pause_until_ms, memory_order_relaxed))
        pause = PAUSE_NOTHING;
    worker->paused = pause;
    worker->no_window_query = pause == PAUSE_ALL || worker->loading;
    worker->no_window_add =
        pause || worker->over_memory || worker->loading || worker->refuses_writes || worker->ring_full;
    while (!pause && !conn_list_empty(&worker->pause_waiters)) {
        struct conn *conn = CONN_OF(worker->pause_waiters.next, waiter);
        conn_list_remove(&conn->waiter);
        conn_ready(conn, CONN_WAITS_PAUSE);
    }
}

void worker_hold_paused(struct worker *worker, struct conn *conn)
{
    conn_wait(conn, CONN_WAITS_PAUSE);
    conn_list_append(&worker->pause_waiters, &conn->waiter);
}

#define FOR_EACH_WITH_REPLIES(worker, link) \
    for (struct conn_link *link = (worker)->with_replies.next; link != &(worker)->with_replies; link = link->next)

/* Replies to writes stay until what they promise is on disk. All of an iteration share a ticket. It is taken before any
 * reply leaves, so that the disk is at work while those leave that it has served. */
static void hold_until_durable(struct worker *worker)
{
    struct journal *journal = server_journal(worker->server);
    size_t replies = 0;
    FOR_EACH_WITH_REPLIES (worker, link)
        replies += CONN_OF(link, with_replies)->wrote;
    if (replies == 0)
        return;
    uint64_t ticket = journal ? journal_ticket(journal, worker->index, replies) : 0;
    bool wait = ticket > atomic_load_explicit(&worker->durable, memory_order_acquire);
    FOR_EACH_WITH_REPLIES (worker, link) {
        struct conn *conn = CONN_OF(link, with_replies);
        if (conn->wrote && wait) {
            conn->ticket = ticket;
            conn_list_remove(&conn->durable);
            conn_list_append(&worker->not_durable, &conn->durable);
            conn_wait(conn, CONN_WAITS_DURABLE);
        }
        conn->wrote = false;
    }
}

void worker_finish(struct worker *worker)
{
    if (!worker->online)
        return;
    window_flush(worker);
    monitor_flush(worker);
    hold_until_durable(worker);
    while (!conn_list_empty(&worker->with_replies)) {
        struct conn *conn = CONN_OF(worker->with_replies.next, with_replies);
        conn_list_remove(&conn->with_replies);
        conn_flush(conn);
    }
    if (worker->ring)
        journal_poke(server_journal(worker->server), worker->index);
    worker->arena_used = 0;
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

void worker_give_turn(struct worker *worker, struct conn *conn)
{
    if (conn_link_used(&conn->turn) || worker->stopping)
        return;
    conn_list_append(&worker->turns, &conn->turn);
    if (!uv_is_active((uv_handle_t *)&worker->next_turns))
        uv_idle_start(&worker->next_turns, on_turns);
}

/* Whoever is not done with its turn has the next one in the next round, after the others and after fresh input. */
static void on_turns(uv_idle_t *handle)
{
    struct worker *worker = handle->data;
    worker_enter(worker);
    struct conn_link now;
    conn_list_init(&now);
    conn_list_move(&now, &worker->turns);
    while (!conn_list_empty(&now)) {
        struct conn *conn = CONN_OF(now.next, turn);
        conn_list_remove(&conn->turn);
        conn_take_turn(conn);
    }
    if (conn_list_empty(&worker->turns))
        uv_idle_stop(handle);
}

static void on_before_poll(uv_prepare_t *handle)
{
    struct worker *worker = handle->data;
    do {
        worker_finish(worker);
        atomic_store(&worker->sleeps, true);
        release_durable(worker);
    } while (worker->online);
}

/* What the disk has done during the iteration needs no other one. */
static void on_after_poll(uv_check_t *handle)
{
    struct worker *worker = handle->data;
    release_durable(worker);
    worker_finish(worker);
}

/* Closes clients that have said nothing for longer than `timeout`; reads on from those that wait for us to. */
static void on_tick(uv_timer_t *timer)
{
    struct worker *worker = timer->data;
    worker_enter(worker);
    int64_t timeout_ms = server_config(worker->server)->timeout * 1000;
    for (struct conn *conn = worker->conns, *next; conn; conn = next) {
        next = conn->next;
        bool listens = conn->session.subscribed || session_monitors(&conn->session);
        if (timeout_ms > 0 && !conn->waits && !listens && worker->now_ms - conn->session.last_ms > timeout_ms)
            conn_close(conn);
        else if (!conn_over_half_closed(conn) && !conn_over_soft_limit(conn) &&
                 (buf_len(&conn->out) || conn->out_pause))
            conn_unstick(conn);
    }
    sleepers_wake(worker, false);
}

char *worker_buf_get(struct worker *worker)
{
    return worker->nspare ? worker->spare_bufs[--worker->nspare] : malloc(WORKER_BUF_SIZE);
}

void worker_buf_put(struct worker *worker, char *mem)
{
    if (worker->nspare < WORKER_SPARE_BUFS)
        worker->spare_bufs[worker->nspare++] = mem;
    else
        free(mem);
}

unsigned worker_nconns(const struct worker *worker)
{
    return atomic_load_explicit(&worker->nconns, memory_order_relaxed);
}

/* ---- start and stop ---------------------------------------------------------------------------------------------- */

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
    while (worker->nspare)
        free(worker->spare_bufs[--worker->nspare]);
    buf_deinit(&worker->monitor_lines);
    resp_args_deinit(&worker->args);
    timing_deinit(&worker->timing);
    free(worker->arena);
    window_deinit(&worker->window);
    usage_destroy(worker->stats.usage);
    pthread_mutex_destroy(&worker->mail_lock);
    free(worker);
}

static void init_handles(struct worker *worker)
{
    uv_prepare_init(&worker->loop, &worker->before_poll);
    uv_check_init(&worker->loop, &worker->after_poll);
    uv_idle_init(&worker->loop, &worker->next_turns);
    uv_timer_init(&worker->loop, &worker->tick);
    worker->before_poll.data = worker->after_poll.data = worker->next_turns.data = worker;
    worker->tick.data = worker->wake.data = worker;
    uv_prepare_start(&worker->before_poll, on_before_poll);
    uv_check_start(&worker->after_poll, on_after_poll);
    uv_timer_start(&worker->tick, on_tick, WORKER_TICK_MS, WORKER_TICK_MS);
}

static size_t counter_of(const char *name)
{
    return command_index(&command_table(NULL)[command_find((struct slice){name, strlen(name)})]);
}

int worker_start(struct worker **worker_out, struct server *server, unsigned index)
{
    struct worker *worker = NULL;
    if (posix_memalign((void **)&worker, 64, sizeof(*worker)) != 0)
        return -ENOMEM;
    *worker = (struct worker){.server = server, .index = index};
    pthread_mutex_init(&worker->mail_lock, NULL);
    buf_init(&worker->monitor_lines, SIZE_MAX);
    push_init(worker);
    conn_list_init(&worker->with_replies);
    conn_list_init(&worker->turns);
    conn_list_init(&worker->not_durable);
    conn_list_init(&worker->no_room);
    conn_list_init(&worker->exclusive_waiters);
    conn_list_init(&worker->pause_waiters);
    worker->jobs_held_end = &worker->jobs_held;
    worker->counter_bf_exists = counter_of("bf.exists");
    worker->counter_bf_add = counter_of("bf.add");
    worker->arena = malloc(WORKER_ARENA_SIZE);
    worker->slice_items = COMMAND_SLICE;
    worker->stats.usage = usage_create();
    int err = worker->arena && worker->stats.usage ? window_init(&worker->window) : -ENOMEM;
    if (!err)
        err = uv_loop_init(&worker->loop);
    if (err) {
        worker_free(worker);
        return err;
    }
    err = uv_async_init(&worker->loop, &worker->wake, on_wake);
    if (!err) {
        init_handles(worker);
        err = uv_thread_create(&worker->thread, worker_main, worker);
        if (!err) {
            *worker_out = worker;
            return 0;
        }
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
    run_mail(worker); /* what was posted too late for the loop */
}

void worker_destroy(struct worker *worker)
{
    run_mail(worker);
    int err = uv_loop_close(&worker->loop);
    if (err) /* a handle was left open: a bug, and worth a loud word */
        log_warning(&worker->server->log, "worker %u: loop did not close: %s", worker->index, uv_strerror(err));
    worker_free(worker);
}
