/* push: sends the hub's messages (pubsub.h) to subscribed and monitoring clients, beside replies.
 *
 * A message is appended to the replies of each of its receivers by the loop that serves them, between two commands,
 * never within a reply. A receiver that does not read is bounded like any slow reader, by client-output-buffer-limit
 * of its class.
 *
 * A publisher whose message goes to a loop with a long inbox waits (CONN_WAITS_PUBLISH) until that loop has caught up,
 * so that fast publishers cannot fill the memory. Events of filters, which have no publishing client, do not wait; when
 * there are too many, their subscribers are disconnected.
 *
 * Thread: the worker's, but for push_wake(). */
#ifndef BLOOMERY_PUSH_H
#define BLOOMERY_PUSH_H

#include <stdatomic.h>
#include <stdbool.h>

#include "conn_list.h"
#include "mailbox.h"
#include "pubsub.h"
#include "session.h"

struct conn;
struct worker;

/* A worker's part. */
struct push_queue {
    struct worker_message message;      /* posted when there are messages for clients of this worker */
    struct worker_message room_message; /* posted when publishers may go on */
    _Atomic bool room_posted;
    _Atomic bool publishers_wait;
    struct conn_link publishers; /* wait queue: CONN_WAITS_PUBLISH */
};

void push_init(struct worker *worker);

/* The hub's `wake`; ctx is the server. */
void push_wake(void *ctx, unsigned loop);

/* Delivers pending messages, so that they come before the caller's next write. */
void push_deliver_now(struct worker *worker);

/* Makes a client wait that publishes faster than its messages are delivered. */
void push_slow_down(struct worker *worker, struct session *session);

#endif
