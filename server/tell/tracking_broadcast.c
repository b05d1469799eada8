/* CLIENT TRACKING ON BCAST: messages about all changes of names with a prefix (broadcast.h).
 *
 * A client that caches answers of very many filters then costs the server only the memory of its prefixes: the server
 * keeps no table of names, and notes none of its reads. The client pays with messages about names that it has never
 * read. */
#include <stdlib.h>
#include <string.h>

#include "broadcast.h"
#include "tracking_internal.h"

struct held {
    struct held *next;
    size_t len;
    char names[]; /* as tracking_tell() takes them */
};

/* ---- messages that a command under way keeps back ---- */

void tracking_broadcast_drop(struct tracker *tracker)
{
    for (struct held *held = tracker->first_held, *next; held; held = next) {
        next = held->next;
        free(held);
    }
    tracker->first_held = NULL;
    tracker->held_end = &tracker->first_held;
    tracker->held_bytes = 0;
}

static void tell_of_all_later(struct tracker *tracker)
{
    tracking_broadcast_drop(tracker);
    tracker->forget_all = true;
}

static void hold(struct tracker *tracker, struct slice names)
{
    struct held *held = NULL;
    if (names.len < TRACKING_MAX_BYTES - tracker->held_bytes)
        held = malloc(sizeof(*held) + names.len);
    if (!held) {
        tell_of_all_later(tracker);
        return;
    }
    held->next = NULL;
    held->len = names.len;
    memcpy(held->names, names.ptr, names.len);
    *tracker->held_end = held;
    tracker->held_end = &held->next;
    tracker->held_bytes += sizeof(*held) + names.len;
}

void tracking_broadcast_release(struct tracker *tracker)
{
    bool notified = true;
    for (const struct held *held = tracker->first_held; held && notified; held = held->next)
        notified = tracking_tell(tracker, (struct slice){held->names, held->len});
    if (notified)
        tracking_broadcast_drop(tracker);
    else
        tell_of_all_later(tracker);
}

/* ---- delivery ---- */

static void tell(void *owner, struct slice names)
{
    struct conn *conn = owner;
    struct tracker *tracker = conn->session.tracking.tracker;
    if (tracker->forget_all)
        return; /* it will get a message about all names */
    if (!names.ptr)
        tell_of_all_later(tracker);
    else if (tracking_is_busy(conn) || tracker->first_held)
        hold(tracker, names);
    else if (!tracking_tell(tracker, names))
        tracker->forget_all = true;
    tracking_account(tracker);
}

void tracking_run_changes(void *part)
{
    struct io *io = ((struct trackers *)part)->io;
    io_settle(io); /* commands that were read before the changes are answered before them */
    broadcast_deliver(io->server->broadcast, io->index, tell);
}

void tracking_wake(void *ctx, unsigned loop)
{
    struct server *server = ctx;
    mailbox_notify(server->threads.mailboxes[loop], NOTICE_CHANGES);
}

/* ---- on and off ---- */

static int subscribe(struct broadcast_client *client, const struct slice *prefixes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int status = broadcast_subscribe(client, prefixes[i]);
        if (status == BROADCAST_OK || status == BROADCAST_SAME) /* the same: the empty one, which is alone */
            continue;
        while (i > 0)
            broadcast_unsubscribe(client, prefixes[--i]);
        return status;
    }
    return BROADCAST_OK;
}

int tracking_broadcast_start(struct tracker *tracker, const struct tracking_options *options,
                             const struct slice *prefixes, size_t n)
{
    struct session *session = &tracker->conn->session;
    const struct io *io = tracker->trackers->io;
    int status = 0;
    if (!tracker->broadcast)
        status = broadcast_client_create(&tracker->broadcast, io->server->broadcast, io->index, tracker->conn);
    if (!status)
        status = subscribe(tracker->broadcast, prefixes, n);
    if (status)
        return status;
    broadcast_client_leave_out(tracker->broadcast, options->set & TRACKING_NOLOOP ? session->id : 0);
    session->tracking.broadcast = tracker->broadcast;
    return 0;
}

void tracking_broadcast_stop(struct tracker *tracker)
{
    tracking_broadcast_drop(tracker);
    broadcast_client_destroy(tracker->broadcast);
    tracker->broadcast = NULL;
    tracker->conn->session.tracking.broadcast = NULL;
}
