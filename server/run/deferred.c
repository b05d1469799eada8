#include "deferred.h"

#include "command.h"
#include "conn.h"
#include "dispatch_errors.h"

void deferred_done(struct conn *conn, struct buf *reply, const struct command *command, bool no_reply)
{
    stats_add(&conn->io->stats.calls[command_index(command)], 1);
    if (conn_is_closing(conn)) {
        conn_free_reply(conn, reply);
        conn_ready(conn, CONN_WAITS_JOB);
        return;
    }
    conn_will_reply(conn);
    dispatch_count_error(conn, reply, 0, command_index(command));
    if (no_reply)
        conn_free_reply(conn, reply);
    else
        conn_append_reply(conn, reply);
    conn->output.wrote |= (command->flags & CMD_WRITE) != 0;
    conn_ready(conn, CONN_WAITS_JOB);
}
