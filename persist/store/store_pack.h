/* store_pack: the packs of a data directory: which there are, what of each is needed, and the one that a save writes.
 * docs/FORMAT.md, section 14. Internal to persist.
 * Thread: the one that opens, loads or saves; one at a time. */
#ifndef BLOOMERY_STORE_PACK_H
#define BLOOMERY_STORE_PACK_H

#include "id_map.h"
#include "manifest.h"
#include "pack.h"
#include "store.h"
#include "store_index.h"

struct path;
struct save;

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

/* Packs that are not known: they go, or with `report` (a start) newer ones are put aside; see store_stray_packs.c. What is
 * no pack is foreign. 0 or -errno. */
int packs_strays(struct store *store, bool report, struct store_load_summary *counts, struct errbuf *err);

#endif
