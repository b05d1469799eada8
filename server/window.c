#include "window.h"

#include <string.h>

#include "bf.h"
#include "conn.h"
#include "command.h"
#include "dispatch.h"
#include "timing.h"
#include "worker.h"

static struct window_op *op_at(struct window *window, uint64_t n)
{
    return &window->ops[n & (WINDOW_SIZE - 1)];
}

static bool same_name(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static void look(struct worker *worker, uint64_t n)
{
    struct window_op *op = op_at(&worker->window, n);
    if (!op->same_filter)
        registry_prefetch_entry(worker->server->registry, op->name_hash);
}

static void probe(struct worker *worker, uint64_t n)
{
    struct window_op *op = op_at(&worker->window, n);
    op->entry = op->same_filter ? op_at(&worker->window, n - 1)->entry
                                : registry_find(worker->server->registry, op->name_hash, op->name);
    struct bloom_filter *filter = op->entry ? entry_filter(op->entry) : NULL;
    if (filter)
        bloom_probe_start(&op->probe, filter, murmur3_hash(op->item.ptr, op->item.len));
}

static void finish(struct worker *worker, uint64_t n)
{
    struct window_op *op = op_at(&worker->window, n);
    struct bf_call call = {
        .server = worker->server,
        .stats = &worker->stats,
        .reply = &op->conn->reply,
        .ring = worker->ring,
        .name = op->name,
        .name_hash = op->name_hash,
        .entry = op->entry,
        .no_touch = session_no_touch(&op->conn->session),
    };
    conn_will_reply(op->conn);
    size_t before = buf_len(&op->conn->out);
    if (op->kind == WINDOW_QUERY) {
        bf_finish_query(&call, op->item, &op->probe);
    } else {
        bf_finish_add(&call, op->item, &op->probe);
        op->conn->wrote = true;
    }
    dispatch_count_error(op->conn, &op->conn->out, before, op->kind == WINDOW_QUERY ? worker->counter_bf_exists : worker->counter_bf_add);
}

/* Takes the steps that are due when the steps before them may run ahead by so many commands. */
static void advance(struct worker *worker, uint64_t look_lag, uint64_t probe_lag, uint64_t finish_lag)
{
    struct window *w = &worker->window;
    while (w->pushed - w->looked > look_lag)
        look(worker, w->looked++);
    while (w->looked - w->probed > probe_lag)
        probe(worker, w->probed++);
    while (w->probed - w->finished > finish_lag)
        finish(worker, w->finished++);
}

/* The place of the next command. */
static struct window_op *make_room(struct worker *worker, enum window_kind kind)
{
    struct window *w = &worker->window;
    if (window_empty(w))
        w->started_ns = timing_now_ns();
    w->since[kind]++;
    if (w->pushed - w->finished == WINDOW_SIZE)
        advance(worker, 0, 0, WINDOW_SIZE - 1);
    return op_at(w, w->pushed);
}

static void pushed(struct worker *worker)
{
    worker->window.pushed++;
    advance(worker, WINDOW_LOOK, WINDOW_PROBE - WINDOW_LOOK, WINDOW_SIZE - WINDOW_PROBE);
}

void window_push(struct worker *worker, enum window_kind kind, struct conn *conn, struct slice name, struct slice item)
{
    struct window *w = &worker->window;
    struct window_op *op = make_room(worker, kind);
    op->conn = conn;
    op->name = name;
    op->item = item;
    op->kind = (uint8_t)kind;
    op->same_filter = w->pushed > w->chain_from && !window_empty(w) && same_name(op_at(w, w->pushed - 1)->name, name);
    if (op->same_filter) {
        op->name_hash = op_at(w, w->pushed - 1)->name_hash;
    } else {
        op->name_hash = registry_hash(worker->server->registry, name);
        registry_prefetch(worker->server->registry, op->name_hash);
    }
    pushed(worker);
}

void window_push_repeated(struct worker *worker, struct slice item)
{
    struct window *w = &worker->window;
    const struct window_op *before = op_at(w, w->pushed - 1);
    struct window_op *op = make_room(worker, before->kind);
    op->conn = before->conn;
    op->name = before->name;
    op->name_hash = before->name_hash;
    op->item = item;
    op->kind = before->kind;
    op->same_filter = !window_empty(w);
    if (!op->same_filter)
        registry_prefetch(worker->server->registry, op->name_hash);
    pushed(worker);
}

/* Shares the time since the window was last empty out among the commands that have gone through it. */
static void take_time(struct worker *worker)
{
    struct window *w = &worker->window;
    uint64_t ns = timing_now_ns() - w->started_ns, n = w->since[WINDOW_QUERY] + w->since[WINDOW_ADD];
    const struct window_op *last = op_at(w, w->finished - 1);

    for (int kind = WINDOW_QUERY; kind <= WINDOW_ADD; kind++) {
        if (w->since[kind] == 0)
            continue;
        const struct command *row = command_row(kind == WINDOW_QUERY ? worker->counter_bf_exists : worker->counter_bf_add);
        struct slice words[3] = {{row->name, strlen(row->name)}, last->name, last->item};
        timing_batch(worker, row, w->since[kind], ns / n * w->since[kind], words, &last->conn->session);
        w->since[kind] = 0;
    }
}

void window_flush(struct worker *worker)
{
    if (window_empty(&worker->window))
        return;
    advance(worker, 0, 0, 0);
    take_time(worker);
}
