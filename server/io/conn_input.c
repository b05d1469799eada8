/* The input of a connection: reading, and keeping the rest.
 *
 * Input is read into the loop's arena, and commands run from there. The rest (the beginning of a command, or commands
 * that may not run yet) is copied to a buffer of the connection. While the rest is small, it is copied back to the
 * arena before the next read, so that commands that have been taken in stay in place. Only a large command is collected
 * in the connection's own buffer. */
#include "conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "conn_tls.h"
#include "tls_stream.h"

#define INPUT_MIN_SIZE (4 * 1024)
#define CLOSE_WORK     64                   /* thousands of clients may vanish at once (work.h) */
#define READ_MAX       ((size_t)512 * 1024) /* at a time, of a large argument: into untouched memory */

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
    char *in = malloc(size);
    if (!in)
        return; /* the large one stays */
    memcpy(in, conn->input.kept, conn->input.len);
    conn_free(conn, conn->input.kept, conn->input.size);
    conn->input.kept = in;
    conn->input.size = size;
}

void conn_drop_input(struct conn *conn)
{
    conn_free(conn, conn->input.kept, conn->input.size);
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
            memmove(conn->input.kept, rest, len); /* from within the buffer, the arena, or the given bytes */
        conn->input.len = len;
        shrink_input(conn);
    }
    atomic_store_explicit(&conn->session.meters.input_bytes, conn->input.len, memory_order_relaxed);
    conn_count_memory(conn);
    return true;
}

static void over_input_limit(struct conn *conn)
{
    stats_add(&conn->io->stats.over_query_buffer, 1);
    conn_warn_closed(conn, "its command exceeded client-query-buffer-limit, or the memory");
    conn_close(conn);
}

/* ---- reading ---- */

/* The place after the kept input, which is copied into the arena. */
static char *arena_space(struct conn *conn)
{
    struct input *input = &conn->io->input;
    if (!input_has_space(input, conn->input.len)) {
        io_settle(conn->io);
        input->used = 0;
    }
    char *space = input->arena + input->used;
    if (conn->input.len)
        memcpy(space, conn->input.kept, conn->input.len);
    return space + conn->input.len;
}

/* Returns the place and size of the next read. It is in the loop's arena, after the kept input (which is copied there),
 * if that and the current command are small. Otherwise it follows the kept input in the connection's own buffer, which
 * doubles with the bytes that have arrived, up to the needs of the current argument. So the announcement of a large
 * argument costs the server nothing. A read takes at most that argument and one piece of the usual size, because input
 * after a large command must not keep other clients waiting. */
static char *read_space(struct conn *conn, size_t *size_out, bool *own_out)
{
    size_t needs = conn->input.len ? resp_parser_needs(&conn->input.parser) : 0;
    *size_out = INPUT_READ_SIZE;
    *own_out = needs > INPUT_READ_SIZE;
    if (!*own_out)
        return arena_space(conn);
    size_t want = needs < conn->input.len * 2 ? needs : conn->input.len * 2;
    if (want < conn->input.len + INPUT_READ_SIZE)
        want = conn->input.len + INPUT_READ_SIZE;
    size_t limit = (size_t)server_config(conn->io->server)->clients.client_query_buffer_limit;
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
    bool own = data == conn->input.kept;
    turn_begin(&conn->io->turns.current);
    size_t done = conn->io->calls->run(conn, data, len);
    if (own && done)
        io_settle(conn->io); /* its commands point into the buffer that changes now */
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
           atomic_load_explicit(&conn->session.meters.commands, memory_order_relaxed) == 0;
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
    if (n <= 0)
        turns_pay(&conn->io->turns, CLOSE_WORK);
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
    stats_add(&conn->io->stats.net_input_bytes, (uint64_t)n);
    stats_add(&conn->io->stats.reads_processed, 1);
    atomic_store_explicit(&conn->session.meters.last_ms, conn->io->now_ms, memory_order_relaxed);
    size_t len = conn->input.len + (size_t)n;
    turns_pay(&conn->io->turns, (uint64_t)n / 256); /* of the round; work.h */
    if (!own)
        conn->io->input.used += len;
    take_input(conn, space - conn->input.len, len);
}

void conn_take_turn(struct conn *conn)
{
    if (conn_is_closing(conn)) {
        conn_unsubscribe(conn);
        return;
    }
    if (is_killed(conn))
        return;
    bool unread = conn->input.unread && !conn->input.held && conn->life == CONN_OPEN;
    conn->input.unread = false;
    if (!conn_may_run(conn))
        conn_update(conn);
    else if (unread)
        conn_read(conn);
    else if (conn->input.len)
        take_input(conn, conn->input.kept, conn->input.len);
    else
        conn_update(conn);
}
