/* rdb_file: walks through an RDB file of Redis or Valkey, key by key. Values are skipped: a caller that needs a value
 * reads it again at the place in rdb_key.
 *
 * Statuses are those of rdb_reader.h. Thread: any, on distinct objects. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rdb_reader.h"

/* The newest versions of the format whose changes are known here. */
#define RDB_KNOWN        15
#define RDB_KNOWN_VALKEY 80

#define RDB_MAX_NAME 65535 /* bytes of a name that are kept; a longer one is cut */

struct rdb_key {
    uint64_t db;
    const char *name;   /* not NUL-terminated; valid during the callback */
    size_t name_len;    /* min(its length, RDB_MAX_NAME) */
    bool name_cut;      /* it is longer */
    int64_t expires_ms; /* unix time, 0: never */
    unsigned type;
    uint64_t module;  /* 0, or the type of a module's value, encoding version included */
    const char *kind; /* "string", "list", ..., or the name of the module type; valid during the callback */
    uint64_t at;      /* offset of the value in the file, of a module's after its type */
};

/* 0, or anything else, which ends the walk and is passed on. The value has not been checked yet. */
typedef int rdb_key_fn(void *ctx, const struct rdb_key *key);

struct rdb_summary {
    unsigned version; /* of RDB */
    bool valkey;      /* the file is Valkey's own: types from 22 on have other meanings than in Redis */
    char engine[32];  /* the version of the server that wrote it; "" if the file does not say */
    uint64_t keys;
    bool checked; /* it has a checksum, which is right; servers with rdbchecksum no write none */
    uint64_t end; /* offset of the end; bytes after it are no RDB */
};

/* From the beginning of the file to its end. Nothing in it can be trusted before this has returned RDB_OK, as the
 * checksum stands at the end. */
int rdb_file_walk(struct rdb_reader *reader, rdb_key_fn *on_key, void *ctx, struct rdb_summary *summary_out)
    __attribute__((warn_unused_result));
