/* check_filter: whether a start would load a filter: its shape, and its files to the last byte, in pieces: what a filter takes
 * of memory, this does not.
 *
 * Lifetime: caller's storage, init to deinit. Thread: one. */
#ifndef BLOOMERY_TOOL_CHECK_FILTER_H
#define BLOOMERY_TOOL_CHECK_FILTER_H

#include <stdbool.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "fsops.h"
#include "manifest.h"
#include "pack.h"

struct filter_checker {
    const char *datadir; /* borrowed */
    const struct fsops *fs;
    unsigned char *piece;
    struct pack_reader packs;
    struct bloom_pool *pool;
};

/* 0 or -ENOMEM. */
int filter_checker_init(struct filter_checker *checker, const char *datadir);
void filter_checker_deinit(struct filter_checker *checker);

/* Whether there can be a filter of these parameters with these layers; `grown` (may be NULL) has BLOOM_MAX_LAYERS shapes, of
 * which those that follow are appended up to the first that is not known. */
bool filter_shape_is_possible(struct filter_checker *checker, const struct bloom_params *params, const struct bloom_shape *shapes,
                              unsigned nlayers, const struct bloom_shape *grown, struct errbuf *why);

/* The same for layer i of what a MANIFEST or a record says, whose bytes begin at `offset` if it is in a pack. */
bool filter_layer_is_whole(struct filter_checker *checker, const struct manifest_filter *filter, unsigned i, uint64_t offset,
                           struct errbuf *why);

#endif
