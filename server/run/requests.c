#include "requests.h"

#include <stdlib.h>
#include <string.h>

#include "acl_session.h"
#include "conn.h"
#include "dispatch.h"
#include "runner.h"

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
