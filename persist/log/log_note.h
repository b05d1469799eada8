/* log_note: the file MANIFEST.log, which names the newest segment of the log; docs/FORMAT.md section 11. It is beside
 * the log's directory, so that the loss of the last segments, or of all, can be told from a log that ended before them.
 *
 * Thread: "pool". */
#ifndef BLOOMERY_LOG_NOTE_H
#define BLOOMERY_LOG_NOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "errbuf.h"
#include "fsops.h"
#include "manifest.h" /* LOG_NOTE_NAME */

/* Notes, durably, that this segment has been begun: it is on the disk under its name. 0 or -errno; after an error
 * `maybe_noted_out` tells whether the note may be there nevertheless. */
int log_note_write(const struct fsops *fs, const char *dir, uint64_t segment, bool *maybe_noted_out)
    __attribute__((warn_unused_result));

/* 0, LOG_DAMAGED or LOG_NEWER (the errbuf has the fault, without the file's name), or -errno: -ENOENT when there is
 * none. */
int log_note_read(const struct fsops *fs, const char *dir, uint64_t *segment_out, struct errbuf *err)
    __attribute__((warn_unused_result));

#endif
