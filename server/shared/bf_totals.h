/* bf_totals: sums over all filters, for INFO. They need a walk over the registry (at least a tenth of a microsecond per
 * filter), so a result is reused, the longer the walk took the longer.
 *
 * Thread: any; the caller, in a thread of the pool, makes the walk. */
#ifndef BLOOMERY_BF_TOTALS_H
#define BLOOMERY_BF_TOTALS_H

#include "monitors.h"

struct server;

/* Writes totals that are at most a few seconds old, or fifty times the duration of the walk; of the walk before, while
 * another thread walks. Goes offline for RCU meanwhile: the caller, a reader, must not hold references to shared
 * objects over the call. */
void server_bf_totals(struct server *server, struct bf_totals *totals_out);

#endif
