/* push: messages of the hub (pubsub.h) on connections: what a client that subscribes or monitors is sent besides
 * replies.
 *
 * A message is appended to the replies of each of its receivers by the loop that serves them, between two commands,
 * never within a reply. A receiver that does not read is bounded like any slow reader, by client-output-buffer-limit
 * of its class.
 *
 * A publisher whose message went to a loop with much to deliver already waits (CONN_WAITS_PUBLISH) until that loop has
 * caught up, so that fast publishers cannot fill the memory. What publishes without a client of its own (events of
 * filters) is not held up; when it is too much, its listeners are disconnected.
 *
 * Thread: the worker's, but for push_wake(). */
#ifndef BLOOMERY_PUSH_H
#define BLOOMERY_PUSH_H

#include "pubsub.h"
#include "session.h"

struct conn;
struct worker;

void push_init(struct worker *worker);

/* The hub's `wake`; ctx is the server. */
void push_wake(void *ctx, unsigned loop);

/* The hub's client of the session, made if there is none; NULL without memory. */
struct pubsub_client *push_client(struct worker *worker, struct session *session);

/* To be called after subscriptions of the session have changed. */
void push_changed(struct session *session);

/* Ends all subscriptions of the session. */
void push_leave(struct session *session);

/* Whether the command that runs is one of EXEC's. */
bool push_in_transaction(struct session *session);

/* Delivers what has already been published, so that it comes before what the caller is about to write. */
void push_deliver_now(struct worker *worker);

/* Makes a client that publishes faster than its messages are delivered wait. */
void push_slow_down(struct worker *worker, struct session *session);

#endif
