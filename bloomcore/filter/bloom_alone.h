/* bloom_alone: a filter with a pool of its own, for a caller with one filter and no server around it. Thread: as the
 * filter's. */
#ifndef BLOOMERY_BLOOM_ALONE_H
#define BLOOMERY_BLOOM_ALONE_H

#include "bloom_filter.h"

/* In the caller's storage; all zero: there is none. */
struct bloom_alone {
    struct bloom_pool *pool;
    struct bloom_class *class;
    struct bloom_filter *filter;
};

/* Creates an empty one. `shape` of its first layer; NULL: as the parameters demand. `params` NULL: it takes any number
 * of items and never grows, but layers may be appended. 0, BLOOM_REFUSED or -ENOMEM with the reason; nothing to undo
 * then. */
int bloom_alone_init(struct bloom_alone *alone, const struct bloom_shape *shape, const struct bloom_params *params,
                     struct errbuf *err);
void bloom_alone_deinit(struct bloom_alone *alone); /* idempotent, of a zeroed one too */

#endif
