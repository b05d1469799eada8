/* server_create: the parts of a server, in one table. They start in its order and stop in reverse. */
#pragma once

#include "errbuf.h"
#include "server.h"

/* Sets of parts. Tests take what they need. */
enum server_parts {
    PARTS_COMMANDS = 1 << 0, /* for commands: memory, names, users, counters, channels and events */
    PARTS_DATA = 1 << 1,     /* the data directory and its saver; load_start() comes next */
    PARTS_WORKERS = 1 << 2,  /* max_workers workers */
    PARTS_DAEMON = 1 << 3,   /* the pool, the main loop, certificates, sockets, HTTP and signals */
    PARTS_ALL = PARTS_COMMANDS | PARTS_DATA | PARTS_WORKERS | PARTS_DAEMON,
};

/* Starts PARTS_COMMANDS, which opens no file but the log file. There are at least 1 and at most `max_workers` workers.
 * Takes over `config` if it succeeds. Statuses as server_start(). */
int server_create(struct server **server_out, struct config *config, unsigned max_workers, struct errbuf *err);

/* Starts those parts of the set that have not started. 0, or the status of the part that failed, with the reason:
 * EX_CONFIG if every start with these settings would fail, a store_status, or -errno. */
int server_start(struct server *server, enum server_parts parts, struct errbuf *err);

/* Stops the parts that have started. NULL is fine. */
void server_destroy(struct server *server);

/* bloomeryd --check-config: whether a start would accept the files that these settings name: certificates, users, keys,
 * the data directory with its MANIFEST. Writes nothing and takes no lock, so a daemon with the same settings may run.
 * 0, or another status with the reason, which names the setting. Thread: the main one. */
int check_config(const struct config *config, struct errbuf *err);
