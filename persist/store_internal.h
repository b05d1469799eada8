/* store_internal: what the parts of the store share. Internal to persist.
 *
 * store.c opens and closes; store_load.c loads; store_save.c walks the source and writes files under temporary names;
 * store_commit.c composes the new MANIFEST and makes it valid; store_finish.c does what is left to do once a MANIFEST is
 * valid, after a save as after a crash. */
#ifndef BLOOMERY_STORE_INTERNAL_H
#define BLOOMERY_STORE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "layer_file.h"
#include "manifest.h"
#include "manifest_file.h"
#include "name_code.h"
#include "store.h"
#include "store_index.h"

struct id_list {
    uint64_t *ids;
    size_t count;
    size_t size;
};

struct store {
    const struct fsops *fs;
    store_report_fn *report;
    void *report_ctx;
    char *dir;
    int lock_fd;     /* also what sync_all() is told by: open since before anything was written */
    int manifest_fd; /* the committed MANIFEST, also after its name went to another file */

    struct store_index index; /* of the committed MANIFEST */
    uint64_t generation;      /* the highest one handed out */
    uint64_t removed_from;    /* the range of the lines about removed filters in the committed MANIFEST */
    uint64_t removed_to;
    bool unfinished; /* something of the committed save is not in place yet */
    _Atomic uint64_t next_id;
    atomic_size_t count;

    pthread_mutex_t mutex;      /* guards what follows, and makes reports come one at a time */
    struct id_list quarantined; /* in this run */
    struct id_list forgotten;   /* not yet taken up by a save */
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

int id_list_add(struct id_list *list, uint64_t id); /* 0 or -ENOMEM */
bool id_list_has(const struct id_list *list, uint64_t id);

/* A name for messages: printable, cut when it is long. */
struct shown_name {
    char text[68];
};
struct shown_name show_name(const char *name, size_t len);

/* Whether the entry's directory is `dir`: the hash has been compared by the caller. Negative: -errno. */
int entry_is_dir(struct record_reader *reader, const struct index_entry *entry, const char *dir, struct errbuf *err);

/* ---- finishing (store_finish.c) ------------------------------------------------------------------------------------ */

/* Deletes or moves the files of removed filters as the committed MANIFEST says. To be done before temporary files get
 * their names. 0 or the first -errno, after having tried everything. */
int finish_removed(struct store *store, struct errbuf *err);

/* Gives the files of one filter their names, those that still are under temporary ones, newer than `after`. */
int finish_filter(struct store *store, const struct manifest_filter *filter, uint64_t after, struct errbuf *err);

/* Everything, for the whole committed MANIFEST. */
int finish_all(struct store *store, struct errbuf *err);

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
    uint64_t first_generation; /* generations of this save are greater */
    uint64_t max_id;
    unsigned dirs_synced; /* beyond a number of them, one sync_all() is cheaper */
    bool sync_all;

    /* while committing */
    struct record_writer manifest;
    uint64_t *offsets; /* of the records of `next` in the new MANIFEST */
    uint64_t manifest_removed_from;
    uint64_t manifest_removed_to;
};

/* From how many filters on the whole file system is synced at once instead of each file and directory. */
#define SAVE_MAX_SINGLE_SYNCS 32

/* The record of an entry of `next`, wherever it is; valid until the next call for the same place. */
int save_record(struct save *save, const struct index_entry *entry, const struct manifest_filter **filter_out,
                struct errbuf *err);

/* Deletes the temporary files of an entry of `next`. Best effort: leftovers are removed by the next start. */
void save_discard_files(struct save *save, const struct index_entry *entry);

/* Takes the committed record of a filter over into `next`, with these additional flags. */
int save_carry(struct save *save, const struct index_entry *committed, unsigned flags, struct errbuf *err);

void save_refused(struct save *save, const struct manifest_filter *filter, const struct errbuf *reason);

/* Everything has been walked and written: makes it the committed save. 0, STORE_IN_DOUBT, or -errno. */
int save_commit(struct save *save, struct errbuf *err);

#endif
