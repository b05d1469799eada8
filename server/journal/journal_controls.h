/* journal_controls: the queue of encoded control records. It is in memory for the log thread, and in the file of
 * pending records (log_pending.h) for the start after a kill. Room is reserved beforehand, so that a change that has
 * begun can be recorded.
 *
 * Thread: one at a time; the caller has the lock. */
#ifndef BLOOMERY_JOURNAL_CONTROLS_H
#define BLOOMERY_JOURNAL_CONTROLS_H

#include <stddef.h>
#include <stdint.h>

#include "log_payload.h"
#include "log_pending.h"

struct journal_controls {
    struct log_bytes bytes; /* the records that the log thread has not taken yet */
    uint64_t next;          /* the number of the next record */

    struct log_pending *pending;
    unsigned stream;
    struct pending_chunk *oldest, *tail; /* in use, linked by next; NULL: none */
    struct pending_spare spare;
    uint32_t used; /* bytes of the tail; all of it while there is none */
};

void controls_init(struct journal_controls *controls, struct log_pending *pending, unsigned stream, uint64_t next);
void controls_deinit(struct journal_controls *controls);

/* Reserves room for `bytes` bytes of records. 0, -ENOMEM, or another -errno: the file cannot grow. */
int controls_reserve(struct journal_controls *controls, size_t bytes) __attribute__((warn_unused_result));

/* Appends a record. 0, or as above: nothing has been appended. */
int controls_put(struct journal_controls *controls, const struct log_control *control)
    __attribute__((warn_unused_result));

/* The place after the last record. */
struct pending_place controls_end(const struct journal_controls *controls);

/* Frees the chunks of the records before that place, which are in the log. */
void controls_release(struct journal_controls *controls, struct pending_place place);

#endif
