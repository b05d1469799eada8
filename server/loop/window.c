#include "window.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "acl_session.h"
#include "bf.h"
#include "bring.h"
#include "command.h"
#include "conn.h"
#include "dispatch_errors.h"
#include "keyed.h"
#include "registry_key.h"
#include "command_timing.h"
#include "worker.h"

_Static_assert((WINDOW_RUNS & (WINDOW_RUNS - 1)) == 0, "runs are numbered by a mask");
_Static_assert(WINDOW_RUN <= UINT8_MAX && WINDOW_RUN <= WINDOW_ITEMS, "a run's items are counted in a byte, and fit");

static size_t counter_of_name(const char *name)
{
    return command_index(&command_table(NULL)[command_find((struct slice){name, strlen(name)})]);
}

int window_init(struct window *window)
{
    *window = (struct window){.counters = {counter_of_name("bf.exists"), counter_of_name("bf.add")}};
    if (posix_memalign((void **)&window->runs, 64, WINDOW_RUNS * sizeof(*window->runs)) != 0) {
        window->runs = NULL;
        return -ENOMEM;
    }
    return 0; /* what is not used of it is never touched */
}

void window_deinit(struct window *window)
{
    free(window->runs);
    window->runs = NULL;
}

static struct window_run *run_at(struct window *window, uint64_t n)
{
    return &window->runs[n & (WINDOW_RUNS - 1)];
}

/* ---- the steps ---- */

static void look(struct worker *worker)
{
    struct window *w = &worker->window;
    registry_prefetch_entry(worker->server->registry, run_at(w, w->looked++)->name_hash);
}

static void probe(struct worker *worker)
{
    struct window *w = &worker->window;
    struct window_run *run = run_at(w, w->probed++);
    bool hot = run->name_hash == w->hot_hash;
    run->entry = registry_find(worker->server->registry, run->name_hash, run->name);
    struct bloom_filter *filter = run->entry ? entry_filter(run->entry) : NULL;
    w->items_probed = run->end;
    run->wait = 0;
    run->staged = false;
    if (!filter)
        return;
    struct bloom_item items[WINDOW_RUN];
    for (size_t i = 0; i < run->n; i++)
        items[i] = (struct bloom_item){run->items[i].ptr, run->items[i].len};
    if (hot && run->kind == WINDOW_QUERY && hit_share_is_low(&w->hot_hits))
        run->staged = bloom_batch_start_staged(&run->batch, filter, items, run->n);
    else
        bloom_batch_start(&run->batch, filter, items, run->n);
    w->hot_in_cache = !bloom_filter_beyond_cache(filter);
    if (!hot || !w->hot_in_cache || run->n < WINDOW_AT_ONCE) {
        run->wait = run->staged ? 2 * WINDOW_FETCH : WINDOW_FETCH;
        bloom_batch_fetch(&run->batch, filter);
    }
    w->hot_hash = run->name_hash;
    if (!hot)
        w->hot_hits = (struct hit_share){0};
}

static void narrow(struct worker *worker)
{
    struct window *w = &worker->window;
    struct window_run *run = run_at(w, w->narrowed++);
    if (run->staged)
        bloom_batch_narrow(&run->batch, entry_filter(run->entry));
}

static size_t counter_of(const struct worker *worker, int kind)
{
    return worker->window.counters[kind];
}

/* The filter of a run is not there, or cannot be asked: its commands go the way of a command by itself. */
static void finish_one_by_one(struct worker *worker, const struct window_run *run, struct bf_call *call)
{
    for (size_t i = 0; i < run->n; i++) {
        size_t before = buf_len(&run->conn->output.buf);
        (run->kind == WINDOW_QUERY ? bf_query_one : bf_add_one)(call, run->items[i]);
        dispatch_count_error(run->conn, &run->conn->output.buf, before, counter_of(worker, run->kind));
    }
}

static void finish_queries(struct window *w, struct window_run *run, struct bf_call *call, struct bloom_filter *filter)
{
    unsigned hits = bf_query_batch(call, filter, &run->batch, run->n);
    if (run->name_hash == w->hot_hash)
        hit_share_note(&w->hot_hits, hits, run->n);
}

static void finish_adds(struct worker *worker, struct window_run *run, struct bf_call *call,
                        struct bloom_filter *filter)
{
    for (size_t done = 0, error_at; done < run->n;) {
        done = bf_add_batch(call, filter, &run->batch, done, run->n, &error_at);
        if (error_at != SIZE_MAX)
            dispatch_count_error(run->conn, &run->conn->output.buf, error_at, worker->window.counters[WINDOW_ADD]);
    }
}

static void finish(struct worker *worker)
{
    struct window *w = &worker->window;
    struct window_run *run = run_at(w, w->finished++);
    struct bloom_filter *filter = run->entry ? entry_filter(run->entry) : NULL;
    struct bf_call call = {
        .server = worker->server,
        .stats = &worker->stats,
        .reply = &run->conn->output.reply,
        .ring = worker->log.ring,
        .name = run->name,
        .name_hash = run->name_hash,
        .entry = run->entry,
        .no_touch = session_no_touch(&run->conn->session),
    };
    w->items_finished = run->end;
    w->last[run->kind] = (struct window_last){run->conn, run->name, run->items[run->n - 1]};
    conn_will_reply(run->conn);
    run->conn->output.wrote |= run->kind == WINDOW_ADD;
    if (!filter)
        finish_one_by_one(worker, run, &call);
    else if (run->kind == WINDOW_QUERY)
        finish_queries(w, run, &call, filter);
    else
        finish_adds(worker, run, &call, filter);
}

/* Items that have been probed behind the run. */
static uint64_t behind(struct window *w, uint64_t n)
{
    return w->items_probed - run_at(w, n)->end;
}

/* Takes the steps that are due. The later ones first, so that no run takes two of them at once. */
static void advance(struct worker *worker)
{
    struct window *w = &worker->window;
    while (w->finished < w->narrowed && behind(w, w->finished) >= run_at(w, w->finished)->wait)
        finish(worker);
    while (w->narrowed < w->probed && behind(w, w->narrowed) + WINDOW_FETCH >= run_at(w, w->narrowed)->wait)
        narrow(worker);
    while (w->probed < w->looked && w->items_started - run_at(w, w->probed)->end >= WINDOW_LOOK + WINDOW_PROBE)
        probe(worker);
    while (w->looked < w->started && w->items_started - run_at(w, w->looked)->end >= WINDOW_LOOK)
        look(worker);
}

static void start(struct worker *worker)
{
    struct window *w = &worker->window;
    struct window_run *run = run_at(w, w->started);
    bool hot = run->name_hash == w->hot_hash && w->probed == w->started;
    w->started++;
    w->items_started = run->end;
    if (hot) {
        w->looked++;
        probe(worker);
    } else {
        registry_prefetch(worker->server->registry, run->name_hash);
    }
    advance(worker);
}

/* Answers what has been collected, but for those whose memory is still on its way. */
static void answer(struct worker *worker)
{
    struct window *w = &worker->window;
    while (w->started < w->pushed)
        start(worker);
}

/* Takes the steps of the oldest run that are left. */
static void finish_oldest(struct worker *worker)
{
    struct window *w = &worker->window;
    if (w->finished == w->looked)
        look(worker);
    if (w->finished == w->probed)
        probe(worker);
    if (w->finished == w->narrowed)
        narrow(worker);
    finish(worker);
}

static void answer_all(struct worker *worker)
{
    struct window *w = &worker->window;
    answer(worker);
    while (w->looked < w->pushed)
        look(worker);
    while (w->probed < w->pushed)
        probe(worker);
    while (w->narrowed < w->pushed)
        narrow(worker);
    while (w->finished < w->pushed)
        finish(worker);
}

/* ---- taking in ---- */

static bool is_full(const struct window *w)
{
    return w->pushed - w->finished == WINDOW_RUNS || w->items_pushed - w->items_finished > WINDOW_ITEMS - WINDOW_RUN;
}

/* The place of the next run. */
static struct window_run *make_room(struct worker *worker)
{
    struct window *w = &worker->window;
    if (is_full(w)) {
        (void)worker_clock_ns(worker); /* once in hundreds of items */
        answer(worker);
    }
    while (is_full(w))
        finish_oldest(worker);
    if (w->pushed == w->finished) /* the place that is in the cache */
        w->pushed = w->started = w->looked = w->probed = w->narrowed = w->finished = 0;
    return run_at(w, w->pushed);
}

/* Takes in the run that is in its slot. */
static void take_in(struct worker *worker, struct window_run *run)
{
    struct window *w = &worker->window;
    if (w->since[WINDOW_QUERY] + w->since[WINDOW_ADD] == 0)
        w->started_ns = worker_clock_ns(worker);
    w->since[run->kind] += run->n;
    w->last_kind = run->kind;
    stats_add(&run->conn->session.commands, run->n);
    w->items_pushed += run->n;
    run->end = w->items_pushed;
    w->pushed++;
    if (run->n >= WINDOW_AT_ONCE && w->pushed - w->finished == 1 && w->hot_in_cache && run->name_hash == w->hot_hash)
        answer_all(worker);
}

/* Before a prefix is written into the command, which it would not recognise then. */
static bool memorize(struct window *w, struct window_memo *memo, const struct resp_command *cmd, struct slice name,
                     unsigned database)
{
    if (!resp_repeat_note(&memo->repeat, cmd))
        return false;
    memo->number = ++w->last_memo;
    memo->name_off = cmd->spans[1].off;
    memo->name_len = cmd->spans[1].len;
    memo->database = database;
    memo->prefix = (unsigned)database_prefix_for(database, name.ptr, name.len);
    return true;
}

/* Whether the client may send the remembered command: asked once for each session and command. */
static bool may_repeat(const struct worker *worker, enum window_kind kind, struct conn *conn, struct slice name)
{
    uint64_t number = worker->window.memos[kind].number;
    if (!(conn->session.modes & MODE_RESTRICTED) || conn->session.allowed_memo[kind] == number)
        return true;
    if (!acl_may_call(&conn->session, worker->window.counters[kind], name))
        return false;
    conn->session.allowed_memo[kind] = number;
    return true;
}

void window_push(struct worker *worker, enum window_kind kind, struct conn *conn, const struct resp_command *cmd,
                 unsigned database, bool remember)
{
    struct window_run *run = make_room(worker);
    struct window_memo *memo = &worker->window.memos[kind];
    run->conn = conn;
    run->name = resp_arg(cmd, 1);
    bool remembered = remember && memorize(&worker->window, memo, cmd, run->name, database);
    if (__builtin_expect(database_prefix_for(database, run->name.ptr, run->name.len) != 0, false))
        run->name = keyed_in_place(cmd, 1, database);
    run->name_hash = registry_hash(worker->server->registry, run->name);
    if (remembered)
        memo->name_hash = run->name_hash;
    run->items[0] = resp_arg(cmd, 2);
    run->kind = (uint8_t)kind;
    run->n = 1;
    take_in(worker, run);
}

size_t window_push_repeated(struct worker *worker, enum window_kind kind, struct conn *conn, unsigned database,
                            const char *data, size_t len)
{
    const struct window_memo *memo = &worker->window.memos[kind];
    if (memo->database != database)
        return 0;
    struct window_run *run = make_room(worker);
    size_t used,
        n = resp_repeat_match(&memo->repeat, data, len, worker->input.limits.max_bulk, run->items, WINDOW_RUN, &used);
    struct slice name = {data + memo->name_off, memo->name_len};
    if (n == 0 || !may_repeat(worker, kind, conn, name))
        return 0;
    run->conn = conn;
    run->name = (struct slice){data + memo->name_off - memo->prefix, memo->name_len + memo->prefix};
    char *key = (char *)(uintptr_t)run->name.ptr, said[DATABASE_PREFIX];
    memcpy(said, key, memo->prefix);
    if (__builtin_expect(memo->prefix != 0, false))
        database_prefix_put(key, database); /* as keyed_in_place() */
    if (bring_is_needed(worker, memo->name_hash, run->name)) {
        memcpy(key, said, memo->prefix); /* the parser will read it */
        return 0;
    }
    run->name_hash = memo->name_hash;
    run->kind = (uint8_t)kind;
    run->n = (uint8_t)n;
    take_in(worker, run);
    return used;
}

/* ---- the end ---- */

/* Counts the commands taken in since the last flush, and divides the time since then among them. */
static void count(struct worker *worker)
{
    struct window *w = &worker->window;
    uint64_t n = w->since[WINDOW_QUERY] + w->since[WINDOW_ADD], ns = worker_clock_ns(worker) - w->started_ns;

    stats_add(&worker->stats.commands_processed, n);
    for (int kind = 0; kind < WINDOW_KINDS; kind++) {
        if (w->since[kind] == 0)
            continue;
        const struct command *row = command_row(counter_of(worker, kind));
        const struct window_last *last = &w->last[kind];
        struct slice words[3] = {{row->name, strlen(row->name)}, key_name(last->name), last->item};
        stats_add(&worker->stats.calls[counter_of(worker, kind)], w->since[kind]);
        timing_batch(&worker->timing, row, w->since[kind], ns / n * w->since[kind], words, &last->conn->session);
        w->since[kind] = 0;
    }
}

void window_flush(struct worker *worker)
{
    struct window *w = &worker->window;
    if (w->since[WINDOW_QUERY] + w->since[WINDOW_ADD] == 0)
        return;
    answer_all(worker);
    count(worker);
}
