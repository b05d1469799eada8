/* push: sends the hub's messages (pubsub.h) to subscribed and monitoring clients, between their replies.
 *
 * A message is appended to the replies of each of its receivers by the loop that serves them, between two commands,
 * never within a reply. A receiver that does not read is bounded like any slow reader, by client-output-buffer-limit
 * of its class.
 *
 * A publisher whose message goes to a loop with a long inbox waits (CONN_WAITS_PUBLISH) until that loop has caught up,
 * so that fast publishers cannot fill the memory. Events of filters, which have no publishing client, do not wait; when
 * there are too many, their subscribers are disconnected.
 *
 * Thread: the loop's, except for push_wake(). */
#pragma once

#include "conn_list.h"
#include "session.h"

struct io;

/* A loop's part. */
struct push {
    struct io *io;
    struct conn_link publishers; /* wait queue: CONN_WAITS_PUBLISH */
};

void push_init(struct push *push, struct io *io);

/* The hub's `wake`; ctx is the server. */
void push_wake(void *ctx, unsigned loop);

/* Delivers pending messages, so that they come before the caller's next write. */
void push_deliver_now(struct push *push);

/* Makes a client wait that publishes faster than its messages are delivered. */
void push_slow_down(struct push *push, struct session *session);
