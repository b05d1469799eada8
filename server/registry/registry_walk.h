/* registry_walk: all filters of a registry as they are at one moment, for saving, while they change. */
#ifndef BLOOMERY_REGISTRY_WALK_H
#define BLOOMERY_REGISTRY_WALK_H

#include "registry.h"

/* A walk for saving. It yields every filter that exists at its end, kept alive until released even when it is deleted
 * meanwhile. What changes behind the walk's back follows as further items: a filter that is renamed or whose time
 * changes is yielded again, one that is deleted is yielded as gone (whether it had been yielded or not). The last item
 * with an id is the one that holds. Filters that have expired are left out. One walk at a time; any thread, not in an
 * RCU read section. */
struct registry_item {
    uint64_t id;
    struct entry *entry;  /* NULL: the filter with this id is gone */
    struct slice name;    /* valid until released */
    int64_t expires_ms;   /* 0: never */
    bool dirty;           /* changed since it was last yielded; noted as clean now */
    struct entry *holder; /* internal */
};
void registry_walk_begin(struct registry *registry);

/* For the walk that has begun: `fn` is called under the mutex, as effects are told, at the moment whose state the walk
 * yields. Effects told before are in what it yields, later ones are not. */
void registry_walk_on_freeze(struct registry *registry, void (*fn)(void *ctx), void *ctx);
int registry_walk_next(struct registry *registry, struct registry_item *item_out); /* 1, 0 at the end, -ENOMEM */
void registry_walk_release(struct registry *registry, struct registry_item *item);
void registry_walk_end(struct registry *registry); /* also before the end; unreleased items must be released first */

#endif
