/* sstables: the filters of the SSTables in watched directories (`sstable-dir`), under names of their own, read-only.
 *
 * They are in a separate registry: no save, log, FLUSHALL or write affects them, and readers find them like other
 * filters. Cassandra and ScyllaDB own the files; here they are opened for reading only.
 *
 * At first a filter is a placeholder in quarantine with the reason SSTABLES_UNREAD: nothing is read before it is asked
 * for. sstables_read() then copies the file into memory, in a thread of the pool. It is not mapped: a loop would wait
 * for the disk at a page that is not in memory, and a page after the end of a truncated file kills the process. A copy
 * has neither problem, and stays the same when the file changes. A file that is no filter stays in quarantine, with the
 * reason.
 *
 * Each second a thread looks whether a directory has changed, and if so at all of them; every SSTABLES_RESCAN_MS in any
 * case. A file is added when its TOC.txt exists, which both databases write last; or when it has not changed for
 * SSTABLES_TOC_MS, since both databases also read SSTables without a TOC.txt. An SSTable that has no filter
 * (bloom_filter_fp_chance 1) gets a name, too, in quarantine for that reason. A file that has gone is forgotten when
 * all are known that had come before; not because one of `sstable-dir` as a whole is lost.
 *
 * Names: keyspace.table/generation; keyspace.table.index/generation for a secondary index; files that reads of the
 * table do not use are named after their places: snapshots/tag/keyspace.table/generation, backups/..., upload/... While
 * several files would have the same name, each has '#' and its path without "-Filter.db" after it, and none has the
 * name alone.
 *
 * Thread: any, unless it says otherwise. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "log.h"
#include "registry.h"

#define SSTABLES_RESCAN_MS  10000
#define SSTABLES_TOC_MS     10000
#define SSTABLES_UNREAD     "its file has not been read yet"
#define SSTABLES_SCANNING   "still scanning sstable-dir"
#define SSTABLES_INCOMPLETE "sstable-dir cannot be searched completely"

/* Their entries have ids from here on: counters of filters go by ids, so these differ from the data directory's. */
#define SSTABLES_FIRST_ID (UINT64_C(1) << 62)

struct sstables;

/* `dirs`: absolute or relative paths with ':' between them; "": none, and *sstables_out is NULL. A directory that is
 * missing yet is waited for. Memory is that of `own`'s pool. 0 or -errno with a text. */
int sstables_create(struct sstables **sstables_out, const char *dirs, const struct registry *own,
                    struct reclaimer *reclaimer, struct log *log, struct errbuf *err);
void sstables_destroy(struct sstables *sstables); /* no reader may be left; NULL is fine here and below */

/* The thread, which goes through all directories first: until then sstables_is_scanning(). 0 or -errno. Stopping is
 * idempotent; known filters still answer. */
int sstables_start(struct sstables *sstables);
void sstables_stop(struct sstables *sstables);

/* For look-ups and scans only. */
const struct registry *sstables_registry(const struct sstables *sstables);

/* The filter of that name, or NULL; `sstables` may be NULL. In an RCU read section. */
struct entry *sstables_find(const struct sstables *sstables, struct slice name);

/* The same, as registry_pin(). */
struct entry *sstables_pin(struct sstables *sstables, struct slice name);

/* A long query of many filters protects filters that it has not reached yet. From sstables_hold() to sstables_release()
 * with its result, no filter is removed if its keys are in filters that did not exist at the start. */
unsigned sstables_hold(struct sstables *sstables);
void sstables_release(struct sstables *sstables, unsigned hold);

/* The number of the last round, a look at directories, that has found a change. All that it has found is there. */
uint64_t sstables_round(const struct sstables *sstables);

/* Whether the filter must be read before it can be asked. */
bool sstables_is_unread(struct entry *entry);

/* Reads the filter of that name if it has not been read; afterwards a look-up finds a filter, or the reason why there
 * is none. Takes as long as the disk. Thread: pool, a reader without references: it is offline meanwhile. */
void sstables_read(struct sstables *sstables, struct slice name);

/* Whether SSTables that were there before the start may not have been met yet. `sstables` may be NULL. */
bool sstables_is_scanning(const struct sstables *sstables);

/* Whether a name that is missing may be one of an SSTable: the first scan has not ended, or something cannot be looked
 * at, such as a directory of another user, or noted, without memory. With the reason. `sstables` may be NULL. */
bool sstables_may_miss(struct sstables *sstables, struct errbuf *why);
bool sstables_could_name(struct slice name); /* false: no SSTable's filter has such a name, which has a slash */

/* Whether SSTables have this name with their paths behind it, so that none has it alone. For a name that was not found:
 * one may have it by now. */
bool sstables_share_name(struct sstables *sstables, struct slice name);

/* The path of the filter's file, malloc'ed; NULL if there is none (or no memory). */
char *sstables_path(struct sstables *sstables, struct slice name);

struct sstables_numbers {
    size_t directories, filters;
    bool scanning;       /* for the first time: there may be more */
    size_t unreachable;  /* directories that are not there, not mounted, or have something that cannot be looked at */
    size_t read, broken; /* of the filters: in memory; not readable */
    uint64_t bytes;      /* of their files */
    uint64_t read_bytes; /* in memory */
    uint64_t scans;
    uint64_t evicted; /* filters whose memory was given to others, to be read again */
};
void sstables_numbers(struct sstables *sstables, struct sstables_numbers *numbers_out);
