/* bf_totals: sums over all filters, for INFO. They need a walk over the registry (at least a tenth of a microsecond per
 * filter), so a result is reused, the longer the walk took the longer.
 *
 * Thread: any; the caller, in a thread of the pool, makes the walk. */
#ifndef BLOOMERY_BF_TOTALS_H
#define BLOOMERY_BF_TOTALS_H

#include <stdint.h>

struct bf_totals {
    uint64_t filters; /* readable ones */
    uint64_t layers;
    uint64_t items;
    uint64_t capacity; /* of the existing layers */
    uint64_t full;     /* filters of fixed size that are full */
    double rate_mean;  /* expected false-positive rate of a filter as filled now, mean over the filters */
    double rate_max;
    int64_t counted_ms; /* monotonic: when the walk ended; 0: never */
    int64_t walk_ms;    /* duration of the walk */
};

struct server;

/* Writes totals that are at most a few seconds old, or fifty times the duration of the walk. Goes offline for RCU
 * meanwhile: the caller must not hold references to shared objects over the call. */
void server_bf_totals(struct server *server, struct bf_totals *totals_out);

#endif
