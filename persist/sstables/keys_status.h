/* keys_status: the results of the readers of an SSTable's keys. */
#ifndef BLOOMERY_KEYS_STATUS_H
#define BLOOMERY_KEYS_STATUS_H

#define SSTABLE_KEY_MAX 65535 /* bytes */

enum sstable_keys_status {
    SSTABLE_KEYS_END = 0,
    SSTABLE_KEYS_ONE = 1,
    SSTABLE_KEYS_DAMAGED = 2, /* the errbuf has the file, the position and the reason */
};

#endif
