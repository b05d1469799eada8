/* dispatch_errors: the replies to refused commands, and the counting of errors. Thread: the loop's. */
#pragma once

#include <stdbool.h>

#include "buf.h"
#include "errbuf.h"
#include "resp_parse.h"

struct command;
struct conn;

#define DISPATCH_ERROR_SIZE (ERRBUF_SIZE + 256) /* bytes of an error, with its code */

/* Counts a command that has run or has been refused. Queued ones count when they run. */
void dispatch_count_command(struct conn *conn);

/* Replies with an error and counts it. `command` NULL: an unknown command. A refused EXEC ends its transaction and
 * reports that, as in Redis. */
void dispatch_reject(struct conn *conn, const struct command *command, const char *text);

/* The error reply to words that are no command, or no subcommand of `container`. HTTP clients get none. */
void dispatch_reject_unknown(struct conn *conn, const struct resp_command *cmd);
void dispatch_reject_subcommand(struct conn *conn, const struct command *container, struct slice word);

/* Counts an error, under the command's counter (command_index()), if the replies from `before` on begin with one. */
void dispatch_count_error(struct conn *conn, const struct buf *replies, size_t before, size_t counter);

/* deferred: the reply to a command that ran elsewhere, or slept, while its connection waited (CONN_WAITS_JOB). */

struct buf;

/* The command is done; takes over its reply, `reply` is then empty. `no_reply`: the client does not want it. A closed
 * connection may be freed. */
void deferred_done(struct conn *conn, struct buf *reply, const struct command *command, bool no_reply);
