/* load: from the data directory into the registry, before anybody is served. Thread: the main thread. */
#ifndef BLOOMERY_LOAD_H
#define BLOOMERY_LOAD_H

#include "errbuf.h"
#include "store.h"

struct server;

/* Loads all filters of server->store, with as many threads as the settings say. Filters whose files cannot be trusted are
 * quarantined and logged. 0, or -1 with the reason in `err`: then nothing must be served. */
int load_data(struct server *server, struct errbuf *err);

/* What the store has to say goes to the log. For store_options; ctx is the server. */
void load_report(void *ctx, enum store_severity severity, const char *text);

#endif
