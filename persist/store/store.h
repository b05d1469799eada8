/* store: the data directory: filters loaded from it and saved to it, atomically as a whole.
 *
 * It knows no client, clock, logging or configuration. It owns no filter: the caller allocates filters and keeps them
 * alive. It starts no threads that outlive a call.
 *
 * A save is atomic: after any failure during it, a crash included, the next start finds exactly the previous save or
 * exactly this one. docs/FORMAT.md has the bytes on disk and the states after a crash.
 *
 * A file is written once, under a number that no other file ever has, and never changes; the MANIFEST alone says which
 * files count. A filter whose files cannot be trusted is quarantined: its files and its record stay through all saves
 * that are told of it. Files whose names are not the store's are never touched.
 *
 * Lifetime: store_open() to store_close(). Thread: "pool"; one call at a time on a store, except store_next_id(),
 * store_number(), store_still_ours(), store_write(), store_published(), store_discard(), store_has_bits(),
 * store_read_bits() and store_quarantine(), which any thread may call at any time, also during a save.
 *
 * Errors: 0; a negative -errno for a call that the system refused; a positive enum store_status. The errbuf always has
 * the reason and names the file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "database.h"
#include "errbuf.h"
#include "fsops.h"

#define STORE_MAX_NAME   65535               /* bytes of a filter's name */
#define STORE_MIN_MEMORY (UINT64_C(8) << 20) /* of a save */

enum store_status {
    STORE_OK = 0,
    STORE_LOCKED = 1,   /* another process works on this directory */
    STORE_DAMAGED = 2,  /* the MANIFEST cannot be trusted, or is missing although there are filters */
    STORE_IN_DOUBT = 3, /* a save failed at its last step: after a crash now, either save may be found. Save again. */
    STORE_NOT_FOUND = 4,
    STORE_NEWER = 5, /* a newer version has written it; the errbuf says so */
};

/* Messages for the operator: one printable line that names the file. */
enum store_severity { STORE_NOTICE, STORE_WARNING };
typedef void store_report_fn(void *ctx, enum store_severity severity, const char *text);

struct store;

struct store_options {
    const struct fsops *fs;  /* NULL: the real one. Borrowed. */
    store_report_fn *report; /* NULL: no messages. Called from the threads that work on the store. */
    void *report_ctx;
    uint64_t hash_seed; /* of the tables in memory: random if names come from strangers */
};

/* The place in the log that a save corresponds to. The log defines these numbers; the store only keeps them. */
struct store_checkpoint {
    uint64_t log;     /* the first segment that is needed together with the save; 0: there has been no log */
    uint64_t control; /* control records up to this number are reflected in the save */
    uint64_t frame; /* frames up to this number were on the disk before the save: a log that ends earlier is older than
                     * the save. 0: none, or unknown */
    uint64_t accepted; /* damage in segments below this number is known and its loss accepted; 0: in none */
    struct databases databases;
};

/* Opens the data directory: creates missing parts (the directory, its tree, an empty MANIFEST), takes the lock, reads
 * and verifies the whole MANIFEST. No filter is read yet. A directory without a MANIFEST whose filters/ is not empty is
 * STORE_DAMAGED; after STORE_DAMAGED, STORE_NEWER and STORE_LOCKED nothing on disk has been changed. */
int store_open(const char *dir, const struct store_options *options, struct store **store_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Verifies the MANIFEST as store_open() does, and changes nothing; the lock is the caller's business. Passes each
 * filter in it to the sink (manifest.h), whose on_gone is not called. `sink` NULL: verifies that it is the newest one,
 * too. `save_out` may be NULL. 0, STORE_DAMAGED, STORE_NEWER, -errno (-ENOENT when there is none), or the sink's
 * result. */
struct manifest_sink;
struct manifest_save;
int store_visit(const char *dir, const struct store_options *options, const struct manifest_sink *sink,
                struct manifest_save *save_out, struct errbuf *err) __attribute__((warn_unused_result));

/* Gives the lock back. Saves nothing. NULL is fine. */
void store_close(struct store *store);

/* The id that the next new filter gets: greater than every id that this directory has ever seen. */
uint64_t store_next_id(const struct store *store);

/* The highest number given out so far: every file written from now on has a higher one. */
uint64_t store_number(const struct store *store);

/* Whether the directory is still the one that store_open() has locked: a user may have removed it, and another process
 * may have created it again. All code outside the store asks before it adds a file. 0, or -errno with the reason. */
int store_still_ours(struct store *store, struct errbuf *err) __attribute__((warn_unused_result));

/* Of the committed MANIFEST. Not during a save. */
struct store_checkpoint store_checkpoint(const struct store *store);

uint64_t store_opened_bytes(const struct store *store); /* of the Filter.db files that store_open() found in it */

/* Whether the committed MANIFEST holds a filter of this name: 0 or STORE_NOT_FOUND, or -errno when the MANIFEST cannot
 * be read any more. */
int store_find(struct store *store, const char *name, size_t name_len, struct errbuf *err);

/* ---- saving ---- */

struct store_item {
    uint64_t id;
    const char *name; /* borrowed until release() */
    size_t name_len;
    struct bloom_filter *filter; /* kept alive by the source until release(); NULL: gone or quarantined */
    bool dirty;                  /* its bits have changed since the source last yielded it */
    bool quarantined;            /* it exists but could not be loaded: `filter` is NULL, name and expiry are valid */
    bool evicted; /* its words are not in memory (bloom_resident.h); so store_has_bits(), and it is not dirty */
    int64_t expires_ms;
    void *user; /* the source's own */
};

/* The filters of a save: all that next() yields. Filters of the last save that are not yielded are gone and are
 * removed, unless `keep_unlisted`. The last item with an id counts: a filter that is renamed during the walk is yielded
 * again, a deleted one is yielded with a NULL filter. Adds may continue all the time. */
struct store_source {
    int (*next)(void *ctx, struct store_item *item_out); /* 1, 0 at the end, -errno: the save fails */
    void (*release)(void *ctx, struct store_item *item); /* once per item yielded, in order */
    uint64_t (*next_id)(void *ctx);                      /* asked at the end; NULL: one above the highest id seen */
    /* Called after next() has returned 0 and before the commit: may sync the log. 0, or -errno with a text: the save
     * fails. NULL: the checkpoint of the previous save stays. */
    int (*checkpoint)(void *ctx, struct store_checkpoint *checkpoint_out, struct errbuf *err);
    void (*wrote)(void *ctx, uint64_t bytes); /* after each write; may sleep to pace the save. NULL: no calls */
    void *ctx;
    uint64_t
        pack_limit;  /* filters of at most this many bytes of Filter.db files (and of 64 KB) go into packs; 0: none */
    uint64_t memory; /* for buffers, in bytes; less than STORE_MIN_MEMORY counts as that much */
    bool keep_unlisted;
};

struct store_save_summary {
    uint64_t filters; /* in the new MANIFEST, quarantined ones included */
    uint64_t layers_written;
    uint64_t bytes;   /* of the layers written, as Filter.db files */
    uint64_t removed; /* filters that are gone */
};

/* Saves. The files of unchanged filters stay, and are not looked at. 0: committed and on the disk. Otherwise the whole
 * save has failed, the previous one stays, and the new files have been removed. The next save writes the filters again;
 * the source need not remember which were dirty. STORE_IN_DOUBT: the same, but after a crash now a start may find the
 * failed save instead.
 *
 * Adds may continue: the saved filter contains every item whose add had returned when the filter was yielded. A layer's
 * item count is read after its bits and is never below the items in them: it may include items that were added during
 * the write. Memory, for filters of any size: at most the source's `memory`, and 100 bytes per filter. */
int store_save(struct store *store, const struct store_source *source, struct store_save_summary *summary_out,
               struct errbuf *err) __attribute__((warn_unused_result));

/* ---- one filter, outside a save ---- */

/* Writes a filter that is not in the registry yet: the caller is about to publish contents that are too large for the
 * log. On success the files are on the disk, and `record_out` holds the record for the log (the caller frees it):
 * store_replay_written() brings the filter back from it after a crash. The item's `dirty`, `quarantined` and `user`
 * have no meaning here.
 *
 * Exactly one call follows: store_published(), once the record is in the log's queue and the filter in the registry, or
 * store_discard(). A save to which the filter is yielded adopts the files if the filter is not dirty. If the filter is
 * not yielded any more, the next save removes its files.
 *
 * 0, or -errno: nothing is left on the disk. Thread: "pool"; any number at a time, also during a save, not during
 * store_load(). */
struct store_record {
    char *text;
    size_t len;
};
int store_write(struct store *store, const struct store_item *item, struct store_record *record_out, struct errbuf *err)
    __attribute__((warn_unused_result));
void store_published(struct store *store, uint64_t id); /* never blocks on the disk and calls no callback; ids that
                                                         * store_write() has not had are ignored */
void store_discard(struct store *store, uint64_t id);   /* deletes the files */

/* ---- bits that are not in memory ----
 *
 * Thread: any, also during a save; not during store_load(). */

/* Whether the last save has the bits of the filter, if they have not changed since the source of a save last yielded
 * the filter, or since store_load(). */
bool store_has_bits(struct store *store, uint64_t id);

/* Reads them into the filter, which has the layers that it had then, and their words (bloom_resident.h). 0;
 * STORE_NOT_FOUND: the last save does not have it; STORE_DAMAGED: its file is damaged or unreadable; or a temporary
 * -errno (-ENOMEM, -EMFILE): it may be read later. In all except the first case the words are undefined. Takes its
 * time: not on a loop. */
int store_read_bits(struct store *store, uint64_t id, struct bloom_filter *filter, struct errbuf *err)
    __attribute__((warn_unused_result));

/* The filter's file is damaged: it is quarantined, as one that could not be loaded. The caller yields it as such from
 * now on, and it is in the last save. Calls no callback and does not block on the disk. */
void store_quarantine(struct store *store, uint64_t id);
