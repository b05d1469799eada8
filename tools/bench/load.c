#include "load.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define READ_SIZE (256 * 1024)
#define EVENTS    256

/* One connection. Requests under way: sent but not answered, oldest first in `due`, a ring. */
struct client {
    int fd;
    bool wants_write;
    unsigned under_way;
    unsigned oldest; /* place in `due` */
    uint64_t *due;   /* ns, when each request under way was sent (closed loop) or due (open loop) */
    char *out;       /* requests not taken by the kernel yet */
    size_t out_start, out_end;
    struct reply_reader reader;
};

struct run;

struct worker {
    struct run *run;
    unsigned index;
    pthread_t thread;
    int epoll;
    struct client *clients;
    unsigned nclients;
    unsigned turn; /* open loop: the connection that is next */
    struct items items;
    uint64_t requests_left; /* of this thread's share; UINT64_MAX: no limit */
    uint64_t scheduled;     /* open loop: requests made so far */
    uint64_t late;
    double rate; /* of this thread */
    bool measuring;
    uint64_t answered; /* while measuring */
    _Atomic uint64_t answered_ever;
    double cpu_start, cpu;
    uint64_t began, ended; /* ns, of the measurement */
    char *input;
    struct hdr latency;
    int status;
    struct errbuf err;
};

struct run {
    const struct load_options *options;
    struct worker *workers;
    uint64_t start_ns;
    _Atomic bool stop;
    _Atomic unsigned running;
};

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static double thread_cpu(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- one connection
 * --------------------------------------------------------------------------------------------------- */

static int fail(struct worker *worker, int status, const char *what)
{
    worker->status = status;
    errbuf_set(&worker->err, "%s: %s", what, strerror(-status));
    return status;
}

/* Hands to the kernel what it takes. */
static int flush(struct worker *worker, struct client *client)
{
    while (client->out_start < client->out_end) {
        ssize_t n = send(client->fd, client->out + client->out_start, client->out_end - client->out_start,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            return fail(worker, -errno, "cannot send");
        if (n < 0)
            break;
        client->out_start += (size_t)n;
    }
    bool left = client->out_start < client->out_end;
    if (!left)
        client->out_start = client->out_end = 0;
    if (left != client->wants_write) {
        struct epoll_event event = {.events = EPOLLIN | (left ? EPOLLOUT : 0u), .data.ptr = client};
        client->wants_write = left;
        if (epoll_ctl(worker->epoll, EPOLL_CTL_MOD, client->fd, &event) != 0)
            return fail(worker, -errno, "epoll");
    }
    return 0;
}

static void put_request(struct worker *worker, struct client *client, uint64_t due)
{
    const struct load_options *options = worker->run->options;
    unsigned place = client->oldest + client->under_way;
    client->due[place < options->pipeline ? place : place - options->pipeline] = due;
    client->under_way++;
    client->out_end += request_write(options->request, &worker->items, client->out + client->out_end);
    if (worker->requests_left != UINT64_MAX)
        worker->requests_left--;
}

/* Closed loop: the next batch, when the one before is answered. */
static int send_batch(struct worker *worker, struct client *client, uint64_t now)
{
    unsigned pipeline = worker->run->options->pipeline;
    if (client->out_end || client->under_way)
        return 0;
    for (unsigned i = 0; i < pipeline && worker->requests_left; i++)
        put_request(worker, client, now);
    return flush(worker, client);
}

static int take_replies(struct worker *worker, struct client *client, uint64_t *now_out)
{
    uint64_t before = client->reader.replies;
    ssize_t n = recv(client->fd, worker->input, READ_SIZE, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    if (n < 0)
        return fail(worker, -errno, "cannot receive");
    if (n == 0)
        return fail(worker, -ECONNRESET, "the server closed a connection");
    if (!replies_take(&client->reader, worker->input, (size_t)n))
        return fail(worker, -EPROTO, "what the server sent");
    uint64_t replies = client->reader.replies - before, now = *now_out = now_ns();
    if (replies > client->under_way)
        return fail(worker, -EPROTO, "more replies than requests");
    for (uint64_t left = replies; left;) { /* requests of one batch have one time: recorded at once */
        uint64_t due = client->due[client->oldest], same = 0;
        while (same < left && client->due[client->oldest] == due) {
            client->oldest = client->oldest + 1 == worker->run->options->pipeline ? 0 : client->oldest + 1;
            same++;
        }
        left -= same;
        if (worker->measuring)
            hdr_record(&worker->latency, now > due ? now - due : 0, same);
    }
    client->under_way -= (unsigned)replies;
    if (worker->measuring)
        worker->answered += replies;
    atomic_store_explicit(&worker->answered_ever, worker->answered_ever + replies, memory_order_relaxed);
    return 0;
}

/* ---- one thread
 * ------------------------------------------------------------------------------------------------------- */

/* When the request `n` of this thread is due. */
static uint64_t due_at(const struct worker *worker, uint64_t n)
{
    return worker->run->start_ns + (uint64_t)((double)n * 1e9 / worker->rate);
}

/* Open loop: sends what is due, as far as connections are free. */
static int send_due(struct worker *worker, uint64_t now)
{
    unsigned pipeline = worker->run->options->pipeline, full = 0;
    while (full < worker->nclients && worker->requests_left && due_at(worker, worker->scheduled) <= now) {
        struct client *client = &worker->clients[worker->turn];
        worker->turn = (worker->turn + 1) % worker->nclients;
        if (client->under_way == pipeline || client->wants_write) {
            full++;
            continue;
        }
        full = 0;
        uint64_t due = due_at(worker, worker->scheduled++);
        worker->late += worker->measuring && now - due > 1000000;
        put_request(worker, client, due);
        int status = flush(worker, client);
        if (status != 0)
            return status;
    }
    return 0;
}

/* Without epoll_pwait2() (before Linux 5.11) ppoll() knows times as short. */
static int wait_for_events(int epoll, struct epoll_event *events, const struct timespec *wait)
{
    int n = epoll_pwait2(epoll, events, EVENTS, wait, NULL);
    if (n >= 0 || errno != ENOSYS)
        return n;
    struct pollfd ready = {.fd = epoll, .events = POLLIN};
    n = ppoll(&ready, 1, wait, NULL);
    return n > 0 ? epoll_wait(epoll, events, EVENTS, 0) : n;
}

static int turn(struct worker *worker)
{
    struct epoll_event events[EVENTS];
    struct timespec wait = {.tv_sec = 0, .tv_nsec = 50000000};
    uint64_t now = now_ns();
    if (worker->rate > 0) {
        if (send_due(worker, now) != 0)
            return worker->status;
        uint64_t due = due_at(worker, worker->scheduled);
        uint64_t left = due > now ? due - now : 0;
        if (left < (uint64_t)wait.tv_nsec && worker->requests_left)
            wait.tv_nsec = (long)left;
        if (left == 0) /* all connections are full: their replies come first */
            wait.tv_nsec = 1000000;
    }
    int n = wait_for_events(worker->epoll, events, &wait);
    if (n < 0 && errno != EINTR)
        return fail(worker, -errno, "epoll");
    for (int i = 0; i < n; i++) {
        struct client *client = events[i].data.ptr;
        int status = 0;
        now = 0;
        if (events[i].events & EPOLLOUT)
            status = flush(worker, client);
        if (status == 0 && (events[i].events & ~(uint32_t)EPOLLOUT))
            status = take_replies(worker, client, &now);
        if (status == 0 && worker->rate <= 0 && client->under_way == 0)
            status = send_batch(worker, client, now ? now : now_ns());
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
        reader->errors = reader->ones = reader->zeros = 0;
    }
    worker->measuring = true;
    worker->began = now_ns();
    worker->cpu_start = thread_cpu();
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct run *run = worker->run;
    const struct load_options *options = run->options;
    uint64_t start = now_ns(), measure_from = start + (uint64_t)(options->warmup * 1e9);
    uint64_t end = options->seconds > 0 ? measure_from + (uint64_t)(options->seconds * 1e9) : UINT64_MAX;

    if (options->warmup <= 0)
        begin_measuring(worker);
    for (unsigned i = 0; i < worker->nclients && worker->rate <= 0 && worker->status == 0; i++)
        send_batch(worker, &worker->clients[i], now_ns());
    while (worker->status == 0 && !atomic_load(&run->stop)) {
        uint64_t now = now_ns();
        if (!worker->measuring && now >= measure_from)
            begin_measuring(worker);
        if (now >= end || (worker->requests_left == 0 && !anything_under_way(worker)))
            break;
        turn(worker);
    }
    worker->ended = now_ns();
    worker->cpu = thread_cpu() - worker->cpu_start;
    if (worker->status != 0)
        atomic_store(&run->stop, true);
    atomic_fetch_sub(&run->running, 1);
    return NULL;
}

/* ---- the run
 * ---------------------------------------------------------------------------------------------------------- */

static int open_client(struct worker *worker, struct client *client, struct errbuf *err)
{
    const struct load_options *options = worker->run->options;
    client->due = calloc(options->pipeline, sizeof(*client->due));
    client->out = malloc(options->request->max_size * options->pipeline);
    if (!client->due || !client->out)
        return -ENOMEM;
    client->fd = endpoint_connect(options->endpoint, err);
    if (client->fd < 0)
        return client->fd;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    return epoll_ctl(worker->epoll, EPOLL_CTL_ADD, client->fd, &event) == 0 ? 0 : -errno;
}

static int open_worker(struct run *run, unsigned index, struct errbuf *err)
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
    worker->input = malloc(READ_SIZE);
    if (worker->epoll < 0 || !worker->clients || !worker->input)
        return -ENOMEM;
    for (unsigned i = 0; i < worker->nclients; i++)
        worker->clients[i].fd = -1;
    for (unsigned i = 0; i < worker->nclients && status == 0; i++)
        status = open_client(worker, &worker->clients[i], err);
    return status;
}

static void close_worker(struct worker *worker)
{
    for (unsigned i = 0; worker->clients && i < worker->nclients; i++) {
        if (worker->clients[i].fd >= 0)
            close(worker->clients[i].fd);
        free(worker->clients[i].due);
        free(worker->clients[i].out);
    }
    if (worker->run)
        close(worker->epoll);
    free(worker->clients);
    free(worker->input);
}

static uint64_t answered_by_all(const struct run *run)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < run->options->threads; i++)
        sum += atomic_load_explicit(&run->workers[i].answered_ever, memory_order_relaxed);
    return sum;
}

static void watch(struct run *run)
{
    const struct load_options *options = run->options;
    uint64_t last_ns = now_ns(), last = 0, start = last_ns;
    while (atomic_load(&run->running)) {
        struct timespec pause = {.tv_nsec = 20000000};
        nanosleep(&pause, NULL);
        uint64_t now = now_ns();
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

static int collect(struct run *run, struct load_result *result, struct errbuf *err)
{
    int status = 0;
    for (unsigned i = 0; i < run->options->threads; i++) {
        struct worker *worker = &run->workers[i];
        double seconds = (double)(worker->ended - worker->began) / 1e9;
        if (worker->status != 0 && status == 0) {
            status = worker->status;
            *err = worker->err;
        }
        result->requests += worker->answered;
        result->late += worker->late;
        result->cpu_total += worker->cpu;
        if (worker->cpu > result->cpu_busiest)
            result->cpu_busiest = worker->cpu;
        if (seconds > result->seconds)
            result->seconds = seconds;
        hdr_merge(&result->latency, &worker->latency);
        for (unsigned c = 0; c < worker->nclients; c++) {
            const struct reply_reader *reader = &worker->clients[c].reader;
            result->errors += reader->errors;
            result->ones += reader->ones;
            result->zeros += reader->zeros;
            if (result->first_error[0] == '\0')
                strcpy(result->first_error, reader->first_error);
        }
    }
    return status;
}

int load_run(const struct load_options *options, struct load_result *result, struct errbuf *err)
{
    struct run run = {.options = options};
    int status = 0;

    memset(result, 0, sizeof(*result));
    run.workers = calloc(options->threads, sizeof(*run.workers));
    if (!run.workers)
        return -ENOMEM;
    for (unsigned i = 0; i < options->threads && status == 0; i++)
        status = open_worker(&run, i, err);
    if (status == 0) {
        unsigned started = 0;
        run.start_ns = now_ns();
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
