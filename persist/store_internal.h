/* store_internal: what the parts of the store share. Internal to persist.
 *
 * store.c opens and closes; store_load.c loads; store_inventory.c compares what is in the directories with what should
 * be; store_pack.c keeps the table of packs; store_place.c writes the files of one filter under temporary names;
 * store_write.c does it for single filters outside of saves; store_save.c walks the source of a save; store_commit.c
 * composes the new MANIFEST (store_records.c: its records of filters) and makes it valid; store_finish.c does what is
 * left to do once a MANIFEST is valid, after a save as after a crash. */
#ifndef BLOOMERY_STORE_INTERNAL_H
#define BLOOMERY_STORE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "id_map.h"
#include "layer_file.h"
#include "manifest.h"
#include "manifest_file.h"
#include "name_code.h"
#include "pack.h"
#include "store.h"
#include "store_index.h"

/* A pack that the committed MANIFEST, or the save under way, needs. */
struct pack_use {
    uint64_t number; /* 0: this slot is free */
    uint64_t size;   /* of the file */
    uint64_t live;   /* bytes of records that the committed MANIFEST needs */
    bool held;       /* a line about a removed filter has yet to take something out of it */
    bool moving;     /* the save under way writes elsewhere what is needed of it */
    bool stuck;      /* a save could not: quarantined filters are in it */
    bool fresh;      /* the save under way has made it */
};

struct packs {
    struct pack_use *table;
    size_t count, size;
    struct id_map slots; /* by number: slot + 1, as a pointer */
    bool has_dir;        /* for certain, on disk */
};

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

uint64_t newest_generation(const struct manifest_filter *filter);

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

/* ---- packs (store_pack.c)
 * --------------------------------------------------------------------------------------------- */

struct save;

int path_pack(const struct store *store, struct path *path, uint64_t number, struct errbuf *err);

/* The slot of the pack, a new one if need be. 0 or -ENOMEM. */
int packs_slot(struct store *store, uint64_t number, uint32_t *slot_out);
void packs_deinit(struct store *store);

/* Makes the entry that of a filter in a pack. 0 or -ENOMEM. */
int packs_entry(struct store *store, const struct manifest_filter *filter, struct index_entry *entry);

void packs_count(struct store *store);   /* what of each pack is needed, from the index */
void packs_measure(struct store *store); /* how large each one is, from the disk */
void packs_let_go(struct store *store);  /* nothing is to be taken out of a pack any more */

/* At the beginning of a save: which packs it rewrites. 0 or -ENOMEM. */
int packs_choose(struct store *store);
bool packs_is_moving(const struct store *store, const struct index_entry *entry);

/* Whether the filter is small enough for a pack: with how many layers (it may grow at any moment), or 0. */
unsigned packs_have_room(const struct save *save, const struct bloom_filter *filter);

/* Writes the filter's layers, as many as the record says, to the pack of the save. 0 or -errno. */
int packs_write(struct save *save, const struct bloom_filter *filter, struct manifest_filter *record,
                struct errbuf *err);

/* Before the MANIFEST: what was written is on disk. 0 or -errno. */
int packs_finish(struct save *save, struct errbuf *err);

/* Afterwards, one of these: takes the packs of a committed save over, or forgets those of one that failed, with their
 * files unless the save is in doubt. */
void packs_adopt(struct store *store);
void packs_abandon(struct store *store, bool in_doubt);

bool packs_sweep(struct store *store); /* deletes packs that nothing needs; false if one could not be */

/* Packs that are not known: they go. What is no pack is foreign. 0 or -errno. */
int packs_strays(struct store *store, bool report, struct store_load_summary *counts, struct errbuf *err);

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

/* ---- saving (store_save.c, store_commit.c) ------------------------------------------------------------------------- */

struct save {
    struct store *store;
    const struct fsops *fs;
    const struct store_source *source;
    struct store_save_summary *summary;
    struct store_index next;       /* the index to be */
    struct record_reader committed; /* of the committed MANIFEST */
    struct record_reader spooled;   /* of the spool */
    struct record_writer spool;     /* records of the filters that this save has changed */
    int spool_fd;
    struct layer_io io;
    struct pack_writer pack;
    uint32_t pack_slot; /* of the open one */
    struct store_checkpoint checkpoint;
    uint64_t max_id;
    struct target *target; /* room for one filter on its way to disk */
    unsigned dirs_synced; /* beyond a number of them, one sync_all() is cheaper */
    bool sync_all;

    /* while committing */
    struct record_writer manifest;
    struct manifest_save header;
    uint64_t *offsets; /* of the records of `next` in the new MANIFEST */
    uint64_t nremoved;
    uint64_t manifest_removed_from;
    uint64_t manifest_removed_to;
    uint64_t manifest_digest;
};

/* From how many filters on the whole file system is synced at once instead of each file and directory. */
#define SAVE_MAX_SINGLE_SYNCS 32

/* The record of an entry of `next`, wherever it is; valid until the next call for the same place. */
int save_record(struct save *save, const struct index_entry *entry, const struct manifest_filter **filter_out,
                struct errbuf *err);

/* Takes the committed record of a filter over into `next`. */
int save_carry(struct save *save, const struct index_entry *committed, struct errbuf *err);

/* Takes a record into `next` that the committed MANIFEST does not have. */
int save_spool(struct save *save, const struct manifest_filter *filter, unsigned flags, struct errbuf *err);

/* Deletes the files that this save has written for an entry of `next`. */
void save_discard_entry(struct save *save, const struct index_entry *entry);

/* Everything has been walked and written: makes it the committed save. 0, STORE_IN_DOUBT, or -errno. */
int save_commit(struct save *save, struct errbuf *err);

/* "MANIFEST.new cannot be written": returns `rc`. */
int save_manifest_error(const struct store *store, int rc, struct errbuf *err);

/* Writes the records of `next` to the new MANIFEST (store_records.c): first, from the committed one, what has not
 * changed, then those of the spool. 0 or -errno. */
int save_write_filters(struct save *save, struct errbuf *err);

/* Once it is committed: the index in the order of the new MANIFEST takes the place of the old one, where room has been
 * made. */
void save_adopt_index(struct save *save);

/* After STORE_IN_DOUBT: makes the committed MANIFEST the one on disk for certain. 0 or STORE_IN_DOUBT. */
int save_end_doubt(struct store *store, struct errbuf *err);

#endif
