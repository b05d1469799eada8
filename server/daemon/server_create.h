/* server_create: starts the parts of a server in order and stops them in reverse. */
#ifndef BLOOMERY_SERVER_CREATE_H
#define BLOOMERY_SERVER_CREATE_H

#include "server.h"

/* Starts the parts that commands need: memory, names, sessions, monitors, sections, channels and events. Starts no
 * worker yet (later at most `max_workers`, at least 1) and opens no file but the log file. Takes over `config` if it
 * succeeds. 0, or -errno with the reason. */
int server_create(struct server **server_out, struct config *config, unsigned max_workers, struct errbuf *err);

/* Starts n workers. 0 or -errno; server_stop() ends the started ones. */
int server_start_workers(struct server *server, unsigned n);

/* Ends the notifier and the workers: clients change nothing from here on. For callers that stop something the workers
 * use before server_destroy(), which otherwise calls this itself. */
void server_stop(struct server *server);
void server_destroy(struct server *server); /* NULL is fine */

#endif
