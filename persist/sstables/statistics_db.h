/* statistics_db: the false-positive rate that a table asked for when an SSTable was written (bloom_filter_fp_chance),
 * from its Statistics.db (docs/FORMAT.md, section 21). Since version ka. Thread: any. */
#ifndef BLOOMERY_STATISTICS_DB_H
#define BLOOMERY_STATISTICS_DB_H

#include "fsops.h"

/* 0; -EINVAL: the file has no such rate; or -errno. */
int statistics_db_rate(const struct fsops *fs, const char *path, double *rate_out);

#endif
