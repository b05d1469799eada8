#include "subscriptions.h"

struct pubsub_client *subscriber_of(struct session *session, struct pubsub *hub)
{
    if (!session->pubsub && pubsub_client_create(&session->pubsub, hub, session->worker, session) != 0)
        return NULL;
    return session->pubsub;
}

static uint32_t count(const struct session *session, enum pubsub_kind kind)
{
    return session->pubsub ? (uint32_t)pubsub_client_count(session->pubsub, kind) : 0;
}

void subscriptions_changed(struct session *session)
{
    uint32_t channels = count(session, PUBSUB_CHANNEL), patterns = count(session, PUBSUB_PATTERN);
    uint32_t shards = count(session, PUBSUB_SHARD);
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
    session->modes =
        session->subscribed ? session->modes | MODE_SUBSCRIBED : session->modes & ~(unsigned)MODE_SUBSCRIBED;
}

#define LEAVE_AT_ONCE 1000

bool subscriptions_end(struct session *session)
{
    int n = 0;
    if (!session->pubsub)
        return true;
    for (int kind = 0; kind < PUBSUB_KINDS; kind++) {
        while (n < LEAVE_AT_ONCE && pubsub_unsubscribe_next(session->pubsub, (enum pubsub_kind)kind, NULL, NULL))
            n++;
    }
    if (n < LEAVE_AT_ONCE) {
        pubsub_client_destroy(session->pubsub);
        session->pubsub = NULL;
    }
    subscriptions_changed(session);
    return !session->pubsub;
}
