/* log_reader: what the log's segments hold: found, verified, and given to a visitor.
 *
 * Reading is in two parts, because filters must exist before adds can be brought back to them: log_reader_open() verifies
 * everything and yields the control records, in order; log_reader_adds() then yields the adds, by any number of threads.
 *
 * Torn or damaged. Frames that were not synced may be missing after a crash, in whole or in part: that is a torn tail, and
 * the log ends before it. An invalid frame is damage if something behind it, a frame or the header of a later segment, says
 * that it had been on the disk, or the save does: it knows how far the log had been synced when it was made. Damage is
 * reported and nothing is guessed, unless the caller accepts the loss: then all frames that can be read are taken, those
 * behind the damage too.
 *
 * Nothing on disk is changed. Lifetime: log_reader_open() to log_reader_close(). Thread: "pool"; log_reader_adds() by many
 * at a time. */
#ifndef BLOOMERY_LOG_READER_H
#define BLOOMERY_LOG_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "fsops.h"
#include "log_payload.h"
#include "store.h"

struct log_reader;

struct log_reader_options {
    const struct fsops *fs;  /* NULL: the real one. Borrowed. */
    const char *dir;         /* the data directory; borrowed until the reader is closed */
    uint64_t from;           /* store_checkpoint().log; 0: all segments that there are */
    uint64_t reached;        /* store_checkpoint().frame: a log that ends before it is damaged */
    uint64_t accepted;       /* store_checkpoint().accepted */
    bool accept_loss;
    store_report_fn *report; /* torn tails, damage, files that are not segments; NULL: nobody listens */
    void *report_ctx;
    void (*progress)(void *ctx, uint64_t bytes); /* bytes read since the last call, any thread; NULL: nobody asks */
    void *progress_ctx;
    /* Control records, in order. Nonzero ends the reading and is returned. NULL: nobody asks. */
    int (*on_control)(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err);
    void (*on_process)(void *ctx); /* what follows was written by another process than what came before; NULL: nobody asks */
    void *ctx;
};

struct log_reader_summary {
    uint64_t segments;
    uint64_t frames;
    uint64_t controls;
    uint64_t adds;
    uint64_t bytes;          /* of the frames */
    uint64_t torn_bytes;     /* of what was cut: from the first invalid frame to the last byte that is not zero */
    uint64_t damages;        /* places with damage; above 0 only with accept_loss */
    uint64_t accepted;       /* and those of which an earlier start had accepted the loss */
    uint64_t first_segment;  /* the lowest that was read; 0: none */
    uint64_t last_segment;   /* the highest that was read; 0: none */
    uint64_t next_segment;   /* above all that there are, also of those that were not read; >= 1 */
    uint64_t next_sequence;  /* >= 1 */
    uint64_t next_control;   /* above all that were read; >= 1 */
    uint64_t synced;         /* frames up to this number are on the disk for certain */
    uint64_t tail;           /* frames behind that, up to the last: log_reader_tail() */
    uint64_t tail_start;     /* of the header of their segment */
    uint64_t tail_generation;
};

/* Verifies the log. LOG_OK; LOG_DAMAGED (the errbuf says where and what is known of it), what on_control returned, or
 * -errno. */
int log_reader_open(const struct log_reader_options *options, struct log_reader **reader_out,
                    struct log_reader_summary *summary_out, struct errbuf *err) __attribute__((warn_unused_result));
void log_reader_close(struct log_reader *reader); /* NULL is fine */

size_t log_reader_segments(const struct log_reader *reader);
uint64_t log_reader_number(const struct log_reader *reader, size_t segment);

/* For a filter whose files have this generation: its items in segments with numbers below the one returned had been brought
 * back by the process that wrote the files, and are all in them and their counts. */
uint64_t log_reader_counted_before(const struct log_reader *reader, uint64_t generation);

/* Reads a segment (0 .. log_reader_segments() - 1) once more and yields its adds. LOG_OK, -errno, what the callback
 * returned, or LOG_DAMAGED when the file is no longer what it was. */
int log_reader_adds(struct log_reader *reader, size_t segment,
                    int (*on_adds)(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items, size_t n),
                    void *ctx, struct errbuf *err) __attribute__((warn_unused_result));

/* Yields the payloads of the frames that nothing says were synced. They can be read, but if a sync had failed, maybe not from
 * the disk, and a sync now would not bring them there: whoever goes on with the log writes them again (log_writer_carry()). LOG_OK,
 * -errno, what the callback returned, or LOG_DAMAGED when the file is no longer what it was. */
int log_reader_tail(struct log_reader *reader,
                    int (*on_frame)(void *ctx, const unsigned char *payload, size_t len, bool has_controls), void *ctx,
                    struct errbuf *err) __attribute__((warn_unused_result));

/* Bytes of the segments from `from` on, as the file system has them, for a first estimate of the work. 0 or -errno. */
int log_bytes_on_disk(const struct fsops *fs, const char *dir, uint64_t from, uint64_t *bytes_out);

#endif
