/* import_store: opens a data directory for a subcommand that adds filters to it. */
#ifndef BLOOMERY_TOOL_IMPORT_STORE_H
#define BLOOMERY_TOOL_IMPORT_STORE_H

#include "store.h"

/* Opens it, unless a daemon uses it or its log has changes that are not in the files yet: the MANIFEST then does not
 * know the next id and the names in use. TOOL_OK, or TOOL_FAILED after a message; to be closed in any case. */
int import_store_open(const char *command, const char *datadir, struct store **store_out);

#endif
