/* done_note: MANIFEST.done, which says which save has had what was superfluous removed (docs/FORMAT.md, section 8). It
 * is written after that MANIFEST has its name, so it is never above the newest one that the directory has had. Internal
 * to persist and the tool.
 * Thread: any; one writer. */
#ifndef BLOOMERY_DONE_NOTE_H
#define BLOOMERY_DONE_NOTE_H

#include <stdint.h>

#include "fsops.h"

/* The save's generation; 0: there is no note that can be read. */
uint64_t done_note_read(const struct fsops *fs, const char *dir);

/* Not synced: without it the removals are done once more. What fails is not reported for the same reason. */
void done_note_write(const struct fsops *fs, const char *dir, uint64_t generation);

#endif
