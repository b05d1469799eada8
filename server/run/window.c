#include "window.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "acl.h"
#include "bf.h"
#include "bloom_keyring.h"
#include "command.h"
#include "command_timing.h"
#include "conn.h"
#include "dispatch_errors.h"
#include "fetch.h"
#include "log_waits.h"
#include "registry_key.h"
#include "work.h"

_Static_assert((WINDOW_RUNS & (WINDOW_RUNS - 1)) == 0, "runs are numbered by a mask");
_Static_assert(WINDOW_RUN <= UINT8_MAX && WINDOW_RUN <= WINDOW_ITEMS, "a run's items are counted in a byte, and fit");

_Static_assert(sizeof(((struct session *)NULL)->acl.allowed_memo) == WINDOW_KINDS * sizeof(uint64_t),
               "a session remembers a request of each kind");

const char *const window_commands[WINDOW_KINDS] = {"bf.exists", "bf.add", "cf.exists", "cf.add"};

int window_init(struct window *window, struct io *io, const struct log_waits *log, const struct fetches *fetches)
{
    *window = (struct window){.io = io, .registry = io->server->registry, .log = log, .fetches = fetches};
    for (int kind = 0; kind < WINDOW_KINDS; kind++)
        window->counters[kind] = command_index(&command_table(NULL)[command_find(slice_of(window_commands[kind]))]);
    if (posix_memalign((void **)&window->slots, 64, WINDOW_RUNS * sizeof(*window->slots)) != 0) {
        window->slots = NULL;
        return -ENOMEM;
    }
    return 0; /* its unused part is never touched */
}

void window_deinit(struct window *window)
{
    free(window->slots);
    window->slots = NULL;
}

static struct window_run *run_at(struct window *window, uint64_t n)
{
    return &window->slots[n & (WINDOW_RUNS - 1)];
}

/* ---- the steps ---- */

static void look(struct window *w)
{
    registry_prefetch_entry(w->registry, run_at(w, w->runs.looked++)->name_hash);
}

/* Fetches the buckets of the items; they are hashed again when they are answered, which costs less than to keep the
 * hashes. */
static void probe_cuckoo(struct window *w, struct window_run *run, const struct bloom_filter *filter)
{
    bool hot = run->name_hash == w->hot.hash;
    w->hot.in_cache = !bloom_filter_beyond_cache(filter);
    w->hot.hash = run->name_hash;
    if (!hot)
        w->hot.hits = (struct hit_share){0};
    if (hot && w->hot.in_cache)
        return;
    run->wait = WINDOW_FETCH;
    for (size_t i = 0; i < run->n; i++)
        cuckoo_prefetch(filter, cuckoo_hash_for(filter, run->items[i].ptr, run->items[i].len));
}

/* Names of Bloom filters and of cuckoo filters are told apart: the same name may be asked for as both. */
static uint64_t known_as(enum window_kind kind, uint64_t name_hash)
{
    return name_hash + (kind >= WINDOW_CUCKOO_QUERY);
}

static void learn_work(struct window *w, struct window_run *run, const struct bloom_filter *filter)
{
    uint64_t known = known_as(run->kind, run->name_hash);
    if (w->known.hash == known) {
        run->work = w->known.work[window_kind_adds(run->kind)];
        return;
    }
    w->known.hash = known;
    if (!filter) {
        w->known.work[0] = 1;
        w->known.work[1] = WORK_MADE;
    } else if (run->kind >= WINDOW_CUCKOO_QUERY) {
        w->known.work[0] = work_of_item(filter, false);
        w->known.work[1] = work_of_item(filter, true);
    } else {
        w->known.work[0] = w->known.work[1] = work_of_bloom_item(filter);
    }
    run->work = w->known.work[window_kind_adds(run->kind)];
}

static void probe(struct window *w)
{
    struct window_run *run = run_at(w, w->runs.probed++);
    bool hot = run->name_hash == w->hot.hash;
    run->entry = registry_find(w->registry, run->name_hash, run->name);
    struct bloom_filter *filter = run->entry ? entry_filter(run->entry) : NULL;
    learn_work(w, run, filter);
    w->items.probed = run->end;
    run->wait = 0;
    run->staged = false;
    run->hashed = filter && run->kind <= WINDOW_ADD && bloom_filter_is_queryable(filter);
    if (!run->hashed) {
        if (filter && run->kind >= WINDOW_CUCKOO_QUERY && entry_is_cuckoo(run->entry) &&
            bloom_filter_missing_key(filter) == 0)
            probe_cuckoo(w, run, filter);
        return;
    }
    struct bloom_item items[WINDOW_RUN];
    for (size_t i = 0; i < run->n; i++)
        items[i] = (struct bloom_item){run->items[i].ptr, run->items[i].len};
    if (hot && run->kind == WINDOW_QUERY && hit_share_is_low(&w->hot.hits))
        run->staged = bloom_batch_start_staged(&run->batch, filter, items, run->n);
    else
        bloom_batch_start(&run->batch, filter, items, run->n);
    w->hot.in_cache = !bloom_filter_beyond_cache(filter);
    if (!hot || !w->hot.in_cache || run->n < WINDOW_AT_ONCE) {
        run->wait = run->staged ? 2 * WINDOW_FETCH : WINDOW_FETCH;
        bloom_batch_fetch(&run->batch, filter);
    }
    w->hot.hash = run->name_hash;
    if (!hot)
        w->hot.hits = (struct hit_share){0};
}

static void narrow(struct window *w)
{
    struct window_run *run = run_at(w, w->runs.narrowed++);
    if (run->staged)
        bloom_batch_narrow(&run->batch, entry_filter(run->entry));
}

static size_t counter_of(const struct window *w, int kind)
{
    return w->counters[kind];
}

/* The filter of a run is missing, or cannot be asked: its commands run like single commands. */
static void finish_one_by_one(struct window *w, const struct window_run *run, struct bf_call *call)
{
    static void (*const one[WINDOW_KINDS])(struct bf_call * call, struct slice item) = {bf_query_one, bf_add_one,
                                                                                        cf_query_one, cf_add_one};
    for (size_t i = 0; i < run->n; i++) {
        size_t before = buf_len(&run->conn->output.buf);
        one[run->kind](call, run->items[i]);
        dispatch_count_error(run->conn, &run->conn->output.buf, before, counter_of(w, run->kind));
    }
}

static void finish_queries(struct window *w, struct window_run *run, struct bf_call *call, struct bloom_filter *filter)
{
    unsigned hits = bf_query_batch(call, filter, &run->batch, run->n);
    if (run->name_hash == w->hot.hash)
        hit_share_note(&w->hot.hits, hits, run->n);
}

static void finish_adds(struct window *w, struct window_run *run, struct bf_call *call, struct bloom_filter *filter)
{
    for (size_t done = 0, error_at; done < run->n;) {
        done = bf_add_batch(call, filter, &run->batch, done, run->n, &error_at);
        if (error_at != SIZE_MAX)
            dispatch_count_error(run->conn, &run->conn->output.buf, error_at, w->counters[WINDOW_ADD]);
    }
}

#define CLOCK_WORK 256 /* of a run that is also measured: the host of a virtual machine may have to find the pages */

static void finish(struct window *w)
{
    struct window_run *run = run_at(w, w->runs.finished++);
    struct bloom_filter *filter = run->hashed ? entry_filter(run->entry) : NULL;
    struct bf_call call = {
        .server = w->io->server,
        .stats = &w->io->stats,
        .reply = &run->conn->output.reply,
        .ring = w->log->ring,
        .name = run->name,
        .name_hash = run->name_hash,
        .entry = run->entry,
        .no_touch = session_no_touch(&run->conn->session),
    };
    w->items.finished = run->end;
    w->work -= run->expected;
    uint64_t work = (uint64_t)run->work * run->n;
    turns_pay(&w->io->turns, work);
    w->last[run->kind] = (struct window_last){run->conn, run->name, run->items[run->n - 1]};
    conn_will_reply(run->conn);
    run->conn->output.wrote |= window_kind_adds(run->kind);
    if (!filter)
        finish_one_by_one(w, run, &call);
    else if (run->kind == WINDOW_QUERY)
        finish_queries(w, run, &call, filter);
    else
        finish_adds(w, run, &call, filter);
    if (__builtin_expect(work >= CLOCK_WORK, false))
        (void)turns_clock_ns(&w->io->turns);
}

/* Items that have been probed after the run. */
static uint64_t behind(struct window *w, uint64_t n)
{
    return w->items.probed - run_at(w, n)->end;
}

/* Takes the steps that are due. The later ones first, so that no run takes two of them at once. */
static void advance(struct window *w)
{
    while (w->runs.finished < w->runs.narrowed && behind(w, w->runs.finished) >= run_at(w, w->runs.finished)->wait)
        finish(w);
    while (w->runs.narrowed < w->runs.probed &&
           behind(w, w->runs.narrowed) + WINDOW_FETCH >= run_at(w, w->runs.narrowed)->wait)
        narrow(w);
    while (w->runs.probed < w->runs.looked &&
           w->items.started - run_at(w, w->runs.probed)->end >= WINDOW_LOOK + WINDOW_PROBE)
        probe(w);
    while (w->runs.looked < w->runs.started && w->items.started - run_at(w, w->runs.looked)->end >= WINDOW_LOOK)
        look(w);
}

static void start(struct window *w)
{
    struct window_run *run = run_at(w, w->runs.started);
    bool hot = run->name_hash == w->hot.hash && w->runs.probed == w->runs.started;
    w->runs.started++;
    w->items.started = run->end;
    if (hot) {
        w->runs.looked++;
        probe(w);
    } else {
        registry_prefetch(w->registry, run->name_hash);
    }
    advance(w);
}

/* Answers the collected runs, except for those whose memory is still on its way. */
static void answer(struct window *w)
{
    while (w->runs.started < w->runs.pushed)
        start(w);
}

/* Takes the steps of the oldest run that are left. */
static void finish_oldest(struct window *w)
{
    if (w->runs.finished == w->runs.looked)
        look(w);
    if (w->runs.finished == w->runs.probed)
        probe(w);
    if (w->runs.finished == w->runs.narrowed)
        narrow(w);
    finish(w);
}

static void answer_all(struct window *w)
{
    answer(w);
    while (w->runs.looked < w->runs.pushed)
        look(w);
    while (w->runs.probed < w->runs.pushed)
        probe(w);
    while (w->runs.narrowed < w->runs.pushed)
        narrow(w);
    while (w->runs.finished < w->runs.pushed)
        finish(w);
}

/* ---- taking in ---- */

/* Commands since the last flush. */
static uint64_t taken_in(const struct window *w)
{
    uint64_t n = 0;
    for (int kind = 0; kind < WINDOW_KINDS; kind++)
        n += w->since[kind];
    return n;
}

static bool is_full(const struct window *w)
{
    return w->runs.pushed - w->runs.finished == WINDOW_RUNS ||
           w->items.pushed - w->items.finished > WINDOW_ITEMS - WINDOW_RUN || w->work >= WINDOW_WORK;
}

#define UNKNOWN (WINDOW_WORK / WINDOW_RUNS) /* work of an item; in the deepest filters it is sixteen times that */

static uint32_t expected_work(const struct window *w, enum window_kind kind, uint64_t name_hash)
{
    if (known_as(kind, name_hash) == w->known.hash)
        return w->known.work[window_kind_adds(kind)];
    return kind == WINDOW_CUCKOO_ADD ? WINDOW_WORK : UNKNOWN;
}

/* The place of the next run. */
static struct window_run *make_room(struct window *w)
{
    if (is_full(w)) {
        (void)turns_clock_ns(&w->io->turns); /* once in hundreds of items */
        answer(w);
    }
    while (is_full(w))
        finish_oldest(w);
    if (w->runs.pushed == w->runs.finished) /* the place that is in the cache */
        w->runs.pushed = w->runs.started = w->runs.looked = w->runs.probed = w->runs.narrowed = w->runs.finished = 0;
    return run_at(w, w->runs.pushed);
}

/* Takes in the run that is in its slot, and has this work for each item. */
static void take_in(struct window *w, struct window_run *run, uint32_t work)
{
    run->expected = work * run->n;
    w->work += run->expected;
    if (taken_in(w) == 0)
        w->started_ns = turns_clock_ns(&w->io->turns);
    w->since[run->kind] += run->n;
    w->last_kind = run->kind;
    stats_add(&run->conn->session.meters.commands, run->n);
    w->items.pushed += run->n;
    run->end = w->items.pushed;
    w->runs.pushed++;
    if (run->n >= WINDOW_AT_ONCE && w->runs.pushed - w->runs.finished == 1 && w->hot.in_cache &&
        run->name_hash == w->hot.hash)
        answer_all(w);
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
static bool may_repeat(const struct window *w, enum window_kind kind, struct conn *conn, struct slice name)
{
    uint64_t number = w->memos[kind].number;
    if (!(conn->session.modes & MODE_RESTRICTED) || conn->session.acl.allowed_memo[kind] == number)
        return true;
    if (!acl_session_may_call(&conn->session, w->counters[kind], name))
        return false;
    conn->session.acl.allowed_memo[kind] = number;
    return true;
}

void window_push(struct window *w, enum window_kind kind, struct conn *conn, const struct resp_command *cmd,
                 unsigned database, bool remember)
{
    struct window_run *run = make_room(w);
    struct window_memo *memo = &w->memos[kind];
    run->conn = conn;
    run->name = resp_arg(cmd, 1);
    bool remembered = remember && memorize(w, memo, cmd, run->name, database);
    if (__builtin_expect(database_prefix_for(database, run->name.ptr, run->name.len) != 0, false))
        run->name = key_put_before(run->name, database);
    run->name_hash = registry_hash(w->registry, run->name);
    if (remembered)
        memo->name_hash = run->name_hash;
    run->items[0] = resp_arg(cmd, 2);
    run->kind = (uint8_t)kind;
    run->n = 1;
    take_in(w, run, expected_work(w, kind, run->name_hash));
}

size_t window_push_repeated(struct window *w, enum window_kind kind, struct conn *conn, unsigned database,
                            const char *data, size_t len)
{
    const struct window_memo *memo = &w->memos[kind];
    if (memo->database != database || !resp_repeat_may_match(&memo->repeat, data, len))
        return 0;
    struct window_run *run = make_room(w);
    uint32_t work = expected_work(w, kind, memo->name_hash);
    size_t most = work < WINDOW_WORK / WINDOW_RUN ? WINDOW_RUN : work < WINDOW_WORK ? WINDOW_WORK / work : 1, used;
    size_t n = resp_repeat_match(&memo->repeat, data, len, w->io->input.limits.max_bulk, run->items, most, &used);
    struct slice name = {data + memo->name_off, memo->name_len};
    if (n == 0 || !may_repeat(w, kind, conn, name))
        return 0;
    run->conn = conn;
    run->name = (struct slice){data + memo->name_off - memo->prefix, memo->name_len + memo->prefix};
    char *key = (char *)(uintptr_t)run->name.ptr, sent[DATABASE_PREFIX];
    memcpy(sent, key, memo->prefix);
    if (__builtin_expect(memo->prefix != 0, false))
        database_prefix_put(key, database); /* as key_put_before() */
    if (fetch_is_needed(w->fetches, memo->name_hash, run->name)) {
        memcpy(key, sent, memo->prefix); /* the parser will read it */
        return 0;
    }
    run->name_hash = memo->name_hash;
    run->kind = (uint8_t)kind;
    run->n = (uint8_t)n;
    take_in(w, run, work);
    return used;
}

/* ---- the end ---- */

/* Counts the commands taken in since the last flush, and divides the time since then among them. */
static void count(struct window *w)
{
    uint64_t n = taken_in(w), ns = turns_clock_ns(&w->io->turns) - w->started_ns;

    stats_add(&w->io->stats.commands_processed, n);
    for (int kind = 0; kind < WINDOW_KINDS; kind++) {
        if (w->since[kind] == 0)
            continue;
        const struct command *row = command_row(counter_of(w, kind));
        const struct window_last *last = &w->last[kind];
        struct slice words[3] = {{row->name, strlen(row->name)}, key_name(last->name), last->item};
        stats_add(&w->io->stats.calls[counter_of(w, kind)], w->since[kind]);
        timing_batch(&w->io->timing, row, w->since[kind], ns / n * w->since[kind], words, &last->conn->session);
        w->since[kind] = 0;
    }
}

void window_flush(struct window *w)
{
    if (taken_in(w) == 0)
        return;
    answer_all(w);
    count(w);
    w->known.hash = 0; /* the next command may replace the filter */
}
