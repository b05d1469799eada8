/* store_index: which filters a MANIFEST holds, and where in it their records are: 40 bytes per filter, so that a
 * million filters need not be held twice. Internal to persist.
 *
 * Entries are found by id only while the index is mapped, which a save needs and the time between saves does not. An
 * entry's number is its place in the order of adding and never changes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "manifest.h"

enum index_flags {
    INDEX_STALE = 4,     /* its bits have changed since this record was made; it must be written in any case */
    INDEX_PACKED = 8,    /* its layers are in a pack */
    INDEX_NEW = 16,      /* of a save under way: the record is in the new MANIFEST, not in the committed one */
    INDEX_WRITTEN = 32,  /* of a save under way: it has made files for it */
    INDEX_TAKEN = 64,    /* of a save under way: the files were there before it, made by store_write() */
    INDEX_DROPPED = 128, /* of a save under way: superseded by a later entry, or gone */
};

struct index_entry {
    uint64_t id;
    uint64_t facts;  /* index_facts() of the name and the expiry */
    uint64_t offset; /* of the record in its MANIFEST */
    uint32_t len;    /* of the record */
    uint32_t slot;   /* INDEX_PACKED: of the pack, in the store's table, */
    uint32_t bytes;  /* and of the record in it */
    uint32_t flags;
};

struct store_index {
    struct index_entry *entries;
    size_t count;
    size_t size;
    uint32_t *by_id; /* slots: number + 1, 0 is empty; NULL when not mapped */
    size_t nslots;   /* a power of two */
    uint64_t seed;   /* of the hashes: names come from strangers */
};

/* By this a save checks, without reading the record, that a filter still has the name and the expiry of its record. */
uint64_t index_facts(const struct store_index *index, const char *name, size_t len, int64_t expires_ms);

/* 0, -ENOMEM, or -EFBIG beyond 2^32 - 2 entries. Adding the id of an entry that is there makes that one DROPPED. */
int index_add(struct store_index *index, const struct index_entry *entry);
int index_map(struct store_index *index); /* 0 or -ENOMEM; nothing to do when mapped */
void index_unmap(struct store_index *index);
void index_deinit(struct store_index *index);

/* The entry with this id that is not DROPPED, or NULL. */
struct index_entry *index_get(const struct store_index *index, uint64_t id);
