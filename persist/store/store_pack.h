/* store_pack: the packs of a data directory: their table, the bytes in use of each, and the pack that a save writes.
 * docs/FORMAT.md, section 14. Internal to persist.
 * Thread: the one that opens, loads or saves; one at a time. */
#ifndef BLOOMERY_STORE_PACK_H
#define BLOOMERY_STORE_PACK_H

#include "store_save.h"

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

#endif
