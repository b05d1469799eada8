/* all_names: the names of the data directory's filters and of SSTables' filters. A filter of the data directory hides
 * an SSTable's filter of the same name. SSTables' filters are in the database with the internal number 0. `sstables`
 * may be NULL.
 *
 * Thread: any, in an RCU read section. A name that `visit` receives is valid until the reader goes offline. */
#pragma once

#include "registry_key.h"
#include "sstables.h"

/* registry_scan_prefix() of both. A name that is in one of them throughout is visited exactly once. */
size_t all_names_walk(const struct registry *own, const struct sstables *sstables, struct slice prefix,
                      const struct slice *after, size_t max,
                      void (*visit)(void *ctx, struct slice key, struct entry *entry), void *ctx);

/* In a cursor: the names of the data directory are done. */
#define ALL_NAMES_OTHERS (UINT64_C(1) << 48)

/* registry_database_scan() of both: a name that is in one of them comes once, in both twice. */
uint64_t all_names_scan(const struct registry *own, const struct sstables *sstables, unsigned database, uint64_t cursor,
                        size_t count, void (*visit)(void *ctx, struct slice key, struct entry *entry), void *ctx);

/* How many there are, with names that have expired and are not removed yet. Names that are in both count twice. */
size_t all_names_count(const struct registry *own, const struct sstables *sstables, unsigned database);
