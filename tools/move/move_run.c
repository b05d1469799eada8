/* One run: its queue, its threads and signals. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "move_internal.h"
#include "lock.h"

#define TICK_MS        20
#define PROGRESS_TICKS 10
#define QUEUE_MAX      100000 /* some 15 MB; the scanner runs ahead, to know how many filters there are */

/* ---- the queue between the scanner and the workers ---- */

static void queue_init(struct move_queue *queue)
{
    *queue = (struct move_queue){.last = &queue->first};
    pthread_cond_init(&queue->changed, NULL);
}

static void queue_deinit(struct move_queue *queue)
{
    while (queue->first) {
        struct move_filter *filter = queue->first;
        queue->first = filter->next;
        free(filter);
    }
    pthread_cond_destroy(&queue->changed);
}

bool move_queue_put(struct move *move, struct move_filter *filter)
{
    struct move_queue *queue = &move->queue;
    lock_take(&move->lock);
    while (queue->count >= QUEUE_MAX && !queue->ended)
        lock_wait(&queue->changed, &move->lock);
    bool taken = !queue->ended;
    if (taken) {
        filter->next = NULL;
        *queue->last = filter;
        queue->last = &filter->next;
        queue->count++;
        pthread_cond_broadcast(&queue->changed);
    } else {
        free(filter);
    }
    lock_give(&move->lock);
    return taken;
}

void move_queue_end(struct move *move)
{
    struct move_queue *queue = &move->queue;
    lock_take(&move->lock);
    queue->ended = true;
    pthread_cond_broadcast(&queue->changed);
    lock_give(&move->lock);
}

static struct move_filter *take_first(struct move_queue *queue)
{
    struct move_filter *filter = queue->first;
    queue->first = filter->next;
    if (!queue->first)
        queue->last = &queue->first;
    queue->count--;
    return filter;
}

size_t move_queue_take(struct move *move, struct move_filter **filters)
{
    struct move_queue *queue = &move->queue;
    int64_t bytes = 0;
    size_t n = 0;
    lock_take(&move->lock);
    while (!queue->first && !queue->ended)
        lock_wait(&queue->changed, &move->lock);
    while (queue->first && n < MOVE_BATCH && !move_stopped(move)) {
        int64_t size = queue->first->info.size;
        if (n > 0 && (size > MOVE_LARGE_BYTES || bytes + size > MOVE_BATCH_BYTES))
            break;
        filters[n++] = take_first(queue);
        bytes += size;
        if (size > MOVE_LARGE_BYTES)
            break;
    }
    pthread_cond_broadcast(&queue->changed);
    lock_give(&move->lock);
    return n;
}

/* ---- threads ---- */

struct threads {
    pthread_t ids[MOVE_MAX_JOBS + 1];
    size_t n;
};

/* "": unknown, as for a user who may not run INFO. The run will report other errors. */
static void ask_process(struct peer *peer, char out[MOVE_PROCESS_SIZE])
{
    struct resp_reply reply;
    struct errbuf err;
    PEER_PUT(peer, slice_of("INFO"), slice_of("server"));
    out[0] = '\0';
    if (peer_flush(peer, &err) == 0 && peer_reply(peer, &reply, &err) == 0)
        move_read_process(&reply, out);
}

/* A move from a database into itself would follow its own writes. */
static int check_two(const struct move_options *options, struct move_link *link, struct errbuf *err)
{
    char from[MOVE_PROCESS_SIZE], to[MOVE_PROCESS_SIZE];
    if (options->from->address.database != options->to->address.database)
        return 0;
    ask_process(&link->from, from);
    if (from[0])
        ask_process(&link->to, to);
    if (!from[0] || strcmp(from, to) != 0)
        return 0;
    errbuf_set(err, "the source and the target are the same server");
    return -EINVAL;
}

int move_meet(const struct move_options *options, struct errbuf *err)
{
    struct move move = {.options = options};
    struct move_link link;
    move_link_init(&link, &move, true);
    int status = move_link_try(&link, err);
    if (status == 0)
        status = check_two(options, &link, err);
    move_link_close(&link);
    return status;
}

static int start_threads(struct move *move, struct threads *threads)
{
    for (unsigned i = 0; i <= move->options->jobs; i++) {
        atomic_fetch_add(&move->running, 1);
        int status =
            pthread_create(&threads->ids[threads->n], NULL, i == 0 ? move_scan_thread : move_worker_thread, move);
        if (status != 0) {
            atomic_fetch_sub(&move->running, 1);
            return move_fatal(move, -status, "cannot start a thread: %s", strerror(status));
        }
        threads->n++;
    }
    return 0;
}

/* Until all threads have ended. A second signal ends the process at once. */
static void wait_for_threads(struct move *move, const sigset_t *signals)
{
    struct timespec tick = {.tv_nsec = TICK_MS * 1000000};
    if (move->options->progress) /* also of a move that has ended by now */
        move_show_progress(move);
    for (unsigned ticks = 1; atomic_load(&move->running) > 0; ticks++) {
        int signal_number = sigtimedwait(signals, NULL, &tick);
        if (signal_number > 0) {
            move->totals.summary.signal = signal_number;
            atomic_store(&move->stop, true);
            move_queue_end(move);
            pthread_sigmask(SIG_UNBLOCK, signals, NULL);
        }
        if (move->options->progress && ticks % PROGRESS_TICKS == 0)
            move_show_progress(move);
    }
}

static void run_threads(struct move *move)
{
    struct threads threads = {.n = 0};
    sigset_t signals, before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, &before);
    (void)start_threads(move, &threads);
    wait_for_threads(move, &signals);
    for (size_t i = 0; i < threads.n; i++)
        pthread_join(threads.ids[i], NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int move_run(const struct move_options *options, struct move_summary *summary_out, struct errbuf *err)
{
    struct move move = {.options = options, .probes = move_probes_create(), .begun_ns = clock_ns()};
    *summary_out = (struct move_summary){.signal = 0};
    if (!move.probes) {
        errbuf_set(err, "out of memory");
        return -ENOMEM;
    }
    lock_init(&move.lock, RANK_MOVE);
    queue_init(&move.queue);
    int status = options->met ? 0 : move_meet(options, err);
    if (status == 0) {
        run_threads(&move);
        move_clear_progress(&move);
        status = move.totals.fatal_status;
        if (status != 0)
            errbuf_set(err, "%s", move.totals.fatal);
        else if (move.totals.summary.signal)
            status = -EINTR;
    }
    *summary_out = move.totals.summary;
    summary_out->seconds = (double)(clock_ns() - move.begun_ns) / 1e9;
    queue_deinit(&move.queue);
    lock_deinit(&move.lock);
    move_probes_destroy(move.probes);
    return status;
}
