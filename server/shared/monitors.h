/* monitors: the counters, the slow log, and the sums of INFO. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "counters.h"
#include "lock.h"

struct server;
struct slowlog;

/* Sums over all filters (server_bf_totals()). */
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

struct monitors {
    struct lock lock;          /* of the slow log and of the totals */
    struct counters *counters; /* of all threads */
    struct slowlog *slowlog;
    struct bf_totals totals;     /* the last ones */
    bool counts_totals;          /* a thread is making new ones */
    _Atomic uint64_t grown_base; /* bloom_pool_growths() at the last CONFIG RESETSTAT */
    _Atomic uint64_t peak_bytes; /* the highest memory_used() so far */
};

/* 0 or -ENOMEM; deinit in any case. */
int monitors_init(struct monitors *monitors, unsigned max_workers);
void monitors_deinit(struct monitors *monitors);

/* The highest memory_used() (memory_use.h) among the samples. */
uint64_t server_peak_bytes(struct server *server);

/* Takes a sample for the gauges; ten times a second, main thread. */
void server_sample(struct server *server);

/* bf_totals: sums over all filters, for INFO. They need a walk over the registry (at least a tenth of a microsecond per
 * filter), so a result is reused, the longer the walk took the longer.
 *
 * Thread: any; the caller, in a thread of the pool, makes the walk. */

/* Writes totals that are at most a few seconds old, or fifty times the duration of the walk; of the walk before, while
 * another thread walks. Goes offline meanwhile: the caller, a reader, holds no references to shared objects. */
void server_bf_totals(struct server *server, struct bf_totals *totals_out);
