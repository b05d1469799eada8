/* The input of a connection: where it is read to, how it becomes commands, what is kept of it.
 *
 * Input goes into the worker's arena, and commands are run from there. What is left over in the end (the beginning of
 * a command, or commands that may not run yet) is copied to a buffer of the connection, and while that is little it
 * goes back to the arena in front of what is read next, so that commands on their way through the window stay where
 * they are. Only a command that is large by itself is collected in the connection's own buffer. */
#include "conn_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "dispatch.h"
#include "monitor.h"
#include "worker.h"

#define INPUT_MIN_SIZE (4 * 1024)

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void protocol_error(struct conn *conn)
{
    char text[128];
    memcpy(text, "ERR ", 4);
    resp_parser_error(&conn->parser, text + 4, sizeof(text) - 4);
    window_flush(conn->worker);
    conn_will_reply(conn);
    reply_error(&conn->reply, text);
    stats_add(&conn->worker->stats.protocol_errors, 1);
    conn->session.close_after_reply = true;
}

static void out_of_memory(struct conn *conn)
{
    conn_warn_closed(conn, "there is no memory for its command");
    conn_will_reply(conn);
    conn->session.close_after_reply = true;
}

/* Notes a command that has to be run again, so that it is not parsed again: an inline command has been changed by that.
 * Its bytes are data[0..len), which the caller keeps. */
static void keep_pending(struct conn *conn, const struct resp_command *cmd, const char *data, size_t len)
{
    struct conn_pending *pending = &conn->pending;
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

/* Runs the command that was put off, whose bytes begin at `data`. Returns how many bytes are done with. */
static size_t run_pending(struct conn *conn, const char *data)
{
    struct conn_pending *pending = &conn->pending;
    struct resp_command cmd = {.base = data + pending->base, .spans = pending->spans, .argc = pending->argc};
    if (dispatch(conn, &cmd) == DISPATCH_LATER)
        return 0;
    free(pending->spans);
    pending->spans = NULL;
    return pending->len;
}

/* Runs the commands in data[0..len), as far as they may run, and returns how many bytes are done with. */
static size_t run_commands(struct conn *conn, char *data, size_t len)
{
    struct worker *worker = conn->worker;
    size_t done = 0;
    bool later = false;
    if (conn->pending.spans && conn_may_run(conn)) {
        done = run_pending(conn, data);
        later = conn->pending.spans != NULL;
    }
    while (!later && conn_may_run(conn) && done < len) {
        size_t repeated = dispatch_repeated(conn, data + done, len - done);
        if (repeated) {
            done += repeated;
            continue;
        }
        bool known = atomic_load_explicit(&conn->session.authenticated, memory_order_relaxed);
        struct resp_command cmd;
        size_t consumed = 0;
        enum resp_status status =
            resp_parser_next(&conn->parser, &worker->args, known ? &worker->limits : &worker->limits_noauth, !known,
                             data + done, len - done, &consumed, &cmd);
        if (status == RESP_COMMAND) {
            later = dispatch(conn, &cmd) == DISPATCH_LATER;
            if (later)
                keep_pending(conn, &cmd, data + done, consumed);
            else
                done += consumed;
        } else if (status == RESP_NEED_MORE) {
            conn->held = false;
            return done + consumed;
        } else if (status == RESP_MALFORMED) {
            protocol_error(conn);
        } else {
            out_of_memory(conn);
        }
    }
    conn->held = done < len;
    return conn->session.close_after_reply ? len : done;
}

/* ---- keeping ----------------------------------------------------------------------------------------------------- */

/* Makes the connection's own input buffer at least `size` bytes large. */
static bool grow_input(struct conn *conn, size_t size)
{
    if (size <= conn->in_size)
        return true;
    if (size < INPUT_MIN_SIZE)
        size = INPUT_MIN_SIZE;
    char *in = realloc(conn->in, size);
    if (!in)
        return false;
    conn->in = in;
    conn->in_size = size;
    return true;
}

/* Gives memory back that only a past command needed. */
static void shrink_input(struct conn *conn)
{
    if (conn->in_size <= WORKER_READ_SIZE || conn->in_len > conn->in_size / 4)
        return;
    size_t size = conn->in_len > INPUT_MIN_SIZE ? conn->in_len : INPUT_MIN_SIZE;
    char *in = realloc(conn->in, size);
    if (!in)
        return; /* the large one serves as well */
    conn->in = in;
    conn->in_size = size;
}

void conn_drop_input(struct conn *conn)
{
    free(conn->in);
    free(conn->pending.spans);
    conn->pending.spans = NULL;
    conn->in = NULL;
    conn->in_len = conn->in_size = 0;
    conn->held = false;
}

/* Keeps what is left, or drops the buffer when nothing is left. */
static bool keep_rest(struct conn *conn, const char *rest, size_t len)
{
    if (len == 0) {
        conn_drop_input(conn);
    } else {
        if (!grow_input(conn, len))
            return false;
        if (rest != conn->in) /* as between two slices of a command of megabytes */
            memmove(conn->in, rest, len); /* from within the buffer, or from the arena */
        conn->in_len = len;
        shrink_input(conn);
    }
    atomic_store_explicit(&conn->session.input_bytes, conn->in_len, memory_order_relaxed);
    return true;
}

static void over_input_limit(struct conn *conn)
{
    stats_add(&conn->worker->stats.over_query_buffer, 1);
    conn_warn_closed(conn, "its command passed client-query-buffer-limit, or there is no memory for it");
    conn_close(conn);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* A place in the arena for one read behind `before` bytes that are kept. */
static char *arena_space(struct worker *worker, size_t before)
{
    if (worker->arena_used + before + WORKER_READ_SIZE > WORKER_ARENA_SIZE) {
        window_flush(worker);
        worker->arena_used = 0;
    }
    return worker->arena + worker->arena_used;
}

/* Where the next bytes go, and how many at most: into the worker's arena, behind what is kept (which is copied there),
 * if that is little and the command under way is small. Otherwise behind it in the connection's own buffer, which
 * doubles with what has really arrived, at most up to what the argument under way needs, so that announcing much costs
 * the server nothing. No more is read than that argument and one piece of the usual size: what follows a large command
 * must not keep other clients waiting either. */
static char *input_space(struct conn *conn, size_t *size_out, bool *own_out)
{
    struct worker *worker = conn->worker;
    size_t needs = conn->in_len ? resp_parser_needs(&conn->parser) : 0;
    *size_out = WORKER_READ_SIZE;
    *own_out = needs > WORKER_READ_SIZE;
    if (!*own_out) {
        char *space = arena_space(worker, conn->in_len);
        if (conn->in_len)
            memcpy(space, conn->in, conn->in_len);
        return space + conn->in_len;
    }
    size_t want = needs < conn->in_len * 2 ? needs : conn->in_len * 2;
    if (want < conn->in_len + WORKER_READ_SIZE)
        want = conn->in_len + WORKER_READ_SIZE;
    size_t limit = (size_t)server_config(worker->server)->client_query_buffer_limit;
    if (want > limit)
        want = limit;
    if (want <= conn->in_len || !grow_input(conn, want))
        return NULL;
    *size_out = want - conn->in_len;
    return conn->in + conn->in_len;
}

/* Runs what is in data[0..len), all that there is of the input, and keeps the rest. */
static void take_input(struct conn *conn, char *data, size_t len)
{
    struct worker *worker = conn->worker;
    bool own = data == conn->in;
    monitor_look(worker);
    size_t done = run_commands(conn, data, len);
    if (own && done)
        window_flush(worker); /* its commands point into the buffer that is changed now */
    if (!keep_rest(conn, data + done, len - done))
        over_input_limit(conn);
    else if (!conn_link_used(&conn->with_replies)) /* otherwise the end of the iteration does, after the replies */
        conn_update(conn);
}

/* Whether CLIENT KILL has ended the connection: looked at before anything is taken from it, so that nothing it sends
 * after the reply to CLIENT KILL is run, also if that was in a transaction, which waits for no worker. */
static bool is_killed(struct conn *conn)
{
    if (!(atomic_load_explicit(&conn->session.flags, memory_order_acquire) & SESSION_KILLED))
        return false;
    conn_close_after_reply(conn);
    return true;
}

void conn_read(struct conn *conn)
{
    size_t size;
    bool own;
    if (is_killed(conn))
        return;
    char *space = input_space(conn, &size, &own);
    if (!space) {
        over_input_limit(conn);
        return;
    }
    ssize_t n = recv(conn->fd, space, size, 0);
    if (n < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            conn_close(conn);
        return;
    }
    if (n == 0) {
        conn->eof = true;
        conn_drop_input(conn); /* half a command is no command */
        conn_will_reply(conn); /* the end of the iteration sends what there is and closes */
        return;
    }
    stats_add(&conn->worker->stats.net_input_bytes, (uint64_t)n);
    stats_add(&conn->worker->stats.reads_processed, 1);
    atomic_store_explicit(&conn->session.last_ms, conn->worker->now_ms, memory_order_relaxed);
    size_t len = conn->in_len + (size_t)n;
    if (!own)
        conn->worker->arena_used += len;
    take_input(conn, space - conn->in_len, len);
}

void conn_take_turn(struct conn *conn)
{
    if (is_killed(conn))
        return;
    if (conn->in_len && conn_may_run(conn))
        take_input(conn, conn->in, conn->in_len);
    else
        conn_update(conn);
}
