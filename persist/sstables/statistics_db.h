/* statistics_db: the false-positive rate that a table asked for when an SSTable was written (bloom_filter_fp_chance),
 * its partitioner, and the number of its partitions, from its Statistics.db (docs/FORMAT.md, section 21). Since version
 * ka. Thread: any.
 */
#ifndef BLOOMERY_STATISTICS_DB_H
#define BLOOMERY_STATISTICS_DB_H

#include <stdbool.h>
#include <stdint.h>

#include "fsops.h"

struct statistics_validation {
    double rate;
    bool murmur3; /* the table has Murmur3Partitioner: its keys are in the order of their tokens */
};

/* 0; -EINVAL: the file has no such component; or -errno. */
int statistics_db_validation(const struct fsops *fs, const char *path, struct statistics_validation *out);

/* 0; -EINVAL: the file is damaged, or of an earlier version; or -errno. */
int statistics_db_partitions(const struct fsops *fs, const char *path, uint64_t *partitions_out);

#endif
