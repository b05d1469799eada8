/* sstable_dir: which files of a directory stand for SSTables, and which directories lead to others. The tool's walk
 * and the daemon's scan have these rules in common. Symbolic links to directories are followed, except back to a
 * directory above. Thread: any. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "sstable_name.h"

#define SSTABLE_DIR_DEPTH 16 /* of directories below the first one */

enum sstable_file {
    SSTABLE_FILE_OTHER,     /* of no SSTable: it may be a directory */
    SSTABLE_FILE_COMPONENT, /* of an SSTable, which other files stand for */
    SSTABLE_FILE_FILTER,
    SSTABLE_FILE_DATA,
    SSTABLE_FILE_TOC,     /* or TOC.txt.tmp */
    SSTABLE_FILE_UNKNOWN, /* a Data.db or Filter.db of an unknown format: it may hold any key */
};
#define SSTABLE_FILE_UNKNOWN_TEXT "not the name of an SSTable of a known format"

/* By the path alone. *name_out: its parts, not for OTHER and UNKNOWN. */
enum sstable_file sstable_file_of(const char *path, struct sstable_name *name_out);

/* Whether ScyllaDB is writing or removing the SSTable: it has a TOC.txt.tmp. Also true if the path is too long. */
bool sstable_is_unfinished(const char *path, const struct sstable_name *name);

/* A directory that is being read, and those that it is in. */
struct dir_place {
    const struct dir_place *above;
    struct stat st;
};

/* Whether it is one of those above it, which a symbolic link leads back to. */
bool dir_place_is_circle(const struct dir_place *place);

/* What the entry of a directory leads to: 1: a directory, 0: none, which includes `lost+found` of file systems; -errno:
 * unknown, as it cannot be looked at. */
int dir_entry_is_directory(const char *path, const char *name, unsigned char d_type);
