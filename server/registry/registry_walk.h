/* registry_walk: yields all filters of a registry in their state of one moment, for a save, while they change.
 *
 * A walk yields every filter that exists at its end. Each yielded filter stays alive until its release, even if it is
 * deleted meanwhile. Changes after the walk follow as further items, one per filter, and the last item with an id
 * counts:
 * - A filter that is renamed or whose expiry changes is yielded again in its last state.
 * - A deleted filter is yielded as gone if this walk or an earlier one has yielded it.
 *
 * Expired filters are left out. The walk keeps nothing of a filter that is deleted before it is yielded; a filter
 * deleted after the freeze keeps its memory until it is yielded and released.
 *
 * Thread: any, not in an RCU read section; one walk at a time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"

struct entry;
struct registry;

struct registry_item {
    uint64_t id;
    struct entry *entry;  /* NULL: the filter with this id is gone */
    struct slice name;    /* valid until released */
    int64_t expires_ms;   /* 0: never */
    bool dirty;           /* changed since it was last yielded; marked clean now */
    struct entry *holder; /* internal */
};

/* `on_freeze` (may be NULL) is called under the mutex, like a listener of effects, at the moment whose state the walk
 * yields. The walk yields earlier effects, not later ones. */
void registry_walk_begin(struct registry *registry, void (*on_freeze)(void *ctx), void *ctx);

int registry_walk_next(struct registry *registry, struct registry_item *item_out); /* 1, 0 at the end, -ENOMEM */
void registry_walk_release(struct registry_item *item);
void registry_walk_end(struct registry *registry); /* also before the end; the caller releases all items first */
