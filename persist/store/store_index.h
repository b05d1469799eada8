/* store_index: which filters a MANIFEST holds, and where in it their records are: 32 bytes per filter, so that a million
 * filters need not be held twice. Internal to persist.
 *
 * Entries are found by id and by directory only while the index is mapped, which a save needs and the time between saves
 * does not. An entry's number is its place in the order of adding and never changes. */
#ifndef BLOOMERY_STORE_INDEX_H
#define BLOOMERY_STORE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INDEX_NONE       UINT32_MAX
#define INDEX_MAX_OFFSET (UINT64_C(1) << 40) /* of a record: what an entry has room for */

enum index_flags {
    INDEX_QUARANTINED = 1, /* could not be loaded in this run */
    INDEX_FORGOTTEN = 2,   /* quarantined and given up: to be left out of the next save */
    INDEX_STALE = 4,       /* its bits have changed since this record was made; write it whatever the source says */
    INDEX_UNPLACED = 64,   /* the newest files are whole, but could not be given their names */
    INDEX_TAKEN = 128,     /* of a save under way: the files were there before it, made by store_write() */
    INDEX_SPOOLED = 8,     /* of a save under way: the record is in the spool, not in the MANIFEST */
    INDEX_WRITTEN = 16,    /* of a save under way: files have been written under temporary names */
    INDEX_DROPPED = 32,    /* of a save under way: superseded by a later entry */
    INDEX_PACKED = 256,    /* its layers are in a pack; it has no directory */
};

struct index_entry {
    uint64_t id;
    union {
        uint64_t dir_hash;  /* of the directory's name */
        struct {            /* INDEX_PACKED */
            uint32_t slot;  /* of the pack, in the store's table */
            uint32_t bytes; /* of the record in it */
        } packed;
    };
    uint64_t facts;    /* index_facts() of the name and the expiry */
    uint32_t offset_low;
    uint8_t offset_high;
    uint8_t nlayers;
    uint16_t flags;
};

struct store_index {
    struct index_entry *entries;
    size_t count;
    size_t size;
    uint32_t *by_id; /* slots: number + 1, 0 is empty; NULL when not mapped */
    uint32_t *by_dir;
    size_t nslots; /* a power of two */
    uint64_t seed; /* of the hashes: names come from strangers */
};

static inline uint64_t index_offset(const struct index_entry *entry)
{
    return (uint64_t)entry->offset_high << 32 | entry->offset_low;
}

static inline void index_set_offset(struct index_entry *entry, uint64_t offset)
{
    entry->offset_low = (uint32_t)offset;
    entry->offset_high = (uint8_t)(offset >> 32);
}

uint64_t index_dir_hash(const struct store_index *index, const char *dir);

/* By which it is told, without reading the record, that a filter still has the name and the expiry that are in it. */
uint64_t index_facts(const struct store_index *index, const char *name, size_t len, int64_t expires_ms);

/* 0, -ENOMEM, or -EFBIG beyond 2^32 - 2 entries. Adding the id of an entry that is there makes that one DROPPED. */
int index_add(struct store_index *index, const struct index_entry *entry);
int index_reserve(struct store_index *index, size_t count); /* room for so many entries in all: 0 or -ENOMEM */
int index_map(struct store_index *index); /* 0 or -ENOMEM; nothing to do when mapped */
void index_unmap(struct store_index *index);
void index_deinit(struct store_index *index);

/* The number of the entry with this id that is not DROPPED, or INDEX_NONE. */
uint32_t index_find_id(const struct store_index *index, uint64_t id);

/* The same by directory; more than one may have the hash: `after` is INDEX_NONE or the last answer. The caller compares
 * the names. */
uint32_t index_find_dir(const struct store_index *index, uint64_t dir_hash, uint32_t after);

#endif
