/* bloom_plan: describes a filter without creating it.
 *
 * Pure function. Thread: any. */
#pragma once

#include "bloom_filter.h"

struct bloom_plan_layer {
    uint64_t capacity;
    double error_rate;     /* its share of the requested rate */
    double predicted_rate; /* expected when it has taken its capacity */
    uint64_t nwords;
    unsigned k;
};

struct bloom_plan {
    unsigned nlayers; /* of one part */
    struct bloom_plan_layer layers[BLOOM_MAX_LAYERS];
    unsigned parts;        /* of a window's ring, all alike; 1: it is none */
    uint64_t capacity;     /* of all layers, in a window of those within the window; saturates */
    uint64_t bits;         /* of all parts */
    uint64_t memory;       /* as bloom_filter_memory() */
    double part_rate;      /* expected of a part, every layer full */
    double predicted_rate; /* of the whole filter */
};

/* Describes the filter with these parameters after `items` adds (0: its first layer only). For a window it describes
 * the complete ring, with this many items per window, evenly spread over time. BLOOM_OK, or BLOOM_REFUSED with the
 * reason in `err`. */
int bloom_plan(const struct bloom_params *params, uint64_t items, struct bloom_plan *plan_out, struct errbuf *err);
