/* store_loader: loads the filters of an open store. After store_open() the control records of the log are replayed;
 * then store_load() reads the filters. Statuses and errors are those of store.h. */
#pragma once

#include "store.h"

/* Called between store_open() and store_load() for each record of store_write() in the log, in the log's order, even if
 * a later record deletes the filter. store_load() takes all other files that are not in the MANIFEST for leftovers of a
 * crash and removes them. 0, STORE_DAMAGED (not such a record), -ENOMEM. */
int store_replay_written(struct store *store, const char *record, size_t len, struct errbuf *err)
    __attribute__((warn_unused_result));

/* The id of the filter in such a record. 0, STORE_DAMAGED (not such a record), -ENOMEM. */
int store_record_id(const char *record, size_t len, uint64_t *id_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* A filter as the MANIFEST (or a replayed record) describes it. Valid during the callback. */
struct store_filter {
    uint64_t id;
    const char *name; /* `name_len` bytes, not NUL-terminated */
    size_t name_len;
    int64_t expires_ms; /* unix time, 0: never */
    uint64_t newest;    /* the number of its newest file */
    bool leave;         /* its bits stay on the disk: see leaves() */
};

/* Calls come from up to `nthreads` threads at once, one at a time for each filter. A filter gets alloc() and then
 * loaded(), or discard() and quarantined() if it cannot be loaded. It gets quarantined() alone if alloc() refused, or
 * if its files are unusable before that. The `user` pointer that alloc() sets is passed to the later calls. */
struct store_loader {
    /* Called first: whether the filter has not been deleted since the save, by the log; the next save removes the files
     * of a deleted one. May put a new name (valid until the last callback for the filter) and a new expiry into `info`.
     * NULL: no changes. */
    bool (*resolve)(void *ctx, struct store_filter *info);
    /* Whether the bits of the filter, of this many bytes, stay on the disk until store_read_bits(). Then loaded() gets
     * it with its layers and counts, and without words (bloom_resident.h) unless all of them are in the caller's
     * memory. NULL: none stays. */
    bool (*leaves)(void *ctx, const struct store_filter *info, uint64_t bytes);
    /* Storage of bloom_filter_bytes(class), with bloom_filter_init() done. NULL with the reason in `err` when there is
     * none: the filter is quarantined in this run. The class is borrowed. */
    struct bloom_filter *(*alloc)(void *ctx, const struct store_filter *info, struct bloom_class *class,
                                  void **user_out, struct errbuf *err);
    /* The filter is complete: layers, bits and item counts. */
    void (*loaded)(void *ctx, const struct store_filter *info, struct bloom_filter *filter, void *user);
    /* Undoes alloc(). */
    void (*discard)(void *ctx, struct bloom_filter *filter, void *user);
    /* The filter could not be loaded. `reason` names the file and the fault. */
    void (*quarantined)(void *ctx, const struct store_filter *info, const char *reason);
    void *ctx;
};

struct store_load_summary {
    uint64_t filters; /* loaded */
    uint64_t quarantined;
    uint64_t left; /* of those that are loaded: without their bits */
    uint64_t layers;
    uint64_t bytes;     /* of the files read */
    uint64_t leftovers; /* unneeded files, removed or put aside */
    uint64_t foreign;   /* files in `filters` that are not the store's; left alone, and each one reported */
};

/* Loads every filter, with `nthreads` >= 1 threads, and removes files that nothing needs. 0, or -errno when the
 * loading as a whole went wrong (MANIFEST no longer readable, no threads); the filters delivered until then remain the
 * caller's. To be called once, before the first save. */
int store_load(struct store *store, struct bloom_pool *pool, unsigned nthreads, const struct store_loader *loader,
               struct store_load_summary *summary_out, struct errbuf *err) __attribute__((warn_unused_result));
