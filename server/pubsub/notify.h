/* notify: keyspace events: changes of filters, published to channels as in Redis.
 *
 * The setting notify-keyspace-events selects the events (notify_flags.h). The thread that causes an event queues it,
 * which is quick, because it may hold the registry's mutex. Its own thread publishes the queue in order, because a
 * publisher may have to match many patterns or to wait for a loop with a full inbox. docs/EVENTS.md lists the events.
 *
 * While the setting is empty, or no client subscribes to any channel, an event costs one or two loads. The queue is
 * bounded; when it overflows, all subscribers are disconnected, because they have lost events.
 *
 * Lifetime: notify_create() to notify_stop() to notify_destroy(). Thread: any; these three: main. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "notify_flags.h"
#include "resp_parse.h"

struct pubsub;

/* Fields are internal; `flags` is here so that notify_wants() costs one load. */
struct notify {
    _Atomic unsigned flags;
    struct pubsub *hub;
    const struct registry *registry; /* NULL: all events are of database 0 */
    struct notify_queue *queue;
};

#define NOTIFY_QUEUE_MAX ((size_t)64 * 1024 * 1024) /* bytes of pending events: half a million with long names */

/* 0, -ENOMEM or another -errno. */
int notify_create(struct notify **notify_out, struct pubsub *hub);

/* Publishes the queued events and ends the thread; later ones are lost. Called while the loops run. NULL is fine. */
void notify_stop(struct notify *notify);

/* Called when no thread can cause events any more, after notify_stop() if clients were served. NULL is fine. */
void notify_destroy(struct notify *notify);

/* The setting has changed. NULL is fine. */
void notify_set_flags(struct notify *notify, unsigned flags);

/* The registry of the events; the numbers of its databases are in the channels. Set once, before any event. */
struct registry;
void notify_set_registry(struct notify *notify, const struct registry *registry);

/* Whether the setting selects the class. One load. */
static inline bool notify_wants(const struct notify *notify, unsigned class)
{
    return atomic_load_explicit(&notify->flags, memory_order_relaxed) & class;
}

/* Queues an event of the filter with this key, if notify_wants(). `event` is a constant text. No lock. */
void notify_event(struct notify *notify, unsigned class, const char *event, struct slice key);

size_t notify_bytes(const struct notify *notify); /* of pending events. Thread: any */

/* Sleeps a while if many events are pending. For background threads that cause many (expiry): none is lost. */
void notify_let_catch_up(const struct notify *notify);
