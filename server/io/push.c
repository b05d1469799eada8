#include "push.h"

#include "conn.h"
#include "pubsub.h"

#define BYTES_PER_TURN ((size_t)4 * 1024 * 1024) /* delivered before other clients of the loop get their turn */

/* ---- delivery ---- */

static void deliver(void *owner, const struct pubsub_delivery *delivery)
{
    struct conn *conn = conn_of_session(owner);
    struct buf *out = &conn->output.buf;
    struct reply reply = {.buf = out, .version = atomic_load_explicit(&conn->session.resp, memory_order_relaxed)};

    if (conn_is_closing(conn) || !conn->io->calls->may_hear(conn)) /* it has not ended all subscriptions yet */
        return;
    conn_will_reply(conn);
    switch (delivery->kind) {
    case PUBSUB_CHANNEL:
        reply_push(&reply, 3);
        reply_bulk_str(&reply, "message");
        break;
    case PUBSUB_SHARD:
        reply_push(&reply, 3);
        reply_bulk_str(&reply, "smessage");
        break;
    case PUBSUB_PATTERN:
        reply_push(&reply, 4);
        reply_bulk_str(&reply, "pmessage");
        reply_bulk(&reply, delivery->pattern.ptr, delivery->pattern.len);
        break;
    case PUBSUB_MONITOR: /* complete lines */
    case PUBSUB_KINDS:
        buf_append(out, delivery->payload.ptr, delivery->payload.len);
        return;
    }
    buf_append(out, delivery->tail.ptr, delivery->tail.len);
}

/* A client that has lost a message is disconnected, so that no loss is silent; it may reconnect. */
static void close_losers(struct io *io, unsigned lost)
{
    for (struct conn *conn = LIST_FIRST(&io->conns), *next; conn; conn = next) {
        const struct session *session = &conn->session;
        next = LIST_NEXT(conn, link);
        if (!(session->pubsub.subscribed && lost & 1u << PUBSUB_CHANNEL) &&
            !(session_monitors(session) && lost & 1u << PUBSUB_MONITOR))
            continue;
        stats_add(&io->stats.over_output_buffer, 1);
        conn_warn_closed(conn, "messages came faster than its loop could deliver them, and some were dropped");
        conn_close(conn);
    }
}

/* ---- publishers that wait ---- */

/* Two sides synchronise here without a lock. A publisher sets a flag that a client waits, then checks the inboxes
 * again; a delivering loop shortens an inbox, then checks the flag. At least one of them sees the other. */

static void let_publishers_go_on(struct server *server)
{
    if (atomic_load(&server->threads.publishers_wait) == 0 || pubsub_slow(server->pubsub))
        return;
    atomic_store(&server->threads.publishers_wait, 0);
    io_notify_all(server, NOTICE_PUBLISHERS);
}

static void go_on(void *part)
{
    struct push *push = part;
    conn_all_ready(&push->publishers, CONN_WAITS_PUBLISH);
}

void push_slow_down(struct push *push, struct session *session)
{
    struct conn *conn = conn_of_session(session);
    struct server *server = push->io->server;
    if (conn_is_closing(conn) || conn_link_used(&conn->waiter))
        return;
    conn_wait(conn, CONN_WAITS_PUBLISH, &push->publishers);
    atomic_store(&server->threads.publishers_wait, 1);
    if (!pubsub_slow(server->pubsub))
        mailbox_notify(&push->io->mailbox, NOTICE_PUBLISHERS);
}

/* ---- the hub's messages ---- */

static void deliver_published(void *part)
{
    struct io *io = ((struct push *)part)->io;
    struct pubsub *hub = io->server->pubsub;
    pubsub_woken(hub, io->index);
    bool more = pubsub_deliver(hub, io->index, BYTES_PER_TURN, deliver);
    let_publishers_go_on(io->server);
    if (more) {
        pubsub_wake(hub, io->index);
        return;
    }
    unsigned lost = pubsub_take_lost(hub, io->index);
    if (lost)
        close_losers(io, lost);
}

void push_wake(void *ctx, unsigned loop)
{
    struct server *server = ctx;
    mailbox_notify(server->threads.mailboxes[loop], NOTICE_PUBLISHED);
}

void push_deliver_now(struct push *push)
{
    struct io *io = push->io;
    struct pubsub *hub = io->server->pubsub;
    if (pubsub_pending(hub, io->index)) {
        pubsub_deliver(hub, io->index, PUBSUB_INBOX_MAX, deliver);
        let_publishers_go_on(io->server);
    }
}

void push_init(struct push *push, struct io *io)
{
    push->io = io;
    conn_list_init(&push->publishers);
    mailbox_expect(&io->mailbox, NOTICE_PUBLISHED, deliver_published, push);
    mailbox_expect(&io->mailbox, NOTICE_PUBLISHERS, go_on, push);
}
