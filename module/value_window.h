/* value_window: filters that forget (bloom_window.h), in an engine with replicas.
 *
 * Exact: the layers of a replica have the same parts, bits and counts as its primary's. The primary alone decides when
 * a part begins and when the memory of an old one is given to a new one, and tells both (effects.h). The time of a part
 * counts from the moment at which a node is told of it, by that node's own clock: this is never before the part began,
 * so no node forgets an item within its window, whatever the clocks of the machines say, and a replica that becomes the
 * primary goes on.
 *
 * Thread: the engine's main thread. */
#ifndef BLOOMERY_MODULE_VALUE_WINDOW_H
#define BLOOMERY_MODULE_VALUE_WINDOW_H

#include "bloom_window.h"
#include "call.h"

/* Gives the pool its clock: Unix time when the module was loaded, and monotonic from then on. */
void window_clock_init(struct bloom_pool *pool);

/* Unix time in microseconds at which a part began, whose beginning by the clock of windows is `started_us`. */
int64_t window_unix_us(int64_t started_us);

/* Whether the engine reads the values of its primary, which are as old as they say: how far the clocks of the two are
 * apart does not matter. */
bool window_is_synced(void);

/* Whether a window of this first layer has room for all of its parts below bf-max-filter-bytes: refused when it is
 * made, not in the middle of its first window. False with a text. */
bool window_fits(const struct bloom_filter *filter, struct errbuf *err);

/* After an add: drops large parts that are forgotten, and tells. */
void window_drop(struct call *call);

/* A value that holds a window is freed: nothing of it is emptied any more. Thread: any. */
void window_freed(struct value *value);

/* BF.APPLY key TURN layer number unix-us header, and BF.APPLY key DROP number; both tell the engine's log. */
bool window_apply_turn(struct call *call, const struct bloom_shape *shape, struct errbuf *err);
bool window_apply_drop(struct call *call, struct errbuf *err);

/* The turns, bits and counts of all layers of `from` for `to`, an empty window of the same layers; those of a filter
 * that is being loaded have no turns yet. */
void window_copy(struct bloom_filter *to, const struct bloom_filter *from, bool loading);

#endif
