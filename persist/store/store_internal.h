/* store_internal: the state of a store, which its parts share. Internal to persist.
 *
 *     store_open.c    opens and closes a store     store_save.c        walks the source of a save
 *     store_load.c    loads the filters            store_commit.c      makes a save valid
 *     store_reading.c reads bits, at any time      store_pack.c        keeps the table of packs
 *     store_files.c   makes and removes files      store_write.c       writes single filters, knows the fates of
 * filters
 *
 * Thread: the one that opens, loads or saves, except where noted.
 *
 * A file's life:
 *
 *     written under a new number -> synced -> named by a MANIFEST (counts) -> no longer named -> removed
 *                                \-> crash before it was named: removed by the next start
 */
#pragma once

#include <stdatomic.h>

#include "id_map.h"
#include "layer_file.h"
#include "lock.h"
#include "manifest.h"
#include "manifest_file.h"
#include "pack.h"
#include "store.h"
#include "store_index.h"
#include "store_loader.h"

struct file_list {
    struct file_name *items;
    size_t count, size;
};

/* A pack that the committed MANIFEST or the running save needs. */
struct pack_use {
    uint64_t number; /* 0: this slot is free */
    uint64_t size;   /* of the file */
    uint64_t live;   /* bytes of records that the committed MANIFEST needs */
    bool moving;     /* the running save writes its filters to another pack */
    bool stuck;      /* it cannot be emptied: quarantined filters are in it */
    bool fresh;      /* the running save has made it */
    bool kept;       /* it is not emptied by the running save: filters in it are away */
};

struct packs {
    struct pack_use *table;
    size_t count, size;
    struct id_map slots; /* by number: slot + 1, as a pointer */
};

/* The committed MANIFEST, and the data read from it. A save makes the next one. */
struct committed {
    int fd;                    /* also after its name went to another file; -1: there is none */
    struct store_index index;  /* in the order of its records */
    struct manifest_save save; /* of its last line but one */
    uint64_t digest;           /* of its lines but the last */
    uint64_t end_offset;       /* of the last line */
};

/* The results of open that load needs. */
struct opened {
    uint64_t bytes;      /* of all layers */
    struct id_map named; /* numbers of the files of layers, with their variant + 1 */
};

struct store {
    const struct fsops *fs;
    store_report_fn *report;
    void *report_ctx;
    char *dir;
    int lock_fd; /* opened before any write, so that sync_all() on it reports all failures */

    struct committed committed;
    struct opened opened;
    struct packs packs;
    uint64_t saved_mark;      /* number of the mark in `filters`; 0: none */
    bool in_doubt;            /* the last save failed at its last step */
    struct file_list doubted; /* the files of that save: they must stay until the doubt has ended */
    _Atomic uint64_t number;  /* the highest one handed out */
    _Atomic uint64_t next_id;

    /* Protects the index, the file of the committed MANIFEST, and flags of index entries. The thread that opens, loads
     * or saves writes them; other threads read them under this lock (store_reading.c). */
    struct lock_rw reading;
    bool serves; /* the index stays mapped */

    struct lock lock;    /* guards the field below; reports come one at a time under it */
    struct id_map fates; /* struct fate */
};

void committed_deinit(const struct store *store, struct committed *committed); /* closes the file */

__attribute__((format(printf, 3, 4))) void store_report(struct store *store, enum store_severity severity,
                                                        const char *fmt, ...);

/* A name for messages: printable, cut when it is long. */
struct shown_name {
    char text[68];
};
struct shown_name show_name(const char *name, size_t len);

/* ---- files in `filters` (store_files.c). Thread: any ---- */

/* Each 0 or -ENAMETOOLONG, as path_format(). */
int path_root(const struct store *store, struct path *path, const char *name, struct errbuf *err);
int path_file(const struct store *store, struct path *path, const struct file_name *name, struct errbuf *err);

int file_list_add(struct file_list *list, const struct file_name *name); /* 0 or -ENOMEM */
void file_list_deinit(struct file_list *list);

/* A number that has never been used. */
uint64_t store_new_number(struct store *store);

/* Writes the layer to a new file, and fills in record->layers[i] and the variant. The file is listed in `made` first.
 * 0 or -errno. */
int store_put_layer(struct store *store, struct layer_io *io, struct manifest_filter *record, unsigned i,
                    const struct bloom_filter *filter, bool sync, struct file_list *made, struct errbuf *err);

/* Files that are synced one by one; for more files one sync_all() is cheaper. */
#define STORE_MAX_SINGLE_SYNCS 32

/* Makes the names in `filters` durable. */
int store_sync_filters(struct store *store, struct errbuf *err);

/* Removes the files. Those that cannot be removed are reported, and the next start removes them. */
void store_remove(struct store *store, const struct file_list *list);

/* Adds the filter's files that are not in `but` (may be NULL) to the list; a pack is none. 0 or -ENOMEM. */
int store_list_files(struct file_list *list, const struct manifest_filter *filter, const struct manifest_filter *but);

/* ---- files that the MANIFEST does not name (store_files.c) ---- */

/* Looks for the mark of a later save, which shows that the MANIFEST is an older one: called before any file is removed.
 * 0, STORE_DAMAGED or -errno. */
int sweep_find_mark(struct store *store, struct errbuf *err);

/* Called at a start after the load: removes unnamed files, and reports foreign ones. 0 or -errno. */
int sweep_start(struct store *store, struct store_load_summary *counts, struct errbuf *err);

/* Called after a commit: the mark of this save replaces the previous one. */
void sweep_set_mark(struct store *store);

/* ---- filters whose fate the committed MANIFEST alone does not tell (store_write.c) ---- */

enum fate_state {
    FATE_SAVED,       /* none of these: the MANIFEST tells all, or nothing */
    FATE_PRIVATE,     /* store_write() has put its files on the disk; the caller has yet to publish it */
    FATE_PUBLISHED,   /* published, maybe during the running save: the walk may have missed it */
    FATE_DUE,         /* it is gone, unless the walk of the running save yields it */
    FATE_QUARANTINED, /* its files cannot be trusted; it stays in each save whose walk yields it */
};

struct fate {
    uint64_t id;
    enum fate_state state; /* under the store's lock */
    bool stale;            /* its bits have changed since store_write(); stays set when a save fails */
    char *text;            /* its record, which is in no MANIFEST; NULL: there is none, or the MANIFEST has it */
    size_t len;
};

enum fate_state fate_state(struct store *store, uint64_t id);

/* The caller has the store's lock. 0 or -ENOMEM. */
int fate_quarantine(struct store *store, uint64_t id);

/* A record that is not in a MANIFEST. `filter` is valid until the deinit. 0, -EINVAL (not a record) or -ENOMEM. */
struct parsed_record {
    struct manifest_parser parser;
    struct manifest_sink sink;
    const struct manifest_filter *filter;
};
int parsed_record_init(struct parsed_record *parsed, const char *text, size_t len, struct errbuf *err);
void parsed_record_deinit(struct parsed_record *parsed);

/* The filter with this id and a record of its own, valid until the running save ends. NULL: none. */
struct fate *written_find(struct store *store, uint64_t id);

/* The fates with records, which have been published, in an array to be freed. 0 or -ENOMEM. */
int fates_list(struct store *store, struct fate ***list_out, size_t *n_out);

/* Called before a load: drops records whose filters a save has by now. */
void fates_drop_saved(struct store *store);

/* Called before a save: notes the published filters. After its commit: drops what it settled; `next` is its index. */
void fates_begin(struct store *store);
void fates_end(struct store *store, const struct store_index *next);
void fates_deinit(struct store *store);

/* ---- bits of filters (store_reading.c). Thread: any, each with a reader of its own; reading_map() to
 * reading_set_stale(): the one that opens, loads or saves ---- */

/* For one thread. */
struct bits_reader {
    struct store *store;
    struct layer_io io;
    struct pack_reader packs;
};
int bits_reader_init(struct bits_reader *reader, struct store *store); /* 0 or -ENOMEM; deinit in any case */
void bits_reader_deinit(struct bits_reader *reader);

/* Reads all layers of the record into those of the filter, which are of the same shapes. 0, or as layer_read() or
 * pack_read(). The errbuf names the file. */
int bits_read(struct bits_reader *reader, const struct manifest_filter *record, struct bloom_filter *filter,
              struct errbuf *err);

/* Maps the index for the thread that saves, and unmaps it unless others need it. */
int reading_map(struct store *store); /* 0 or -ENOMEM */
void reading_unmap(struct store *store);

/* Notes that an entry of the committed index is INDEX_STALE. */
void reading_set_stale(struct store *store, struct index_entry *entry);
