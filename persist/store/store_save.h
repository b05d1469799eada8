/* store_save: a save under way, between its parts (store_save.c, store_put.c, store_pack.c, store_commit.c,
 * store_records.c). Internal to persist.
 * Thread: the one that saves. */
#ifndef BLOOMERY_STORE_SAVE_H
#define BLOOMERY_STORE_SAVE_H

#include "store_internal.h"

/* A filter on its way to disk. */
struct target {
    const struct store_item *item;
    struct manifest_filter before; /* the record there is; nlayers 0: none. The name is owned. */
    size_t before_name_size;
    char *before_name;
    bool same_name;     /* as in that record */
    bool before_is_final; /* its files have their names; otherwise they may be under temporary ones */
    bool avoid_dir;       /* they could not be given their names in that directory */
    struct manifest_filter record;
};

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

/* Whether files of `nlayers` layers may get their names in the directory, which is made if need be; *new_out: whether the save
 * has to sync its name, too. 0, PLACE_UNUSABLE or -errno. */
int save_claim_dir(struct save *save, const struct target *target, const char *dir, unsigned nlayers, bool *new_out,
                   struct errbuf *err);

/* Puts every layer of target->record's filter under a temporary name, by writing it or (`link`) by linking the files it has:
 * in the directory that the name says, or, when that cannot be used, in one that the id says. 0 or -errno. */
int save_put_files(struct save *save, struct target *target, bool link, struct errbuf *err);

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
