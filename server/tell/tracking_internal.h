/* tracking_internal: the parts of CLIENT TRACKING (tracking.h): notes of reads (tracking.c), changes by prefix
 * (tracking_broadcast.c), messages (tracking_tell.c). */
#ifndef BLOOMERY_TRACKING_INTERNAL_H
#define BLOOMERY_TRACKING_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conn.h"
#include "hash_table.h"
#include "slice.h"
#include "tracking.h"

struct held;

/* A client's part: session.tracking.tracker. */
struct tracker {
    struct conn_link link; /* in trackers->all */
    struct trackers *trackers;
    struct conn *conn;
    struct note *oldest, **newest_end;
    struct hash_table notes;
    size_t bytes;                        /* of the notes */
    struct broadcast_client *broadcast;  /* NULL without BCAST; also session.tracking.broadcast */
    struct held *first_held, **held_end; /* messages of BCAST that a command under way keeps back */
    size_t held_bytes;
    bool forget_all;  /* the client must get a message that all names may have changed; nothing is noted until then */
    uint64_t flushes; /* server->clients.flushes that the client has been told of */
};

/* An invalidation must not come before the reply that it concerns. */
static inline bool tracking_is_busy(const struct conn *conn)
{
    return conn->waits || conn->input.pending.spans;
}

/* Counts its memory in the session. */
void tracking_account(struct tracker *tracker);

/* Tells the client, or the one to which its messages are redirected, that names have changed: a RESP array of bulk
 * strings. ptr NULL: all names. False without memory: the client must be told of all names, later. */
bool tracking_tell(struct tracker *tracker, struct slice names);

/* The hub has changes for clients of the loop: a notice. */
void tracking_run_changes(void *part);

/* Subscribes the client to prefixes, of which it has none yet. BROADCAST_OK, or as tracking_start(), and then it is as
 * before. */
int tracking_broadcast_start(struct tracker *tracker, const struct tracking_options *options,
                             const struct slice *prefixes, size_t n);
void tracking_broadcast_stop(struct tracker *tracker);

/* Delivers the messages that were kept back: the client is not busy any more. */
void tracking_broadcast_release(struct tracker *tracker);
void tracking_broadcast_drop(struct tracker *tracker); /* without delivering it */

#endif
