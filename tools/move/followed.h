/* followed: the names that --follow knows of the source, with a mark for each that has changed since it was last read.
 *
 * A change marks its name; a round takes the names marked at its beginning, each just before the source is asked about
 * it. So any later change marks the name again, and nothing is missed. Names that are no filters are forgotten again.
 * Memory: some 100 bytes and the name for each filter of the source.
 *
 * Thread: any, unless noted. */
#ifndef BLOOMERY_FOLLOWED_H
#define BLOOMERY_FOLLOWED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "move.h"
#include "slice.h"

struct followed;

/* `match` is borrowed: changes of names that it does not match are left out; NULL: all count. NULL: no memory. */
struct followed *followed_create(const char *match);
void followed_destroy(struct followed *followed);

/* ---- changes in the source ---- */

void followed_changed(struct followed *followed, struct slice name);
void followed_all_changed(struct followed *followed); /* and there may be names that are not known yet */

/* ---- rounds: the thread that runs them, while no round runs ---- */

/* Whether all may have changed since the last call: then the known names are marked, and the source is scanned for
 * others. */
bool followed_must_scan(struct followed *followed);

/* Marks the names that are not in the target as they should be. */
void followed_retry(struct followed *followed);

/* Begins a round of the marked names. Returns their number. */
uint64_t followed_begin_round(struct followed *followed);

/* Counts the outcomes of the known names, the last one of each. */
void followed_count(struct followed *followed, uint64_t filters[MOVE_OUTCOMES]);

/* ---- within a round ---- */

/* The next name of the round, which is no longer marked. False: none. The slice is valid until the name has been handed
 * on or has disappeared. */
bool followed_next(struct followed *followed, struct slice *name_out);

bool followed_knows(struct followed *followed, struct slice name);

/* The name will be sent now: from here on the target may have it. False: no memory. */
bool followed_sends(struct followed *followed, struct slice name);

/* The name is not in the source. Returns whether the target may have it; otherwise it is forgotten. */
bool followed_vanished(struct followed *followed, struct slice name);

/* The outcome of the name. Returns whether it is new: different from the last one. */
bool followed_ended(struct followed *followed, struct slice name, enum move_outcome outcome);

#endif
