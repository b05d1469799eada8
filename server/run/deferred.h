/* deferred: the reply to a command that has run elsewhere, or has slept, while its connection waited (CONN_WAITS_JOB).
 *
 * Thread: the loop's. */
#ifndef BLOOMERY_DEFERRED_H
#define BLOOMERY_DEFERRED_H

#include <stdbool.h>

struct buf;
struct command;
struct conn;

/* The command is done; takes over its reply, `reply` is then empty. `no_reply`: the client does not want it. A closed
 * connection may be freed. */
void deferred_done(struct conn *conn, struct buf *reply, const struct command *command, bool no_reply);

#endif
