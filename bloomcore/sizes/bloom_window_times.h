/* bloom_window_times: the clock of windows, and the properties of their parts that follow from the parameters. Internal
 * to bloomcore; the public functions are in bloom_window.h. Thread: any. */
#ifndef BLOOMERY_BLOOM_WINDOW_TIMES_H
#define BLOOMERY_BLOOM_WINDOW_TIMES_H

#include "bloom_params.h"

/* Parts beside those of the window that have their own share of the rate. */
#define BLOOM_WINDOW_SPARES 2

static inline bool bloom_window_by_items(const struct bloom_params *params)
{
    return params->window_flags & BLOOM_WINDOW_ITEMS;
}

/* Items that a part of a window by items takes. n such parts hold the window's. */
static inline uint64_t bloom_window_part_items(const struct bloom_params *params)
{
    return (params->window + params->window_parts - 1) / params->window_parts;
}

/* Times of a part that began at `started_us`: when it takes no more items, and when it expires. INT64_MAX in a window
 * by items. */
int64_t bloom_window_ends(const struct bloom_params *params, int64_t started_us);
int64_t bloom_window_expires(const struct bloom_params *params, int64_t started_us);

/* The capacity and the rate of layer `level` of a part. BLOOM_OK or BLOOM_REFUSED. */
int bloom_window_level(const struct bloom_params *params, unsigned level, uint64_t *capacity_out, double *rate_out,
                       struct errbuf *err);

#endif
