/* data_db: bytes of a Data.db by their place before compression. CompressionInfo.db tells the compressor and where each
 * chunk begins; without it the file is not compressed (docs/FORMAT.md, section 20). LZ4, Snappy, Deflate, Zstd.
 *
 * Each chunk's CRC-32 is checked, and each length and place before it is used.
 *
 * Lifetime: caller's storage, open to close. Thread: any, on distinct objects. */
#ifndef BLOOMERY_DATA_DB_H
#define BLOOMERY_DATA_DB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "fsops.h"
#include "keys_status.h"
#include "sstable_name.h"

#define DATA_CHUNK_MAX ((size_t)64 << 20) /* bytes of a chunk before compression; databases take 4 KB to 1 MB */

struct data_db {
    const struct fsops *fs;
    int fd, info_fd; /* -1: not open. Without an info the data are not compressed */
    uint64_t size;   /* of the file */
    uint64_t length; /* before compression */
    int (*decompress)(const unsigned char *from, size_t n, unsigned char *to, size_t len);
    size_t chunk_length, stored_from; /* compressed chunks of this many bytes or more are not compressed */
    uint64_t nchunks, offsets;        /* offsets: their place in CompressionInfo.db */
    /* internal: the chunk in memory, `nchunks` if there is none */
    uint64_t chunk;
    unsigned char *plain, *packed;
    size_t plain_len;
};

/* `path` is of any file of the SSTable, `name` its parts. 0; or with the reason SSTABLE_KEYS_DAMAGED, -ENOTSUP (the
 * compressor is not known here) or -errno; nothing is open then. */
int data_db_open(struct data_db *data, const struct fsops *fs, const char *path, const struct sstable_name *name,
                 struct errbuf *err);
void data_db_close(struct data_db *data); /* idempotent */

/* Copies bytes. 0; SSTABLE_KEYS_DAMAGED, with the reason; or -errno. */
int data_db_read(struct data_db *data, uint64_t at, unsigned char *out, size_t len, struct errbuf *err);

#endif
