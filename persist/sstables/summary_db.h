/* summary_db: the last partition key of an SSTable, as its Summary.db has it (docs/FORMAT.md, section 19), since
 * version ia and before tries. Databases write the file again if it is missing or wrong, so it need not be there or be
 * right. Thread: any. */
#ifndef BLOOMERY_SUMMARY_DB_H
#define BLOOMERY_SUMMARY_DB_H

#include <stddef.h>

#include "fsops.h"
#include "keys_status.h"
#include "sstable_name.h"

/* `path` is of the Summary.db, `name` of any file of the SSTable. 0; -EINVAL: the file is not whole, or another; or
 * -errno. */
int summary_db_last(const struct fsops *fs, const char *path, const struct sstable_name *name,
                    unsigned char key_out[SSTABLE_KEY_MAX], size_t *len_out);

#endif
