/* layer_file: one layer from memory to a Filter.db file and back, in pieces, with its XXH3. Internal to persist.
 *
 * Large files go past the page cache where the file system lets them: faster, and the cache stays with its users. They
 * are read right into their place in memory.
 *
 * Lifetime: caller's storage, init to deinit; one layer_io per thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <xxhash.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "fsops.h"

#define LAYER_SMALL_BYTES (1u << 20)  /* files below this size are one piece, and go through the page cache */
#define LAYER_PIECE_BYTES (2u << 20)  /* of larger files; the unit of writes and reads */
#define LAYER_MAX_PIECES  8           /* under way; more do not help */
#define LAYER_HELP_MIN    (8u << 20)  /* from this size on they are computed and written (read) by two threads */
#define LAYER_SHARE_MIN   (64u << 20) /* and read by five */

/* The least bytes that a layer_io takes. */
#define LAYER_IO_MIN_MEMORY (LAYER_SMALL_BYTES + 2 * LAYER_PIECE_BYTES)

struct layer_io {
    const struct fsops *fs;
    void (*wrote)(void *ctx, uint64_t bytes); /* called when a piece has been handed on to be written; may be NULL */
    void *wrote_ctx;
    unsigned char *small; /* LAYER_SMALL_BYTES, aligned to FS_BLOCK */
    unsigned char *ring;  /* `npieces` pieces on huge pages; NULL until a file that is copied needs them */
    unsigned npieces;
    XXH3_state_t *hash;
    bool begun;               /* words of a still have been read, which cannot be read again */
    struct io_helper *helper; /* NULL until a large file needs it */
};

enum layer_status {
    LAYER_OK = 0,
    LAYER_UNUSABLE = 1, /* the file does not match; the errbuf has the reason */
};

/* 0 or -ENOMEM. Never takes more than `memory` bytes for buffers, or LAYER_IO_MIN_MEMORY if that is more. Small files
 * touch only the necessary part of the first buffer. */
int layer_io_init(struct layer_io *io, const struct fsops *fs, uint64_t memory);
void layer_io_deinit(struct layer_io *io);

/* Writes the layer to a new file; syncs it if `sync`. Other threads may add meanwhile. 0 or -errno: -EEXIST when the
 * name is taken, and nothing has been done; after any other error the file may be there in part. */
int layer_write(struct layer_io *io, const char *path, const struct bloom_layer_view *layer, bool sync,
                uint64_t *xxh3_out, struct errbuf *err);

/* The bytes of the file of a small layer: filterdb_bytes(nwords). */
void layer_encode(const struct bloom_layer_view *layer, unsigned char *out);

/* The XXH3 that layer_write() would compute. */
uint64_t layer_digest(struct layer_io *io, const struct bloom_layer_view *layer);

/* Reads `path` into the words of the layer, whose shape and checksum the file must have. 0, LAYER_UNUSABLE or -errno;
 * in all except the first case the words are undefined. The errbuf does not name the file. */
int layer_read(struct layer_io *io, const char *path, const struct bloom_layer_view *layer, uint64_t xxh3,
               struct errbuf *err);

/* The same from memory: `bytes` are filterdb_bytes(nwords) bytes. 0 or LAYER_UNUSABLE. */
int layer_decode(const unsigned char *bytes, const struct bloom_layer_view *layer, uint64_t xxh3, struct errbuf *err);

/* Whether a file of `size` bytes that begins with `head` (as filterdb_decode_header() has it) and has the XXH3 `found`
 * is that of a layer of this shape and checksum. LAYER_OK or LAYER_UNUSABLE. */
int layer_check(const unsigned char *head, uint64_t size, const struct bloom_shape *expected, uint64_t found,
                uint64_t xxh3, struct errbuf *err);
