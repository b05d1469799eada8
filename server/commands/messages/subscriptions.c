#include "subscriptions.h"

struct pubsub_client *subscriber_of(struct session *session, struct pubsub *hub)
{
    if (!session->pubsub.client && pubsub_client_create(&session->pubsub.client, hub, session->worker, session) != 0)
        return NULL;
    return session->pubsub.client;
}

static uint32_t count(const struct session *session, enum pubsub_kind kind)
{
    return session->pubsub.client ? (uint32_t)pubsub_client_count(session->pubsub.client, kind) : 0;
}

void subscriptions_changed(struct session *session)
{
    uint32_t channels = count(session, PUBSUB_CHANNEL), patterns = count(session, PUBSUB_PATTERN);
    uint32_t shards = count(session, PUBSUB_SHARD);
    atomic_store_explicit(&session->pubsub.channels, channels, memory_order_relaxed);
    atomic_store_explicit(&session->pubsub.patterns, patterns, memory_order_relaxed);
    atomic_store_explicit(&session->pubsub.shards, shards, memory_order_relaxed);
    if (count(session, PUBSUB_MONITOR) > 0)
        atomic_fetch_or_explicit(&session->flags, SESSION_MONITOR, memory_order_relaxed);
    else
        atomic_fetch_and_explicit(&session->flags, ~(unsigned)SESSION_MONITOR, memory_order_relaxed);
    atomic_store_explicit(&session->pubsub.bytes,
                          session->pubsub.client ? pubsub_client_bytes(session->pubsub.client) : 0,
                          memory_order_relaxed);
    session->pubsub.subscribed = channels + patterns + shards > 0;
    session->modes =
        session->pubsub.subscribed ? session->modes | MODE_SUBSCRIBED : session->modes & ~(unsigned)MODE_SUBSCRIBED;
}

#define LEAVE_AT_ONCE 1000

bool subscriptions_end(struct session *session)
{
    int n = 0;
    if (!session->pubsub.client)
        return true;
    for (int kind = 0; kind < PUBSUB_KINDS; kind++) {
        while (n < LEAVE_AT_ONCE && pubsub_unsubscribe_next(session->pubsub.client, (enum pubsub_kind)kind, NULL, NULL))
            n++;
    }
    if (n < LEAVE_AT_ONCE) {
        pubsub_client_destroy(session->pubsub.client);
        session->pubsub.client = NULL;
    }
    subscriptions_changed(session);
    return !session->pubsub.client;
}
