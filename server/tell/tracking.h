/* tracking: CLIENT TRACKING ON, for client-side caches.
 *
 * For each filter that such a client reads, its connection notes the version (registry_version.h) from before the read,
 * and a timer compares it with the present version. When they differ, an `invalidate` message tells the client to drop
 * its answers about that name, and the note is removed. So an answer outlives a change by TRACKING_LOOK_MS, or longer
 * when there are more notes than one check can compare, but no change is missed. Threads that change filters pay
 * nothing for this.
 *
 * A message that concerns a read of the connection's own running command comes after its reply: a connection with a
 * running command is not checked. A message tells the client to drop all answers when the notes exceed
 * TRACKING_MAX_BYTES, when memory runs out, when all connections exceed tracking-table-max-keys, and after FLUSHALL and
 * FLUSHDB.
 *
 * With REDIRECT another connection is told, by a message to its loop. With NOLOOP a name is forgotten, before the
 * client changes the filter itself, unless it has changed already.
 *
 * With BCAST nothing is noted. Every change of a filter passes its name to a hub (broadcast.h), which collects the
 * names for the clients of matching prefixes and wakes their loops. A message for a client with a running command waits
 * until the command ends. More than TRACKING_MAX_BYTES of messages become one message to drop all answers. With NOLOOP
 * such a client's commands set the author of the changes that they make.
 *
 * Thread: the loop's, except for tracking_wake(). */
#ifndef BLOOMERY_TRACKING_H
#define BLOOMERY_TRACKING_H

#include <stdint.h>
#include <uv.h>

#include "conn_list.h"
#include "slice.h"

struct command;
struct conn;
struct io;
struct resp_command;
struct session;
struct tracking_options;

#define TRACKING_LOOK_MS   10
#define TRACKING_LOOK_MAX  1000 /* notes compared in one look, some 200 us, for any number of connections */
#define TRACKING_MAX_BYTES ((size_t)4 * 1024 * 1024) /* of one connection: 50,000 notes of short names */

/* A loop's part. */
struct trackers {
    struct io *io;
    struct conn_link all; /* the trackers of its clients with CLIENT TRACKING ON */
    uv_timer_t timer;     /* active while there are any */
    struct conn *target;  /* the connection that got the last redirected message, or NULL */
};

void tracking_init(struct trackers *trackers, struct io *io);
void tracking_open(struct trackers *trackers); /* the handle, once there is a loop */
void tracking_close(struct trackers *trackers);

/* The hub's `wake`; ctx is the server. Thread: any. */
void tracking_wake(void *ctx, unsigned loop);

/* Switches it on, or replaces its options. `prefixes`: with BCAST prefixes that the client gets in addition to its
 * others. 0, BROADCAST_LIMIT or -ENOMEM; then nothing has changed. */
int tracking_start(struct trackers *trackers, struct conn *conn, const struct tracking_options *options,
                   const struct slice *prefixes, size_t n);

/* Forgets the notes and the prefixes, and that messages go to this connection. No effect if it is not on. */
void tracking_stop(struct trackers *trackers, struct conn *conn);

/* To be called before a command of a connection with MODE_TRACKING runs, and after it. */
void tracking_before(struct conn *conn, const struct command *command, const struct resp_command *cmd);
void tracking_after(void);

/* The author of changes by this client (broadcast_author()). */
uint64_t tracking_author(const struct session *session);

#endif
