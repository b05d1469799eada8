/* config_replace: reads small files, and replaces them as a whole: the configuration file, the file of users.
 *
 * All of these return 0 or a negative errno, with the reason in `err`. They read, write and sync: not on a loop. */
#ifndef BLOOMERY_CONFIG_REPLACE_H
#define BLOOMERY_CONFIG_REPLACE_H

#include <sys/stat.h>

#include "buf.h"
#include "errbuf.h"

/* Appends the file to `out`, up to its cap. */
int config_file_read(const char *path, struct buf *out, struct stat *stat_out, struct errbuf *err);

/* Writes a new file beside the old one, syncs it and renames it. `path` is no symbolic link. `old` has the mode and the
 * owner; NULL: only the owner may read the file. After an error the old file is as it was. Files that processes killed
 * meanwhile have left next to it are deleted. */
int config_file_replace(const char *path, const struct buf *text, const struct stat *old, struct errbuf *err);

/* Writes "<what> <path>: " and the text of errno, which it returns negated. */
int config_file_failed(const char *what, const char *path, struct errbuf *err);

#endif
