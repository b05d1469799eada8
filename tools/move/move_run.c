/* One run: its messages (a line for each filter that is not moved, the progress), queue, threads and signals. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lock.h"
#include "log_text.h"
#include "move_internal.h"
#include "tool.h"

/* ---- lines ---- */

static void tell(struct move *move, const struct move_filter *filter, const char *what, const char *why)
{
    FILE *out = move->options->dry_run ? stdout : stderr;
    progress_hide(&move->progress);
    if (move->options->dry_run) {
        fprintf(out, "%s\t", what);
        tool_print_name(out, filter->name, filter->name_len);
        fprintf(out, "\t%s, %" PRId64 " bytes%s%s\n", log_count((uint64_t)filter->info.items, "item").text,
                filter->info.size, why ? "\t" : "", why ? why : "");
        return;
    }
    fprintf(out, "%s ", what);
    tool_print_name(out, filter->name, filter->name_len);
    fprintf(out, ": %s\n", why);
}

static const char *word_for(enum move_outcome outcome)
{
    switch (outcome) {
    case MOVE_MOVED:
        return "move";
    case MOVE_THERE:
        return "there";
    case MOVE_DIFFERS:
        return "differs";
    default:
        return "skipped";
    }
}

void move_forget_bytes(struct move *move, struct move_filter *filter)
{
    atomic_fetch_sub(&move->bytes_on_the_way, filter->on_the_way);
    filter->on_the_way = 0;
}

void move_finish(struct move *move, struct move_filter *filter, enum move_outcome outcome, const char *fmt, ...)
{
    struct errbuf why = {""}; /* escapes bytes of the server that could control the terminal */
    char text[ERRBUF_SIZE];
    va_list args;
    if (fmt) {
        va_start(args, fmt);
        vsnprintf(text, sizeof(text), fmt, args);
        va_end(args);
        errbuf_set(&why, "%s", text);
    }
    filter->state = FILTER_FINISHED;
    lock_take(&move->lock);
    move_forget_bytes(move, filter);
    move->totals.summary.filters[outcome]++;
    if (outcome == MOVE_MOVED)
        move->totals.summary.bytes += (uint64_t)filter->info.size;
    move->totals.finished++;
    move->totals.finished_bytes += (uint64_t)filter->info.size;
    if (outcome != MOVE_GONE && (move->options->dry_run || (outcome != MOVE_MOVED && outcome != MOVE_THERE)))
        tell(move, filter, word_for(outcome), fmt ? why.text : NULL);
    lock_give(&move->lock);
}

void move_copied(struct move *move, struct move_filter *filter, enum move_outcome outcome)
{
    filter->state = FILTER_COPIED;
    filter->outcome = outcome;
    if (outcome != MOVE_THERE && (!move->options->verify || move->options->dry_run))
        move_finish(move, filter, outcome, NULL);
}

/* ---- the progress ---- */

/* The estimated total work: the filters found so far, extrapolated to the names not scanned yet. */
static double expected(const struct move_totals *totals, double found)
{
    if (totals->scan_done || totals->scanned == 0 || totals->keys <= totals->scanned)
        return found;
    return found * (double)totals->keys / (double)totals->scanned;
}

static void show_progress(struct move *move)
{
    struct move_totals *totals = &move->totals;
    lock_take(&move->lock);
    snprintf(move->doing, sizeof(move->doing), "%" PRIu64 " of %s%.0f filters", totals->finished,
             totals->scan_done ? "" : "about ", expected(totals, (double)totals->found));
    move->progress.total = (uint64_t)expected(totals, (double)totals->found_bytes);
    progress_update(&move->progress, totals->finished_bytes + atomic_load(&move->bytes_on_the_way));
    lock_give(&move->lock);
}

#define TICK_MS   20
#define QUEUE_MAX 100000 /* some 15 MB; the scanner runs ahead, to know how many filters there are */

/* ---- the queue between the scanner and the workers ---- */

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
    return errbuf_fail(err, -EINVAL, "the source and the target are the same server");
}

/* Connects to both servers and closes again, so that a wrong address or password is reported at once. 0 or -errno. */
static int meet(const struct move_options *options, struct errbuf *err)
{
    struct move move = {.options = options};
    struct move_link link;
    move_link_init(&link, &move, true);
    int status = move_link_try(&link, err);
    STEP(status, check_two(options, &link, err));
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
    do {
        show_progress(move);
        int signal_number = sigtimedwait(signals, NULL, &tick);
        if (signal_number > 0) {
            move->totals.summary.signal = signal_number;
            atomic_store(&move->stop, true);
            move_queue_end(move);
            pthread_sigmask(SIG_UNBLOCK, signals, NULL);
        }
    } while (atomic_load(&move->running) > 0);
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
    progress_begin(&move.progress, move.doing, 0);
    move.progress.shows |= options->progress;
    move.progress.last_ms = 0; /* a line also of a move that ends at once */
    *summary_out = (struct move_summary){.signal = 0};
    if (!move.probes)
        return errbuf_fail(err, -ENOMEM, "out of memory");
    lock_init(&move.lock, RANK_MOVE);
    move.queue.last = &move.queue.first;
    pthread_cond_init(&move.queue.changed, NULL);
    int status = options->met ? 0 : meet(options, err);
    if (status == 0) {
        run_threads(&move);
        progress_end(&move.progress);
        status = move.totals.fatal_status;
        if (status != 0)
            errbuf_set(err, "%s", move.totals.fatal);
        else if (move.totals.summary.signal)
            status = -EINTR;
    }
    *summary_out = move.totals.summary;
    summary_out->seconds = (double)(clock_ns() - move.begun_ns) / 1e9;
    while (move.queue.first) {
        struct move_filter *filter = move.queue.first;
        move.queue.first = filter->next;
        free(filter);
    }
    pthread_cond_destroy(&move.queue.changed);
    lock_deinit(&move.lock);
    move_probes_destroy(move.probes);
    return status;
}
