/* keys_status: how the readers of an SSTable's keys answer. */
#ifndef BLOOMERY_KEYS_STATUS_H
#define BLOOMERY_KEYS_STATUS_H

#define SSTABLE_KEY_MAX 65535 /* bytes */

enum sstable_keys_status {
    SSTABLE_KEYS_END = 0,
    SSTABLE_KEYS_ONE = 1,
    SSTABLE_KEYS_DAMAGED = 2, /* the errbuf says which file, where and why */
};

#endif
