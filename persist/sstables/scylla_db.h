/* scylla_db: whether the Scylla.db of an SSTable may bind its Filter.db, so that ScyllaDB refuses another one, or
 * cannot read it (docs/FORMAT.md, section 21). Thread: any. */
#ifndef BLOOMERY_SCYLLA_DB_H
#define BLOOMERY_SCYLLA_DB_H

#include "errbuf.h"
#include "fsops.h"

/* 0: nothing in it is about the filter. -EINVAL with the reason: it may be, or the file is damaged. Or -errno with the
 * reason. */
int scylla_db_leaves_filter(const struct fsops *fs, const char *path, struct errbuf *err);

#endif
