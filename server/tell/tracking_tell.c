/* The messages of CLIENT TRACKING, to the client itself or to the one to which they are redirected. */
#include <stdlib.h>
#include <string.h>

#include "reply.h"
#include "tracking_internal.h"

/* names.ptr NULL: all names. In RESP2 a message of the channel, to a connection that has subscribed to any, instead of
 * another one. */
static void write_message(struct conn *conn, struct slice names, bool redirected)
{
    struct reply *reply = &conn->output.reply;
    bool pushes = atomic_load_explicit(&conn->session.resp, memory_order_relaxed) == 3;
    if (!pushes && !(redirected && conn->session.pubsub.subscribed))
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

/* A message for a session of another loop, or the answer that it has gone. */
struct redirected {
    struct message message;
    struct trackers *from, *to;
    uint64_t from_id, to_id; /* sessions */
    bool all;
    size_t len;
    char names[];
};

/* Very many messages go to the same connection: it is remembered. */
static struct conn *conn_of_id(struct trackers *trackers, uint64_t id)
{
    struct conn *conn = trackers->target;
    if (conn && conn->session.id == id)
        return conn;
    for (conn = trackers->io->conns; conn && conn->session.id != id;)
        conn = conn->next;
    return trackers->target = conn && !conn_is_closing(conn) ? conn : NULL;
}

static void note_broken(struct message *message, bool ending)
{
    struct redirected *r = (struct redirected *)message;
    struct conn *conn = ending ? NULL : conn_of_id(r->from, r->from_id);
    if (conn && conn->session.tracking.tracker && conn->session.tracking.options.redirect == r->to_id &&
        !(atomic_fetch_or_explicit(&conn->session.flags, SESSION_REDIRECT_BROKEN, memory_order_relaxed) &
          SESSION_REDIRECT_BROKEN) &&
        atomic_load_explicit(&conn->session.resp, memory_order_relaxed) == 3) {
        conn_will_reply(conn);
        reply_push(&conn->output.reply, 2);
        reply_bulk_str(&conn->output.reply, "tracking-redir-broken");
        reply_integer(&conn->output.reply, (int64_t)r->to_id);
    }
    free(r);
}

static void deliver(struct message *message, bool ending)
{
    struct redirected *r = (struct redirected *)message;
    struct conn *conn = ending ? NULL : conn_of_id(r->to, r->to_id);
    if (conn) {
        write_message(conn, (struct slice){r->all ? NULL : r->names, r->len}, true);
    } else if (!ending) {
        r->message.run = note_broken;
        mailbox_post(&r->from->io->mailbox, &r->message);
        return;
    }
    free(r);
}

bool tracking_tell(struct tracker *tracker, struct slice names)
{
    struct conn *conn = tracker->conn;
    const struct tracking_options *options = &conn->session.tracking.options;
    if (options->redirect == 0) {
        write_message(conn, names, false);
        return true;
    }
    struct redirected *r = malloc(sizeof(*r) + names.len);
    if (!r)
        return false;
    struct mailbox *to = conn->io->server->threads.mailboxes[options->redirect_worker];
    *r = (struct redirected){.message = {.run = deliver},
                             .from = tracker->trackers,
                             .to = mailbox_part(to, NOTICE_CHANGES),
                             .from_id = conn->session.id,
                             .to_id = options->redirect,
                             .all = !names.ptr,
                             .len = names.len};
    if (names.ptr)
        memcpy(r->names, names.ptr, names.len);
    mailbox_post(to, &r->message);
    return true;
}
