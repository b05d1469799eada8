/* metrics: the reply of /metrics. The table of families is metrics.def.
 *
 * Thread: the status page's, an offline RCU reader. */
#ifndef BLOOMERY_METRICS_H
#define BLOOMERY_METRICS_H

#include <stdbool.h>

#include "buf.h"
#include "metrics_choice.h"
#include "web_counts.h"

struct server;

/* Writes all families; those of single filters for the chosen ones that still exist. `out` remembers a failure. */
void metrics_write(struct server *server, const struct metrics_choice *choice, const struct web_counts *counts,
                   bool openmetrics, struct buf *out);

#endif
