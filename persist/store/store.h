/* store: the data directory: filters loaded from it and saved to it, atomically as a whole.
 *
 * What it does not do: it knows no client, no clock, no logging and no configuration; it owns no filter (the caller
 * allocates them and keeps them alive); it starts no threads that outlive the call.
 *
 * A save either takes place or it does not: whatever happens during a save, a crash included, the next start finds
 * exactly the save before it or exactly this one. Bytes on disk, and what a crash may leave: docs/FORMAT.md.
 *
 * A filter whose files cannot be trusted is quarantined: its files and its record stay as they are through any number of
 * saves until store_forget(). A file that the store did not make is never overwritten nor deleted: a filter in whose
 * place it is gets another directory.
 *
 * Lifetime: store_open() to store_close(). Thread: "pool"; one call at a time on a store, except store_forget(),
 * store_next_id(), store_generation(), store_write(), store_published() and store_discard(), which any thread may call at any time, also
 * during a save.
 *
 * Errors: 0; a negative -errno for what the system refused; a positive enum store_status. The errbuf always says what
 * went wrong and names the file. */
#ifndef BLOOMERY_STORE_H
#define BLOOMERY_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "fsops.h"

#define STORE_MAX_NAME   65535             /* bytes of a filter's name */
#define STORE_MIN_MEMORY (UINT64_C(8) << 20) /* of a save */

enum store_status {
    STORE_OK = 0,
    STORE_LOCKED = 1,   /* another process works on this directory */
    STORE_DAMAGED = 2,  /* the MANIFEST cannot be trusted, or is missing although there are filters */
    STORE_IN_DOUBT = 3, /* a save failed at its last step: after a crash now, either save may be found. Save again. */
    STORE_NOT_FOUND = 4,
};

/* What happened, for the operator: one printable line that names the file. */
enum store_severity { STORE_NOTICE, STORE_WARNING };
typedef void store_report_fn(void *ctx, enum store_severity severity, const char *text);

struct store;

struct store_options {
    const struct fsops *fs;  /* NULL: the real one. Borrowed. */
    store_report_fn *report; /* NULL: nobody listens. Called from the threads that work on the store. */
    void *report_ctx;
    uint64_t hash_seed; /* of the tables in memory: random where names come from strangers */
};

/* Where the log of changes goes on from a save. All are numbers of the log's own, which the store only keeps. */
struct store_checkpoint {
    uint64_t log;     /* the first segment that is needed together with the save; 0: there has been no log */
    uint64_t control; /* control records up to this number are reflected in the save */
    uint64_t frame;   /* frames up to this number were on the disk before the save was: a log that ends before it is an
                       * older one. 0: that is not known, or there were none */
    uint64_t accepted; /* what is damaged in segments below this number is known, and its loss accepted; 0: nothing is */
};

/* Opens the data directory: creates what is absent (the directory, its tree, an empty MANIFEST), takes the lock, reads
 * and verifies the whole MANIFEST. No filter is read yet. A directory without a MANIFEST whose filters/ is not empty is
 * STORE_DAMAGED; after STORE_DAMAGED and STORE_LOCKED nothing on disk has been changed. */
int store_open(const char *dir, const struct store_options *options, struct store **store_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Verifies the MANIFEST as store_open() does, and changes nothing; the lock is the caller's business. 0, STORE_DAMAGED, or -errno:
 * -ENOENT when there is none. */
int store_verify(const char *dir, const struct store_options *options, struct errbuf *err) __attribute__((warn_unused_result));

/* Gives the lock back. Saves nothing. NULL is fine. */
void store_close(struct store *store);

/* The id that the next new filter gets: greater than every id that this directory has ever seen. */
uint64_t store_next_id(const struct store *store);

/* The highest generation given out so far: what is written from now on has a higher one. */
uint64_t store_generation(const struct store *store);

/* Of the committed MANIFEST. Not during a save. */
struct store_checkpoint store_checkpoint(const struct store *store);

size_t store_count(const struct store *store); /* filters in the committed MANIFEST, quarantined ones included */

uint64_t store_opened_bytes(const struct store *store); /* of the Filter.db files that store_open() found in it */

/* Whether the committed MANIFEST holds a filter of this name; in `id_out` (may be NULL) its id. 0 or STORE_NOT_FOUND,
 * or -errno when the MANIFEST cannot be read any more. */
int store_find(struct store *store, const char *name, size_t name_len, uint64_t *id_out, struct errbuf *err);

/* ---- loading: store_open(), then the log's control records are replayed, then store_load() ------------------------- */

/* Between store_open() and store_load(), for each record that store_write() made and that the log has kept, in the log's
 * order, also when a later record deletes the filter again. What is not handed in here and is not in the MANIFEST is a
 * leftover of a crash to store_load(), and removed. 0, STORE_DAMAGED (not such a record), -ENOMEM. */
int store_replay_written(struct store *store, const char *record, size_t len, struct errbuf *err)
    __attribute__((warn_unused_result));

/* What it is handed: the id of the filter that the record is of. 0, STORE_DAMAGED (not such a record), -ENOMEM. */
int store_record_id(const char *record, size_t len, uint64_t *id_out, struct errbuf *err) __attribute__((warn_unused_result));

/* A filter as the MANIFEST (or a replayed record) states it. Valid during the callback. */
struct store_filter {
    uint64_t id;
    const char *name; /* `name_len` bytes, not NUL-terminated */
    size_t name_len;
    int64_t expires_ms; /* unix time, 0: never */
    uint64_t generation; /* of its newest file */
};

enum store_fate {
    STORE_KEPT,
    STORE_GONE,     /* deleted since the save; its files are removed by the next one */
    STORE_GIVEN_UP, /* the same, but it was quarantined when it was deleted: its files are moved to quarantine/ instead */
};

/* Called from up to `nthreads` threads at once, at most one call per filter at a time. For each filter: alloc(), then
 * either loaded() or discard() followed by quarantined(); or quarantined() alone when there was nothing to allocate for
 * or alloc() refused. The `user` pointer that alloc() sets comes back with the following calls for the filter. */
struct store_loader {
    /* First of all: what the log knows of the filter since the save. May put another name (valid until the last callback
     * for the filter) and another expiry into `info`. NULL: nothing. */
    enum store_fate (*resolve)(void *ctx, struct store_filter *info);
    /* Storage of bloom_filter_bytes(class), with bloom_filter_init() done. NULL with the reason in `err` when there is
     * none: the filter is quarantined in this run. The class is borrowed. */
    struct bloom_filter *(*alloc)(void *ctx, const struct store_filter *info, struct bloom_class *class, void **user_out,
                                  struct errbuf *err);
    /* It is whole: layers, bits and item counts are in place. */
    void (*loaded)(void *ctx, const struct store_filter *info, struct bloom_filter *filter, void *user);
    /* What alloc() made is not needed: undo it. */
    void (*discard)(void *ctx, struct bloom_filter *filter, void *user);
    /* It could not be loaded. `reason` names the file and what is wrong with it. */
    void (*quarantined)(void *ctx, const struct store_filter *info, const char *reason);
    void *ctx;
};

struct store_load_summary {
    uint64_t filters;     /* loaded */
    uint64_t quarantined;
    uint64_t layers;
    uint64_t bytes;       /* of the files read */
    uint64_t recovered;   /* files of a save that had been committed but not been put into place */
    uint64_t leftovers;   /* files of an unfinished save, removed */
    uint64_t foreign;     /* files and directories that are not ours, left alone; each one has been reported */
};

/* Loads every filter, with `nthreads` >= 1 threads, and finishes what a crash has interrupted. 0, or -errno when the
 * loading as a whole went wrong (MANIFEST no longer readable, no threads); the filters delivered until then remain the
 * caller's. To be called once, before the first save. */
int store_load(struct store *store, struct bloom_pool *pool, unsigned nthreads, const struct store_loader *loader,
               struct store_load_summary *summary_out, struct errbuf *err) __attribute__((warn_unused_result));

/* ---- saving -------------------------------------------------------------------------------------------------------- */

struct store_item {
    uint64_t id;
    const char *name; /* borrowed until release() */
    size_t name_len;
    struct bloom_filter *filter; /* kept alive by the source until release(); NULL: gone or quarantined */
    bool dirty;                  /* its bits have changed since the source last yielded it */
    bool quarantined;            /* it is there, but could not be loaded: `filter` is NULL, name and expiry hold */
    int64_t expires_ms;
    void *user; /* the source's own */
};

/* What is to be saved: everything that next() yields. Filters of the last save that are not yielded are gone and will be
 * removed, unless `keep_unlisted` or quarantined. The LAST item with an id holds: a filter renamed meanwhile is yielded
 * again, one deleted meanwhile is yielded with a NULL filter. Adds may go on all the time. */
struct store_source {
    int (*next)(void *ctx, struct store_item *item_out); /* 1, 0 at the end, -errno: the save fails */
    void (*release)(void *ctx, struct store_item *item); /* once per item yielded, in order */
    uint64_t (*next_id)(void *ctx);                      /* asked at the end; NULL: one above the highest id seen */
    /* Asked after next() has returned 0, before anything becomes valid: may make the log durable. 0, or -errno with a
     * text: the save fails. NULL: the checkpoint of the save before holds on. */
    int (*checkpoint)(void *ctx, struct store_checkpoint *checkpoint_out, struct errbuf *err);
    void (*wrote)(void *ctx, uint64_t bytes); /* for every piece handed to the disk; may sleep to pace. NULL: nobody asks */
    void *ctx;
    uint64_t pack_limit; /* filters of at most so many bytes of Filter.db files (and of 64 KB) go into packs; 0: none */
    uint64_t memory; /* what buffers may take, in bytes; less than STORE_MIN_MEMORY counts as that much */
    bool keep_unlisted;
};

struct store_save_summary {
    uint64_t filters;        /* in the new MANIFEST, quarantined ones included */
    uint64_t layers_written;
    uint64_t layers_linked;  /* of renamed filters: same bytes, new name */
    uint64_t bytes;          /* of the layers written, as Filter.db files */
    uint64_t removed;        /* filters that are gone */
    uint64_t displaced;      /* filters that this save has put into another directory than that of their name, because
                              * something that is not ours is in the way there; each one has been reported */
    bool unfinished;         /* committed and safe, but some file could not be renamed or removed: the next save or start
                              * does it */
};

/* Saves. 0: committed; it is on disk. Anything else: it has failed as a whole and the save before it holds; temporary
 * files have been removed, and the next save writes what this one should have written (the source need not remember
 * what was dirty). STORE_IN_DOUBT: the same, but after a crash now the failed save may be found instead.
 *
 * Adds may go on: what is saved of a filter contains every item whose add had returned when the filter was yielded. A
 * layer's item count is read after its bits and never below what they hold: it may count items that were added while
 * they were written. Memory, whatever the filters' size: the source's `memory` at the most, and 100 bytes per filter. */
int store_save(struct store *store, const struct store_source *source, struct store_save_summary *summary_out,
               struct errbuf *err) __attribute__((warn_unused_result));

/* ---- one filter, outside a save ------------------------------------------------------------------------------------- */

/* Writes a filter that is not (yet) in the registry: the caller is about to publish contents that came from elsewhere, and
 * the log is not to hold them. On success the files are on disk under temporary names, and `record_out` holds what the log
 * has to keep of them (to be freed by the caller): handed to store_replay_written() after a crash, it brings the filter
 * back. The item's `dirty`, `quarantined` and `user` are not looked at.
 *
 * Then exactly one of store_published(), once the record is in the log's queue and the filter in the registry, and
 * store_discard(). A save that is yielded the filter takes the files over if it is not dirty. Files of a filter that was
 * published and is not yielded any more go with the next save.
 *
 * 0, or -errno: nothing is left. Thread: "pool"; any number at a time, also during a save, not during store_load(). */
struct store_record {
    char *text;
    size_t len;
};
int store_write(struct store *store, const struct store_item *item, struct store_record *record_out, struct errbuf *err)
    __attribute__((warn_unused_result));
void store_published(struct store *store, uint64_t id); /* never blocks on the disk, calls nobody; ids that store_write()
                                                         * has not had are ignored */
void store_discard(struct store *store, uint64_t id);   /* deletes the files */

/* Gives up a quarantined filter (an operator deletes it): the next save leaves it out and moves its files to quarantine/.
 * 0, or STORE_NOT_FOUND when no quarantined filter has this id. Takes effect in memory at once, costs nothing. */
int store_forget(struct store *store, uint64_t id);

#endif
