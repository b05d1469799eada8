/* metrics: the reply of /metrics. The table of families is metrics.def.
 *
 * Thread: the status page's, an offline RCU reader. */
#ifndef BLOOMERY_METRICS_H
#define BLOOMERY_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "metrics_choice.h"

struct acl_user;
struct server;

/* Counts of the web thread about itself. */
struct web_counts {
    uint64_t requests;
    uint64_t refused; /* without the password, or not from this machine */
    uint64_t closed;  /* connections closed over a limit of time or number */
};

/* Writes all families; those of single filters for the chosen ones that still exist and that the user may read. `out`
 * remembers a failure. */
void metrics_write(struct server *server, const struct acl_user *user, const struct metrics_choice *choice,
                   const struct web_counts *counts, bool openmetrics, struct buf *out);

#endif
