/* transaction: MULTI, EXEC, DISCARD, WATCH and UNWATCH of one connection, with Redis's semantics.
 *
 * Between MULTI and EXEC commands are checked as always and then copied into a queue, at most
 * client-query-buffer-limit bytes of it with all that belongs to it; a connection that queues more is closed, as Redis
 * does it. A command that is refused while queueing makes EXEC refuse all. EXEC runs the queue while all other workers
 * stand still (exclusive.h), BF.ADD and BF.EXISTS through the window as everywhere, deferred commands at once. An
 * error of one does not stop the others.
 *
 * WATCH notes what is under a name: which filter, how many items it has counted, when it expires. EXEC replies null if
 * any of this is different by then. That is all there is to it: a filter's number is never used again and its items
 * only rise.
 *
 * Thread: loop. */
#ifndef BLOOMERY_TRANSACTION_H
#define BLOOMERY_TRANSACTION_H

#include <stdbool.h>
#include <stdint.h>

#include "resp_parse.h"

struct command;
struct command_ctx;
struct conn;

/* Whether a command that has passed all checks is to be queued now instead of run. */
bool transaction_takes(const struct conn *conn, const struct command *command);

/* Queues it and replies; may mark the connection for closing. */
void transaction_queue(struct conn *conn, const struct command *command, const struct resp_command *cmd);

/* A command was refused: if a transaction is being queued, its EXEC will refuse it as a whole. */
void transaction_taint(struct conn *conn);

/* The flags of all commands that have been queued, ored; 0 outside of a transaction. */
uint32_t transaction_flags(const struct conn *conn);

/* Forgets queue and watched names: EXEC, DISCARD, RESET, the end of the connection. */
void transaction_end(struct conn *conn);

#endif
