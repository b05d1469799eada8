/* pack: many small filters in one file, each as the exact bytes of its Filter.db files (docs/FORMAT.md, section 14).
 * Internal to persist and the tool.
 *
 * A pack is written once, from front to back, and never changed: its number is used once in the life of a directory.
 * The MANIFEST has the offset and the checksum of each filter in it. Nothing here reads the head of a record (id, name,
 * its own checksum): it tells a person what the bytes are.
 *
 * Lifetime: caller's storage, init to deinit. Thread: one per object. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "fsops.h"
#include "manifest.h"

#define PACK_HEADER_BYTES        16
#define PACK_RECORD_HEADER_BYTES 25
#define PACK_FULL_BYTES          (64u << 20)  /* a pack of this size takes no more filters */
#define PACK_BUFFER_BYTES        (256u << 10) /* the unit of writes */
#define PACK_WINDOW_BYTES        (128u << 10) /* the unit of reads, from front to back */
#define PACK_WINDOWS             8            /* packs that one reader reads at the same time */

_Static_assert(PACK_RECORD_HEADER_BYTES + MANIFEST_MAX_NAME + MANIFEST_MAX_PACKED <= PACK_BUFFER_BYTES,
               "a record is whole");
_Static_assert(MANIFEST_MAX_PACKED <= PACK_WINDOW_BYTES, "a filter is whole");

/* Of the record of a filter whose layers take `images` bytes. */
static inline uint64_t pack_record_bytes(size_t name_len, uint64_t images)
{
    return PACK_RECORD_HEADER_BYTES + name_len + images;
}

/* ---- writing ---- */

struct pack_writer {
    const struct fsops *fs;
    void (*wrote)(void *ctx, uint64_t bytes); /* bytes have been handed to the disk; may be NULL */
    void *wrote_ctx;
    unsigned char *buf; /* PACK_BUFFER_BYTES; NULL until the first pack */
    size_t len;         /* of its contents */
    uint64_t flushed;   /* bytes before that */
    int fd;             /* -1: none is open */
};

void pack_writer_init(struct pack_writer *writer, const struct fsops *fs);
void pack_writer_deinit(struct pack_writer *writer); /* closes, without writing the rest */

/* Makes the file, which must not be there, and begins to write to it. 0 or -errno. */
int pack_writer_open(struct pack_writer *writer, const char *path);

static inline uint64_t pack_writer_size(const struct pack_writer *writer)
{
    return writer->flushed + writer->len;
}

/* Appends a filter of at most MANIFEST_MAX_PACKED bytes, whose id and name are in the record, and fills in the record's
 * variant, layers and offset. Other threads may add to the filter meanwhile; counts are read after the bits. 0 or
 * -errno. */
int pack_append(struct pack_writer *writer, const struct bloom_filter *filter, struct manifest_filter *record);

/* Writes the rest, syncs, closes. 0 or -errno; closed in either case. */
int pack_writer_close(struct pack_writer *writer);

/* ---- reading ---- */

struct pack_window {
    uint64_t number; /* 0: none */
    int fd;
    uint64_t used; /* when, in calls of pack_read() */
    uint64_t offset;
    size_t len;
    unsigned char *buf; /* PACK_WINDOW_BYTES, NULL until used */
};

/* Keeps a window of each recently read pack. Reading filters in the order of their packs, or of several packs in turns,
 * costs one system call per window. */
struct pack_reader {
    const struct fsops *fs;
    const char *dir; /* the data directory; borrowed */
    uint64_t calls;
    struct pack_window windows[PACK_WINDOWS];
};

void pack_reader_init(struct pack_reader *reader, const struct fsops *fs, const char *dir);
void pack_reader_deinit(struct pack_reader *reader);

/* `len` bytes, at most MANIFEST_MAX_PACKED, valid until the next call. 0, FS_ENDS or -errno. The errbuf names the file
 * when it is not 0. */
int pack_read(struct pack_reader *reader, uint64_t number, uint64_t offset, size_t len, const unsigned char **bytes_out,
              struct errbuf *err);
