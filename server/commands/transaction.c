#include "transaction.h"

#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "conn.h"
#include "dispatch.h"
#include "exclusive.h"
#include "handlers.h"
#include "journal.h"
#include "worker.h"

/* What is under a name. All zero: nothing. */
struct version {
    uint64_t id;
    uint64_t items;
    int64_t expires_ms;
};

struct watched {
    struct watched *next;
    struct version version;
    size_t len;
    char name[];
};

struct queued {
    const struct command *command;
    size_t base;  /* in the transaction's bytes */
    size_t first; /* of its spans */
    size_t argc;
};

/* The queue is three arrays, so that a long one costs few allocations: the commands, their spans, their bytes. */
struct transaction {
    struct queued *commands;
    size_t ncommands, commands_size;
    struct resp_span *spans;
    size_t nspans, spans_size;
    struct buf bytes;
    uint32_t flags; /* of all commands, ored */
    bool tainted;
    struct watched *watched;
    size_t watched_bytes;
};

static struct transaction *begin(struct conn *conn)
{
    if (!conn->transaction) {
        conn->transaction = calloc(1, sizeof(*conn->transaction));
        if (conn->transaction)
            buf_init(&conn->transaction->bytes, SIZE_MAX);
    }
    return conn->transaction;
}

static void unwatch(struct conn *conn)
{
    struct transaction *tx = conn->transaction;
    while (tx && tx->watched) {
        struct watched *next = tx->watched->next;
        free(tx->watched);
        tx->watched = next;
    }
    if (tx)
        tx->watched_bytes = 0;
    atomic_store_explicit(&conn->session.watch, 0, memory_order_relaxed);
}

void transaction_end(struct conn *conn)
{
    struct transaction *tx = conn->transaction;
    conn->modes &= ~(unsigned)CONN_IN_MULTI;
    if (!tx)
        return;
    unwatch(conn);
    free(tx->commands);
    free(tx->spans);
    buf_deinit(&tx->bytes);
    free(tx);
    conn->transaction = NULL;
    atomic_store_explicit(&conn->session.multi, -1, memory_order_relaxed);
    atomic_store_explicit(&conn->session.multi_bytes, 0, memory_order_relaxed);
}

void transaction_taint(struct conn *conn)
{
    if (conn->modes & CONN_IN_MULTI)
        conn->transaction->tainted = true;
}

uint32_t transaction_flags(const struct conn *conn)
{
    return conn->modes & CONN_IN_MULTI ? conn->transaction->flags : 0;
}

/* ---- the queue --------------------------------------------------------------------------------------------------- */

bool transaction_takes(const struct conn *conn, const struct command *command)
{
    return (conn->modes & CONN_IN_MULTI) && command->handler != cmd_multi && command->handler != cmd_exec &&
           command->handler != cmd_discard && command->handler != cmd_watch && command->handler != cmd_quit &&
           command->handler != cmd_reset;
}

/* Makes room for `n` more elements of an array. */
static bool make_room(void **items, size_t *size, size_t used, size_t n, size_t each)
{
    if (n <= *size - used)
        return true;
    size_t want = *size ? *size * 2 : 16;
    if (want < used + n)
        want = used + n;
    void *larger = realloc(*items, want * each);
    if (!larger)
        return false;
    *items = larger;
    *size = want;
    return true;
}

static size_t memory_of(const struct transaction *tx)
{
    return tx->commands_size * sizeof(*tx->commands) + tx->spans_size * sizeof(*tx->spans) + tx->bytes.size +
           tx->watched_bytes;
}

static size_t bytes_of(const struct resp_command *cmd)
{
    const struct resp_span *last = &cmd->spans[cmd->argc - 1];
    return (size_t)last->off + last->len;
}

static bool append(struct transaction *tx, const struct command *command, const struct resp_command *cmd)
{
    size_t len = bytes_of(cmd);
    char *room = buf_reserve(&tx->bytes, len);
    if (!room ||
        !make_room((void **)&tx->commands, &tx->commands_size, tx->ncommands, 1, sizeof(*tx->commands)) ||
        !make_room((void **)&tx->spans, &tx->spans_size, tx->nspans, cmd->argc, sizeof(*tx->spans)))
        return false;
    tx->commands[tx->ncommands++] =
        (struct queued){.command = command, .base = buf_len(&tx->bytes), .first = tx->nspans, .argc = cmd->argc};
    memcpy(tx->spans + tx->nspans, cmd->spans, cmd->argc * sizeof(*cmd->spans));
    tx->nspans += cmd->argc;
    memcpy(room, cmd->base, len);
    buf_commit(&tx->bytes, len);
    tx->flags |= command->flags;
    return true;
}

static void over_limit(struct conn *conn)
{
    stats_add(&conn->worker->stats.over_query_buffer, 1);
    conn_warn_closed(conn, "its transaction passed client-query-buffer-limit, or there is no memory for it");
    conn->session.close_after_reply = true;
}

void transaction_queue(struct conn *conn, const struct command *command, const struct resp_command *cmd)
{
    struct transaction *tx = conn->transaction;
    size_t limit = (size_t)server_config(conn->worker->server)->client_query_buffer_limit;
    /* Nothing is kept for a transaction that will be refused; a new command must fit before room is made for it. */
    if (!tx->tainted) {
        if (memory_of(tx) + bytes_of(cmd) + cmd->argc * sizeof(*tx->spans) > limit || !append(tx, command, cmd)) {
            over_limit(conn);
            return;
        }
        atomic_store_explicit(&conn->session.multi, (int)tx->ncommands, memory_order_relaxed);
        atomic_store_explicit(&conn->session.multi_bytes, memory_of(tx), memory_order_relaxed);
    }
    reply_status(&conn->reply, "QUEUED");
}

/* ---- WATCH ------------------------------------------------------------------------------------------------------- */

static struct version version_of(const struct server *server, struct slice name)
{
    const struct registry *registry = server->registry;
    struct version version = {0};
    struct entry *entry = registry_find_expiry(registry, registry_hash(registry, name), name, &version.expires_ms);
    if (!entry)
        return version;
    struct bloom_filter *filter = entry_filter(entry);
    version.id = entry->id;
    version.items = filter ? bloom_filter_items(filter) : 0;
    return version;
}

static bool touched(const struct server *server, const struct transaction *tx)
{
    for (const struct watched *w = tx->watched; w; w = w->next) {
        struct version now = version_of(server, (struct slice){w->name, w->len});
        if (now.id != w->version.id || now.items != w->version.items || now.expires_ms != w->version.expires_ms)
            return true;
    }
    return false;
}

static bool watch(struct conn *conn, struct slice name)
{
    struct transaction *tx = conn->transaction;
    struct watched *w = malloc(sizeof(*w) + name.len);
    if (!w)
        return false;
    w->version = version_of(conn->worker->server, name);
    w->len = name.len;
    memcpy(w->name, name.ptr, name.len);
    w->next = tx->watched;
    tx->watched = w;
    tx->watched_bytes += sizeof(*w) + name.len;
    atomic_fetch_add_explicit(&conn->session.watch, 1, memory_order_relaxed);
    return true;
}

void cmd_watch(struct command_ctx *ctx)
{
    struct conn *conn = conn_of_session(ctx->session);
    if (conn->modes & CONN_IN_MULTI) {
        reply_error(ctx->reply, "ERR WATCH inside MULTI is not allowed");
        return;
    }
    struct transaction *tx = begin(conn);
    size_t limit = (size_t)server_config(ctx->server)->client_query_buffer_limit;
    for (size_t i = 1; i < command_argc(ctx); i++) {
        if (tx && memory_of(tx) > limit) {
            over_limit(conn);
            return;
        }
        if (!tx || !watch(conn, command_arg(ctx, i))) {
            reply_error(ctx->reply, "ERR out of memory");
            return;
        }
    }
    reply_status(ctx->reply, "OK");
}

void cmd_unwatch(struct command_ctx *ctx)
{
    struct conn *conn = conn_of_session(ctx->session);
    if (!conn->in_exec) /* there the names have been compared already, and are forgotten at the end */
        unwatch(conn);
    reply_status(ctx->reply, "OK");
}

/* ---- MULTI, DISCARD, EXEC ---------------------------------------------------------------------------------------- */

void cmd_multi(struct command_ctx *ctx)
{
    struct conn *conn = conn_of_session(ctx->session);
    if (conn->modes & CONN_IN_MULTI) {
        reply_error(ctx->reply, "ERR MULTI calls can not be nested");
        return;
    }
    if (!begin(conn)) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    conn->modes |= CONN_IN_MULTI;
    atomic_store_explicit(&ctx->session->multi, 0, memory_order_relaxed);
    reply_status(ctx->reply, "OK");
}

void cmd_discard(struct command_ctx *ctx)
{
    struct conn *conn = conn_of_session(ctx->session);
    if (!(conn->modes & CONN_IN_MULTI)) {
        reply_error(ctx->reply, "ERR DISCARD without MULTI");
        return;
    }
    transaction_end(conn);
    reply_status(ctx->reply, "OK");
}

/* What it changes is in one frame of the log: after a crash all of it is there, or nothing. */
static void run_queue(struct conn *conn)
{
    struct transaction *tx = conn->transaction;
    struct journal *journal =
        tx->ncommands > 1 && (tx->flags & CMD_WRITE) ? server_journal(conn->worker->server) : NULL;
    conn->modes &= ~(unsigned)CONN_IN_MULTI;
    conn->in_exec = true;
    if (journal)
        journal_hold(journal);
    reply_array(&conn->reply, tx->ncommands);
    for (size_t i = 0; i < tx->ncommands; i++) {
        const struct queued *q = &tx->commands[i];
        struct resp_command cmd = {buf_head(&tx->bytes) + q->base, tx->spans + q->first, q->argc};
        dispatch_queued(conn, q->command, &cmd);
    }
    window_flush(conn->worker);
    if (journal)
        journal_release(journal);
    conn->in_exec = false;
    atomic_store_explicit(&conn->session.command, "exec", memory_order_relaxed);
}

/* One command is by itself as isolated as any; more, or a comparison before them, need all others to stand still. */
static bool needs_exclusive(const struct transaction *tx)
{
    return tx->ncommands > 1 || (tx->ncommands && tx->watched);
}

void cmd_exec(struct command_ctx *ctx)
{
    struct conn *conn = conn_of_session(ctx->session);
    struct transaction *tx = conn->transaction;
    if (!(conn->modes & CONN_IN_MULTI)) {
        reply_error(ctx->reply, "ERR EXEC without MULTI");
        return;
    }
    bool alone = needs_exclusive(tx) && exclusive_now(ctx->worker);
    if (alone)
        registry_hold_clock(ctx->server->registry); /* no filter expires between two of its commands */
    if (tx->tainted) {
        reply_error(ctx->reply, "EXECABORT Transaction discarded because of previous errors.");
    } else if (touched(ctx->server, tx)) {
        reply_null_array(ctx->reply);
    } else if (needs_exclusive(tx) && !alone) {
        exclusive_request(conn);
        ctx->later = true;
        return;
    } else {
        run_queue(conn);
    }
    if (alone)
        registry_release_clock(ctx->server->registry);
    transaction_end(conn);
}
