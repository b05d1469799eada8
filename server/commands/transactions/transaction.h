/* transaction: MULTI, EXEC, DISCARD, WATCH and UNWATCH of one connection, with Redis's semantics.
 *
 * Between MULTI and EXEC commands are checked as always and then copied into a queue of at most
 * client-query-buffer-limit bytes in total. As in Redis, a connection that queues more is closed. A command that is
 * refused while queueing makes EXEC refuse all. EXEC runs the queue while all other workers stand still (exclusive.h),
 * BF.ADD and BF.EXISTS through the pipeline as everywhere. So a transaction must be short. A slow command, or a command
 * that makes the transaction too long, is refused when it is queued. EXEC refuses the whole transaction if it would
 * take too long with the current filters (transaction_may_run()). An error of one command does not stop the others.
 *
 * WATCH notes three facts of a name: the id of its filter, the count of items, and the expiry. EXEC replies null if one
 * of them has changed. No more is needed, because an id is never used again and a count only rises.
 *
 * Thread: loop. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "errbuf.h"
#include "resp_parse.h"

struct command;
struct command_ctx;
struct session;

/* Whether a command that has passed all checks is queued instead of run. */
bool transaction_takes(const struct session *session, const struct command *command);

/* Whether the transaction stays short enough with this command, judged by its words: all clients wait while it runs.
 * The work of all words is at most WORK_TRANSACTION (work.h). */
bool transaction_has_room(const struct session *session, const struct command *command, const struct resp_command *cmd);

/* Queues a command. False: the queue would take more than `limit` bytes, or no memory: the caller closes the client. */
bool transaction_queue(struct session *session, const struct command *command, const struct resp_command *cmd,
                       size_t limit);

/* Calls run() for each queued command, in order. */
struct transaction;
void transaction_each(const struct transaction *tx,
                      void (*run)(void *ctx, const struct command *command, const struct resp_command *cmd), void *ctx);

/* Before they run: calls look() for each, in order, with the internal number of the database that the client will have
 * then, after SELECT and SWAPDB before it. The commands have names, not keys. */
struct server;
void transaction_preview(const struct session *session, const struct server *server,
                         void (*look)(void *ctx, const struct command *command, const struct resp_command *cmd,
                                      unsigned database),
                         void *ctx);

#define TRANSACTION_WATCHES 4096 /* names that a connection can watch: EXEC checks all of them */

/* A command was refused: if a transaction is being queued, its EXEC will refuse it as a whole. */
void transaction_taint(struct session *session);

/* The flags of all commands that have been queued, ored; 0 outside of a transaction. */
uint32_t transaction_flags(const struct session *session);

/* Drops queue and watched names: at EXEC, DISCARD, RESET and the end of the connection. */
void transaction_end(struct session *session);

/* Whether the transaction is short enough, at the moment at which it could run: in an RCU read section. The commands
 * are gone through in order, with the filters as they are and as the commands before may leave them. So EXEC refuses a
 * transaction that has too much work (work.h) as a whole, before it has changed anything. `ctx`: of EXEC. False:
 * `error` is the whole text of the reply. */
bool transaction_may_run(const struct command_ctx *ctx, struct errbuf *error);
