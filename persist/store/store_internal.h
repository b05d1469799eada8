/* store_internal: the state of a store, which its parts share. Internal to persist.
 *
 *     store.c         answers queries              store_write.c       writes single filters outside of saves
 *     store_open.c    opens and closes a store     store_save.c        walks the source of a save
 *     store_load.c    loads the filters            store_kept.c        checks the files that a save keeps
 *     store_reading.c reads bits, at any time      store_commit.c      makes a save valid
 *     store_files.c   makes and removes files      store_quarantine.c  keeps the files of filters that were given up
 *     store_sweep.c   looks after unnamed files    store_pack.c        keeps the table of packs
 *
 * A file's life:
 *
 *     written under a new number -> synced -> named by a MANIFEST (counts) -> no longer named -> removed
 *                                \-> crash before it was named: removed by the next start
 */
#ifndef BLOOMERY_STORE_INTERNAL_H
#define BLOOMERY_STORE_INTERNAL_H

#include <stdatomic.h>

#include "file_name.h"
#include "id_map.h"
#include "manifest.h"
#include "store.h"
#include "store_index.h"
#include "lock.h"

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
    bool lost;       /* its file is missing or cut, as the running save has found */
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

    struct lock lock;           /* guards the fields below; reports come one at a time under it */
    struct file_list removable; /* superseded files that could not be removed yet */
    struct id_map quarantined;  /* in this run; no values */
    struct id_map forgotten;    /* not yet taken up by a save; no values */
    struct id_map written;      /* struct written: filters of store_write() that no save has taken over yet */
};

void committed_deinit(const struct store *store, struct committed *committed); /* closes the file */

__attribute__((format(printf, 3, 4))) void store_report(struct store *store, enum store_severity severity,
                                                        const char *fmt, ...);

/* A name for messages: printable, cut when it is long. */
struct shown_name {
    char text[68];
};
struct shown_name show_name(const char *name, size_t len);

#endif
