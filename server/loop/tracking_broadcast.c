/* CLIENT TRACKING ON BCAST: messages about all changes of names with a prefix (broadcast.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broadcast.h"
#include "tracking_internal.h"
#include "window.h"
#include "worker.h"

struct held {
    struct held *next;
    size_t len;
    char names[]; /* as tracking_tell() takes them */
};

/* ---- messages that a command under way keeps back ---- */

void tracking_broadcast_drop(struct tracking *tracking)
{
    for (struct held *held = tracking->first_held, *next; held; held = next) {
        next = held->next;
        free(held);
    }
    tracking->first_held = NULL;
    tracking->held_end = &tracking->first_held;
    tracking->held_bytes = 0;
}

static void tell_of_all_later(struct tracking *tracking)
{
    tracking_broadcast_drop(tracking);
    tracking->forget_all = true;
}

static void hold(struct tracking *tracking, struct slice names)
{
    struct held *held = NULL;
    if (names.len < TRACKING_MAX_BYTES - tracking->held_bytes)
        held = malloc(sizeof(*held) + names.len);
    if (!held) {
        tell_of_all_later(tracking);
        return;
    }
    held->next = NULL;
    held->len = names.len;
    memcpy(held->names, names.ptr, names.len);
    *tracking->held_end = held;
    tracking->held_end = &held->next;
    tracking->held_bytes += sizeof(*held) + names.len;
}

void tracking_broadcast_release(struct tracking *tracking)
{
    bool told = true;
    for (const struct held *held = tracking->first_held; held && told; held = held->next)
        told = tracking_tell(tracking->conn, (struct slice){held->names, held->len});
    if (told)
        tracking_broadcast_drop(tracking);
    else
        tell_of_all_later(tracking);
}

/* ---- delivery ---- */

static void tell(void *owner, struct slice names)
{
    struct conn *conn = owner;
    struct tracking *tracking = conn->tracking;
    if (tracking->forget_all)
        return; /* it will be told of all names */
    if (!names.ptr)
        tell_of_all_later(tracking);
    else if (tracking_is_busy(conn) || tracking->first_held)
        hold(tracking, names);
    else if (!tracking_tell(conn, names))
        tracking->forget_all = true;
    tracking_account(tracking);
}

void tracking_run_changes(struct worker *worker, struct worker_message *message)
{
    (void)message;
    if (worker->stopping)
        return;           /* there are no clients any more */
    window_flush(worker); /* what it has read before the changes is answered before them */
    broadcast_deliver(worker->server->broadcast, worker->index, tell);
}

void tracking_wake(void *ctx, unsigned loop)
{
    struct server *server = ctx;
    struct worker *worker = server->workers[loop];
    worker_post_message(worker, &worker->trackers.changes);
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

int tracking_broadcast_start(struct conn *conn, const struct session_tracking *options, const struct slice *prefixes,
                             size_t n)
{
    struct tracking *tracking = conn->tracking;
    struct broadcast *hub = conn->worker->server->broadcast;
    int status = 0;
    if (!tracking->broadcast)
        status = broadcast_client_create(&tracking->broadcast, hub, conn->worker->index, conn);
    if (!status)
        status = subscribe(tracking->broadcast, prefixes, n);
    if (status)
        return status;
    broadcast_client_leave_out(tracking->broadcast, options->noloop ? conn->session.id : 0);
    conn->session.broadcast = tracking->broadcast;
    return 0;
}

void tracking_broadcast_stop(struct conn *conn)
{
    tracking_broadcast_drop(conn->tracking);
    broadcast_client_destroy(conn->tracking->broadcast);
    conn->tracking->broadcast = NULL;
    conn->session.broadcast = NULL;
}
