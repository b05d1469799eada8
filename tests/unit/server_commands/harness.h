/* harness: calls command handlers without a loop or a socket: a server that has settings, filters, sessions and a
 * data directory but no worker, one session, and replies into a buffer. A call goes through table look-up and arity
 * check as the dispatcher would do it; deferred work runs immediately. */
#pragma once

#include "command.h"
#include "server.h"
#include "tmpdir.h"

struct harness {
    struct server *server;
    char dir[TMPDIR_SIZE];
    struct session session;
    struct buf out;
    struct reply reply;
    struct stats stats;
    unsigned deferred; /* number of deferred calls */
};

void harness_init(struct harness *h);
void harness_deinit(struct harness *h);

/* A new connection in place of the old one, in protocol version `version`. */
void harness_reconnect(struct harness *h, int version);

/* Runs the command and returns its reply, NUL-terminated, its length in `len_out` unless that is NULL. Valid until the
 * next call. The words end with a NULL. */
const char *harness_call(struct harness *h, size_t *len_out, ...) __attribute__((sentinel));

/* The same for arguments that may hold any bytes. */
const char *harness_run(struct harness *h, const struct slice *argv, size_t argc, size_t *len_out);
