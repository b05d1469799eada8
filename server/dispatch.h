/* dispatch: from a parsed command to its row, through the checks every command undergoes, to its handler. Counts.
 * Thread: the worker's. */
#ifndef BLOOMERY_DISPATCH_H
#define BLOOMERY_DISPATCH_H

#include <stddef.h>

#include "resp_parse.h"

struct conn;

/* Runs one command of the connection, or takes it into the window. Replies in order. May mark the session for closing, or
 * the connection as waiting for a deferred command; never closes it. */
void dispatch(struct conn *conn, const struct resp_command *cmd);

/* Counts an error, under the command's counter (command_index()), if what has been written into the connection's replies
 * since `before` begins with one. */
void dispatch_count_error(struct conn *conn, size_t before, size_t counter);

#endif
