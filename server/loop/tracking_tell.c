/* The messages of CLIENT TRACKING, to the client itself or to the one to which they are redirected. */
#include <stdlib.h>
#include <string.h>

#include "reply.h"
#include "tracking_internal.h"
#include "worker.h"

/* names.ptr NULL: all names. In RESP2 a message of the channel, to a connection that has subscribed to any, in the
 * place of another one. */
static void write_message(struct conn *conn, struct slice names, bool redirected)
{
    struct reply *reply = &conn->output.reply;
    bool pushes = atomic_load_explicit(&conn->session.resp, memory_order_relaxed) == 3;
    if (!pushes && !(redirected && conn->session.subscribed))
        return;
    conn_will_reply(conn);
    if (pushes) {
        reply_push(reply, 2);
        reply_bulk_str(reply, "invalidate");
    } else {
        reply_array(reply, 3);
        reply_bulk_str(reply, "message");
        reply_bulk_str(reply, "__redis__:invalidate");
    }
    if (names.ptr)
        buf_append(&conn->output.buf, names.ptr, names.len);
    else
        reply_null(reply);
}

/* A message for a session of another worker, or the answer that it has gone. */
struct redirected {
    struct worker_message message;
    struct server *server;
    uint64_t from, to; /* sessions */
    uint32_t from_worker;
    bool all;
    size_t len;
    char names[];
};

/* Very many messages go to the same connection: it is remembered. */
static struct conn *conn_of_id(struct worker *worker, uint64_t id)
{
    struct conn *conn = worker->trackers.target;
    if (conn && conn->session.id == id)
        return conn;
    for (conn = worker->conns; conn && conn->session.id != id;)
        conn = conn->next;
    return worker->trackers.target = conn && !conn_is_closing(conn) ? conn : NULL;
}

static void note_broken(struct worker *worker, struct worker_message *message)
{
    struct redirected *r = (struct redirected *)message;
    struct conn *conn = worker->stopping ? NULL : conn_of_id(worker, r->from);
    if (conn && conn->tracking && conn->session.tracking.redirect == r->to &&
        !(atomic_fetch_or_explicit(&conn->session.flags, SESSION_REDIRECT_BROKEN, memory_order_relaxed) &
          SESSION_REDIRECT_BROKEN) &&
        atomic_load_explicit(&conn->session.resp, memory_order_relaxed) == 3) {
        conn_will_reply(conn);
        reply_push(&conn->output.reply, 2);
        reply_bulk_str(&conn->output.reply, "tracking-redir-broken");
        reply_integer(&conn->output.reply, (int64_t)r->to);
    }
    free(r);
}

static void deliver(struct worker *worker, struct worker_message *message)
{
    struct redirected *r = (struct redirected *)message;
    struct conn *conn = worker->stopping ? NULL : conn_of_id(worker, r->to);
    if (conn) {
        write_message(conn, (struct slice){r->all ? NULL : r->names, r->len}, true);
    } else if (!worker->stopping) {
        r->message.run = note_broken;
        worker_post_message(r->server->workers[r->from_worker], &r->message);
        return;
    }
    free(r);
}

bool tracking_tell(struct conn *conn, struct slice names)
{
    const struct session_tracking *options = &conn->session.tracking;
    if (options->redirect == 0) {
        write_message(conn, names, false);
        return true;
    }
    struct redirected *r = malloc(sizeof(*r) + names.len);
    if (!r)
        return false;
    *r = (struct redirected){.message = {.run = deliver},
                             .server = conn->worker->server,
                             .from = conn->session.id,
                             .to = options->redirect,
                             .from_worker = conn->worker->index,
                             .all = !names.ptr,
                             .len = names.len};
    if (names.len)
        memcpy(r->names, names.ptr, names.len);
    worker_post_message(r->server->workers[options->redirect_worker], &r->message);
    return true;
}
