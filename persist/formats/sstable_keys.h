/* sstable_keys: the partition keys of an SSTable, from its Index.db (docs/FORMAT.md, section 19). They come in the
 * order of the table, each once, as the bytes that its filter hashes.
 *
 * Index.db has no checksum: each length is checked against the end of the file, so damage is found where the entries
 * stop to fit. Trie-indexed tables (bti, ScyllaDB's ms and later) have no Index.db.
 *
 * Lifetime: caller's storage, open to close. Thread: any, on distinct objects. */
#ifndef BLOOMERY_SSTABLE_KEYS_H
#define BLOOMERY_SSTABLE_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "fsops.h"
#include "sstable_name.h"

#define SSTABLE_KEY_MAX 65535 /* bytes */

enum sstable_keys_status {
    SSTABLE_KEYS_END = 0,
    SSTABLE_KEYS_ONE = 1,
    SSTABLE_KEYS_DAMAGED = 2, /* the errbuf says where and why */
};

struct sstable_keys {
    const struct fsops *fs;
    int fd; /* -1: not open */
    bool numbers_vary;
    uint64_t size, entry; /* of the file; where the current entry begins */
    /* internal: bytes from..from + n of the file, of which `at` are done */
    unsigned char *bytes;
    uint64_t from;
    size_t n, at;
};

/* Whether an SSTable of this name has an Index.db. */
bool sstable_has_index(const struct sstable_name *name);

/* Opens an Index.db; `name`: of the SSTable. 0 or -errno; nothing is open then. */
int sstable_keys_open(struct sstable_keys *keys, const struct fsops *fs, const char *path,
                      const struct sstable_name *name);
void sstable_keys_close(struct sstable_keys *keys); /* idempotent */

/* The next key, which is valid until the next call. An enum sstable_keys_status, or -errno. */
int sstable_keys_next(struct sstable_keys *keys, const unsigned char **key_out, size_t *len_out, struct errbuf *err);

#endif
