/* The input of a connection: reading, running commands, keeping the rest.
 *
 * Input is read into the worker's arena, and commands run from there. The rest (the beginning of a command, or commands
 * that may not run yet) is copied to a buffer of the connection. While the rest is small, it is copied back to the
 * arena in front of the next read, so that commands in the window stay where they are. Only a large command is
 * collected in the connection's own buffer. */
#include "conn_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "acl_session.h"
#include "conn_tls.h"
#include "dispatch.h"
#include "monitor.h"
#include "tls_stream.h"
#include "worker.h"

#define INPUT_MIN_SIZE (4 * 1024)
#define READ_MAX       ((size_t)512 * 1024) /* at a time, of a large argument: into untouched memory */

/* ---- running ---- */

static void protocol_error(struct conn *conn)
{
    char text[4 + RESP_ERROR_TEXT_SIZE];
    memcpy(text, "ERR ", 4);
    resp_parser_error(&conn->input.parser, text + 4, sizeof(text) - 4);
    window_flush(conn->worker);
    conn_will_reply(conn);
    reply_error(&conn->output.reply, text);
    stats_add(&conn->worker->stats.protocol_errors, 1);
    conn_drain(conn);
}

static void out_of_memory(struct conn *conn)
{
    conn_warn_closed(conn, "there is no memory for its command");
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

/* Runs the commands in data[0..len), as far as they may run in this turn, and returns the number of bytes consumed. */
static size_t run_commands(struct conn *conn, char *data, size_t len)
{
    struct worker *worker = conn->worker;
    size_t done = 0;
    bool later = false;
    if (conn->input.pending.spans && conn_may_run(conn)) {
        done = run_pending(conn, data);
        later = conn->input.pending.spans != NULL;
    }
    while (!later && conn_may_run(conn) && done < len && !worker->turns.current.over) {
        size_t repeated = dispatch_repeated(conn, data + done, len - done);
        if (repeated) {
            done += repeated;
            continue;
        }
        bool known = atomic_load_explicit(&conn->session.authenticated, memory_order_relaxed);
        struct resp_command cmd;
        size_t consumed = 0;
        enum resp_status status = resp_parser_next(&conn->input.parser, &worker->input.args,
                                                   known ? &worker->input.limits : &worker->input.limits_noauth, !known,
                                                   data + done, len - done, &consumed, &cmd);
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

/* ---- keeping ---- */

/* Makes the connection's own input buffer at least `size` bytes large. */
static bool grow_input(struct conn *conn, size_t size)
{
    if (size <= conn->input.size)
        return true;
    if (size < INPUT_MIN_SIZE)
        size = INPUT_MIN_SIZE;
    char *in = realloc(conn->input.kept, size);
    if (!in)
        return false;
    conn->input.kept = in;
    conn->input.size = size;
    return true;
}

/* Frees memory that only a past command needed. */
static void shrink_input(struct conn *conn)
{
    if (conn->input.size <= INPUT_READ_SIZE || conn->input.len > conn->input.size / 4)
        return;
    size_t size = conn->input.len > INPUT_MIN_SIZE ? conn->input.len : INPUT_MIN_SIZE;
    char *in = realloc(conn->input.kept, size);
    if (!in)
        return; /* the large one stays */
    conn->input.kept = in;
    conn->input.size = size;
}

void conn_drop_input(struct conn *conn)
{
    free(conn->input.kept);
    free(conn->input.pending.spans);
    conn->input.pending.spans = NULL;
    conn->input.kept = NULL;
    conn->input.len = conn->input.size = 0;
    conn->input.held = false;
}

bool conn_has_input(const struct conn *conn, const char *bytes)
{
    const char *kept = conn->input.kept;
    return kept && bytes >= kept && bytes < kept + conn->input.size;
}

void *conn_give_input(struct conn *conn)
{
    void *kept = conn->input.kept;
    conn->input.kept = NULL;
    conn->input.len = conn->input.size = 0;
    return kept;
}

/* Keeps the rest of the input, or frees the buffer when there is none. */
static bool keep_rest(struct conn *conn, const char *rest, size_t len)
{
    if (len == 0) {
        conn_drop_input(conn);
    } else {
        if (!grow_input(conn, len))
            return false;
        if (rest != conn->input.kept)             /* as between two slices of a command of megabytes */
            memmove(conn->input.kept, rest, len); /* from within the buffer, from the arena, or from what was given */
        conn->input.len = len;
        shrink_input(conn);
    }
    atomic_store_explicit(&conn->session.input_bytes, conn->input.len, memory_order_relaxed);
    conn_count_memory(conn);
    return true;
}

static void over_input_limit(struct conn *conn)
{
    stats_add(&conn->worker->stats.over_query_buffer, 1);
    conn_warn_closed(conn, "its command passed client-query-buffer-limit, or there is no memory for it");
    conn_close(conn);
}

/* ---- reading ---- */

/* Returns the place and size of the next read. It is in the worker's arena, behind the kept input (which is copied
 * there), if that and the current command are small. Otherwise it is behind the kept input in the connection's own
 * buffer, which doubles with the bytes that have really arrived, up to the needs of the current argument: so announcing
 * a large argument costs the server nothing. A read takes at most that argument and one piece of the usual size,
 * because input behind a large command must not keep other clients waiting. */
static char *read_space(struct conn *conn, size_t *size_out, bool *own_out)
{
    struct worker *worker = conn->worker;
    size_t needs = conn->input.len ? resp_parser_needs(&conn->input.parser) : 0;
    *size_out = INPUT_READ_SIZE;
    *own_out = needs > INPUT_READ_SIZE;
    if (!*own_out) {
        char *space = input_space(worker, conn->input.len);
        if (conn->input.len)
            memcpy(space, conn->input.kept, conn->input.len);
        return space + conn->input.len;
    }
    size_t want = needs < conn->input.len * 2 ? needs : conn->input.len * 2;
    if (want < conn->input.len + INPUT_READ_SIZE)
        want = conn->input.len + INPUT_READ_SIZE;
    size_t limit = (size_t)server_config(worker->server)->client_query_buffer_limit;
    size_t record = conn->tls ? TLS_RECORD_MAX : 0; /* room for one that has come in part before */
    if (want > limit)
        want = limit;
    if (want <= conn->input.len || !grow_input(conn, want + record))
        return NULL;
    *size_out = record + (want - conn->input.len < READ_MAX ? want - conn->input.len : READ_MAX);
    return conn->input.kept + conn->input.len;
}

/* Runs the whole input, data[0..len), and keeps the rest. */
static void take_input(struct conn *conn, char *data, size_t len)
{
    struct worker *worker = conn->worker;
    bool own = data == conn->input.kept;
    if (!acl_is_current(&conn->session) && !acl_refresh(worker->server, &conn->session)) {
        conn_close_after_reply(conn); /* its user was deleted */
        return;
    }
    turn_begin(&worker->turns.current);
    monitor_look(worker);
    size_t done = run_commands(conn, data, len);
    if (own && done)
        window_flush(worker); /* its commands point into the buffer that changes now */
    if (!keep_rest(conn, data + done, len - done))
        over_input_limit(conn);
    else if (!conn_link_used(&conn->with_replies)) /* otherwise the end of the iteration does so, after the replies */
        conn_update(conn);
}

/* Whether CLIENT KILL has ended the connection. Checked before input is taken, so that commands sent after the reply to
 * CLIENT KILL never run, even if that was in a transaction, which waits for no worker. */
static bool is_killed(struct conn *conn)
{
    if (!(atomic_load_explicit(&conn->session.flags, memory_order_acquire) & SESSION_KILLED))
        return false;
    conn_close_after_reply(conn);
    return true;
}

/* Whether nothing has come from a client without TLS before. */
static __attribute__((noinline, cold)) bool is_first(const struct conn *conn)
{
    return !conn->tls && conn->input.len == 0 &&
           atomic_load_explicit(&conn->session.commands, memory_order_relaxed) == 0;
}

void conn_read(struct conn *conn)
{
    size_t size;
    bool own;
    if (is_killed(conn))
        return;
    char *space = read_space(conn, &size, &own);
    if (!space) {
        over_input_limit(conn);
        return;
    }
    ssize_t n = conn_has_tls(conn) ? conn_tls_receive(conn, space, size) : recv(conn->fd, space, size, 0);
    if (n < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            conn_close(conn);
        return;
    }
    if (n == 0) {
        conn_end_of_input(conn);
        return;
    }
    if (__builtin_expect(space[0] == 0x16, 0) && conn_tls_is_hello(space, (size_t)n) && is_first(conn)) {
        conn_tls_unexpected(conn);
        return;
    }
    stats_add(&conn->worker->stats.net_input_bytes, (uint64_t)n);
    stats_add(&conn->worker->stats.reads_processed, 1);
    atomic_store_explicit(&conn->session.last_ms, conn->worker->now_ms, memory_order_relaxed);
    size_t len = conn->input.len + (size_t)n;
    if (!own)
        conn->worker->input.used += len;
    take_input(conn, space - conn->input.len, len);
}

void conn_take_turn(struct conn *conn)
{
    if (conn_is_closing(conn)) {
        conn_leave(conn);
        return;
    }
    if (is_killed(conn))
        return;
    if (conn->input.len && conn_may_run(conn))
        take_input(conn, conn->input.kept, conn->input.len);
    else
        conn_update(conn);
}
