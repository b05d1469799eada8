#include "dispatch.h"

#include <stdlib.h>
#include <string.h>

#include "acl.h"
#include "admission.h"
#include "check.h"
#include "client.h"
#include "command_timing.h"
#include "conn.h"
#include "log.h"
#include "database.h"
#include "dispatch_errors.h"
#include "handlers.h"
#include "monitor.h"
#include "push.h"
#include "registry_key.h"
#include "runner.h"
#include "bf_host.h"
#include "sstables.h"
#include "transaction.h"

static void end_slices(struct conn *conn)
{
    struct running *running = &client_of(conn)->running;
    running->slice = (struct command_slice){0};
    running->command = NULL;
}

/* Ends a sliced command that cannot continue with an error alone; the connection's next command is another one. Items
 * that its slices have added stay: under appendfsync always the reply waits for their records like any other. */
static void give_up(struct conn *conn, const struct command *command, const char *text)
{
    struct running *running = &client_of(conn)->running;
    conn->output.wrote |= running->command && (command->flags & CMD_WRITE);
    buf_deinit(&running->reply);
    end_slices(conn);
    fetch_end(conn);
    running->spent_ns = 0;
    dispatch_reject(conn, command, text);
}

/* A command that has begun in slices continues in slices, even if these have become longer than the command. */
static bool runs_in_slices(struct conn *conn, const struct command *command, const struct resp_command *cmd)
{
    size_t now = runner_of(conn->io)->slice_items, from = now < COMMAND_SLICE_TIMED ? now : COMMAND_SLICE_TIMED;
    bool large =
        (command->flags & CMD_TURNS) || ((command->flags & CMD_LARGE) && command_bytes(cmd) > COMMAND_SLICE_BYTES);
    return !conn->session.multi.in_exec && (cmd->argc > from || large || client_of(conn)->running.command);
}

/* The internal number of the client's database. */
static unsigned database_of(const struct conn *conn)
{
    return registry_database(conn->io->server->registry, atomic_load_explicit(&conn->session.db, memory_order_relaxed));
}

/* The account of a command that has run: times, counters, and monitors. `before`: bytes of output before its reply. */
static void note_run(struct conn *conn, const struct resp_command *cmd, const struct command *command, size_t before,
                     uint64_t took_ns)
{
    struct runner *runner = runner_of(conn->io);
    size_t counter = command_index(command);
    if (command->flags & CMD_ADMIN) {
        admission_look_at_settings(&runner->admission); /* the command may have been CONFIG SET */
        if (!acl_is_current(&conn->session) && !acl_refresh(conn->io->server, &conn->session))
            conn->session.close_after_reply = true; /* the command has changed its own user */
    }
    if (!(conn->waits & CONN_WAITS_JOB)) { /* a deferred call counts when its job ends */
        timing_command(&conn->io->timing, command, cmd, &conn->session, took_ns);
        stats_add(&conn->io->stats.calls[counter], 1);
    }
    if (runner->monitor.watched)
        monitor_feed(&runner->monitor, &conn->session, command, cmd);
    conn->output.wrote |= (command->flags & CMD_WRITE) != 0;
    dispatch_count_command(conn);
    dispatch_count_error(conn, &conn->output.buf, before, counter);
    conn->output.reply.version = atomic_load_explicit(&conn->session.resp, memory_order_relaxed);
}

/* Calls the handler of a command whose filters are there. `keyed`: with keys instead of names. true: call it again. */
static bool call_handler(struct conn *conn, const struct resp_command *cmd, const struct resp_command *keyed,
                         const struct command *command)
{
    struct runner *runner = runner_of(conn->io);
    struct running *running = &client_of(conn)->running;
    struct reply slice_reply = {.buf = &running->reply, .version = conn->output.reply.version};
    bool sliced = runs_in_slices(conn, command, cmd);
    size_t done = running->slice.done, before = buf_len(&conn->output.buf);
    struct command_ctx ctx = {
        .server = conn->io->server,
        .session = &conn->session,
        .stats = &conn->io->stats,
        .command = command,
        .args = keyed,
        .original = cmd,
        .database = running->database,
        .reply = sliced ? &slice_reply : &conn->output.reply,
        .pushes = &conn->output.reply,
        .slice = sliced ? &running->slice : NULL,
        .slice_items = runner->slice_items,
        .ring = runner->log.ring,
    };
    if (sliced)
        running->reply.cap = conn->output.buf.cap;
    uint64_t start_ns = turns_clock_ns(&conn->io->turns);
    ctx.slice_end_ns = start_ns + 2 * COMMAND_SLICE_NS;
    struct slice name;
    if (!running->command && sstable_is_changed(conn->io->server, command, keyed, &name)) {
        reply_read_only(ctx.reply, name);
    } else {
        crash_note_command(command->full_name);
        command->handler(&ctx);
    }
    uint64_t slice_ns = turns_clock_ns(&conn->io->turns) - start_ns, took_ns = running->spent_ns + slice_ns;
    if (!(conn->waits & CONN_WAITS_JOB) && !(command->flags & CMD_TURNS))
        runner->slice_items =
            command_slice_items(runner->slice_items, (ctx.later ? running->slice.done : cmd->argc) - done, slice_ns);
    running->spent_ns = ctx.later ? took_ns : 0;
    if (ctx.later) {
        running->command = sliced ? command : NULL;
        return true;
    }
    if (sliced) {
        conn_append_reply(conn, &running->reply); /* without a copy if there are no others */
        end_slices(conn);
    }
    fetch_end(conn);
    note_run(conn, cmd, command, before, took_ns);
    if (conn->session.close_after_reply)
        conn_drain(conn);
    return false;
}

/* Runs a command, or a slice of it. true: it must be called again. */
static bool run_command(struct conn *conn, const struct resp_command *cmd, const struct command *command)
{
    struct runner *runner = runner_of(conn->io);
    struct running *running = &client_of(conn)->running;
    struct resp_command space;
    char text[DISPATCH_ERROR_SIZE];
    if (!running->command) /* a command that has begun continues there, also after SWAPDB */
        running->database = database_of(conn);
    const struct resp_command *keyed = keyed_command(&runner->keyed, command, cmd, running->database, &space);
    if (!keyed) {
        give_up(conn, command, "ERR out of memory");
        return false;
    }
    switch (fetch_bits(&runner->fetches, conn, command, keyed, text)) {
    case FETCH_WAIT:
        return true;
    case FETCH_FAILED:
        give_up(conn, command, text);
        return false;
    case FETCH_READY:
        break;
    }
    return call_handler(conn, cmd, keyed, command);
}

/* The pipeline's commands are most of the traffic, so they are recognised before the table look-up: eight bytes at a
 * time, with the lower-case bit set in all letters. */
#define LOWER UINT64_C(0x2020202020202020)

static bool pipeline_kind_of(const struct resp_command *cmd, enum pipeline_kind *kind_out)
{
    struct slice name = resp_arg(cmd, 0);
    uint64_t word = 0, want = 0;

    if (cmd->argc != 3 || name.len < 6 || name.len > 9 || name.len == 7)
        return false;
    bool cuckoo = (name.ptr[0] | 0x20) == 'c', deletes = cuckoo && (name.ptr[3] | 0x20) == 'd';
    *kind_out = name.len == 8 ? PIPELINE_CUCKOO_ADDNX
                : deletes     ? PIPELINE_CUCKOO_DELETE
                              : (cuckoo ? PIPELINE_CUCKOO_QUERY : PIPELINE_QUERY) + (name.len == 6);
    size_t n = name.len == 9 ? 8 : name.len;
    memcpy(&word, name.ptr, n);
    memcpy(&want, pipeline_commands[*kind_out], n);
    return (word | LOWER) == (want | LOWER) && (name.len != 9 || (name.ptr[8] | 0x20) == 's') && name.ptr[2] == '.';
}

static bool is_evicted(const struct fetches *fetches, const struct resp_command *cmd, unsigned database)
{
    struct slice key = resp_arg(cmd, 1);
    char *before = (char *)(uintptr_t)key.ptr - DATABASE_PREFIX, sent[DATABASE_PREFIX];
    if (!database_prefix_for(database, key.ptr, key.len))
        return fetch_is_needed(fetches, registry_hash(fetches->server->registry, key), key);
    memcpy(sent, before, sizeof(sent));
    key = key_put_before(key, database);
    bool evicted = fetch_is_needed(fetches, registry_hash(fetches->server->registry, key), key);
    memcpy(before, sent, sizeof(sent)); /* the pipeline remembers the command as it was sent */
    return evicted;
}

static void note_pipelined(struct conn *conn, enum pipeline_kind kind)
{
    const char *name = pipeline_commands[kind];
    crash_note_command(name);
    atomic_store_explicit(&conn->session.meters.command, name, memory_order_relaxed);
}

/* `from_input`: similar requests may follow. */
static bool take_into_pipeline(struct conn *conn, const struct resp_command *cmd, bool from_input)
{
    struct runner *runner = runner_of(conn->io);
    enum pipeline_kind kind;
    if (!pipeline_kind_of(cmd, &kind) || !admission_by_pipeline(&runner->admission, conn, kind) ||
        !acl_session_may_call(&conn->session, runner->pipeline.counters[kind], resp_arg(cmd, 1)) ||
        sstables_find(conn->io->server->sstables, resp_arg(cmd, 1))) /* it may have to wait for its file */
        return false;
    unsigned database = database_of(conn);
    if (__builtin_expect(resp_gap(cmd, 1) < DATABASE_PREFIX, false)) /* inline */
        return false;
    if (__builtin_expect(runner->fetches.some_evicted, false) && is_evicted(&runner->fetches, cmd, database))
        return false;
    note_pipelined(conn, kind);
    pipeline_push(&runner->pipeline, kind, conn, cmd, database, from_input);
    if (runner->monitor.watched)
        monitor_feed(&runner->monitor, &conn->session, NULL, cmd);
    return true;
}

size_t dispatch_repeated(struct conn *conn, const char *data, size_t len)
{
    struct runner *runner = runner_of(conn->io);
    enum pipeline_kind kind = runner->pipeline.last_kind; /* the next command is usually of the same kind */
    if (runner->monitor.watched ||
        !resp_parser_idle(&conn->input.parser)) /* each command must be seen / the parser is within a command */
        return 0;
    unsigned database = database_of(conn);
    for (int i = 0; i < 2; i++, kind ^= 1) {
        size_t n = admission_by_pipeline(&runner->admission, conn, kind)
                       ? pipeline_push_repeated(&runner->pipeline, kind, conn, database, data, len)
                       : 0;
        if (n) {
            note_pipelined(conn, kind);
            return n;
        }
    }
    return 0;
}

void dispatch_queued(struct conn *conn, const struct command *command, const struct resp_command *cmd)
{
    /* The client will be closed and gets no reply. Its transaction still changes all or nothing. */
    if (buf_failed(&conn->output.buf) && (command->flags & CMD_READONLY))
        return;
    if (take_into_pipeline(conn, cmd, false))
        return;
    struct runner *runner = runner_of(conn->io);
    pipeline_flush(&runner->pipeline);
    char text[DISPATCH_ERROR_SIZE];
    if (admission_check(&runner->admission, conn, command, cmd, ADMISSION_OF_EXEC, text) == ADMISSION_REFUSE) {
        dispatch_reject(conn, command, text);
        return;
    }
    bool later = run_command(conn, cmd, command);
    CHECK(!later); /* EXEC cannot delay a command: handlers check conn->session.multi.in_exec */
}

static void queue_command(struct conn *conn, const struct command *command, const struct resp_command *cmd)
{
    size_t limit = (size_t)server_config(conn->io->server)->clients.client_query_buffer_limit;
    if (transaction_queue(&conn->session, command, cmd, limit)) {
        reply_status(&conn->output.reply, "QUEUED");
        return;
    }
    stats_add(&conn->io->stats.over_query_buffer, 1);
    conn_warn_closed(conn, "its transaction exceeded client-query-buffer-limit, or the memory");
    conn_drain(conn);
}

static enum dispatch_result admit(struct conn *conn, const struct command *command, const struct resp_command *cmd)
{
    struct runner *runner = runner_of(conn->io);
    char text[DISPATCH_ERROR_SIZE];
    enum admission_of of = client_of(conn)->running.command ? ADMISSION_OF_BEGUN : ADMISSION_OF_NEW;
    switch (admission_check(&runner->admission, conn, command, cmd, of, text)) {
    case ADMISSION_RUN:
        atomic_store_explicit(&conn->session.meters.command, command->full_name, memory_order_relaxed);
        if (command->handler == cmd_reset) {
            transaction_end(&conn->session);
            conn->session.modes &= MODE_FETCHES;
        }
        return run_command(conn, cmd, command) ? DISPATCH_LATER : DISPATCH_DONE;
    case ADMISSION_QUEUE:
        (void)turns_clock_ns(&conn->io->turns);
        queue_command(conn, command, cmd);
        return DISPATCH_DONE;
    case ADMISSION_REFUSE:
        give_up(conn, command, text);
        return DISPATCH_DONE;
    case ADMISSION_WAIT_PAUSE:
        conn_wait(conn, CONN_WAITS_PAUSE, &runner->admission.paused);
        return DISPATCH_LATER;
    case ADMISSION_WAIT_ROOM:
        conn_wait(conn, CONN_WAITS_ROOM, &runner->log.for_room);
        return DISPATCH_LATER;
    case ADMISSION_WAIT_MEMORY:
        conn_wait(conn, CONN_WAITS_MEMORY, &runner->admission.for_memory);
        return DISPATCH_LATER;
    }
    return DISPATCH_DONE;
}

static enum dispatch_result dispatch_row(struct conn *conn, const struct resp_command *cmd)
{
    if (client_of(conn)->running.command)
        return admit(conn, client_of(conn)->running.command, cmd);
    int row = command_find(resp_arg(cmd, 0));
    if (row < 0) {
        dispatch_reject_unknown(conn, cmd);
        return DISPATCH_DONE;
    }
    const struct command *container = &command_table(NULL)[row], *command = container;
    if (container->nsubcommands && cmd->argc > 1)
        command = command_find_sub(container, resp_arg(cmd, 1));
    if (!command) {
        dispatch_reject_subcommand(conn, container, resp_arg(cmd, 1));
        return DISPATCH_DONE;
    }
    return admit(conn, command, cmd);
}

/* CLIENT REPLY: withdraws the replies written since `before`, if the client wants none. */
static void drop_reply(struct conn *conn, size_t before)
{
    if ((conn->session.modes & MODE_NO_REPLY) && conn->life != CONN_DRAINING && !conn->session.pushed)
        buf_truncate(&conn->output.buf, before);
    conn->session.pushed = false;
    conn->session.modes &= ~(unsigned)MODE_REPLY_SKIP;
    if (conn->session.modes & MODE_REPLY_SKIP_NEXT)
        conn->session.modes ^= MODE_REPLY_SKIP_NEXT | MODE_REPLY_SKIP;
}

enum dispatch_result dispatch(struct conn *conn, const struct resp_command *cmd)
{
    struct runner *runner = runner_of(conn->io);
    atomic_store_explicit(&conn->session.meters.last_ms, conn->io->now_ms, memory_order_relaxed);
    if (take_into_pipeline(conn, cmd, true))
        return DISPATCH_DONE;
    pipeline_flush(&runner->pipeline);
    conn_will_reply(conn);
    if (conn->session.pubsub.subscribed)
        push_deliver_now(&runner->push); /* messages published before the command come before its reply */
    size_t before = buf_len(&conn->output.buf);
    enum dispatch_result result = dispatch_row(conn, cmd);
    if (result == DISPATCH_LATER)
        return result;
    if (conn->session.modes & (MODE_NO_REPLY | MODE_REPLY_SKIP_NEXT))
        drop_reply(conn, before);
    return result;
}

static void protocol_error(struct conn *conn)
{
    char text[4 + RESP_ERROR_TEXT_SIZE];
    memcpy(text, "ERR ", 4);
    resp_parser_error(&conn->input.parser, text + 4, sizeof(text) - 4);
    io_settle(conn->io);
    conn_will_reply(conn);
    reply_error(&conn->output.reply, text);
    stats_add(&conn->io->stats.protocol_errors, 1);
    conn_drain(conn);
}

static void out_of_memory(struct conn *conn)
{
    conn_warn_closed(conn, "out of memory for its command");
    conn_will_reply(conn);
    conn_drain(conn);
}

/* Keeps the parsed form of a command that runs again later, because parsing changes an inline command. Its bytes are
 * data[0..len), which the caller keeps. */
static void keep_pending(struct conn *conn, const struct resp_command *cmd, const char *data, size_t len)
{
    struct conn_pending *pending = &conn->input.pending;
    pending->spans = malloc(cmd->argc * sizeof(*pending->spans));
    if (!pending->spans) {
        out_of_memory(conn);
        return;
    }
    memcpy(pending->spans, cmd->spans, cmd->argc * sizeof(*pending->spans));
    pending->argc = cmd->argc;
    pending->base = (size_t)(cmd->base - data);
    pending->len = len;
}

/* Runs the pending command, whose bytes begin at `data`. Returns the number of bytes consumed. */
static size_t run_pending(struct conn *conn, const char *data)
{
    struct conn_pending *pending = &conn->input.pending;
    struct resp_command cmd = {.base = data + pending->base, .spans = pending->spans, .argc = pending->argc};
    if (dispatch(conn, &cmd) == DISPATCH_LATER)
        return 0;
    free(pending->spans);
    pending->spans = NULL;
    return pending->len;
}

size_t requests_run(struct conn *conn, char *data, size_t len)
{
    struct io *io = conn->io;
    size_t done = 0;
    bool later = false;
    if (!acl_is_current(&conn->session) && !acl_refresh(io->server, &conn->session)) {
        conn_close_after_reply(conn); /* its user was deleted, or lost the right to a channel */
        return len;
    }
    monitor_look(&runner_of(io)->monitor);
    if (conn->input.pending.spans && conn_may_run(conn)) {
        done = run_pending(conn, data);
        later = conn->input.pending.spans != NULL;
    }
    while (!later && conn_may_run(conn) && done < len && !io->turns.current.over) {
        size_t repeated = dispatch_repeated(conn, data + done, len - done);
        if (repeated) {
            done += repeated;
            continue;
        }
        bool known = conn_is_known(conn);
        struct resp_command cmd;
        size_t consumed = 0;
        enum resp_status status =
            resp_parser_next(&conn->input.parser, &io->input.args, known ? &io->input.limits : &io->input.limits_noauth,
                             !known, data + done, len - done, &consumed, &cmd);
        if (status == RESP_COMMAND) {
            later = dispatch(conn, &cmd) == DISPATCH_LATER;
            if (later)
                keep_pending(conn, &cmd, data + done, consumed);
            else
                done += consumed;
        } else if (status == RESP_NEED_MORE) {
            conn->input.held = false;
            return done + consumed;
        } else if (status == RESP_MALFORMED) {
            protocol_error(conn);
        } else {
            out_of_memory(conn);
        }
    }
    conn->input.held = done < len;
    return conn->life == CONN_DRAINING ? len : done;
}
