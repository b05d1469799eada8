/* file_name: the names of Bloomery's files in `filters`. Each has a number that is used once in the life of a data
 * directory, so a name never means two files.
 *
 *     <layout>-<number>-big-Filter.db   a layer of a filter; the layout, na, me or ka, has Cassandra's spelling
 *     <layout>-<number>.layer           the same in RedisBloom's layout, redisbloom or redisbloom32
 *     <number>.pack                     many small filters (pack.h)
 *     <number>.saved                    empty: the save of this number took place
 *
 * Files with other names are not the store's and are never touched.
 *
 * Thread: any. */
#ifndef BLOOMERY_FILE_NAME_H
#define BLOOMERY_FILE_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include "bloom_filter.h"

#define FILTERS_DIR    "filters"
#define FILE_NAME_SIZE 48

enum file_kind { FILE_LAYER, FILE_PACK, FILE_SAVED };

struct file_name {
    enum file_kind kind;
    enum bloom_variant variant; /* of a layer; otherwise 0 */
    uint64_t number;
};

void file_name_format(const struct file_name *name, char out[FILE_NAME_SIZE]);

/* False: not a name of ours. Each name has one spelling. */
bool file_name_parse(const char *text, struct file_name *out);

#endif
