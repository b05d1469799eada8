/* store_save: a running save, shared by its parts (store_save.c, store_pack.c, store_commit.c).
 * Internal to persist.
 *
 * A save writes the records of changed filters to the new MANIFEST as the walk yields them. If the walk yields a filter
 * again, because it was renamed or deleted meanwhile, a line cancels the earlier record. At the end all other records
 * are copied from the committed MANIFEST.
 *
 * Thread: the one that saves. */
#pragma once

#include "manifest_file.h"
#include "pack.h"
#include "store_internal.h"

struct save {
    struct store *store;
    const struct fsops *fs;
    const struct store_source *source;
    struct store_save_summary *summary;
    struct store_index next;        /* of the new MANIFEST */
    struct record_reader committed; /* of the committed MANIFEST */
    struct record_reader fresh;     /* of the new one */
    struct record_writer manifest;  /* the new one, MANIFEST.new; fd -1: the store has it, or there is none */
    struct manifest_filter record;  /* the record that is being built */
    struct parsed_record parsed;    /* the latest record that was read from memory */
    struct layer_io io;
    struct pack_writer pack;
    uint32_t pack_slot;          /* of the open one */
    struct file_list made;       /* files of this save: removed if it fails */
    struct file_list superseded; /* unneeded files: removed after the commit */
    struct store_checkpoint checkpoint;
    uint64_t max_id;
    unsigned nsynced; /* files */
    bool sync_all;
};

/* The record of an entry of `next`, wherever it is; valid until the next call for the same MANIFEST. */
int save_record(struct save *save, const struct index_entry *entry, const struct manifest_filter **filter_out,
                struct errbuf *err);

/* Adds the committed record of a filter to `next`. */
int save_carry(struct save *save, const struct index_entry *committed, struct errbuf *err);

/* Writes a record of a filter, and cancels an earlier one of this save. `flags`: of its entry. */
int save_add_record(struct save *save, const struct manifest_filter *filter, unsigned flags, struct errbuf *err);

/* Sets the text "MANIFEST.new: cannot write" and returns `rc`. */
int save_manifest_error(const struct store *store, int rc, struct errbuf *err);

/* Commits the save after all filters have been written. 0, STORE_IN_DOUBT, or -errno. */
int save_commit(struct save *save, struct errbuf *err);

/* After STORE_IN_DOUBT: puts the committed MANIFEST on the disk again. 0 or STORE_IN_DOUBT. */
int save_resolve_in_doubt(struct store *store, struct errbuf *err);

/* ---- packs (store_pack.c; docs/FORMAT.md, section 14) ---- */

void packs_deinit(struct store *store);

/* Fills in the entry of a filter in a pack. 0 or -ENOMEM. */
int packs_entry(struct store *store, const struct manifest_filter *filter, struct index_entry *entry);

void packs_count(struct store *store);   /* computes the bytes in use of each pack from the index */
void packs_measure(struct store *store); /* reads the size of each pack from the disk */

/* Called when a save begins: chooses the packs that it rewrites. 0 or -ENOMEM. */
int packs_choose(struct store *store);
bool packs_is_moving(const struct store *store, const struct index_entry *entry);

/* The bits of a filter in a pack that is moving are not in memory: it stays in the pack, whose dead space goes later.
 * False: it is in no such pack. */
bool packs_keep(struct store *store, const struct index_entry *entry);

/* The filter's number of layers if it is small enough for a pack, otherwise 0. It may grow at any moment. */
unsigned packs_have_room(const struct save *save, const struct bloom_filter *filter);

/* Writes the filter's layers, as many as the record says, to the pack of the save. 0 or -errno. */
int packs_write(struct save *save, const struct bloom_filter *filter, struct manifest_filter *record,
                struct errbuf *err);

/* Called before the commit: syncs the packs, but not their names. 0 or -errno. */
int packs_finish(struct save *save, struct errbuf *err);

/* One of the two follows: adopts the packs of a committed save and lists unneeded ones (0 or -ENOMEM), or forgets the
 * packs of a failed save. */
int packs_adopt(struct store *store, struct file_list *superseded);
void packs_abandon(struct store *store);
