/* advice_collect: reads the filters below a directory for advice: each is read once as a whole, Statistics.db for the
 * rate asked, and of the keys a sample. Thread: one. */
#ifndef BLOOMERY_TOOL_ADVICE_COLLECT_H
#define BLOOMERY_TOOL_ADVICE_COLLECT_H

#include "advice.h"

/* `all`: as of sstable_walk. `on_error` gets the names of unreadable files; `advice` has the rest. 0, or -ENOMEM. */
int advice_collect(struct advice *advice, const char *directory, bool all,
                   void (*on_error)(void *ctx, const char *path, const char *reason), void *ctx);

#endif
