/* subscriptions: the subscriptions of a session, in the hub (pubsub.h) and in CLIENT LIST.
 *
 * Thread: the worker's. */
#pragma once

#include <stdbool.h>

#include "pubsub.h"
#include "session.h"

/* The hub's client of the session, made if there is none; its owner is the session. NULL without memory. */
struct pubsub_client *subscriber_of(struct session *session, struct pubsub *hub);

/* To be called after subscriptions of the session have changed. */
void subscriptions_changed(struct session *session);

/* Ends subscriptions of the session, a thousand at a time. Whether none is left. */
bool subscriptions_end(struct session *session);
