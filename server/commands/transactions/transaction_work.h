/* transaction_work: whether a transaction is short enough, at the moment at which it could run.
 *
 * The commands are gone through in order, with the filters as they are and as the commands before may leave them. So
 * EXEC refuses a transaction that has too much work (work.h) as a whole, before it has changed anything.
 *
 * Thread: the worker's, in an RCU read section. */
#ifndef BLOOMERY_TRANSACTION_WORK_H
#define BLOOMERY_TRANSACTION_WORK_H

#include <stdbool.h>

#include "errbuf.h"

struct command_ctx;

/* `ctx`: of EXEC. False: the whole text of the reply. */
bool transaction_may_run(const struct command_ctx *ctx, struct errbuf *error);

#endif
