/* load: fills the registry at the start, from the files of the last save and then from the log.
 *
 * It runs in its own thread. Meanwhile the workers answer -LOADING to commands that touch filters.
 *
 * Thread: the main thread, except load_report(). */
#ifndef BLOOMERY_LOAD_H
#define BLOOMERY_LOAD_H

#include "errbuf.h"
#include "store.h"

struct server;

/* Begins to load all filters of the store. Filters with damaged files are quarantined and logged. `done` is called
 * once, in the loading thread: after success server_loading() is false and writes are recorded; after a failure no
 * filter may be served. 0 or -errno. */
int load_start(struct server *server, void (*done)(struct server *server));

/* Waits for the end of the load. 0, or -1 with the reason in `err`. Called once after a successful load_start(). */
int load_join(struct server *server, struct errbuf *err);

/* Called instead of load_join() right before the process ends: leaves the thread running. */
void load_leave(struct server *server);

/* Writes a report of the store or the log to the daemon's messages. For store_options; ctx is the server. */
void load_report(void *ctx, enum store_severity severity, const char *text);

#endif
