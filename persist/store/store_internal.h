/* store_internal: what the parts of the store share. Internal to persist.
 *
 * store.c has paths and what is asked of a store; store_open.c opens and closes it; store_load.c loads; store_inventory.c
 * compares what is in the directories with what should be, store_stray_packs.c does it for packs; store_pack.c keeps the
 * table of packs; store_place.c writes the files of one filter under temporary names; store_write.c does it for single
 * filters outside of saves; store_save.c walks the source of a save and store_put.c finds files their places;
 * store_commit.c composes the new MANIFEST (store_records.c: its records of filters) and makes it valid; store_finish.c
 * does what is left to do once a MANIFEST is valid, after a save as after a crash. */
#ifndef BLOOMERY_STORE_INTERNAL_H
#define BLOOMERY_STORE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "id_map.h"
#include "layer_file.h"
#include "manifest.h"
#include "manifest_file.h"
#include "name_code.h"
#include "store.h"
#include "store_index.h"
#include "store_pack.h"

struct store {
    uint64_t opened_bytes;
    const struct fsops *fs;
    store_report_fn *report;
    void *report_ctx;
    char *dir;
    uint64_t device; /* that the data directory is on */
    int lock_fd;     /* also what sync_all() is told by: open since before anything was written */
    int manifest_fd; /* the committed MANIFEST, also after its name went to another file */

    struct store_index index; /* of the committed MANIFEST, in the order of its records */
    struct manifest_save save; /* of the committed MANIFEST */
    uint64_t digest;           /* of its lines but the last */
    struct packs packs;
    uint64_t removed_from;    /* the range of the lines about removed filters in the committed MANIFEST */
    uint64_t removed_to;
    struct manifest_text pending; /* lines about removed filters that could not be carried out */
    uint64_t npending;
    struct id_map blocked;    /* directories that such lines still have files in; no values */
    bool redo_removed;        /* it is not known which lines have been carried out */
    uint64_t nunplaced; /* entries that are INDEX_UNPLACED */
    bool in_doubt;      /* the last save failed at its last step */
    atomic_bool leftovers; /* something that failed may have left files */
    _Atomic uint64_t generation; /* the highest one handed out */
    _Atomic uint64_t next_id;
    atomic_size_t count;

    pthread_mutex_t mutex;     /* guards what follows, and makes reports come one at a time */
    struct id_map quarantined; /* in this run; no values */
    struct id_map forgotten;   /* not yet taken up by a save; no values */
    struct id_map written;     /* struct written: what store_write() has made and no save has dealt with */
};

struct path {
    char text[4096];
};

/* Each 0 or -ENAMETOOLONG (with the reason in `err`, which may be NULL). `dir` is a name under filters/. */
int path_root(const struct store *store, struct path *path, const char *name, struct errbuf *err);
int path_dir(const struct store *store, struct path *path, const char *dir, struct errbuf *err);
int path_final(const struct store *store, struct path *path, const char *dir, unsigned layer, struct errbuf *err);
int path_temp(const struct store *store, struct path *path, const char *dir, unsigned layer, uint64_t generation,
              struct errbuf *err);

/* What a file in a filter's directory is by its name: "<layer>-Filter.db" or "<layer>-Filter.db.<generation>". */
struct file_name {
    unsigned layer;
    bool temporary;
    uint64_t generation;
};
bool file_name_parse(const char *name, struct file_name *out);

__attribute__((format(printf, 3, 4))) void store_report(struct store *store, enum store_severity severity,
                                                        const char *fmt, ...);

/* A name for messages: printable, cut when it is long. */
struct shown_name {
    char text[68];
};
struct shown_name show_name(const char *name, size_t len);

/* Whether the entry's directory is `dir`: the hash has been compared by the caller. Negative: -errno. */
int entry_is_dir(struct record_reader *reader, const struct index_entry *entry, const char *dir, struct errbuf *err);

/* A number that is on the disk, where no save has left it on purpose, is not given out again. False: no save can have had
 * one like that. */
bool generation_pass(struct store *store, uint64_t number);

uint64_t newest_generation(const struct manifest_filter *filter);

/* Whether a MANIFEST may have these: what a save writes must be readable, and the next one counts on from it. 0 or
 * -EOVERFLOW. */
int store_check_numbers(const struct manifest_save *save, struct errbuf *err);

/* ---- files of one filter (store_place.c) ---------------------------------------------------------------------------- */

/* Positive: the directory cannot be used for this filter, because of something that is not ours; the errbuf says what.
 * Another directory may do. */
#define PLACE_UNUSABLE 1

#define PLACE_MAX_ALTERNATES 100

/* Makes the directory, or finds that it is there (`made_out` false; may be NULL). 0, PLACE_UNUSABLE or -errno. */
int place_make_dir(struct store *store, const char *dir, bool *made_out, struct errbuf *err);

/* What PLACE_UNUSABLE is made of: whether an error is one of this file or directory and not of the disk. */
bool place_is_local(int rc);

/* Fills record->layers[i] and writes its file under the temporary name of `generation`. 0, PLACE_UNUSABLE or -errno. */
int place_layer(struct store *store, struct layer_io *io, struct manifest_filter *record, unsigned i,
                const struct bloom_filter *filter, uint64_t generation, bool sync, struct errbuf *err);

/* Makes the names in the directory durable, and in `filters` the name of the directory. */
int place_sync(struct store *store, const char *dir, bool parent, struct errbuf *err);

/* Deletes what of the layers is under temporary names of their newest generation, and the directory if it is empty then.
 * False when something may be left. */
bool place_discard(struct store *store, const struct manifest_filter *filter);

/* ---- single filters (store_write.c) ----------------------------------------------------------------------------------- */

struct written {
    uint64_t id;
    uint64_t generation;
    char *text;     /* the record; NULL while the files are being written */
    size_t len;
    bool published;
    bool before;    /* was published before the save under way began */
    bool quarantined;
    bool forgotten;
    bool stale; /* its bits have changed since; remembered when a save fails */
    bool gone;  /* yielded as gone by the save under way */
};

/* A record that is not in a MANIFEST. `filter` is valid until the deinit. 0, -EINVAL (not a record) or -ENOMEM. */
struct parsed_record {
    struct manifest_parser parser;
    struct manifest_sink sink;
    const struct manifest_filter *filter;
};
int parsed_record_init(struct parsed_record *parsed, const char *text, size_t len, struct errbuf *err);
void parsed_record_deinit(struct parsed_record *parsed);

/* The one with this id whose files are complete; it stays until the save under way ends. NULL: none. */
struct written *written_find(struct store *store, uint64_t id);

/* Around a save. Begin: notes which ones have been published. End: takes leave of those that the save has dealt with
 * (`taken`: whether the save has the files of this one), if it was committed. */
void written_begin(struct store *store);
void written_end(struct store *store, bool (*taken)(void *ctx, uint64_t id), bool (*saved)(void *ctx, uint64_t id),
                 void *ctx);
void written_drop(struct store *store, uint64_t id); /* the record, not the files */
void written_deinit(struct store *store);

/* ---- what is there (store_inventory.c) ---------------------------------------------------------------------------------- */

/* Generations of temporary files that are no leftovers although the MANIFEST does not have them. */
struct spared {
    struct id_map generations; /* no values */
    uint64_t above;            /* and all above this one: they are being written now */
};
int spared_init(struct spared *spared, struct store *store); /* 0 or -ENOMEM */
void spared_deinit(struct spared *spared);

struct inventory {
    struct store *store;
    const struct spared *spared;
    const struct manifest_filter *filter;
    bool report;                           /* what is foreign */
    bool committed_temp[BLOOM_MAX_LAYERS]; /* the layer's file is still under its temporary name */
    struct file_name *leftovers;           /* of saves that did not take place; owned */
    size_t nleftovers;
    uint64_t foreign;
};

/* Looks into the directory of a committed filter. 0 or -errno. */
int inventory_take(struct inventory *inventory, struct errbuf *err);
uint64_t inventory_remove_leftovers(struct inventory *inventory); /* how many */
void inventory_deinit(struct inventory *inventory);

/* Directories that no committed filter has: temporary files go. 0 or -errno. The index must be mapped. */
int inventory_strays(struct store *store, const struct spared *spared, bool report, struct store_load_summary *counts,
                     struct errbuf *err);

/* After a save that failed and could not clean up. */
int inventory_clean(struct store *store, struct errbuf *err);

/* ---- finishing (store_finish.c) ------------------------------------------------------------------------------------ */

/* Deletes or moves the files of removed filters as the committed MANIFEST says. What could not be done is put into
 * `pending`. To be done before temporary files get their names. -errno only when it is unknown what there is to do. */
int finish_removed(struct store *store, struct errbuf *err);

/* Whether files that are to be kept are still in the directory, so that no others may get their names there. */
bool finish_is_blocked(const struct store *store, uint64_t dir_hash);

/* Gives the layers their names that are under temporary ones of this generation. 0 or the first -errno. */
int finish_filter(struct store *store, const struct manifest_filter *filter, uint64_t generation, struct errbuf *err);

/* Gives all entries with the flag their files' names and takes the flag away, or makes them INDEX_UNPLACED. */
void finish_entries(struct store *store, unsigned flag, bool sync_all);

/* What earlier saves could not finish. -errno as finish_removed(). */
int finish_again(struct store *store, struct errbuf *err);

#endif
