/* import: shared by the two forms of `bloomery import`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "rdb_file.h"
#include "store.h"
#include "tool.h"

/* Opens a data directory to add filters. It fails if a daemon uses the directory, or if the log has unsaved changes:
 * the MANIFEST then lacks the next id and names. TOOL_OK, or TOOL_FAILED after a message; to be closed in any case. */
int import_store_open(const char *command, const char *datadir, struct store **store_out);

/* What became of an import after this status of store_save(), not 0. */
const char *import_outcome(int status);

/* The form with --rdb, for the filters of an RDB file. An exit code. */
int import_rdb(const struct tool_args *args);

/* rdb_scan: finds RedisBloom's Bloom and cuckoo filters in an RDB file, valkey-bloom's filters, and the module's cuckoo
 * filters, and counts its other values. */

struct rdb_found {
    uint64_t db;
    char *name; /* not NUL-terminated */
    size_t name_len;
    int64_t expires_ms; /* unix time, 0: never */
    bool cuckoo;
    uint64_t type; /* of the module, with the version of the encoding */
    const char *type_name;
    uint64_t at; /* offset of the value */

    /* The filter, or the reason why it cannot be imported. */
    char *reason; /* NULL: none */
    struct bloom_params params;
    unsigned nlayers;
    uint64_t items, capacity; /* of a cuckoo filter: slots */
    uint64_t bytes;           /* of its bits */
};

/* Values of other kinds. */
struct rdb_kind {
    char name[24]; /* "string", or the name of a module's type */
    uint64_t keys;
};

#define RDB_MAX_KINDS 64 /* further ones are not counted */

struct rdb_scan {
    const char *path;
    int fd;
    uint64_t size;
    struct rdb_summary summary;
    struct rdb_found *found;
    size_t n, room;
    struct rdb_kind kinds[RDB_MAX_KINDS];
    size_t nkinds;
    uint64_t bytes; /* of the bits of all filters without a reason */
};

/* Reads the whole file, which is then known to be undamaged, and checks each filter. 0; or -1 with the reason in `err`.
 * To be closed in any case. */
int rdb_scan_open(struct rdb_scan *scan, const char *path, struct errbuf *err);
void rdb_scan_close(struct rdb_scan *scan);

/* Gives a found filter a reason not to be imported. */
void rdb_scan_refuse(struct rdb_scan *scan, struct rdb_found *found, const char *reason);

/* Makes the filter, in memory of its own (bloom_filter_destroy()). 0; or -1 with the reason in `err`. */
int rdb_scan_load(struct rdb_scan *scan, const struct rdb_found *found, struct bloom_pool *pool,
                  struct bloom_filter **filter_out, struct errbuf *err);
