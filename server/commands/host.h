/* host: the calls from a handler to its host. In the daemon the loops implement them (loop/host.c, run/defer.c); tests
 * of handlers have a smaller host. command_defer() (command.h) is one of them, too.
 *
 * Thread: the worker's that runs the command, unless it says otherwise. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "command.h"

struct transaction;

/* ---- exclusive sections: EXEC, CLIENT PAUSE ---- */

/* Whether all other workers stand still, and no deferred command reads or changes filters, until this command ends. */
bool command_is_alone(const struct command_ctx *ctx);

/* Makes the connection wait until that is so; the handler must not reply, and is called again (ctx->later). */
void command_wait_to_be_alone(struct command_ctx *ctx);

/* Runs the commands of a transaction; each writes its reply. */
void command_run_queue(struct command_ctx *ctx, const struct transaction *tx);

/* server->clients.pause.what has changed: this worker checks it now, the others soon if `all`. */
void command_pause_changed(struct command_ctx *ctx, bool all);

/* ---- waiting ---- */

#define SLEEP_FOR_EVER INT64_MAX

/* Makes the connection wait for `ms` (>= 0) milliseconds and then gives it the reply, which is text on the wire, the
 * same in both protocols, and constant. `timed`: the time counts as the command's. The handler must not reply. */
void command_sleep(struct command_ctx *ctx, int64_t ms, const char *reply, bool timed);

/* WAITAOF: makes the connection wait until all earlier records are on the disk and the log is complete, for at most
 * `ms` milliseconds, and then gives it the reply. `for_replicas`: waits for the whole time, since there are no
 * replicas. The handler must not reply itself, and does not call it in EXEC. */
void command_wait_for_log(struct command_ctx *ctx, int64_t ms, bool for_replicas);
extern const char sleep_without_log[]; /* the reply without a log, as on the wire */

/* Runs run(job) in a thread of the pool, as command_defer() does, and makes the connection wait; then the handler,
 * which must not reply, is called again (ctx->later is set). Ownership of `data` passes; job->reply is not to be
 * written. False after an error reply: in a transaction, or without memory. */
bool command_do_first(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data);

/* ---- messages ---- */

/* The client publishes faster than its messages are delivered: its next commands wait. */
void command_slow_publisher(struct command_ctx *ctx);

/* Called before a client becomes a monitor: commands that have run go to earlier monitors only. Called afterwards: the
 * rest of its pipeline goes to it, too. */
void command_monitor_begins(struct command_ctx *ctx);
void command_monitor_begun(struct command_ctx *ctx);

/* ---- connections ---- */

/* Closes this client once its replies have left, and logs the reason, at a bounded rate. */
void command_over_limit(struct command_ctx *ctx, const char *why);

/* Connections of a worker, and how many of them wait in command_sleep() or command_wait_for_log(), or for the end of
 * CLIENT PAUSE. Thread: any. */
unsigned host_connections(const struct server *server, unsigned worker);
unsigned host_blocked(const struct server *server, unsigned worker);

/* Users have been changed or deleted: the workers check their clients soon, and disconnect those whose user is gone or
 * may not use their channels any more. Thread: any. */
void host_users_changed(struct server *server);

/* Whether the workers have done that for all earlier changes. Thread: any. */
bool host_users_are_looked_at(const struct server *server);

#define HOST_TICKS_PER_SECOND 10 /* the frequency of checks for idle clients and sleepers: INFO's hz */

/* Closes sessions of a worker, given by their ids (ascending, n of them, malloc'ed: ownership passes); `self` gets its
 * replies first. Returns a number for host_closed(), which returns whether this has been done. Thread: pool. */
uint64_t host_close(struct server *server, unsigned worker, uint64_t *ids, size_t n, uint64_t self);
bool host_closed(const struct server *server, unsigned worker, uint64_t closing);
