/* load: from the data directory into the registry, at the start: the files of the last save, then the log.
 *
 * It runs in a thread of its own while the workers serve already, and refuse what touches filters with -LOADING.
 *
 * Thread: the main thread, except load_report(). */
#ifndef BLOOMERY_LOAD_H
#define BLOOMERY_LOAD_H

#include "errbuf.h"
#include "store.h"

struct server;

/* Begins to load all filters of server->store, with as many threads as the settings say. Filters whose files cannot be
 * trusted are quarantined and logged. `done` is called once, in the loading thread, when everything is in place (server.load
 * is not active any more, writes are recorded) or when it cannot be: then nothing must be served. 0 or -errno. */
int load_start(struct server *server, void (*done)(struct server *server));

/* Waits for its end. 0, or -1 with the reason in `err` when it failed. To be called once after load_start() has succeeded. */
int load_join(struct server *server, struct errbuf *err);

/* Instead of load_join(), right before the end of the process: nobody waits for the thread. */
void load_leave(struct server *server);

/* What the store and the log have to say goes to the daemon's log. For store_options; ctx is the server. */
void load_report(void *ctx, enum store_severity severity, const char *text);

#endif
