/* Shared between log_reader.c (frames, in their order) and log_segments.c (the files they are in) only. */
#pragma once

#include "log_frame.h"
#include "log_pending.h"
#include "log_reader.h"
#include "log_tail.h"

struct segment {
    struct log_header header; /* of an unused or lost one only the number, which is that of its name */
    uint64_t limit;           /* frames from this number on are void: UINT64_MAX, or the next segment's first */
    bool ended;               /* its last mark says so of the process */
    uint64_t last;            /* number of the last frame that was taken; 0: none */
    bool unused;              /* none of it ever came to the disk, not even its header */
    bool lost;                /* its header is damaged, and the loss was accepted */
    bool gaps;                /* damage in it was skipped: a reader must search for the frames */
    size_t end;               /* of its valid frames */
};

struct log_reader {
    struct log_reader_options options;
    const struct fsops *fs;
    struct path log_dir;
    struct segment *segments;
    size_t nsegments;
    size_t size;
    struct log_reader_summary summary;
    bool old;          /* the last segment so far is of LOG_VERSION_OLD */
    uint64_t expected; /* number of the next frame */
    struct {
        uint64_t process;         /* whose records are being read; the rest: of this process */
        struct log_place *places; /* one for each stream that frames have records of */
        size_t n, size;
        uint64_t control; /* as in struct pending_known */
    } known;
    struct log_tail tail;
    struct {
        uint64_t *files; /* the numbers of their processes, in order */
        size_t nfiles, size;
        bool lost;                   /* a file is missing */
        struct pending_found *found; /* those with records */
        size_t n;
    } pending;
};

struct bytes {
    unsigned char *ptr;
    size_t len;
};

__attribute__((format(printf, 3, 4))) void log_report(const struct log_reader *r, enum store_severity severity,
                                                      const char *fmt, ...);

/* Finds the segments and reads their headers: r->segments, by their numbers. An enum log_status or -errno. */
int log_find_segments(struct log_reader *r, struct errbuf *err);

/* Reads the records of this process that were pending when it died, after its last frame; none if they are not needed.
 * An enum log_status or -errno. */
int log_read_pending(struct log_reader *r, uint64_t process, struct pending_found *found_out, struct errbuf *err);

/* Reads the first `most` bytes of the file, or the whole file if it is shorter; ptr is malloc'ed. 0 or -errno. */
int log_read_segment(const struct log_reader *r, const struct segment *segment, uint64_t most, struct bytes *bytes_out,
                     struct errbuf *err);

size_t log_used_bytes(const struct bytes *file); /* up to the last that is not zero */

/* log_reader_settle(); `last` is the last segment, NULL: none. */
int log_settle(struct log_reader *r, const struct segment *last, struct log_pending *pending, struct errbuf *err);

/* Whether the log has all records of a process: the next process has written them to it, before its own records, but
 * died before it could delete the file; or the file is of another directory, over which this one was copied. */
bool log_has_ended(const struct log_reader *r, uint64_t process);

/* The files of pending records that TAIL names, and the log does not call needless, are there. An enum log_status. */
int log_find_pending(struct log_reader *r, struct errbuf *err);

/* `err` names the fault but not the file, whose name is made of the number and the kind. LOG_OK: the loss is accepted;
 * otherwise LOG_DAMAGED, with the file added. */
int log_found_damage(struct log_reader *r, uint64_t number, const char *kind, struct errbuf *err);
