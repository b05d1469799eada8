/* check_filter: checks whether a start would load a filter: its shape, its files to the last byte, and the keys of
 * KEYED ones. It reads files in pieces, so it needs far less memory than the filter.
 *
 * Lifetime: caller's storage, init to deinit. Thread: one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "log_history.h"
#include "manifest.h"
#include "output.h"
#include "pack.h"
#include "store.h"

struct filter_checker {
    const char *datadir; /* borrowed */
    struct pack_reader packs;
    struct bloom_pool *pool;
    struct progress *progress; /* borrowed; told of the bytes read */
};

/* 0 or -ENOMEM. */
int filter_checker_init(struct filter_checker *checker, const char *datadir, struct progress *progress);
void filter_checker_deinit(struct filter_checker *checker);

/* Whether a filter of these parameters with these layers is possible. The layers of `grown` (may be NULL) that follow
 * are appended first, up to the first unknown one. */
bool filter_shape_is_possible(struct filter_checker *checker, const struct bloom_params *params,
                              const struct bloom_shape *shapes, unsigned nlayers, const struct log_filter *grown,
                              struct errbuf *why);

/* Whether the file of layer i, as a MANIFEST or record has it, is whole. In a pack its bytes begin at `offset`. */
bool filter_layer_is_whole(struct filter_checker *checker, const struct manifest_filter *filter, unsigned i,
                           uint64_t offset, struct errbuf *why);

/* Reads KEYS, if it is there. `print`: a line with the number of filters whose key it lacks, if any; the key may be in
 * another file, which bf-key-file names. 0; -errno with the reason when the daemon would not start with this KEYS. */
int check_keys(const char *datadir, bool print, struct errbuf *err);

/* Whether the log has changes, of any filter, after the save with this checkpoint: 1 or 0; -1: it cannot be read, with
 * the reason. `report` as in log_reader.h. */
int log_has_changes(const char *datadir, const struct store_checkpoint *save, store_report_fn *report, void *report_ctx,
                    struct errbuf *err);

/* pieces: reads the bytes of a layer from its own file or pack, a piece at a time, and hashes them. Thread: one. */

/* Takes the `n` bytes at offset `at`. 0, or -errno, which ends the reading. */
typedef int piece_fn(void *ctx, const unsigned char *bytes, size_t n, uint64_t at);

struct layer_bytes {
    const struct manifest_filter *filter;
    unsigned index;
    uint64_t offset; /* in the pack */

    /* results */
    char from[4096 + 64]; /* for messages */
    uint64_t size, xxh3;
};

/* 0, or -errno of the file or of `take`, with a text. */
int layer_pieces(struct layer_bytes *layer, const char *datadir, struct pack_reader *packs, piece_fn *take, void *ctx,
                 struct errbuf *why);
