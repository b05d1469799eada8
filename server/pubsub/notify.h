/* notify: keyspace events: what happens to filters, published to channels as Redis does it.
 *
 * The setting notify-keyspace-events says which (notify_flags.h). An event is put into a queue where it happens, which
 * may be under the registry's mutex and must be quick; a thread publishes from there, in order: a publisher may have
 * to match many patterns, or to wait for a loop that has much to deliver. docs/EVENTS.md lists the events.
 *
 * While the setting is empty, or nobody listens to any channel, an event costs one or two loads. The queue is bounded;
 * when it overflows, all subscribers are disconnected, as they have lost events.
 *
 * Lifetime: notify_create() to notify_stop() to notify_destroy(). Thread: any; these three: main. */
#ifndef BLOOMERY_NOTIFY_H
#define BLOOMERY_NOTIFY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "notify_flags.h"
#include "resp_parse.h"

struct pubsub;

/* Fields are internal; `flags` is here so that asking costs one load. */
struct notify {
    _Atomic unsigned flags;
    struct pubsub *hub;
    struct notify_queue *queue;
};

#define NOTIFY_QUEUE_MAX ((size_t)64 * 1024 * 1024) /* bytes of events that wait: half a million with long names */

/* 0, -ENOMEM or another -errno. */
int notify_create(struct notify **notify_out, struct pubsub *hub);

/* Publishes what is queued and ends the thread; what happens from then on is not published. To be called while the
 * loops still run. NULL is fine. */
void notify_stop(struct notify *notify);

/* Stopped, and nobody is left who could have an event. NULL is fine. */
void notify_destroy(struct notify *notify);

/* The setting has changed. NULL is fine. */
void notify_set_flags(struct notify *notify, unsigned flags);

/* Whether events of the class are to be published, should anybody listen. One load. */
static inline bool notify_wants(const struct notify *notify, unsigned class)
{
    return atomic_load_explicit(&notify->flags, memory_order_relaxed) & class;
}

/* Queues an event, if notify_wants(). `event` is a constant text. A leaf lock only. */
void notify_event(struct notify *notify, unsigned class, const char *event, struct slice name);

/* Queues the events of an effect (notify_effect.c). Called under the registry's mutex. */
struct registry_effect;
void notify_effect(struct notify *notify, const struct registry_effect *effect);

/* Waits a while if many events wait to be published: for a thread of its own that makes them in masses (expiry), so that
 * none is lost. */
void notify_let_catch_up(const struct notify *notify);

#endif
