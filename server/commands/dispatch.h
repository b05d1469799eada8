/* dispatch: from a parsed command to its row, through the checks every command undergoes, to its handler. Counts.
 * Thread: the worker's. */
#ifndef BLOOMERY_DISPATCH_H
#define BLOOMERY_DISPATCH_H

#include <stddef.h>

#include "buf.h"
#include "resp_parse.h"

struct command;
struct conn;

enum dispatch_result {
    DISPATCH_DONE = 0,  /* run, refused, deferred, or in the window */
    DISPATCH_LATER = 1, /* not run, or not to its end: to be dispatched again when the connection may run commands */
};

/* Runs one command of the connection, or takes it into the window. Replies in order. May mark the session for closing,
 * or make the connection wait; never closes it. */
enum dispatch_result dispatch(struct conn *conn, const struct resp_command *cmd);

/* The short way for commands that equal one dispatched earlier, of whatever connection, but for their last argument: how
 * many bytes those are that data[0..len) begins with and that have been taken into the window, 0 if there are none. */
size_t dispatch_repeated(struct conn *conn, const char *data, size_t len);

/* Runs a command of a transaction, which was checked when it was queued. Its slices must stay valid until the window is
 * emptied. Never puts it off. */
void dispatch_queued(struct conn *conn, const struct command *command, const struct resp_command *cmd);

/* Counts an error, under the command's counter (command_index()), if what is in `replies` from `before` on begins with
 * one. */
void dispatch_count_error(struct conn *conn, const struct buf *replies, size_t before, size_t counter);

#endif
