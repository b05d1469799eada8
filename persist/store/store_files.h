/* store_files: files in `filters`: their paths, how they are made and removed. Internal to persist.
 *
 * Thread: any. */
#ifndef BLOOMERY_STORE_FILES_H
#define BLOOMERY_STORE_FILES_H

#include "layer_file.h"
#include "store_internal.h"

/* Each 0 or -ENAMETOOLONG, as path_format(). */
int path_root(const struct store *store, struct path *path, const char *name, struct errbuf *err);
int path_file(const struct store *store, struct path *path, const struct file_name *name, struct errbuf *err);

int file_list_add(struct file_list *list, const struct file_name *name); /* 0 or -ENOMEM */
void file_list_deinit(struct file_list *list);

/* A number that has never been used. */
uint64_t store_new_number(struct store *store);

/* Notes a number that was found on the disk, so that it is not given out again. False: it is too large for any save. */
bool store_pass_number(struct store *store, uint64_t number);

/* Writes the layer to a new file, and fills in record->layers[i] and the variant. The file is listed in `made` first.
 * 0 or -errno. */
int store_put_layer(struct store *store, struct layer_io *io, struct manifest_filter *record, unsigned i,
                    const struct bloom_filter *filter, bool sync, struct file_list *made, struct errbuf *err);

/* Files that are synced one by one; for more files one sync_all() is cheaper. */
#define STORE_MAX_SINGLE_SYNCS 32

/* Makes the names in `filters` durable. */
int store_sync_filters(struct store *store, struct errbuf *err);

/* Removes the files. Those that cannot be removed are reported and kept in `removable`, for the next save. */
void store_remove(struct store *store, const struct file_list *list);
void store_remove_again(struct store *store);

/* Adds the filter's files that are not in `but` (may be NULL) to the list. A pack is not a file of its filters.
 * 0 or -ENOMEM. */
int store_list_files(struct file_list *list, const struct manifest_filter *filter, const struct manifest_filter *but);

#endif
