/* sstable_files: the files of an SSTable beside its Filter.db, each with a reader of its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "fsops.h"
#include "sstable_name.h"

#define SSTABLE_KEY_MAX 65535 /* bytes */

/* The results of the readers of keys. */
enum sstable_keys_status {
    SSTABLE_KEYS_END = 0,
    SSTABLE_KEYS_ONE = 1,
    SSTABLE_KEYS_DAMAGED = 2, /* the errbuf has the file, the position and the reason */
};

/* ---- Data.db ---- */

/* Bytes of a Data.db by their place before compression. CompressionInfo.db tells the compressor and where each
 * chunk begins; without it the file is not compressed (docs/FORMAT.md, section 20). LZ4, Snappy, Deflate, Zstd.
 *
 * Each chunk's CRC-32 is checked, and each length and place before it is used.
 *
 * Lifetime: caller's storage, open to close. Thread: any, on distinct objects. */

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

/* ---- Partitions.db ---- */

/* The trie of a Partitions.db, which leads from the order of partitions to their places (docs/FORMAT.md,
 * section 20; BtiFormat.md of Cassandra 5.0 describes the nodes). The trie has prefixes of the keys only: whole keys
 * are at the places, in Rows.db or Data.db.
 *
 * The file has no checksum. Nodes point backwards only, a walk visits at most as many nodes as the file has bytes, and
 * the number of places must match the end of the file. So a walk terminates for any bytes.
 *
 * Lifetime: caller's storage, open to close. Thread: any, on distinct objects. */

#define PARTITIONS_PAGE  4096 /* which nodes do not cross, as databases write them */
#define PARTITIONS_PAGES 64   /* in memory */

struct partition_place {
    bool in_rows;  /* the offset is of Rows.db, otherwise of Data.db before compression; the key is there */
    bool has_hash; /* the lowest byte of the second half of the key's hash is known */
    uint8_t hash;
    uint64_t offset;
};

struct partitions_db {
    const struct fsops *fs;
    int fd;                    /* -1: not open */
    uint64_t size, root, keys; /* of the file; of the trie */
    uint64_t found;            /* places so far */
    bool backwards;
    /* internal */
    uint64_t visited;
    struct partitions_step *steps; /* from the root to the current node, except for those whose last child was taken */
    size_t nsteps, steps_size;
    unsigned char *pages; /* page i of the file is in slot i % PARTITIONS_PAGES, if it is there */
    uint64_t in_slot[PARTITIONS_PAGES];
};

/* 0; or with the reason SSTABLE_KEYS_DAMAGED or -errno; nothing is open then. */
int partitions_db_open(struct partitions_db *trie, const struct fsops *fs, const char *path, struct errbuf *err);
void partitions_db_close(struct partitions_db *trie); /* idempotent */

/* The next place; an enum sstable_keys_status, or -errno. */
int partitions_db_next(struct partitions_db *trie, struct partition_place *place_out, struct errbuf *err);

/* ---- Summary.db ---- */

/* The last partition key of an SSTable, as its Summary.db has it (docs/FORMAT.md, section 19), since version ia and
 * before tries. Databases write the file again if it is missing or wrong, so it may be absent or wrong. Thread: any. */

/* `path` is of the Summary.db, `name` of any file of the SSTable. 0; -EINVAL: not whole, or another file; or -errno. */
int summary_db_last(const struct fsops *fs, const char *path, const struct sstable_name *name,
                    unsigned char key_out[SSTABLE_KEY_MAX], size_t *len_out);

/* ---- Statistics.db ---- */

/* The false-positive rate that a table asked for when an SSTable was written (bloom_filter_fp_chance), its partitioner,
 * and the number of its keys, from its Statistics.db (docs/FORMAT.md, section 21). Since version ka. Thread: any. */

struct statistics_validation {
    double rate;
    bool murmur3; /* the table has Murmur3Partitioner: its keys are in the order of their tokens */
};

/* 0; -EINVAL: the file has no such component; or -errno. */
int statistics_db_validation(const struct fsops *fs, const char *path, struct statistics_validation *out);

/* 0; -EINVAL: the file is damaged, or of an earlier version; or -errno. */
int statistics_db_partitions(const struct fsops *fs, const char *path, uint64_t *partitions_out);

/* ---- Scylla.db ---- */

/* Whether the Scylla.db of an SSTable may bind its Filter.db, so that ScyllaDB refuses another one, or
 * cannot read it (docs/FORMAT.md, section 21). Thread: any. */

/* 0: nothing in it is about the filter. With the reason -EINVAL (it may be, or the file is damaged) or -errno. */
int scylla_db_leaves_filter(const struct fsops *fs, const char *path, struct errbuf *err);
