/* bf_merge: BF.MERGE, from the filters of the command to their union. Ordinary filters and windows alike.
 *
 * A host finds the filters, makes the empty union, and puts it in the destination's place. In between it calls the
 * functions below in their order. Where other threads add meanwhile, the host ends the twins after a grace period
 * (bloom_merge.h).
 *
 * Thread: any, one merge each; adds and queries may continue in all filters but the union. */
#pragma once

#include "bf_out.h"
#include "bf_request.h"
#include "bloom_window.h"

/* Finds the filter of argument i, which must stay until the merge ends; NULL: none. False after an error reply. */
typedef bool (*bf_find_fn)(void *ctx, size_t i, struct bloom_filter **filter_out);

struct bf_merge {
    const struct bf_out *out;
    const struct bf_args *args;
    struct bloom_filter *destination; /* NULL: none yet */
    struct bloom_filter *made;        /* the union, which the host has made: an empty filter of one layer */
    struct bf_source {
        struct bloom_filter *filter;
        unsigned nlayers; /* when the merge began: later layers have later adds only */
        uint64_t turn;    /* of a window: likewise its newest part */
    } * sources;
    size_t nsources;
    uint64_t bytes; /* of all these filters */
    /* of a union of windows: the targets of the bits of each source, and of the destination */
    struct bloom_layer_map *places;
};

/* Finds the filters. False after an error reply. bf_merge_end() in either case. */
bool bf_merge_begin(struct bf_merge *merge, const struct bf_out *out, const struct bf_args *args, bf_find_fn find,
                    void *ctx);
void bf_merge_end(struct bf_merge *merge);

/* The filter after whose parameters and first layer the host makes the union. */
const struct bloom_filter *bf_merge_model(const struct bf_merge *merge);

/* Gives the union its layers, or a window its parts. False after an error reply. */
bool bf_merge_shape(struct bf_merge *merge);

/* Sets the bits and counts of the union, whose twin in `pool` the destination is by now, if there is one. `overfull`:
 * even if its rate is then higher than requested. About 1 ms per 3 MB. 0, or a status of bf_reply_not_made(). */
int bf_merge_unite(struct bf_merge *merge, struct bloom_pool *pool, bool overfull, struct errbuf *err);

/* Whether the destination already equals this union, so that it stays. */
bool bf_merge_changes_nothing(const struct bf_merge *merge);
