/* log_writer: the log's segments, written: frames are appended, made durable, carried over when a file fails.
 *
 * What is appended is never lost while the process lives: it is kept in memory until a sync has succeeded. After a failed
 * operation the segment is never written again (what the disk has of it is unknown); log_writer_repair() puts what was not
 * synced into a new one, which takes its place when it is complete: until then the old one holds, as far as it is there.
 *
 * Lifetime: log_writer_create() to log_writer_destroy(). Thread: one at a time ("pool": it waits for the disk). */
#ifndef BLOOMERY_LOG_WRITER_H
#define BLOOMERY_LOG_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "fsops.h"
#include "log_payload.h"

struct log_writer;

struct log_writer_options {
    const struct fsops *fs;   /* NULL: the real one. Borrowed. */
    const char *dir;          /* the data directory; segments are in its log/ */
    uint64_t next_segment;    /* >= 1, above all that there are */
    uint64_t previous_segment; /* log_reader_open()'s last one; 0: there is none, or it is not known */
    uint64_t next_sequence;   /* >= 1; all frames before it are on the disk: for certain, or see log_writer_carry() */
    uint64_t salt;            /* random */
    uint64_t generation;      /* the highest that the store has given out, with all of the log brought back */
    uint64_t segment_bytes;   /* a segment that has reached this size is followed by the next; 0: 32 MB */
    uint64_t keep_bytes;      /* at most so much is kept in memory: then it is synced; 0: 32 MB */
};

/* No file is made before the first frame. 0 or -ENOMEM. */
int log_writer_create(const struct log_writer_options *options, struct log_writer **writer_out);
void log_writer_destroy(struct log_writer *writer); /* syncs nothing; NULL is fine */

/* Before anything else, in order from next_sequence on: frames that an earlier process has written and maybe not synced
 * (log_reader_tail(); start and generation are those of their segment). They are kept and the log has failed, until
 * log_writer_repair() has written them to a segment of their own. 0 or -ENOMEM. */
int log_writer_carry(struct log_writer *writer, const unsigned char *payload, size_t len, bool has_controls, uint64_t start,
                     uint64_t generation) __attribute__((warn_unused_result));

/* The payload of the next frame, to be put together in place: append to it (log_payload.h), then log_writer_append(). It
 * stays what it is through other calls, and is at another address after them. NULL: no memory. */
struct log_bytes *log_writer_payload(struct log_writer *writer) __attribute__((warn_unused_result));
size_t log_writer_payload_len(const struct log_writer *writer); /* bytes of it so far; at most LOG_PAYLOAD_MAX */

/* Appends the frame with this payload; the next one begins. 0: it is in the segment, not yet durable. -errno: the log has
 * failed, now or before (log_writer_failed()); the frame is kept and will be in the next segment. */
int log_writer_append(struct log_writer *writer, bool has_controls, struct errbuf *err) __attribute__((warn_unused_result));

/* Makes all frames durable. 0, or -errno: the log has failed. Costs nothing when they are. */
int log_writer_sync(struct log_writer *writer, struct errbuf *err) __attribute__((warn_unused_result));

/* Frames from now on go to a new segment, whose number is in `segment_out`; it is on the disk and so are all frames
 * before. 0 or -errno: the log has failed. */
int log_writer_rotate(struct log_writer *writer, uint64_t *segment_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Whether an operation has failed since the last repair. */
bool log_writer_failed(const struct log_writer *writer);

/* After a failure: makes a new segment with all frames that were not synced. 0: the log works again and all is durable.
 * -errno: it still fails. */
int log_writer_repair(struct log_writer *writer, struct errbuf *err) __attribute__((warn_unused_result));

struct log_writer_info {
    uint64_t segment;      /* being written; 0: none yet */
    uint64_t sequence;     /* of the last frame appended */
    uint64_t synced;       /* of the last durable frame */
    uint64_t written;      /* bytes of frames, ever */
    uint64_t kept;         /* bytes that are not durable */
};
void log_writer_info(const struct log_writer *writer, struct log_writer_info *info_out);

/* Deletes the segments with numbers below `segment`. 0, or -errno when one could not be. Uses no writer. */
int log_delete_before(const struct fsops *fs, const char *dir, uint64_t segment, struct errbuf *err)
    __attribute__((warn_unused_result));

#endif
