/* index_db: the partition keys in an Index.db, in the order of the table (docs/FORMAT.md, section 19).
 *
 * Index.db has no checksum: each length is checked against the end of the file, so damage is found where the entries
 * stop to fit.
 *
 * Lifetime: caller's storage, open to close. Thread: any, on distinct objects. */
#ifndef BLOOMERY_INDEX_DB_H
#define BLOOMERY_INDEX_DB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "fsops.h"
#include "keys_status.h"

struct index_db {
    const struct fsops *fs;
    int fd; /* -1: not open */
    bool numbers_vary;
    uint64_t size, entry; /* of the file; where the current entry begins */
    /* internal: bytes from..from + n of the file, of which `at` are done */
    unsigned char *bytes;
    uint64_t from;
    size_t n, at;
};

/* `numbers_vary`: as from version ma on. 0 or -errno; nothing is open then. */
int index_db_open(struct index_db *index, const struct fsops *fs, const char *path, bool numbers_vary);
void index_db_close(struct index_db *index); /* idempotent */

/* The next key, which is valid until the next call. An enum sstable_keys_status, or -errno. */
int index_db_next(struct index_db *index, const unsigned char **key_out, size_t *len_out, struct errbuf *err);

#endif
