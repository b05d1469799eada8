/* value_window: filters that forget (bloom_window.h), in an engine with replicas.
 *
 * Exact: the layers of a replica have the same parts, bits and counts as its primary's. The primary alone decides when
 * a part begins and when the memory of an old one is given to a new one, and tells both (effects.h). The time of a part
 * counts from the moment at which a node receives it, by that node's own clock. This is never before the part began, so
 * no node forgets an item within its window, independent of the machines' clocks. A replica that becomes the primary
 * keeps its ages.
 *
 * Thread: the engine's main thread. */
#ifndef BLOOMERY_MODULE_VALUE_WINDOW_H
#define BLOOMERY_MODULE_VALUE_WINDOW_H

#include <stdbool.h>

#include "bloom_window.h"
#include "engine.h"

/* Gives the pool its clock: Unix time when the module was loaded, and monotonic from then on. */
void window_clock_init(struct bloom_pool *pool);

/* Unix time in microseconds at which a part began, whose beginning by the clock of windows is `started_us`. */
int64_t window_unix_us(int64_t started_us);

/* Whether the engine reads the values of its primary, which are as old as they state: the difference of the two clocks
 * does not matter. */
bool window_is_synced(void);

/* Whether a window of this first layer has room for all of its parts below bf-max-filter-bytes: refused when it is
 * made, not in the middle of its first window. False with a text. */
bool window_fits(const struct bloom_filter *filter, struct errbuf *err);

/* Empties the dropped parts of a window, piece by piece between commands. */
void window_empty_later(struct engine_ctx *ctx, struct bloom_filter *filter);

/* A window is freed: it will not be emptied any more. Thread: any. */
void window_freed(const struct bloom_filter *filter);

/* The beginning, by this node's clock, of a part that another node began at `unix_us`. An engine that reads its own log
 * uses the time of day, as the log may be old; a replica uses the current time. */
int64_t window_started_here(const struct bloom_filter *filter, uint64_t number, uint64_t unix_us);

/* Copies the turns, bits and counts of all layers into an empty window of the same layers. Layers of a filter that is
 * being loaded (`loading`) have no turns yet. */
void window_copy(struct bloom_filter *to, const struct bloom_filter *from, bool loading);

#endif
