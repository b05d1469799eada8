/* dispatch: from a parsed command to its row, through admission, to its handler. Counts. Thread: the loop's. */
#pragma once

#include <stddef.h>

#include "resp_parse.h"

struct command;
struct conn;

enum dispatch_result {
    DISPATCH_DONE = 0,  /* run, refused, deferred, or in the pipeline */
    DISPATCH_LATER = 1, /* not run, or not to its end: dispatched again when the connection may run commands */
};

/* Runs one command of the connection, or takes it into the pipeline. Replies keep their order. May mark the session for
 * closing, or make the connection wait; never closes it. */
enum dispatch_result dispatch(struct conn *conn, const struct resp_command *cmd);

/* The fast path for commands that equal an earlier command of any connection, except in their last argument. Moves such
 * commands at the beginning of data[0..len) into the pipeline and returns their size in bytes, 0 without any. */
size_t dispatch_repeated(struct conn *conn, const char *data, size_t len);

/* Runs a command of a transaction, which was checked when it was queued. Its slices must stay valid until the pipeline
 * is flushed. Never delays it. */
void dispatch_queued(struct conn *conn, const struct command *command, const struct resp_command *cmd);

/* requests: from the bytes of a connection to its commands: parses them and has them dispatched. */

/* io_calls.run. */
size_t requests_run(struct conn *conn, char *data, size_t len);
