#include "push.h"

#include <errno.h>

#include "conn_internal.h"
#include "worker.h"

#define BYTES_PER_TURN ((size_t)4 * 1024 * 1024) /* delivered before other clients of the loop get their turn */

static struct pubsub *hub_of(const struct worker *worker)
{
    return worker->server->pubsub;
}

/* ---- delivery ---- */

static void deliver(void *owner, const struct pubsub_delivery *delivery)
{
    struct conn *conn = conn_of_session(owner);
    struct buf *out = &conn->output.buf;
    struct reply reply = {.buf = out, .version = atomic_load_explicit(&conn->session.resp, memory_order_relaxed)};

    if (conn_is_closing(conn)) /* it has not ended all subscriptions yet */
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
static void close_who_lost(struct worker *worker, unsigned lost)
{
    for (struct conn *conn = worker->conns, *next; conn; conn = next) {
        const struct session *session = &conn->session;
        next = conn->next;
        if (!(session->subscribed && lost & 1u << PUBSUB_CHANNEL) &&
            !(session_monitors(session) && lost & 1u << PUBSUB_MONITOR))
            continue;
        stats_add(&worker->stats.over_output_buffer, 1);
        conn_warn_closed(conn, "messages came faster than its loop could deliver them, and some were dropped");
        conn_close(conn);
    }
}

static void let_publishers_go_on(struct server *server);

static void run_mail(struct worker *worker, struct worker_message *message)
{
    struct pubsub *hub = hub_of(worker);
    (void)message;
    pubsub_woken(hub, worker->index);
    if (worker->stopping)
        return; /* no clients are left; the hub drops its messages in the end */
    bool more = pubsub_deliver(hub, worker->index, BYTES_PER_TURN, deliver);
    let_publishers_go_on(worker->server);
    if (more) {
        pubsub_wake(hub, worker->index);
        return;
    }
    unsigned lost = pubsub_take_lost(hub, worker->index);
    if (lost)
        close_who_lost(worker, lost);
}

void push_wake(void *ctx, unsigned loop)
{
    struct server *server = ctx;
    struct worker *worker = server->workers[loop];
    worker_post_message(worker, &worker->push.message);
}

void push_deliver_now(struct worker *worker)
{
    struct pubsub *hub = hub_of(worker);
    if (pubsub_pending(hub, worker->index)) {
        pubsub_deliver(hub, worker->index, PUBSUB_INBOX_MAX, deliver);
        let_publishers_go_on(worker->server);
    }
}

/* ---- publishers that wait ---- */

/* Two sides synchronise here without a lock: a publisher notes that its worker has a waiting client, then checks the
 * inboxes again; a delivering loop shortens an inbox, then checks the notes. At least one of them sees the other. */

static void run_room(struct worker *worker, struct worker_message *message)
{
    (void)message;
    atomic_store(&worker->push.room_posted, false);
    if (worker->stopping)
        return;
    atomic_store(&worker->push.publishers_wait, false);
    conn_all_ready(&worker->push.publishers, CONN_WAITS_PUBLISH);
}

static void post_room(struct worker *worker)
{
    if (!atomic_exchange(&worker->push.room_posted, true))
        worker_post_message(worker, &worker->push.room_message);
}

static void let_publishers_go_on(struct server *server)
{
    if (atomic_load(&server->publishers_wait) == 0 || pubsub_slow(server->pubsub))
        return;
    atomic_store(&server->publishers_wait, 0);
    for (unsigned i = 0; i < server->nworkers; i++) {
        if (atomic_load(&server->workers[i]->push.publishers_wait))
            post_room(server->workers[i]);
    }
}

void push_slow_down(struct worker *worker, struct session *session)
{
    struct conn *conn = conn_of_session(session);
    if (conn_is_closing(conn) || conn_link_used(&conn->waiter))
        return;
    conn_wait(conn, CONN_WAITS_PUBLISH, &worker->push.publishers);
    atomic_store(&worker->push.publishers_wait, true);
    atomic_store(&worker->server->publishers_wait, 1);
    if (!pubsub_slow(hub_of(worker)))
        post_room(worker);
}

/* ---- sessions ---- */

void push_init(struct worker *worker)
{
    worker->push.message.run = run_mail;
    worker->push.room_message.run = run_room;
    conn_list_init(&worker->push.publishers);
}
