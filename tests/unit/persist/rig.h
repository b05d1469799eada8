/* rig: filters in the place of the server's, for tests of the store: a source of saves, a target of loads, and a digest
 * of all bits that compares two sets of filters. Wrong use ends the program. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "manifest.h"
#include "store_loader.h"

#define RIG_MAX 64

struct rig_filter {
    uint64_t id;
    char *name;
    size_t name_len;
    struct bloom_filter *filter; /* NULL: quarantined */
    bool dirty;
    int64_t expires_ms;
    char reason[ERRBUF_SIZE]; /* of the quarantine */
};

struct rig {
    struct bloom_pool *pool;
    struct rig_filter filters[RIG_MAX];
    size_t count;
    uint64_t next_id;
    struct store_checkpoint checkpoint; /* of the next save */
    int checkpoint_rc;
    uint64_t pack_limit;                                         /* of saves; 0: every filter has files of its own */
    bool (*resolve)(struct rig *rig, struct store_filter *info); /* NULL: all are kept */
    void (*replay)(struct rig *rig, struct store *store);        /* between open and load; NULL: nothing */
    struct store_load_summary loaded;
    char reports[8192]; /* of the store, a line each */

    /* walking */
    size_t at;
    const struct store_item *extra; /* yielded after all others */
    size_t nextra;
    bool keep_unlisted;
    size_t released;
    void (*on_next)(struct rig *rig, size_t at); /* called before each item */
    pthread_mutex_t mutex;
};

void rig_init(struct rig *rig);
void rig_deinit(struct rig *rig);

/* A new, dirty filter. `shape` NULL: as planned for the parameters. */
struct rig_filter *rig_add(struct rig *rig, const char *name, const struct bloom_params *params,
                           const struct bloom_shape *shape);
struct rig_filter *rig_add_bytes(struct rig *rig, const char *name, size_t name_len, const struct bloom_params *params,
                                 const struct bloom_shape *shape);
struct rig_filter *rig_find(struct rig *rig, const char *name); /* NULL: none */
void rig_remove(struct rig *rig, const char *name);
void rig_rename(struct rig *rig, const char *from, const char *to);
void rig_fill(struct rig_filter *filter, uint64_t from, uint64_t n); /* items from, from + 1, ...; marks it dirty */
bool rig_has(const struct rig_filter *filter, uint64_t item);

/* The place of a layer according to the MANIFEST: its file, or its pack and the offset in it. Both are in `filters`. */
struct rig_place {
    char path[512];
    char file[FILE_NAME_SIZE]; /* the last part of the path */
    uint64_t number;           /* of the file or the pack */
    uint64_t offset;           /* in it */
};
struct rig_place rig_place(const struct fsops *fs, const char *dir, const char *name, unsigned layer);

/* Of all filters that are not quarantined: id, name, parameters, layers, counts, bits, expiry. */
uint64_t rig_digest(const struct rig *rig);

struct store_options rig_options(struct rig *rig, const struct fsops *fs);

/* Opens a directory and loads it into an empty rig. Returns the status of store_open() or store_load(); after a failure
 * nothing is open. */
int rig_load(struct rig *rig, const char *dir, const struct fsops *fs, unsigned nthreads, struct store **store_out,
             struct errbuf *err);

int rig_save(struct rig *rig, struct store *store, struct store_save_summary *summary, struct errbuf *err);
