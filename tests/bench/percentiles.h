/* percentiles: a histogram of times with an error below 0.1 %: 1024 parts of each power of two (base/histogram.h). */
#pragma once

#include <math.h>
#include <stdint.h>

#include "histogram.h"

#define PERCENTILES_PARTS 10
#define PERCENTILES_SIZE \
    (29 << PERCENTILES_PARTS) /* up to 2^38 ns, more than four minutes; longer ones count as that */

struct percentiles {
    uint64_t total, max; /* `max` is exact */
    uint64_t counts[PERCENTILES_SIZE];
};

static inline void percentiles_add(struct percentiles *p, uint64_t ns, uint64_t times)
{
    size_t bucket = histogram_bucket(ns, PERCENTILES_PARTS);
    p->counts[bucket < PERCENTILES_SIZE ? bucket : PERCENTILES_SIZE - 1] += times;
    p->total += times;
    p->max = ns > p->max ? ns : p->max;
}

/* The value that `percent` of the recorded ones do not exceed. */
static inline uint64_t percentiles_at(const struct percentiles *p, double percent)
{
    uint64_t rank = (uint64_t)ceil(percent / 100 * (double)p->total - 1e-6), seen = 0; /* 99.9 % of 1000 is 999 */
    for (size_t i = 0; i < PERCENTILES_SIZE; i++) {
        seen += p->counts[i];
        if (seen > 0 && seen >= rank) {
            uint64_t end = histogram_bucket_end(i, PERCENTILES_PARTS);
            return end < p->max ? end : p->max;
        }
    }
    return p->max;
}
