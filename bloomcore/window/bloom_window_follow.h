/* bloom_window_follow: windows of a host whose replicas follow a primary (bloom_window.h). The layers of a replica have
 * the same parts, bits and counts as the primary's, independent of its clock. It follows the primary: turns by
 * bloom_window_replay(), items by bloom_window_place(), dropped parts by bloom_window_drop(). The clock of each decides
 * only which parts a query asks.
 *
 * Neither primary nor replica calls bloom_window_clean(). An expired part keeps its bits until its layer gets a turn,
 * or until the primary drops the part.
 *
 * Thread: one, for each filter. */
#ifndef BLOOMERY_BLOOM_WINDOW_FOLLOW_H
#define BLOOMERY_BLOOM_WINDOW_FOLLOW_H

#include "bloom_window.h"

/* Places an item in the newest part, without a look at the clock or at the filter. Beyond the capacity of the part its
 * bits are set and it is not counted. False: there is no part yet. */
bool bloom_window_place(struct bloom_filter *filter, struct bloom_hash hash);

/* Forgotten parts with large layers wait to be dropped: those below the returned number. 0: none. */
uint64_t bloom_window_droppable(const struct bloom_filter *filter);

/* Drops the parts below this number: their layers are unused from here on, with turn 0. */
void bloom_window_drop(struct bloom_filter *filter, uint64_t below);

/* Empties at most 2 MB of the layers of dropped parts. Whether more is left. Cheap when there are none. */
bool bloom_window_clean_piece(struct bloom_filter *filter);

/* When the part with this number began; false: no layer has it. */
bool bloom_window_part_started(const struct bloom_filter *filter, uint64_t number, int64_t *started_us_out);

#endif
