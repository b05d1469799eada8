/* registry_walk: yields all filters of a registry in their state of one moment, for a save, while they change. */
#ifndef BLOOMERY_REGISTRY_WALK_H
#define BLOOMERY_REGISTRY_WALK_H

#include "registry.h"

/* A walk yields every filter that exists at its end, kept alive until its release even if it is deleted meanwhile.
 * Changes behind the walk follow as further items, one per filter: a filter that is renamed or whose expiry changes is
 * yielded again in its last state; a deleted filter is yielded as gone if this walk or an earlier one has yielded it.
 * The last item with an id counts. Expired filters are left out. The walk keeps nothing of a filter that is deleted
 * before it is yielded; a filter deleted after the freeze keeps its memory until it is yielded and released. One walk
 * at a time; any thread, not in an RCU read section. */
struct registry_item {
    uint64_t id;
    struct entry *entry;  /* NULL: the filter with this id is gone */
    struct slice name;    /* valid until released */
    int64_t expires_ms;   /* 0: never */
    bool dirty;           /* changed since it was last yielded; marked clean now */
    struct entry *holder; /* internal */
};
void registry_walk_begin(struct registry *registry);

/* For the walk that has begun: `fn` is called under the mutex, like a listener of effects, at the moment whose state
 * the walk yields. The walk yields earlier effects, not later ones. */
void registry_walk_on_freeze(struct registry *registry, void (*fn)(void *ctx), void *ctx);
int registry_walk_next(struct registry *registry, struct registry_item *item_out); /* 1, 0 at the end, -ENOMEM */
void registry_walk_release(struct registry *registry, struct registry_item *item);
void registry_walk_end(struct registry *registry); /* also before the end; the caller releases all items first */

#endif
