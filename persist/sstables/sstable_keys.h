/* sstable_keys: the partition keys of an SSTable, each once, in the order of the table, as the bytes that its filter
 * hashes (docs/FORMAT.md, section 19). They come from Index.db, or from the trie of Partitions.db with Rows.db and
 * Data.db (Cassandra's format bti, and ScyllaDB since version ms).
 *
 * A key that is there twice is damage; so is one before the token of the key before it, if Statistics.db says that the
 * table has Murmur3Partitioner. At the end the last key of Index.db is compared with the one of Summary.db, and their
 * number with that of Statistics.db, if these are there.
 *
 * Errors begin with the component that they are of: "Index.db: ...". Files are read only. Memory: some 400 KB, and of
 * tries two chunks of Data.db.
 *
 * Lifetime: open to close. Thread: any, on distinct objects. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "fsops.h"
#include "sstable_files.h"
#include "sstable_name.h"

struct sstable_keys;

/* Whether the keys are in a trie, and not in an Index.db. */
bool sstable_has_trie(const struct sstable_name *name);

/* The component by which the keys are found: "Index.db" or "Partitions.db". */
const char *sstable_keys_component(const struct sstable_name *name);

/* `path` is of any file of the SSTable, `name` its parts; both are borrowed until the end. 0; or with the reason
 * SSTABLE_KEYS_DAMAGED or -errno. */
int sstable_keys_open(struct sstable_keys **keys_out, const struct fsops *fs, const char *path,
                      const struct sstable_name *name, struct errbuf *err);
void sstable_keys_close(struct sstable_keys *keys); /* NULL is fine */

/* Before the first key: they come from the last one on. False, with nothing changed: there is no trie. */
bool sstable_keys_from_end(struct sstable_keys *keys);

struct sstable_key {
    const unsigned char *ptr;
    size_t len;
    struct bloom_hash hash;
};

/* The token of Murmur3Partitioner: rings and files are in the order of these. */
int64_t sstable_key_token(struct bloom_hash hash);

/* The next key, which is valid until the next call. An enum sstable_keys_status; or -errno, with the reason. -ENOTSUP:
 * Data.db is compressed in a way that is not known here. */
int sstable_keys_next(struct sstable_keys *keys, struct sstable_key *key_out, struct errbuf *err);

/* Whether a filter, which `has` asks, has the first and the last 100 keys of the SSTable with this file, the last ones
 * of an Index.db of up to 8 MB; also true where there is nothing to read its keys from. False with the reason. */
typedef bool sstable_query(void *ctx, struct bloom_hash hash);
bool sstable_keys_are_in(const char *path, sstable_query *has, void *ctx, struct errbuf *err);

/* The progress of the reader: bytes read, of all bytes of the component. */
uint64_t sstable_keys_size(const struct sstable_keys *keys);
uint64_t sstable_keys_done(const struct sstable_keys *keys);
