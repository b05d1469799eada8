#include "pipeline.h"

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

_Static_assert((PIPELINE_RUNS & (PIPELINE_RUNS - 1)) == 0, "runs are numbered by a mask");
_Static_assert(PIPELINE_RUN <= UINT8_MAX && PIPELINE_RUN <= PIPELINE_ITEMS,
               "a run's items are counted in a byte, and fit");

_Static_assert(sizeof(((struct session *)NULL)->acl.allowed_memo) == PIPELINE_KINDS * sizeof(uint64_t),
               "a session remembers a request of each kind");

const char *const pipeline_commands[PIPELINE_KINDS] = {"bf.exists", "bf.add", "cf.exists",
                                                       "cf.add",    "cf.del", "cf.addnx"};

int pipeline_init(struct pipeline *pipeline, struct io *io, const struct log_waits *log, const struct fetches *fetches)
{
    *pipeline = (struct pipeline){.io = io, .registry = io->server->registry, .log = log, .fetches = fetches};
    for (int kind = 0; kind < PIPELINE_KINDS; kind++)
        pipeline->counters[kind] = command_index(&command_table(NULL)[command_find(slice_of(pipeline_commands[kind]))]);
    if (posix_memalign((void **)&pipeline->slots, 64, PIPELINE_RUNS * sizeof(*pipeline->slots)) != 0) {
        pipeline->slots = NULL;
        return -ENOMEM;
    }
    return 0; /* its unused part is never touched */
}

void pipeline_deinit(struct pipeline *pipeline)
{
    free(pipeline->slots);
    pipeline->slots = NULL;
}

static struct pipeline_run *run_at(struct pipeline *pipeline, uint64_t n)
{
    return &pipeline->slots[n & (PIPELINE_RUNS - 1)];
}

/* ---- the steps ---- */

static void look(struct pipeline *p)
{
    registry_prefetch_entry(p->registry, run_at(p, p->runs.looked++)->name_hash);
}

/* Fetches the buckets of the items, which are hashed again for the answers: that costs less than to keep the hashes. */
static void probe_cuckoo(struct pipeline *p, struct pipeline_run *run, const struct bloom_filter *filter)
{
    bool hot = run->name_hash == p->hot.hash;
    p->hot.in_cache = !bloom_filter_beyond_cache(filter);
    p->hot.hash = run->name_hash;
    if (!hot)
        p->hot.hits = (struct hit_share){0};
    if (hot && p->hot.in_cache)
        return;
    run->wait = PIPELINE_FETCH;
    for (size_t i = 0; i < run->n; i++)
        cuckoo_prefetch(filter, cuckoo_hash_for(filter, run->items[i].ptr, run->items[i].len));
}

/* Names of Bloom filters and of cuckoo filters are told apart: the same name may be asked for as both. */
static uint64_t known_as(enum pipeline_kind kind, uint64_t name_hash)
{
    return name_hash + (kind >= PIPELINE_CUCKOO_QUERY);
}

/* The index of its work in `known`. */
static unsigned work_of_kind(enum pipeline_kind kind)
{
    return kind == PIPELINE_CUCKOO_DELETE ? 2 : kind & 1;
}

static void learn_work(struct pipeline *p, struct pipeline_run *run, const struct bloom_filter *filter)
{
    uint64_t known = known_as(run->kind, run->name_hash);
    if (p->known.hash == known) {
        run->work = p->known.work[work_of_kind(run->kind)];
        return;
    }
    p->known.hash = known;
    if (!filter) {
        p->known.work[0] = p->known.work[2] = 1;
        p->known.work[1] = WORK_MADE;
    } else if (run->kind >= PIPELINE_CUCKOO_QUERY && entry_is_cuckoo(run->entry)) {
        uint32_t step = cuckoo_is_compacting(filter) ? CF_LOOKS_BESIDE / 4 : 0;
        p->known.work[0] = work_of_item(filter, false);
        p->known.work[1] = work_of_item(filter, true) + step;
        p->known.work[2] = p->known.work[0] + step;
    } else {
        p->known.work[0] = p->known.work[1] = p->known.work[2] = work_of_bloom_item(filter);
    }
    run->work = p->known.work[work_of_kind(run->kind)];
}

static void probe(struct pipeline *p)
{
    struct pipeline_run *run = run_at(p, p->runs.probed++);
    bool hot = run->name_hash == p->hot.hash;
    run->entry = registry_find(p->registry, run->name_hash, run->name);
    struct bloom_filter *filter = run->entry ? entry_filter(run->entry) : NULL;
    learn_work(p, run, filter);
    p->items.probed = run->end;
    run->wait = 0;
    run->staged = false;
    run->hashed = filter && run->kind <= PIPELINE_ADD && bloom_filter_is_queryable(filter);
    if (!run->hashed) {
        if (filter && run->kind >= PIPELINE_CUCKOO_QUERY && entry_is_cuckoo(run->entry) &&
            bloom_filter_missing_key(filter) == 0)
            probe_cuckoo(p, run, filter);
        return;
    }
    struct bloom_item items[PIPELINE_RUN];
    for (size_t i = 0; i < run->n; i++)
        items[i] = (struct bloom_item){run->items[i].ptr, run->items[i].len};
    if (hot && run->kind == PIPELINE_QUERY && hit_share_is_low(&p->hot.hits))
        run->staged = bloom_batch_start_staged(&run->batch, filter, items, run->n);
    else
        bloom_batch_start(&run->batch, filter, items, run->n);
    p->hot.in_cache = !bloom_filter_beyond_cache(filter);
    if (!hot || !p->hot.in_cache || run->n < PIPELINE_AT_ONCE) {
        run->wait = run->staged ? 2 * PIPELINE_FETCH : PIPELINE_FETCH;
        bloom_batch_fetch(&run->batch, filter);
    }
    p->hot.hash = run->name_hash;
    if (!hot)
        p->hot.hits = (struct hit_share){0};
}

static void narrow(struct pipeline *p)
{
    struct pipeline_run *run = run_at(p, p->runs.narrowed++);
    if (run->staged)
        bloom_batch_narrow(&run->batch, entry_filter(run->entry));
}

static size_t counter_of(const struct pipeline *p, int kind)
{
    return p->counters[kind];
}

/* The filter of a run is missing, or cannot be asked: its commands run like single commands. */
static void finish_one_by_one(struct pipeline *p, const struct pipeline_run *run, struct bf_call *call)
{
    static void (*const one[PIPELINE_KINDS])(struct bf_call * call, struct slice item) = {
        bf_query_one, bf_add_one, cf_query_one, cf_add_one, cf_delete_one, cf_addnx_one};
    for (size_t i = 0; i < run->n; i++) {
        size_t before = buf_len(&run->conn->output.buf);
        one[run->kind](call, run->items[i]);
        dispatch_count_error(run->conn, &run->conn->output.buf, before, counter_of(p, run->kind));
    }
}

static void finish_queries(struct pipeline *p, struct pipeline_run *run, struct bf_call *call,
                           struct bloom_filter *filter)
{
    unsigned hits = bf_query_batch(call, filter, &run->batch, run->n);
    if (run->name_hash == p->hot.hash)
        hit_share_note(&p->hot.hits, hits, run->n);
}

static void finish_adds(struct pipeline *p, struct pipeline_run *run, struct bf_call *call, struct bloom_filter *filter)
{
    for (size_t done = 0, error_at; done < run->n;) {
        done = bf_add_batch(call, filter, &run->batch, done, run->n, &error_at);
        if (error_at != SIZE_MAX)
            dispatch_count_error(run->conn, &run->conn->output.buf, error_at, p->counters[PIPELINE_ADD]);
    }
}

#define CLOCK_WORK 256 /* of a run that is also measured: the host of a virtual machine may have to find the pages */

static void finish(struct pipeline *p)
{
    struct pipeline_run *run = run_at(p, p->runs.finished++);
    struct bloom_filter *filter = run->hashed ? entry_filter(run->entry) : NULL;
    struct bf_call call = {
        .server = p->io->server,
        .stats = &p->io->stats,
        .reply = &run->conn->output.reply,
        .ring = p->log->ring,
        .name = run->name,
        .name_hash = run->name_hash,
        .entry = run->entry,
        .no_touch = session_no_touch(&run->conn->session),
    };
    p->items.finished = run->end;
    p->work -= run->expected;
    uint64_t work = (uint64_t)run->work * run->n;
    turns_pay(&p->io->turns, work);
    p->last[run->kind] = (struct pipeline_last){run->conn, run->name, run->items[run->n - 1]};
    conn_will_reply(run->conn);
    run->conn->output.wrote |= pipeline_kind_writes(run->kind);
    if (!filter)
        finish_one_by_one(p, run, &call);
    else if (run->kind == PIPELINE_QUERY)
        finish_queries(p, run, &call, filter);
    else
        finish_adds(p, run, &call, filter);
    if (__builtin_expect(work >= CLOCK_WORK, false))
        (void)turns_clock_ns(&p->io->turns);
}

/* Items that have been probed after the run. */
static uint64_t behind(struct pipeline *p, uint64_t n)
{
    return p->items.probed - run_at(p, n)->end;
}

/* Takes the steps that are due. The later ones first, so that no run takes two of them at once. */
static void advance(struct pipeline *p)
{
    while (p->runs.finished < p->runs.narrowed && behind(p, p->runs.finished) >= run_at(p, p->runs.finished)->wait)
        finish(p);
    while (p->runs.narrowed < p->runs.probed &&
           behind(p, p->runs.narrowed) + PIPELINE_FETCH >= run_at(p, p->runs.narrowed)->wait)
        narrow(p);
    while (p->runs.probed < p->runs.looked &&
           p->items.started - run_at(p, p->runs.probed)->end >= PIPELINE_LOOK + PIPELINE_PROBE)
        probe(p);
    while (p->runs.looked < p->runs.started && p->items.started - run_at(p, p->runs.looked)->end >= PIPELINE_LOOK)
        look(p);
}

static void start(struct pipeline *p)
{
    struct pipeline_run *run = run_at(p, p->runs.started);
    bool hot = run->name_hash == p->hot.hash && p->runs.probed == p->runs.started;
    p->runs.started++;
    p->items.started = run->end;
    if (hot) {
        p->runs.looked++;
        probe(p);
    } else {
        registry_prefetch(p->registry, run->name_hash);
    }
    advance(p);
}

/* Answers the collected runs, except for those whose memory is still on its way. */
static void answer(struct pipeline *p)
{
    while (p->runs.started < p->runs.pushed)
        start(p);
}

/* Takes the steps of the oldest run that are left. */
static void finish_oldest(struct pipeline *p)
{
    if (p->runs.finished == p->runs.looked)
        look(p);
    if (p->runs.finished == p->runs.probed)
        probe(p);
    if (p->runs.finished == p->runs.narrowed)
        narrow(p);
    finish(p);
}

static void answer_all(struct pipeline *p)
{
    answer(p);
    while (p->runs.looked < p->runs.pushed)
        look(p);
    while (p->runs.probed < p->runs.pushed)
        probe(p);
    while (p->runs.narrowed < p->runs.pushed)
        narrow(p);
    while (p->runs.finished < p->runs.pushed)
        finish(p);
}

/* ---- taking in ---- */

/* Commands since the last flush. */
static uint64_t taken_in(const struct pipeline *p)
{
    uint64_t n = 0;
    for (int kind = 0; kind < PIPELINE_KINDS; kind++)
        n += p->since[kind];
    return n;
}

static bool is_full(const struct pipeline *p)
{
    return p->runs.pushed - p->runs.finished == PIPELINE_RUNS ||
           p->items.pushed - p->items.finished > PIPELINE_ITEMS - PIPELINE_RUN || p->work >= PIPELINE_WORK;
}

#define UNKNOWN (PIPELINE_WORK / PIPELINE_RUNS) /* work of an item; in the deepest filters it is sixteen times that */

static uint32_t expected_work(const struct pipeline *p, enum pipeline_kind kind, uint64_t name_hash)
{
    if (known_as(kind, name_hash) == p->known.hash)
        return p->known.work[work_of_kind(kind)];
    return kind >= PIPELINE_CUCKOO_ADD ? PIPELINE_WORK : UNKNOWN;
}

/* The place of the next run. */
static struct pipeline_run *make_room(struct pipeline *p)
{
    if (is_full(p)) {
        (void)turns_clock_ns(&p->io->turns); /* once in hundreds of items */
        answer(p);
    }
    while (is_full(p))
        finish_oldest(p);
    if (p->runs.pushed == p->runs.finished) /* the place that is in the cache */
        p->runs.pushed = p->runs.started = p->runs.looked = p->runs.probed = p->runs.narrowed = p->runs.finished = 0;
    return run_at(p, p->runs.pushed);
}

/* Takes in the run that is in its slot, and has this work for each item. */
static void take_in(struct pipeline *p, struct pipeline_run *run, uint32_t work)
{
    run->expected = work * run->n;
    p->work += run->expected;
    if (taken_in(p) == 0)
        p->started_ns = turns_clock_ns(&p->io->turns);
    p->since[run->kind] += run->n;
    p->last_kind = run->kind;
    stats_add(&run->conn->session.meters.commands, run->n);
    p->items.pushed += run->n;
    run->end = p->items.pushed;
    p->runs.pushed++;
    if (run->n >= PIPELINE_AT_ONCE && p->runs.pushed - p->runs.finished == 1 && p->hot.in_cache &&
        run->name_hash == p->hot.hash)
        answer_all(p);
}

/* Before a prefix is written into the command, which it would not recognise then. */
static bool memorize(struct pipeline *p, struct pipeline_memo *memo, const struct resp_command *cmd, struct slice name,
                     unsigned database)
{
    if (!resp_repeat_note(&memo->repeat, cmd))
        return false;
    memo->number = ++p->last_memo;
    memo->name_off = cmd->spans[1].off;
    memo->name_len = cmd->spans[1].len;
    memo->database = database;
    memo->prefix = (unsigned)database_prefix_for(database, name.ptr, name.len);
    return true;
}

/* Whether the client may send the remembered command: asked once for each session and command. */
static bool may_repeat(const struct pipeline *p, enum pipeline_kind kind, struct conn *conn, struct slice name)
{
    uint64_t number = p->memos[kind].number;
    if (!(conn->session.modes & MODE_RESTRICTED) || conn->session.acl.allowed_memo[kind] == number)
        return true;
    if (!acl_session_may_call(&conn->session, p->counters[kind], name))
        return false;
    conn->session.acl.allowed_memo[kind] = number;
    return true;
}

void pipeline_push(struct pipeline *p, enum pipeline_kind kind, struct conn *conn, const struct resp_command *cmd,
                   unsigned database, bool remember)
{
    struct pipeline_run *run = make_room(p);
    struct pipeline_memo *memo = &p->memos[kind];
    run->conn = conn;
    run->name = resp_arg(cmd, 1);
    bool remembered = remember && memorize(p, memo, cmd, run->name, database);
    if (__builtin_expect(database_prefix_for(database, run->name.ptr, run->name.len) != 0, false))
        run->name = key_put_before(run->name, database);
    run->name_hash = registry_hash(p->registry, run->name);
    if (remembered)
        memo->name_hash = run->name_hash;
    run->items[0] = resp_arg(cmd, 2);
    run->kind = (uint8_t)kind;
    run->n = 1;
    take_in(p, run, expected_work(p, kind, run->name_hash));
}

size_t pipeline_push_repeated(struct pipeline *p, enum pipeline_kind kind, struct conn *conn, unsigned database,
                              const char *data, size_t len)
{
    const struct pipeline_memo *memo = &p->memos[kind];
    if (memo->database != database || !resp_repeat_may_match(&memo->repeat, data, len))
        return 0;
    struct pipeline_run *run = make_room(p);
    uint32_t work = expected_work(p, kind, memo->name_hash);
    size_t most = work < PIPELINE_WORK / PIPELINE_RUN ? PIPELINE_RUN
                  : work < PIPELINE_WORK              ? PIPELINE_WORK / work
                                                      : 1,
           used;
    size_t n = resp_repeat_match(&memo->repeat, data, len, p->io->input.limits.max_bulk, run->items, most, &used);
    struct slice name = {data + memo->name_off, memo->name_len};
    if (n == 0 || !may_repeat(p, kind, conn, name))
        return 0;
    run->conn = conn;
    run->name = (struct slice){data + memo->name_off - memo->prefix, memo->name_len + memo->prefix};
    char *key = (char *)(uintptr_t)run->name.ptr, sent[DATABASE_PREFIX];
    memcpy(sent, key, memo->prefix);
    if (__builtin_expect(memo->prefix != 0, false))
        database_prefix_put(key, database); /* as key_put_before() */
    if (fetch_is_needed(p->fetches, memo->name_hash, run->name)) {
        memcpy(key, sent, memo->prefix); /* the parser will read it */
        return 0;
    }
    run->name_hash = memo->name_hash;
    run->kind = (uint8_t)kind;
    run->n = (uint8_t)n;
    take_in(p, run, work);
    return used;
}

/* ---- the end ---- */

/* Counts the commands taken in since the last flush, and divides the time since then among them. */
static void count(struct pipeline *p)
{
    uint64_t n = taken_in(p), ns = turns_clock_ns(&p->io->turns) - p->started_ns;

    stats_add(&p->io->stats.commands_processed, n);
    for (int kind = 0; kind < PIPELINE_KINDS; kind++) {
        if (p->since[kind] == 0)
            continue;
        const struct command *row = command_row(counter_of(p, kind));
        const struct pipeline_last *last = &p->last[kind];
        struct slice words[3] = {{row->name, strlen(row->name)}, key_name(last->name), last->item};
        stats_add(&p->io->stats.calls[counter_of(p, kind)], p->since[kind]);
        timing_batch(&p->io->timing, row, p->since[kind], ns / n * p->since[kind], words, &last->conn->session);
        p->since[kind] = 0;
    }
}

void pipeline_flush(struct pipeline *p)
{
    if (taken_in(p) == 0)
        return;
    answer_all(p);
    count(p);
    p->known.hash = 0; /* the next command may replace the filter */
}
