/* sstable_walk: the SSTables below a directory (sstable_dir.h). A Data.db or a Filter.db stands for an SSTable. A
 * running database may replace SSTables: new ones are passed on, too, until no key can have been missed. Thread: one.
 */
#ifndef BLOOMERY_TOOL_SSTABLE_WALK_H
#define BLOOMERY_TOOL_SSTABLE_WALK_H

#include <stdbool.h>

#include "sstable_name.h"

/* Valid during the call. */
struct found_sstable {
    const char *filter; /* path of its Filter.db; NULL: it has none */
    const char *shown;  /* path of its Data.db, or else of its Filter.db */
    struct sstable_name name;
};

struct sstable_walk {
    void (*on_sstable)(void *ctx, const struct found_sstable *sstable);
    /* a directory that could not be read, or an SSTable of an unknown format */
    void (*on_error)(void *ctx, const char *path, const char *reason);
    void *ctx;
    bool all; /* also the ones that reads do not use: snapshots, backups, uploads, secondary indexes; those of a
               * directory that is one itself always */
};

/* In the order of their paths. 0, or -ENOMEM. */
int sstable_walk(const struct sstable_walk *walk, const char *directory);

#endif
