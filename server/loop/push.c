#include "push.h"

#include <errno.h>

#include "conn_internal.h"
#include "worker.h"

#define BYTES_PER_TURN ((size_t)4 * 1024 * 1024) /* delivered before other clients of the loop have their turn */

static struct pubsub *hub_of(const struct worker *worker)
{
    return worker->server->pubsub;
}

/* ---- delivery ---------------------------------------------------------------------------------------------------- */

static void deliver(void *owner, const struct pubsub_delivery *delivery)
{
    struct conn *conn = owner;
    struct buf *out = &conn->out;
    struct reply reply = {.buf = out, .version = atomic_load_explicit(&conn->session.resp, memory_order_relaxed)};

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
    case PUBSUB_MONITOR: /* lines that are complete as they are */
    case PUBSUB_KINDS:
        buf_append(out, delivery->payload.ptr, delivery->payload.len);
        return;
    }
    buf_append(out, delivery->tail.ptr, delivery->tail.len);
}

/* A client never misses a message without being told: it is disconnected, and may come back. */
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
        return; /* nobody is left to deliver to; the hub drops its messages in the end */
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
    worker_post_message(worker, &worker->push_mail);
}

void push_deliver_now(struct worker *worker)
{
    struct pubsub *hub = hub_of(worker);
    if (pubsub_pending(hub, worker->index)) {
        pubsub_deliver(hub, worker->index, PUBSUB_INBOX_MAX, deliver);
        let_publishers_go_on(worker->server);
    }
}

/* ---- publishers that wait ---------------------------------------------------------------------------------------- */

/* Two sides meet here without a lock: a publisher notes that its worker has somebody who waits, then looks at the
 * inboxes again; a deliverer makes an inbox shorter, then looks at the notes. One of them sees the other. */

static void run_room(struct worker *worker, struct worker_message *message)
{
    (void)message;
    atomic_store(&worker->room_posted, false);
    if (worker->stopping)
        return;
    atomic_store(&worker->publishers_wait, false);
    while (!conn_list_empty(&worker->publishers)) {
        struct conn *conn = CONN_OF(worker->publishers.next, waiter);
        conn_list_remove(&conn->waiter);
        conn_ready(conn, CONN_WAITS_PUBLISH);
    }
}

static void post_room(struct worker *worker)
{
    if (!atomic_exchange(&worker->room_posted, true))
        worker_post_message(worker, &worker->room_mail);
}

static void let_publishers_go_on(struct server *server)
{
    if (atomic_load(&server->publishers_wait) == 0 || pubsub_slow(server->pubsub))
        return;
    atomic_store(&server->publishers_wait, 0);
    for (unsigned i = 0; i < server->nworkers; i++) {
        if (atomic_load(&server->workers[i]->publishers_wait))
            post_room(server->workers[i]);
    }
}

void push_slow_down(struct worker *worker, struct session *session)
{
    struct conn *conn = conn_of_session(session);
    if (conn->closing || conn_link_used(&conn->waiter))
        return;
    conn_list_append(&worker->publishers, &conn->waiter);
    conn_wait(conn, CONN_WAITS_PUBLISH);
    atomic_store(&worker->publishers_wait, true);
    atomic_store(&worker->server->publishers_wait, 1);
    if (!pubsub_slow(hub_of(worker)))
        post_room(worker);
}

bool push_in_transaction(struct session *session)
{
    return conn_of_session(session)->in_exec;
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

void push_init(struct worker *worker)
{
    worker->push_mail.run = run_mail;
    worker->room_mail.run = run_room;
    conn_list_init(&worker->publishers);
}

struct pubsub_client *push_client(struct worker *worker, struct session *session)
{
    if (!session->pubsub &&
        pubsub_client_create(&session->pubsub, hub_of(worker), worker->index, conn_of_session(session)) != 0)
        return NULL;
    return session->pubsub;
}

static uint32_t count(const struct session *session, enum pubsub_kind kind)
{
    return session->pubsub ? (uint32_t)pubsub_client_count(session->pubsub, kind) : 0;
}

void push_changed(struct session *session)
{
    uint32_t channels = count(session, PUBSUB_CHANNEL), patterns = count(session, PUBSUB_PATTERN);
    uint32_t shards = count(session, PUBSUB_SHARD);
    struct conn *conn = conn_of_session(session);
    atomic_store_explicit(&session->sub, channels, memory_order_relaxed);
    atomic_store_explicit(&session->psub, patterns, memory_order_relaxed);
    atomic_store_explicit(&session->ssub, shards, memory_order_relaxed);
    if (count(session, PUBSUB_MONITOR) > 0)
        atomic_fetch_or_explicit(&session->flags, SESSION_MONITOR, memory_order_relaxed);
    else
        atomic_fetch_and_explicit(&session->flags, ~(unsigned)SESSION_MONITOR, memory_order_relaxed);
    atomic_store_explicit(&session->pubsub_bytes, session->pubsub ? pubsub_client_bytes(session->pubsub) : 0,
                          memory_order_relaxed);
    session->subscribed = channels + patterns + shards > 0;
    conn->modes = session->subscribed ? conn->modes | CONN_SUBSCRIBED : conn->modes & ~(unsigned)CONN_SUBSCRIBED;
}

void push_leave(struct session *session)
{
    if (!session->pubsub)
        return;
    pubsub_client_destroy(session->pubsub);
    session->pubsub = NULL;
    push_changed(session);
}
