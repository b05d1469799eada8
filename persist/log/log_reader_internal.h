/* Shared between log_reader.c (frames, in their order) and log_segments.c (the files they are in) only. */
#ifndef BLOOMERY_LOG_READER_INTERNAL_H
#define BLOOMERY_LOG_READER_INTERNAL_H

#include "log_reader.h"

struct segment {
    uint64_t number;
    uint64_t first;  /* of its header */
    uint64_t limit;  /* frames from this number on do not hold: UINT64_MAX, or the next segment's first */
    uint64_t salt;
    uint64_t start;  /* of its header, as is */
    uint64_t generation;
    uint64_t sealed; /* of its header, as is */
    uint64_t previous; /* of its header, as is */
    uint64_t last;   /* number of the last frame that was taken; 0: none */
    bool unused;     /* its header never came to the disk, nor did anything else */
    bool lost;       /* its header is damaged and the loss accepted */
    bool gaps;       /* damage in it was passed over: frames are searched for */
};

struct log_reader {
    struct log_reader_options options;
    const struct fsops *fs;
    char *log_dir;
    struct segment *segments;
    size_t nsegments;
    size_t size;
    struct log_reader_summary summary;
    uint64_t expected; /* number of the next frame */
    uint64_t start;    /* first segment of the process whose segments are being read */
};

struct bytes {
    unsigned char *ptr;
    size_t len;
};

__attribute__((format(printf, 3, 4))) void log_report(struct log_reader *r, enum store_severity severity,
                                                      const char *fmt, ...);

/* Finds the segments and reads their headers: r->segments, in the order of their numbers. LOG_OK, LOG_DAMAGED or -errno. */
int log_find_segments(struct log_reader *r, struct errbuf *err);

/* The file's first `most` bytes, or all of it when it has fewer; ptr is malloc'ed. 0 or -errno. */
int log_read_segment(const struct log_reader *r, const struct segment *segment, uint64_t most, struct bytes *bytes_out,
                     struct errbuf *err);

size_t log_used_bytes(const struct bytes *file); /* up to the last that is not zero */

/* So that the next segment's header may say that all of it is on the disk. 0 or -errno. */
int log_sync_segment(struct log_reader *r, const struct segment *segment, struct errbuf *err);

/* `err` says what is wrong, without the file. LOG_OK if the loss is accepted, LOG_DAMAGED with the file otherwise. */
int log_found_damage(struct log_reader *r, const struct segment *segment, struct errbuf *err);

#endif
