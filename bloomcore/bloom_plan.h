/* bloom_plan: describes a filter without creating it.
 *
 * Pure function. Thread: any. */
#ifndef BLOOMERY_BLOOM_PLAN_H
#define BLOOMERY_BLOOM_PLAN_H

#include "bloom_filter.h"

struct bloom_plan_layer {
    uint64_t capacity;
    double error_rate;     /* its share of the requested rate */
    double predicted_rate; /* expected when it has taken its capacity */
    uint64_t nwords;
    unsigned k;
};

struct bloom_plan {
    unsigned nlayers;
    struct bloom_plan_layer layers[BLOOM_MAX_LAYERS];
    uint64_t capacity; /* of all layers; saturates */
    uint64_t bits;
    uint64_t memory;       /* as bloom_filter_memory() */
    double predicted_rate; /* of the whole chain, every layer full */
};

/* The filter with these parameters after it has taken `items` items (0: its first layer only). BLOOM_OK, or
 * BLOOM_REFUSED with the reason in `err`. */
int bloom_plan(const struct bloom_params *params, uint64_t items, struct bloom_plan *plan_out, struct errbuf *err);

#endif
