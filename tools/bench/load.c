#include "load_internal.h"
#include "tls_stream.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS 256

/* A spinning generator that notices a due request later than this had lost its processor. */
#define LEAVE_OUT_NS 100000

static double thread_cpu(void)
{
    return (double)clock_thread_ns() / 1e9;
}

/* ---- one thread ---- */

/* Open loop: sends the due requests while connections are free. */
static int send_due(struct worker *worker, uint64_t now)
{
    unsigned pipeline = worker->run->options->pipeline, full = 0;
    uint64_t left_out = schedule_look(&worker->schedule, now, worker->measured.on ? &worker->measured.lateness : NULL);
    worker->measured.left_out += worker->measured.on ? left_out : 0;
    while (full < worker->nclients && worker->requests_left && schedule_waits(&worker->schedule)) {
        struct client *client = &worker->clients[worker->turn];
        worker->turn = (worker->turn + 1) % worker->nclients;
        if (client->under_way == pipeline || client->wants_write) {
            full++;
            continue;
        }
        full = 0;
        client_put(worker, client, schedule_take(&worker->schedule));
        int status = client_flush(worker, client);
        if (status != 0)
            return status;
    }
    return 0;
}

/* Without epoll_pwait2() (before Linux 5.11) ppoll() accepts equally short times. */
static int wait_for_events(int epoll, struct epoll_event *events, const struct timespec *wait)
{
    int n = epoll_pwait2(epoll, events, EVENTS, wait, NULL);
    if (n >= 0 || errno != ENOSYS)
        return n;
    struct pollfd ready = {.fd = epoll, .events = POLLIN};
    n = ppoll(&ready, 1, wait, NULL);
    return n > 0 ? epoll_wait(epoll, events, EVENTS, 0) : n;
}

/* The time until the next request is due. */
static struct timespec pause_of(const struct worker *worker, uint64_t now)
{
    struct timespec pause = {.tv_nsec = 50000000};
    if (worker->run->options->spin)
        return (struct timespec){0};
    if (worker->rate > 0 && worker->requests_left) {
        uint64_t due = schedule_next_due(&worker->schedule);
        if (schedule_waits(&worker->schedule)) /* all connections are full: their replies come first */
            pause.tv_nsec = 1000000;
        else if (due - now < (uint64_t)pause.tv_nsec)
            pause.tv_nsec = (long)(due - now);
    }
    return pause;
}

static int turn(struct worker *worker)
{
    struct epoll_event events[EVENTS];
    uint64_t now = clock_ns();
    if (worker->rate > 0 && send_due(worker, now) != 0)
        return worker->status;
    struct timespec pause = pause_of(worker, now);
    int n = wait_for_events(worker->epoll, events, &pause);
    if (n < 0 && errno != EINTR)
        return worker_fail(worker, -errno, "epoll");
    for (int i = 0; i < n; i++) {
        struct client *client = events[i].data.ptr;
        int status = 0;
        if (events[i].events & EPOLLOUT)
            status = client_flush(worker, client);
        if (status == 0 && (events[i].events & ~(uint32_t)EPOLLOUT))
            status = client_take_replies(worker, client);
        if (status != 0)
            return status;
    }
    return 0;
}

static bool anything_under_way(const struct worker *worker)
{
    for (unsigned i = 0; i < worker->nclients; i++)
        if (worker->clients[i].under_way)
            return true;
    return false;
}

static void begin_measuring(struct worker *worker)
{
    for (unsigned i = 0; i < worker->nclients; i++) {
        struct reply_reader *reader = &worker->clients[i].reader;
        reader->ones = reader->zeros = 0;
    }
    worker->measured.on = true;
    worker->measured.began = clock_ns();
    worker->measured.cpu_start = thread_cpu();
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct load_run *run = worker->run;
    const struct load_options *options = run->options;
    uint64_t start = clock_ns(), measure_from = start + (uint64_t)(options->warmup * 1e9);
    uint64_t end = options->seconds > 0 ? measure_from + (uint64_t)(options->seconds * 1e9) : UINT64_MAX;

    if (worker->rate > 0)
        schedule_init(&worker->schedule, start, worker->rate, options->spin ? LEAVE_OUT_NS : UINT64_MAX);
    if (options->warmup <= 0)
        begin_measuring(worker);
    for (unsigned i = 0; i < worker->nclients && worker->rate <= 0 && worker->status == 0; i++)
        client_send_batch(worker, &worker->clients[i], clock_ns());
    while (worker->status == 0 && !atomic_load(&run->stop)) {
        uint64_t now = clock_ns();
        if (!worker->measured.on && now >= measure_from)
            begin_measuring(worker);
        if (now >= end || (worker->requests_left == 0 && !anything_under_way(worker)))
            break;
        turn(worker);
    }
    worker->measured.ended = clock_ns();
    worker->measured.cpu = thread_cpu() - worker->measured.cpu_start;
    if (worker->status != 0)
        atomic_store(&run->stop, true);
    atomic_fetch_sub(&run->running, 1);
    return NULL;
}

/* ---- the run ---- */

static int open_worker(struct load_run *run, unsigned index, struct errbuf *err)
{
    const struct load_options *options = run->options;
    struct worker *worker = &run->workers[index];
    uint64_t share = options->requests / options->threads + (index < options->requests % options->threads);
    int status = 0;

    worker->run = run;
    worker->index = index;
    worker->nclients = options->connections / options->threads + (index < options->connections % options->threads);
    worker->requests_left = options->requests ? share : UINT64_MAX;
    worker->rate = options->rate * worker->nclients / options->connections;
    items_init(&worker->items, options->items, index, options->threads);
    worker->epoll = epoll_create1(EPOLL_CLOEXEC);
    worker->clients = calloc(worker->nclients, sizeof(*worker->clients));
    worker->input = malloc(LOAD_READ_SIZE + TLS_RECORD_MAX);
    worker->received = malloc(LOAD_READ_SIZE);
    if (worker->epoll < 0 || !worker->clients || !worker->input || !worker->received)
        return -ENOMEM;
    for (unsigned i = 0; i < worker->nclients; i++)
        worker->clients[i].fd = -1;
    for (unsigned i = 0; i < worker->nclients && status == 0; i++)
        status = client_open(worker, &worker->clients[i], err);
    return status;
}

static void close_worker(struct worker *worker)
{
    for (unsigned i = 0; worker->clients && i < worker->nclients; i++)
        client_close(&worker->clients[i]);
    if (worker->run)
        close(worker->epoll);
    free(worker->clients);
    free(worker->input);
    free(worker->received);
}

static uint64_t answered_by_all(const struct load_run *run)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < run->options->threads; i++)
        sum += atomic_load_explicit(&run->workers[i].answered_ever, memory_order_relaxed);
    return sum;
}

static void watch(struct load_run *run)
{
    const struct load_options *options = run->options;
    uint64_t last_ns = clock_ns(), last = 0, start = last_ns;
    while (atomic_load(&run->running)) {
        struct timespec pause = {.tv_nsec = 20000000};
        nanosleep(&pause, NULL);
        uint64_t now = clock_ns();
        if (now - last_ns < 1000000000)
            continue;
        uint64_t answered = answered_by_all(run);
        if (options->progress)
            options->progress(options->ctx, (double)(now - start) / 1e9,
                              (double)(answered - last) * 1e9 / (double)(now - last_ns));
        last = answered;
        last_ns = now;
    }
}

static void add_measurement(struct load_result *result, const struct measurement *measured)
{
    double seconds = (double)(measured->ended - measured->began) / 1e9;
    result->requests += measured->answered;
    result->left_out += measured->left_out;
    result->cpu_total += measured->cpu;
    if (measured->cpu > result->cpu_busiest)
        result->cpu_busiest = measured->cpu;
    if (seconds > result->seconds)
        result->seconds = seconds;
    hdr_merge(&result->latency, &measured->latency);
    hdr_merge(&result->lateness, &measured->lateness);
}

static int collect(struct load_run *run, struct load_result *result, struct errbuf *err)
{
    int status = 0;
    for (unsigned i = 0; i < run->options->threads; i++) {
        struct worker *worker = &run->workers[i];
        if (worker->status != 0 && status == 0) {
            status = worker->status;
            *err = worker->err;
        }
        add_measurement(result, &worker->measured);
        for (unsigned c = 0; c < worker->nclients; c++) {
            const struct reply_reader *reader = &worker->clients[c].reader;
            result->ones += reader->ones;
            result->zeros += reader->zeros;
        }
    }
    return status;
}

int load_run(const struct load_options *options, struct load_result *result, struct errbuf *err)
{
    struct load_run run = {.options = options};
    int status = 0;

    memset(result, 0, sizeof(*result));
    run.workers = calloc(options->threads, sizeof(*run.workers));
    if (!run.workers)
        return -ENOMEM;
    for (unsigned i = 0; i < options->threads && status == 0; i++)
        status = open_worker(&run, i, err);
    if (status == 0) {
        unsigned started = 0;
        atomic_store(&run.running, options->threads);
        for (; started < options->threads && status == 0; started++)
            status = -pthread_create(&run.workers[started].thread, NULL, worker_main, &run.workers[started]);
        if (status == 0)
            watch(&run);
        else
            atomic_store(&run.stop, true);
        for (unsigned i = 0; i < started - (status != 0); i++) /* the last one could not be started */
            pthread_join(run.workers[i].thread, NULL);
        if (status == 0)
            status = collect(&run, result, err);
    }
    for (unsigned i = 0; i < options->threads; i++)
        close_worker(&run.workers[i]);
    free(run.workers);
    if (status == -ENOMEM && err->text[0] == '\0')
        errbuf_set(err, "out of memory");
    return status;
}
