/* Shared between log_reader.c (frames, in their order) and log_segments.c (the files they are in) only. */
#ifndef BLOOMERY_LOG_READER_INTERNAL_H
#define BLOOMERY_LOG_READER_INTERNAL_H

#include "log_pending.h"
#include "log_reader.h"

struct segment {
    uint64_t number;
    uint64_t first; /* of its header */
    uint64_t limit; /* frames from this number on are void: UINT64_MAX, or the next segment's first */
    uint64_t salt;
    uint64_t process; /* of its header, as are the next four */
    uint64_t generation;
    uint64_t sealed;
    uint64_t previous;
    bool ends_process;
    bool has_pending;
    bool ended;    /* its last mark says so of the process */
    uint64_t last; /* number of the last frame that was taken; 0: none */
    bool unused;   /* none of it ever came to the disk, not even its header */
    bool lost;     /* its header is damaged, and the loss was accepted */
    bool gaps;     /* damage in it was skipped: a reader must search for the frames */
};

struct log_reader {
    struct log_reader_options options;
    const struct fsops *fs;
    struct path log_dir;
    struct segment *segments;
    size_t nsegments;
    size_t size;
    struct log_reader_summary summary;
    uint64_t expected;       /* number of the next frame */
    uint64_t process;        /* whose records are being read */
    uint64_t *pending_files; /* their numbers, in order */
    size_t npending_files, pending_size;
    struct pending_found *pending; /* their contents */
    size_t npending;
    uint64_t cut;  /* number of the segment with a torn tail; 0: none */
    size_t cut_at; /* where it begins; summary.torn_bytes long */
};

struct bytes {
    unsigned char *ptr;
    size_t len;
};

__attribute__((format(printf, 3, 4))) void log_report(struct log_reader *r, enum store_severity severity,
                                                      const char *fmt, ...);

/* Finds the segments and reads their headers: r->segments, in the order of their numbers. An enum log_status or -errno.
 */
int log_find_segments(struct log_reader *r, struct errbuf *err);

/* Reads the records that were pending when processes died, after the last frame of the log: r->pending. As before. */
int log_read_pending(struct log_reader *r,
                     int (*take)(struct log_reader *r, struct pending_found *found, struct errbuf *err),
                     struct errbuf *err);

/* Reads the first `most` bytes of the file, or the whole file if it is shorter; ptr is malloc'ed. 0 or -errno. */
int log_read_segment(const struct log_reader *r, const struct segment *segment, uint64_t most, struct bytes *bytes_out,
                     struct errbuf *err);

/* Writes the torn tail of the segment, from byte `at` on, to a file next to it. 0 or -errno. */
int log_keep_cut(struct log_reader *r, const struct segment *segment, size_t at, size_t len, struct errbuf *err);

size_t log_used_bytes(const struct bytes *file); /* up to the last that is not zero */

/* Syncs the segment, so that the next segment's header may say that all of it is on the disk. 0 or -errno. */
int log_sync_segment(struct log_reader *r, const struct segment *segment, struct errbuf *err);

/* `err` names the fault but not the file. LOG_OK if the loss is accepted; otherwise LOG_DAMAGED, with the file added.
 */
int log_found_damage(struct log_reader *r, const struct segment *segment, struct errbuf *err);

#endif
