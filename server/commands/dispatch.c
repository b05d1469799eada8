#include "dispatch.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "command.h"
#include "conn.h"
#include "handlers.h"
#include "journal_ring.h"
#include "log.h"
#include "persistence.h"
#include "monitor.h"
#include "push.h"
#include "timing.h"
#include "transaction.h"
#include "worker.h"

#define ECHO_LIMIT 128 /* most of a client's words that an error repeats, as in Redis */

/* Queued commands count when they run. */
static void count_command(struct conn *conn)
{
    stats_add(&conn->worker->stats.commands_processed, 1);
    stats_add(&conn->session.commands, 1);
}

/* `command` NULL: there is no such command. A refused EXEC ends its transaction and says so, as in Redis. */
static void reject(struct conn *conn, const struct command *command, const char *text)
{
    struct stats *stats = &conn->worker->stats;
    count_command(conn);
    transaction_taint(conn);
    if (command && command->handler == cmd_exec) {
        transaction_end(conn);
        reply_errorf(&conn->reply, "EXECABORT Transaction discarded because of: %s",
                     strncmp(text, "ERR ", 4) == 0 ? text + 4 : text);
    } else {
        reply_error(&conn->reply, text);
    }
    stats_add(&stats->error_replies, 1);
    errorstats_count(&conn->worker->timing.errors, text, strlen(text));
    if (command)
        stats_add(&stats->rejected[command_index(command)], 1);
}

/* An argument as far as a C string would go: what Redis repeats of it. */
static int printable_len(struct slice arg, size_t limit)
{
    const char *nul = arg.len ? memchr(arg.ptr, '\0', arg.len) : NULL;
    size_t len = nul ? (size_t)(nul - arg.ptr) : arg.len;
    return (int)(len < limit ? len : limit);
}

static void reject_unknown(struct conn *conn, const struct resp_command *cmd)
{
    struct slice name = resp_arg(cmd, 0);
    char text[ECHO_LIMIT * 2 + 128];
    char words[ECHO_LIMIT + 8];
    size_t used = 0;
    words[0] = '\0';
    for (size_t i = 1; i < cmd->argc && used < ECHO_LIMIT; i++) {
        struct slice arg = resp_arg(cmd, i);
        int len = printable_len(arg, ECHO_LIMIT - used);
        used += (size_t)snprintf(words + used, sizeof(words) - used, "'%.*s' ", len, len ? arg.ptr : "");
    }
    int len = printable_len(name, ECHO_LIMIT);
    snprintf(text, sizeof(text), "ERR unknown command '%.*s', with args beginning with: %s", len, len ? name.ptr : "",
             words);
    stats_add(&conn->worker->stats.unknown_commands, 1);
    reject(conn, NULL, text);
}

static void reject_subcommand(struct conn *conn, const struct command *container, struct slice word)
{
    char text[ECHO_LIMIT + 128], upper[32];
    size_t n = 0;
    for (; container->name[n] && n < sizeof(upper) - 1; n++)
        upper[n] = (char)toupper((unsigned char)container->name[n]);
    upper[n] = '\0';
    int len = printable_len(word, ECHO_LIMIT);
    snprintf(text, sizeof(text), "ERR unknown subcommand '%.*s'. Try %s HELP.", len, len ? word.ptr : "", upper);
    reject(conn, container, text);
}

static void reject_arity(struct conn *conn, const struct command *command)
{
    char text[128];
    snprintf(text, sizeof(text), "ERR wrong number of arguments for '%s' command", command->full_name);
    reject(conn, command, text);
}

/* RESP2 cannot tell a message from a reply, so there a client that subscribes gets no other replies. */
static void reject_subscribed(struct conn *conn, const struct command *command)
{
    char text[256];
    snprintf(text, sizeof(text),
             "ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are "
             "allowed in this context",
             command->full_name);
    reject(conn, command, text);
}

/* Browsers and other HTTP clients that were made to talk to this port must not get a command through in their body. */
static bool is_http(struct conn *conn, const struct resp_command *cmd)
{
    struct slice name = resp_arg(cmd, 0);
    if (!slice_is(name, "post") && !slice_is(name, "host:"))
        return false;
    struct server *server = conn->worker->server;
    log_limited(&server->log, &server->limits.attack, conn->worker->now_ms, LOG_LEVEL_WARNING,
                "possible cross-protocol attack: %s sent an HTTP request; the connection is closed",
                conn->session.addr);
    conn->session.close_after_reply = true;
    return true;
}

/* An EXEC is what it runs. */
static uint32_t effective_flags(const struct conn *conn, const struct command *command)
{
    return command->handler == cmd_exec ? command->flags | transaction_flags(conn) : command->flags;
}

static void reject_write(struct conn *conn, const struct command *command)
{
    char text[ERRBUF_SIZE + 256];
    /* It may just have become possible again: then what is refused here is refused once too often. */
    if (!persistence_refusal(conn->worker->server, text, sizeof(text)))
        snprintf(text, sizeof(text), "MISCONF Errors writing to the AOF file: it could not be written a moment ago");
    reject(conn, command, text);
}

/* Room for what the command may add, twice: an add to a filter that is being replaced is noted for both. */
static bool reserve_room(struct conn *conn, const struct resp_command *cmd, const struct command *command)
{
    struct worker *worker = conn->worker;
    size_t n = cmd->argc > COMMAND_SLICE && !conn->in_exec ? COMMAND_SLICE : cmd->argc; /* of any slice, at most */
    return !worker->ring || !(command->flags & CMD_WRITE) || ring_reserve(worker->ring, 2 * n) == 0;
}

/* The row to run, after all checks; NULL when the command has been answered with an error. */
static const struct command *check(struct conn *conn, const struct resp_command *cmd, const struct command *command)
{
    if (command->nsubcommands && cmd->argc > 1) {
        const struct command *container = command;
        command = command_find_sub(container, resp_arg(cmd, 1));
        if (!command) {
            reject_subcommand(conn, container, resp_arg(cmd, 1));
            return NULL;
        }
    }
    if (!command->handler || !command_arity_fits(command, cmd->argc)) {
        reject_arity(conn, command);
        return NULL;
    }
    if (command->handler == cmd_debug && debug_refusal(conn->worker->server, &conn->session)) {
        reject(conn, command, debug_refusal(conn->worker->server, &conn->session));
        return NULL;
    }
    if (!conn->session.authenticated && !(command->flags & CMD_NOAUTH)) {
        reject(conn, command, "NOAUTH Authentication required.");
        return NULL;
    }
    /* CLIENT REPLY would leave EXEC's array with fewer elements than it announces. */
    if ((conn->modes & CONN_IN_MULTI) && ((command->flags & CMD_NO_MULTI) || command->handler == cmd_client_reply)) {
        reject(conn, command, "ERR Command not allowed inside a transaction");
        return NULL;
    }
    if (conn->worker->loading && !(command->flags & CMD_LOADING)) {
        reject(conn, command, "LOADING Bloomery is loading the filters, INFO persistence says how far it is");
        return NULL;
    }
    if (conn->worker->refuses_writes && (effective_flags(conn, command) & CMD_WRITE)) {
        reject_write(conn, command);
        return NULL;
    }
    if (conn->worker->over_memory && (effective_flags(conn, command) & CMD_DENYOOM)) {
        reject(conn, command, "OOM command not allowed when used memory > 'maxmemory'.");
        return NULL;
    }
    if (conn->session.subscribed && !(command->flags & CMD_SUBSCRIBED) &&
        atomic_load_explicit(&conn->session.resp, memory_order_relaxed) == 2) {
        reject_subscribed(conn, command);
        return NULL;
    }
    return command;
}

void dispatch_count_error(struct conn *conn, const struct buf *replies, size_t before, size_t counter)
{
    if (buf_failed(replies) || buf_len(replies) <= before || buf_head(replies)[before] != '-')
        return;
    stats_add(&conn->worker->stats.failed[counter], 1);
    stats_add(&conn->worker->stats.error_replies, 1);
    errorstats_count(&conn->worker->timing.errors, buf_head(replies) + before + 1, buf_len(replies) - before - 1);
}

static void end_slices(struct conn *conn)
{
    conn->slice = (struct command_slice){0};
    conn->slice_of = NULL;
}

/* Moves the reply of a command that ran in slices to the others, without copying it if there are none. */
static void take_sliced_reply(struct conn *conn)
{
    conn_append_reply(conn, &conn->slice_out);
    end_slices(conn);
}

/* Answers a command that cannot go on with an error only; the next one of the connection is another command. What its
 * slices have added is there: under appendfsync always its answer waits for that as any other. */
static void give_up(struct conn *conn, const struct command *command, const char *text)
{
    conn->wrote |= conn->slice_of && (command->flags & CMD_WRITE);
    buf_truncate(&conn->slice_out, 0);
    end_slices(conn);
    conn->later_ns = 0;
    reject(conn, command, text);
}

/* What has begun in slices goes on so, also if slices have become longer than the command. */
static bool runs_in_slices(const struct conn *conn, const struct resp_command *cmd)
{
    size_t from = conn->worker->slice_items < COMMAND_SLICE_TIMED ? conn->worker->slice_items : COMMAND_SLICE_TIMED;
    return !conn->in_exec && (cmd->argc > from || conn->slice_of);
}

#define SLOW_SHARE 4 /* slices of slow items get this part of the time that others want as well */

static void note_slice(struct worker *worker, size_t items, uint64_t start_ns, uint64_t took_ns)
{
    worker->slice_items = command_slice_items(worker->slice_items, items, took_ns);
    if (items < COMMAND_SLICE_MIN)
        return;
    worker->slice_resume_ns = start_ns + SLOW_SHARE * took_ns;
    worker->slice_reads = atomic_load_explicit(&worker->stats.reads_processed, memory_order_relaxed);
}

/* Adds to a filter whose pages have not been touched yet would take nearly all of the worker's time, round by round, while
 * each of the other clients gets one command through. */
static bool slice_has_to_wait(const struct conn *conn)
{
    const struct worker *worker = conn->worker;
    return conn->slice_of && worker->slice_items < COMMAND_SLICE &&
           atomic_load_explicit(&worker->stats.reads_processed, memory_order_relaxed) != worker->slice_reads &&
           timing_now_ns() < worker->slice_resume_ns;
}

/* Runs a command's handler. true: it has to be called again. */
static bool run(struct conn *conn, const struct resp_command *cmd, const struct command *command)
{
    struct worker *worker = conn->worker;
    size_t counter = command_index(command);
    struct reply slice_reply = {.buf = &conn->slice_out, .version = conn->reply.version};
    bool sliced = runs_in_slices(conn, cmd);
    size_t done = conn->slice.done;
    struct command_ctx ctx = {
        .server = worker->server,
        .worker = worker,
        .session = &conn->session,
        .stats = &worker->stats,
        .command = command,
        .args = cmd,
        .reply = sliced ? &slice_reply : &conn->reply,
        .slice = sliced ? &conn->slice : NULL,
        .slice_items = worker->slice_items,
        .ring = worker->ring,
    };
    size_t before = buf_len(&conn->out);
    if (sliced)
        conn->slice_out.cap = conn->out.cap;
    uint64_t start_ns = timing_now_ns();
    ctx.slice_end_ns = start_ns + 2 * COMMAND_SLICE_NS;
    command->handler(&ctx);
    uint64_t slice_ns = timing_now_ns() - start_ns, took_ns = conn->later_ns + slice_ns;
    if (!(conn->waits & CONN_WAITS_JOB))
        note_slice(worker, (ctx.later ? conn->slice.done : cmd->argc) - done, start_ns, slice_ns);
    conn->later_ns = ctx.later ? took_ns : 0;
    if (ctx.later) {
        conn->slice_of = sliced ? command : NULL;
        return true;
    }
    if (sliced)
        take_sliced_reply(conn);
    if (command->flags & CMD_ADMIN)
        timing_refresh(&worker->timing, server_config(worker->server)); /* it may have been CONFIG SET */
    if (!(conn->waits & CONN_WAITS_JOB)) { /* otherwise the call ends, and counts, when the job does */
        timing_command(worker, command, cmd, &conn->session, took_ns);
        stats_add(&worker->stats.calls[counter], 1);
    }
    if (worker->monitored)
        monitor_feed(worker, &conn->session, command, cmd);
    conn->wrote |= (command->flags & CMD_WRITE) != 0;
    count_command(conn);
    dispatch_count_error(conn, &conn->out, before, counter);
    conn->reply.version = atomic_load_explicit(&conn->session.resp, memory_order_relaxed);
    return false;
}

/* Whether a BF.EXISTS or BF.ADD of this connection passes all checks and may go through the window. The log needs
 * room for all adds that the window may hold, and those of the run that is taken in now, as room for it may be made by
 * finishing others; with a twin each is noted twice. */
static bool window_takes(struct conn *conn, enum window_kind kind)
{
    const struct worker *worker = conn->worker;
    if (conn->modes || worker->timing.exact || !atomic_load_explicit(&conn->session.authenticated, memory_order_relaxed))
        return false;
    if (kind == WINDOW_QUERY)
        return !worker->no_window_query;
    return !worker->no_window_add && (!worker->ring || ring_reserve(worker->ring, 2 * (WINDOW_ITEMS + WINDOW_RUN)) == 0);
}

/* The two commands that the window takes are most of the traffic, so they are recognised before the table is asked: eight
 * bytes at a time, letters made lower case by setting their bit. */
#define LOWER UINT64_C(0x2020202020202020)

static bool window_kind_of(const struct resp_command *cmd, enum window_kind *kind_out)
{
    struct slice name = resp_arg(cmd, 0);
    static const char exists[8] = "bf.exist", add[8] = "bf.add\0";
    uint64_t word = 0, want;

    if (cmd->argc != 3)
        return false;
    if (name.len == 9) {
        memcpy(&word, name.ptr, 8);
        memcpy(&want, exists, 8);
        *kind_out = WINDOW_QUERY;
        return (word | LOWER) == (want | LOWER) && (name.ptr[8] | 0x20) == 's' && name.ptr[2] == '.';
    }
    if (name.len == 6) {
        memcpy(&word, name.ptr, 6);
        memcpy(&want, add, 8);
        *kind_out = WINDOW_ADD;
        return (word | LOWER) == (want | LOWER) && name.ptr[2] == '.';
    }
    return false;
}

static void note_windowed(struct conn *conn, enum window_kind kind)
{
    atomic_store_explicit(&conn->session.command, kind == WINDOW_QUERY ? "bf.exists" : "bf.add", memory_order_relaxed);
}

/* `from_input`: others like it may follow. */
static bool take_into_window(struct conn *conn, const struct resp_command *cmd, bool from_input)
{
    struct worker *worker = conn->worker;
    enum window_kind kind;
    if (!window_kind_of(cmd, &kind) || !window_takes(conn, kind))
        return false;
    note_windowed(conn, kind);
    window_push(worker, kind, conn, cmd, from_input);
    if (worker->monitored)
        monitor_feed(worker, &conn->session, NULL, cmd);
    return true;
}

size_t dispatch_repeated(struct conn *conn, const char *data, size_t len)
{
    struct worker *worker = conn->worker;
    enum window_kind kind = worker->window.last_kind; /* more often than not the next is of the same one */
    if (worker->monitored || !resp_parser_idle(&conn->parser)) /* each command has to be seen / is not at its beginning */
        return 0;
    for (int i = 0; i < WINDOW_KINDS; i++, kind = WINDOW_KINDS - 1 - kind) {
        size_t n = window_takes(conn, kind) ? window_push_repeated(worker, kind, conn, data, len) : 0;
        if (n) {
            note_windowed(conn, kind);
            return n;
        }
    }
    return 0;
}

void dispatch_queued(struct conn *conn, const struct command *command, const struct resp_command *cmd)
{
    if (take_into_window(conn, cmd, false))
        return;
    window_flush(conn->worker);
    if (!reserve_room(conn, cmd, command)) {
        reject(conn, command, "OOM out of memory for the log");
        return;
    }
    bool later = run(conn, cmd, command);
    CHECK(!later); /* there is no later inside EXEC: handlers look at conn->in_exec */
}

/* Whether CLIENT PAUSE holds the command back. Whoever can end the pause may. */
static bool is_paused(const struct conn *conn, const struct command *command)
{
    switch (conn->worker->paused) {
    case PAUSE_NOTHING:
        return false;
    case PAUSE_WRITES:
        return effective_flags(conn, command) & CMD_WRITE;
    case PAUSE_ALL:
        return command->handler != cmd_client_unpause;
    }
    return false;
}

static enum dispatch_result dispatch_row(struct conn *conn, const struct resp_command *cmd)
{
    int row = command_find(resp_arg(cmd, 0));
    if (row < 0) {
        if (!is_http(conn, cmd))
            reject_unknown(conn, cmd);
        return DISPATCH_DONE;
    }
    /* A command that has begun is not refused any more: a part of its reply is there. */
    const struct command *command = conn->slice_of ? conn->slice_of : check(conn, cmd, &command_table(NULL)[row]);
    if (!command)
        return DISPATCH_DONE;
    if (is_paused(conn, command)) {
        worker_hold_paused(conn->worker, conn);
        return DISPATCH_LATER;
    }
    if (conn->worker->ring_full && (effective_flags(conn, command) & CMD_WRITE)) {
        worker_hold_for_room(conn->worker, conn);
        return DISPATCH_LATER;
    }
    if (transaction_takes(conn, command)) {
        transaction_queue(conn, command, cmd);
        return DISPATCH_DONE;
    }
    if (slice_has_to_wait(conn))
        return DISPATCH_LATER;
    atomic_store_explicit(&conn->session.command, command->full_name, memory_order_relaxed);
    if (command->handler == cmd_reset) {
        transaction_end(conn);
        conn->modes = 0;
    }
    if (!reserve_room(conn, cmd, command)) {
        give_up(conn, command, "OOM out of memory for the log");
        return DISPATCH_DONE;
    }
    return run(conn, cmd, command) ? DISPATCH_LATER : DISPATCH_DONE;
}

/* CLIENT REPLY: takes back what has been written since `before`, where the client wants no reply. */
static void drop_reply(struct conn *conn, size_t before)
{
    if ((conn->modes & CONN_NO_REPLY) && !conn->session.close_after_reply && !conn->session.pushed)
        buf_truncate(&conn->out, before);
    conn->session.pushed = false;
    conn->modes &= ~(unsigned)CONN_REPLY_SKIP;
    if (conn->modes & CONN_REPLY_SKIP_NEXT)
        conn->modes ^= CONN_REPLY_SKIP_NEXT | CONN_REPLY_SKIP;
}

enum dispatch_result dispatch(struct conn *conn, const struct resp_command *cmd)
{
    atomic_store_explicit(&conn->session.last_ms, conn->worker->now_ms, memory_order_relaxed);
    if (take_into_window(conn, cmd, true))
        return DISPATCH_DONE;
    window_flush(conn->worker);
    conn_will_reply(conn);
    if (conn->session.subscribed)
        push_deliver_now(conn->worker); /* what was published before the command comes before its reply */
    size_t before = buf_len(&conn->out);
    enum dispatch_result result = dispatch_row(conn, cmd);
    if (result == DISPATCH_LATER)
        return result;
    if (conn->modes & (CONN_NO_REPLY | CONN_REPLY_SKIP_NEXT))
        drop_reply(conn, before);
    return result;
}
