/* manifest_file: a MANIFEST as a file, and single records in it: read by offset, or appended. Internal to persist. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <xxhash.h>

#include "errbuf.h"
#include "fsops.h"
#include "manifest.h"

/* ---- reading ---- */

/* Keeps a window of the file: records read in the file's order cost one read per window. One per thread. */
struct record_reader {
    const struct fsops *fs;
    int fd;
    char *window;
    uint64_t window_offset;
    size_t window_len;
    struct manifest_sink sink;
    struct manifest_parser parser;
};

int record_reader_init(struct record_reader *reader, const struct fsops *fs, int fd); /* 0 or -ENOMEM */
void record_reader_deinit(struct record_reader *reader);

/* The record at this offset; valid until the next call. 0, FS_ENDS, or -errno: -EIO also when there is no record. */
int record_read(struct record_reader *reader, uint64_t offset, const struct manifest_filter **filter_out,
                struct errbuf *err);

/* Feeds the whole file to a parser. An enum manifest_status, -errno, or the result of a callback of the parser. */
int manifest_file_parse(const struct fsops *fs, int fd, struct manifest_parser *parser, struct errbuf *err);

/* ---- appending ---- */

/* Collects lines and writes them in large pieces, hashing them on the way. */
struct record_writer {
    const struct fsops *fs;
    int fd;
    uint64_t offset;    /* of `pending` in the file */
    size_t hashed;      /* bytes of `pending` that the hash has taken */
    struct buf pending; /* append to it with manifest_format_*(), then call record_written() */
    XXH3_state_t *hash;
};

int record_writer_init(struct record_writer *writer, const struct fsops *fs, int fd); /* 0 or -ENOMEM */
void record_writer_deinit(struct record_writer *writer);

/* The offset that the next line will have. */
static inline uint64_t record_writer_offset(const struct record_writer *writer)
{
    return writer->offset + buf_len(&writer->pending);
}

/* Called after lines were appended: hashes them, and writes them once there are many. 0 or -errno: -ENOMEM also if one
 * of them could not be appended. */
int record_written(struct record_writer *writer);
int record_writer_flush(struct record_writer *writer);

/* Reads the lines [from, to) of another file, adds them to `hash`, and appends them if `keep`. 0, FS_ENDS or -errno. */
int record_copy(struct record_writer *writer, int fd, uint64_t from, uint64_t to, bool keep, XXH3_state_t *hash);
uint64_t record_writer_digest(const struct record_writer *writer); /* of all lines so far */
