/* ending: ends the daemon with its last save, or with the log in place of one, and logs what is lost.
 *
 * Thread: the main thread's. */
#ifndef BLOOMERY_ENDING_H
#define BLOOMERY_ENDING_H

#include <stdbool.h>

#include "errbuf.h"
#include "server.h"

struct main_loop;

/* Ends the daemon. If the end would lose changes that the request does not give up, the daemon continues and `err` has
 * the reason. Lost changes are logged; end.lost is set, too, if a signal asked for the end but not for the loss. During
 * the load, before there is a log, no data has changed and the daemon ends immediately. */
bool ending_try(struct main_loop *ml, const struct shutdown_request *request, struct errbuf *err);

#endif
