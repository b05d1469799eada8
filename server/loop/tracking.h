/* tracking: CLIENT TRACKING ON, for client-side caches.
 *
 * For each filter that such a client reads, its connection notes the version (registry_version.h) from before the read,
 * and a timer compares it with the present version. When they differ, an `invalidate` message tells the client to drop
 * its answers about that name, and the note is removed. So an answer outlives a change by TRACKING_LOOK_MS, or longer
 * when there are more notes than one check can compare, but no change is missed. Threads that change filters pay
 * nothing for this.
 *
 * A message that concerns a read of the connection's own running command comes behind its reply: a connection with a
 * running command is not checked. When the notes would take more than TRACKING_MAX_BYTES, or memory runs out, a message
 * tells the client to drop all answers; likewise when all connections have more than tracking-table-max-keys, and after
 * FLUSHALL and FLUSHDB.
 *
 * With REDIRECT another connection is told, by a message to its worker. With NOLOOP a name is forgotten, before the
 * client changes the filter itself, unless it has changed already. BCAST would need a list of all changes, which the
 * threads that make them would have to keep.
 *
 * Thread: the worker's. */
#ifndef BLOOMERY_TRACKING_H
#define BLOOMERY_TRACKING_H

#include <uv.h>

#include "conn_list.h"

struct command;
struct conn;
struct resp_command;
struct session_tracking;
struct worker;

#define TRACKING_LOOK_MS   10
#define TRACKING_LOOK_MAX  1000 /* notes compared in one look, some 200 us, whatever the number of connections */
#define TRACKING_MAX_BYTES ((size_t)4 * 1024 * 1024) /* of one connection: 50,000 notes of short names */

/* A worker's part. */
struct trackers {
    struct conn_link conns; /* the connections with CLIENT TRACKING ON */
    uv_timer_t timer;       /* active while there are any */
};

void tracking_init(struct worker *worker); /* beside the worker's other handles, which it closes */

/* 0, also when it is on already, whose options are replaced, or -ENOMEM. */
int tracking_start(struct conn *conn, const struct session_tracking *options);

/* Forgets the notes. Nothing if it is not on. */
void tracking_stop(struct conn *conn);

/* To be called before a command of a connection with MODE_TRACKING runs. */
void tracking_note(struct conn *conn, const struct command *command, const struct resp_command *cmd);

#endif
