/* import: shared by the two forms of `bloomery import`. */
#ifndef BLOOMERY_TOOL_IMPORT_H
#define BLOOMERY_TOOL_IMPORT_H

#include "store.h"
#include "tool.h"

/* Opens a data directory to add filters. It fails if a daemon uses the directory, or if the log has unsaved changes:
 * the MANIFEST then lacks the next id and the current names. TOOL_OK, or TOOL_FAILED after a message; to be closed in
 * any case. */
int import_store_open(const char *command, const char *datadir, struct store **store_out);

/* What became of an import after this status of store_save(), not 0. */
const char *import_outcome(int status);

/* The form with --rdb, for the filters of an RDB file. An exit code. */
int import_rdb(const struct tool_args *args);

#endif
