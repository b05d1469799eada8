/* bf_totals: sums over all filters, for INFO. They take a walk over the registry (a tenth of a microsecond per filter and
 * more), so a result is used again for a while, the longer the walk took.
 *
 * Thread: any; the walk is made by who asks, in a thread of the pool. */
#ifndef BLOOMERY_BF_TOTALS_H
#define BLOOMERY_BF_TOTALS_H

#include <stdint.h>

struct bf_totals {
    uint64_t filters;         /* readable ones */
    uint64_t layers;
    uint64_t items;
    uint64_t capacity;        /* of the layers that exist */
    uint64_t full;            /* filters of fixed size that are full */
    double rate_mean;         /* expected false-positive rate of a filter as filled now, mean over the filters */
    double rate_max;
    int64_t counted_ms;       /* monotonic: when the walk ended; 0: never */
    int64_t walk_ms;          /* how long it took */
};

struct server;

/* Fills in totals that are at most a few seconds old, or fifty times as old as the walk took. Goes offline for RCU in
 * between: references to shared objects must not be held over the call. */
void server_bf_totals(struct server *server, struct bf_totals *totals_out);

#endif
