/* log_reader: finds the log's segments, verifies them, and passes their records to callbacks.
 *
 * Reading has two passes, because filters must exist before adds can be replayed into them. log_reader_open() verifies
 * all frames and yields the control records in order; log_reader_adds() then yields the adds, in any number of threads.
 *
 * Torn or damaged. After a crash unsynced frames may be missing in whole or in part: this is a torn tail, and the log
 * ends before it. An invalid frame is damage if the disk once had it: a later frame, a mark, the header of a later
 * segment, or the save says so. Damage is reported and stops the reading, unless the caller accepts the loss: then the
 * reader takes all valid frames, also those after the damage.
 *
 * Nothing on disk is changed, but by log_reader_settle(). Lifetime: log_reader_open() to log_reader_close(). Thread:
 * "pool"; log_reader_adds() by many at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "fsops.h"
#include "log_payload.h"
#include "store.h"

struct log_pending;
struct log_reader;

enum log_on_damage {
    LOG_REFUSE,  /* ends the reading */
    LOG_ACCEPT,  /* the loss is accepted: reading continues after it */
    LOG_EXAMINE, /* reading continues, to report all damage; nothing is accepted */
};

struct log_reader_options {
    const struct fsops *fs; /* NULL: the real one. Borrowed. */
    const char *dir;        /* the data directory; borrowed until the reader is closed */
    uint64_t from;          /* store_checkpoint().log; 0: all existing segments */
    uint64_t reached;       /* store_checkpoint().frame: a log that ends before it is damaged */
    uint64_t accepted;      /* store_checkpoint().accepted */
    enum log_on_damage on_damage;
    store_report_fn *report; /* torn tails, damage, files that are not segments; NULL: no messages */
    void *report_ctx;
    void (*progress)(void *ctx, uint64_t bytes); /* bytes read since the last call, any thread; may be NULL */
    void *progress_ctx;
    /* Control records, in order. Nonzero ends the reading and is returned. May be NULL. */
    int (*on_control)(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err);
    void (*on_process)(void *ctx); /* the following records are of another process; may be NULL */
    void *ctx;
};

struct log_reader_summary {
    uint64_t segments;
    uint64_t frames;
    uint64_t controls;
    uint64_t adds;
    uint64_t bytes;         /* of the frames */
    uint64_t torn_bytes;    /* of the torn tail: from the first invalid frame to the last byte that is not zero */
    uint64_t damages;       /* places with damage; above 0 only where damage does not end the reading */
    uint64_t accepted;      /* places of which an earlier start has accepted the loss */
    uint64_t first_segment; /* the lowest that was read; 0: none */
    uint64_t last_segment;  /* the highest that was read; 0: none */
    uint64_t next_segment;  /* above all existing segments, read or not; >= 1 */
    uint64_t next_sequence; /* >= 1 */
    uint64_t next_control;  /* above all control records that were read; >= 1 */
    uint64_t synced;        /* frames up to this number are on the disk for certain */
    uint64_t tail;          /* number of frames after it */
    bool unsettled;         /* log_reader_settle() has something to do */
    uint64_t pending;       /* processes whose records were pending when they died */
};

/* LOG_OK, LOG_DAMAGED or LOG_NEWER (the errbuf says where and why), the result of on_control, or -errno. */
int log_reader_open(const struct log_reader_options *options, struct log_reader **reader_out,
                    struct log_reader_summary *summary_out, struct errbuf *err) __attribute__((warn_unused_result));
void log_reader_close(struct log_reader *reader); /* NULL is fine */

/* The number of parts with adds (segments, and pending records), and the process of each part. */
size_t log_reader_parts(const struct log_reader *reader);
uint64_t log_reader_process(const struct log_reader *reader, size_t part);

/* For a filter with files of this generation: the files and their counts include all items of processes below the
 * returned number, because the process that wrote the files had replayed them. */
uint64_t log_reader_counted_before(const struct log_reader *reader, uint64_t generation);

/* Reads a part (0 .. log_reader_parts() - 1) again and yields its adds. LOG_OK, -errno, the result of the callback, or
 * LOG_DAMAGED when the file has changed since log_reader_open(). */
int log_reader_adds(struct log_reader *reader, size_t part,
                    int (*on_adds)(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items,
                                   size_t n),
                    void *ctx, struct errbuf *err) __attribute__((warn_unused_result));

/* Puts on the disk what may be in memory only: frames that nothing calls synced, and the pending records of dead
 * processes, each as a segment, which have the last numbers before next_segment and next_sequence. After a failed sync
 * a segment may be readable from memory only, and another sync would not bring it to the disk: so it is copied, without
 * a torn tail. To be called before anything is written that builds upon them, and again if it fails. `pending`: of this
 * process; NULL: there is none, and TAIL stays. 0 or -errno. */
int log_reader_settle(struct log_reader *reader, struct log_pending *pending, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Bytes of the segments from `from` on, as the file system has them, for a first estimate of the work. 0 or -errno. */
int log_bytes_on_disk(const struct fsops *fs, const char *dir, uint64_t from, uint64_t *bytes_out);
