/* persistence: joins the registry, the loops and the saver to the journal, and decides when writes are refused.
 *
 * Thread: any, except where noted. */
#ifndef BLOOMERY_PERSISTENCE_H
#define BLOOMERY_PERSISTENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "journal.h"

struct config;
struct registry_effect;
struct server;

/* Starts the journal where the log that was read at the start ends, and records if the settings say so. All filters are
 * in the registry, none is served yet. The status of journal_create(). */
int persistence_start(struct server *server, const struct journal_start *from, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Ends the journal, which syncs all records first. Called after the workers have ended. */
void persistence_stop(struct server *server);

/* Called when new settings are in force. */
void persistence_apply(struct server *server, const struct config *old, const struct config *now);

/* Contents that did not come from adds: the record of files (store.h), or the contents themselves (log_contents.h). */
struct persistence_contents {
    bool in_files;
    const void *ptr;
    size_t len;
};

/* Records an effect of the registry; called under its mutex. The payload of REGISTRY_LOADED is a struct
 * persistence_contents; NULL if nothing is recorded. */
void persistence_effect(struct server *server, const struct registry_effect *effect);

/* Whether the writes of this iteration are refused. The first is cheap; the second also writes the whole error, with
 * its code, into `text`. */
bool persistence_refuses(struct server *server);
bool persistence_refusal(struct server *server, char *text, size_t size);

#endif
