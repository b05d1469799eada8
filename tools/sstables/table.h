/* table: one SSTable on disk, found by the path of any of its files. Thread: one. */
#pragma once

#include <stdbool.h>

#include "bloom_filter.h"
#include "sstable_keys.h"
#include "sstable_name.h"

#define TABLE_PATH 4096

struct table {
    char path[TABLE_PATH]; /* the one that it was found by; `name` points into it */
    struct sstable_name name;
    char filter[TABLE_PATH], toc[TABLE_PATH];
};

/* 0, or -EINVAL with the reason. */
int table_of(struct table *table, const char *path, struct errbuf *err);

/* The path of another component ("Scylla.db"). False: it is too long. */
bool table_component(const struct table *table, const char *component, char out[TABLE_PATH]);

/* Whether it is there. */
bool table_has(const struct table *table, const char *component);

/* The hash of the last key: of a trie, or of Summary.db. 0; or another number where it is not known. */
int table_last_key(const struct table *table, struct bloom_hash *hash_out);

/* TOC.txt: the components of the SSTable, a line each. */
struct table_toc {
    size_t len;
    char text[4096]; /* with a NUL after it */
};

/* 0; -ENOENT: there is none; -EFBIG: it is longer than any database writes it; or -errno. */
int table_read_toc(const struct table *table, struct table_toc *toc_out);

/* The next line after `at`, which begins at the text, of *len_out bytes; NULL: there are no more. */
const char *table_next_component(const char **at, size_t *len_out);
bool table_toc_names(const struct table_toc *toc, const char *component);

/* Passes the hash of each key to `take`, up to `most` of them (0: all). `progress` NULL: shows none. 0; or
 * SSTABLE_KEYS_DAMAGED or -errno, with the reason, which begins with the component. */
int table_each_key(const struct table *table, uint64_t most, void (*take)(void *ctx, const struct sstable_key *key),
                   void *ctx, const char *what, struct errbuf *err);

/* sstable_walk: the SSTables below a directory (sstable_dir.h). A Data.db or Filter.db stands for one. A running
 * database may replace SSTables: new ones are passed on, too, until no key can have been missed. Thread: one. */

/* Valid during the call. */
struct found_sstable {
    const char *filter; /* path of its Filter.db; NULL: it has none */
    const char *shown;  /* path of its Data.db, or else of its Filter.db */
    struct sstable_name name;
};

struct sstable_walk {
    void (*on_sstable)(void *ctx, const struct found_sstable *sstable);
    /* a directory that could not be read, or an SSTable of an unknown format */
    void (*on_error)(void *ctx, const char *path, const char *reason);
    void *ctx;
    bool all; /* also the ones that reads do not use: snapshots, backups, uploads, secondary indexes; those of a
               * directory that is one itself always */
};

/* In the order of their paths. 0, or -ENOMEM. */
int sstable_walk(const struct sstable_walk *walk, const char *directory);
