/* Filters that fuzz targets create from plans. */
#pragma once

#include <stdlib.h>

#include "bloom_filter.h"
#include "check.h"
#include "dump.h"

static inline void drop(struct bloom_filter *filter) /* NULL is fine */
{
    if (filter)
        bloom_filter_deinit(filter);
    free(filter);
}

/* NULL: the filter would be larger than `max` bytes, or a limit refuses it. */
static inline struct bloom_filter *make_up_to(struct bloom_pool *pool, const struct dump_plan *plan, uint64_t max)
{
    struct bloom_class *class;
    struct errbuf err = {""};
    if (plan->bytes > max || bloom_class_get(pool, &plan->params, &plan->shapes[0], &class, &err) != 0)
        return NULL;
    struct bloom_filter *filter = malloc(bloom_filter_bytes(class));
    CHECK(filter && bloom_filter_init(filter, class, &err) == 0);
    bloom_class_release(class);
    for (unsigned i = 1; i < plan->nlayers; i++) {
        if (bloom_filter_append_layer(filter, &plan->shapes[i], &err) != 0) {
            drop(filter);
            return NULL;
        }
    }
    return filter;
}
