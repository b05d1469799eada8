/* log_writer: writes the log's segments: appends frames, syncs them, and begins another segment when a file fails.
 *
 * It keeps no records: whoever appends a frame keeps its records until a sync has succeeded (log_pending.h). After a
 * failed operation the segment is never written again, because its contents on the disk are unknown. After
 * log_writer_repair() the caller appends the unsynced records again. A reader uses the old segment until the new one is
 * complete.
 *
 * Lifetime: log_writer_create() to log_writer_destroy(). Thread: one at a time ("pool": it waits for the disk). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "fsops.h"
#include "log_payload.h"

struct log_writer;

struct log_writer_options {
    const struct fsops *fs;    /* NULL: the real one. Borrowed. */
    const char *dir;           /* the data directory; segments are in its log/ */
    uint64_t next_segment;     /* >= 1, above all existing ones; also the number of this process */
    uint64_t previous_segment; /* the last one of log_reader_open(); 0: none, or unknown */
    uint64_t next_sequence;    /* >= 1; all frames before it are on the disk */
    uint64_t salt;             /* random */
    uint64_t generation;       /* the highest number of the store after the replay of the log */
    uint64_t segment_bytes;    /* a segment of this size is followed by the next one; 0: 32 MB */
    uint64_t unsynced_bytes;   /* unsynced frames of this size are to be synced at once; 0: 32 MB */

    /* Called before a file is made: 0, or -ESTALE, which fails the log, when the directory may belong to another
     * process by now. NULL: no check. */
    int (*still_ours)(void *ctx);
    void *ctx;
};

/* No file is made before the first frame. 0 or -ENOMEM. */
int log_writer_create(const struct log_writer_options *options, struct log_writer **writer_out);
void log_writer_destroy(struct log_writer *writer); /* syncs nothing; NULL is fine */

/* A frame of `len` bytes of payload, at most LOG_PAYLOAD_MAX: log_writer_begin(), the payload in pieces,
 * log_writer_end(). 0, and after the last call the frame is in the segment, unsynced; or -errno: the log has failed,
 * now or before, and has no such frame. If log_writer_is_due() the caller syncs first. */
int log_writer_begin(struct log_writer *writer, bool has_controls, size_t len, struct errbuf *err)
    __attribute__((warn_unused_result));
int log_writer_put(struct log_writer *writer, const void *bytes, size_t len, struct errbuf *err)
    __attribute__((warn_unused_result));
int log_writer_end(struct log_writer *writer, struct errbuf *err) __attribute__((warn_unused_result));

/* Whether a sync must come before the next frame: for the bound of unsynced bytes, or for a new segment. */
bool log_writer_is_due(const struct log_writer *writer);

/* Syncs all frames. 0, or -errno: the log has failed. Free of cost when all are synced. */
int log_writer_sync(struct log_writer *writer, struct errbuf *err) __attribute__((warn_unused_result));

/* Writes and syncs a mark if all frames are synced and the log does not say so yet. A frame says how far earlier frames
 * were synced; the mark says it of the last frame. `ends`: and that this process has no more records. 0 or -errno. */
int log_writer_mark(struct log_writer *writer, bool ends, struct errbuf *err) __attribute__((warn_unused_result));

/* Begins a new segment for all later frames and returns its number. All earlier frames are synced then. 0 or -errno. */
int log_writer_rotate(struct log_writer *writer, uint64_t *segment_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Whether an operation has failed since the last repair. */
bool log_writer_failed(const struct log_writer *writer);

/* After a failure: begins a segment for the records after the last synced frame, in frames of any size. It gets its
 * name by the next log_writer_sync(). 0 or -errno: it still fails. */
int log_writer_repair(struct log_writer *writer, struct errbuf *err) __attribute__((warn_unused_result));

struct log_writer_info {
    uint64_t segment;  /* being written; 0: none yet */
    uint64_t sequence; /* the last frame appended */
    uint64_t synced;   /* the last synced frame */
    uint64_t marked;   /* the last frame that the log itself says to be synced */
    uint64_t written;  /* bytes of frames, ever */
    uint64_t unsynced; /* of these */
};
void log_writer_info(const struct log_writer *writer, struct log_writer_info *info_out);

/* Deletes the segments with numbers below `segment`. 0, or -errno when one could not be deleted. Uses no writer. */
int log_delete_before(const struct fsops *fs, const char *dir, uint64_t segment, struct errbuf *err)
    __attribute__((warn_unused_result));
