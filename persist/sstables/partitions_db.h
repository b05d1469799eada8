/* partitions_db: the trie of a Partitions.db, which leads from the order of partitions to their places (docs/FORMAT.md,
 * section 20; BtiFormat.md of Cassandra 5.0 describes the nodes). The trie has prefixes of the keys only: whole keys
 * are at the places, in Rows.db or Data.db.
 *
 * The file has no checksum. Nodes point backwards only, a walk visits at most as many nodes as the file has bytes, and
 * the number of places must match the end of the file. So a walk terminates for any bytes.
 *
 * Lifetime: caller's storage, open to close. Thread: any, on distinct objects. */
#ifndef BLOOMERY_PARTITIONS_DB_H
#define BLOOMERY_PARTITIONS_DB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "fsops.h"
#include "keys_status.h"

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

#endif
