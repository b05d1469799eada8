/* sstable_name: the contents of the path of an SSTable's file: keyspace, table, version, generation, and whether it
 * belongs to the live table or lies next to it (docs/FORMAT.md section 2). As Cassandra, DataStax's versions of it and
 * ScyllaDB name files and directories:
 *
 *     <keyspace>/<table>-<table's id>/nb-1-big-Filter.db                  since 2.2; the id is of 32 hexadecimal digits
 *     <keyspace>/<table>-<id>/me-3ga6_0000_2gi3k2r1azcv9tdwfk-big-Filter.db     a generation that is a UUID with a time
 *     <keyspace>/<table>-<id>/<keyspace>-<table>-ka-1-Filter.db           before 2.2
 *     <keyspace>/<table>/<keyspace>-<table>.<index>-ic-1-Filter.db        before 2.1: no id; indexes are there, too
 *     <table's directory>/.<index>/...                                    a secondary index, since 2.2
 *     <table's directory>/snapshots/<tag>/...   backups/   staging/   upload/   quarantine/   pending_delete/
 *     <table's directory>/<generation>.sstable/...                        ScyllaDB, until all of it is written
 *     tmp-la-1-big-..., <keyspace>-<table>-tmp-ka-1-...                   Cassandra before 3.0, until all is written
 *
 * It checks the text only and opens nothing. Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "slice.h"

enum sstable_place {
    SSTABLE_LIVE = 0,
    SSTABLE_SNAPSHOT,
    SSTABLE_BACKUP,
    SSTABLE_STAGING,    /* ScyllaDB: live, and views have yet to be updated from it: reads use it */
    SSTABLE_UPLOAD,     /* ScyllaDB: put there by an operator, not yet taken in */
    SSTABLE_QUARANTINE, /* ScyllaDB: found damaged by a scrub; reads use it until it is removed */
    SSTABLE_DELETED,    /* ScyllaDB: about to be deleted */
    SSTABLE_UNSEALED,   /* being written */
};

/* The parts of a path, which they point into; `len` 0: the path does not say. */
struct sstable_name {
    struct slice keyspace, table;
    struct slice table_id; /* of the directory, with or without dashes */
    struct slice index;    /* of a secondary index */
    struct slice snapshot; /* the tag */
    struct slice version;  /* "nb" */
    struct slice generation;
    struct slice component; /* "Filter.db" */
    bool bti;               /* trie-indexed; otherwise big, which names before 2.2 do not mention */
    enum sstable_place place;
};

enum sstable_status {
    SSTABLE_OK = 0,
    SSTABLE_OTHER = 1, /* not the name of a file of an SSTable; the errbuf says why */
};

/* Splits the path of any component's file (Data.db, Filter.db, TOC.txt, ...). The parts live as long as the path. */
int sstable_name_parse(const char *path, struct sstable_name *name_out, struct errbuf *err);

/* The layout of this SSTable's Filter.db. SSTABLE_OK; or SSTABLE_OTHER: an unknown version, or one before
 * Cassandra 1.2, whose hash was another. */
int sstable_name_variant(const struct sstable_name *name, enum bloom_variant *variant_out, struct errbuf *err);

/* Whether reads of the table (of its index, for an index) use this SSTable. */
bool sstable_is_read(const struct sstable_name *name);

/* Writes the path of another component of the same SSTable ("TOC.txt") with a NUL. Returns its length without it; when
 * that is not below `size`, nothing useful has been written. `name` is of `path`. */
size_t sstable_sibling(const char *path, const struct sstable_name *name, const char *component, char *out,
                       size_t size);
