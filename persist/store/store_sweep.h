/* store_sweep: files that the MANIFEST does not name. Internal to persist.
 *
 * Thread: the one that opens, loads or saves. */
#ifndef BLOOMERY_STORE_SWEEP_H
#define BLOOMERY_STORE_SWEEP_H

#include "store_internal.h"
#include "store_loader.h"

/* Looks for the mark of a later save, which shows that the MANIFEST is an older one: called before any file is removed.
 * 0, STORE_DAMAGED or -errno. */
int sweep_find_mark(struct store *store, struct errbuf *err);

/* Called at a start after the load: removes unnamed files, and reports foreign ones. 0 or -errno. */
int sweep_start(struct store *store, struct store_load_summary *counts, struct errbuf *err);

/* Called after a commit: the mark of this save replaces the previous one. */
void sweep_set_mark(struct store *store);

#endif
