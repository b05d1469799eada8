/* store_reading: bits of filters, read from the files of a store at any time. Internal to persist.
 *
 * Thread: any, each with a reader of its own; reading_map() to reading_set_flag(): the one that opens, loads or saves.
 */
#ifndef BLOOMERY_STORE_READING_H
#define BLOOMERY_STORE_READING_H

#include "layer_file.h"
#include "manifest_file.h"
#include "pack.h"
#include "store_internal.h"

/* For one thread. */
struct bits_reader {
    struct store *store;
    struct layer_io io;
    struct pack_reader packs;
};
int bits_reader_init(struct bits_reader *reader, struct store *store); /* 0 or -ENOMEM; deinit in any case */
void bits_reader_deinit(struct bits_reader *reader);

/* Reads all layers of the record into those of the filter, which are of the same shapes. 0, or as layer_read();
 * `pack_is_lost_out`: the pack is missing, or cannot be read. The errbuf names the file. */
int bits_read(struct bits_reader *reader, const struct manifest_filter *record, struct bloom_filter *filter,
              bool *pack_is_lost_out, struct errbuf *err);

/* Maps the index for the thread that saves, and unmaps it unless others need it. */
int reading_map(struct store *store); /* 0 or -ENOMEM */
void reading_unmap(struct store *store);

/* Sets or clears a flag of an entry of the committed index. */
void reading_set_flag(struct store *store, struct index_entry *entry, enum index_flags flag, bool on);

#endif
