/* metrics: the reply of /metrics. The table of families is metrics.def.
 *
 * Thread: the status page's, an offline RCU reader. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "registry.h"

struct acl_user;
struct server;

/* ---- the filters that are shown one by one ----
 *
 * Those that are queried most, and those that the setting metrics-filters names; and sums over all filters. A pass over
 * the registry finds both. The result of a long pass, over very many filters, serves for fifty times its duration.
 *
 * Names are kept, not filters: their numbers are looked up when they are shown. */

#define METRICS_FILTERS_MAX     1000              /* filters that are shown */
#define METRICS_NAMES_MAX_BYTES ((size_t)4 << 20) /* of their names together */

struct metrics_patterns;

struct metrics_choice {
    struct buf names; /* each is its length, a uint16_t, and its bytes */
    size_t count;     /* of names */
    size_t omitted;   /* filters that would have been shown except for the limits above */
    uint64_t items;   /* this and the next three: sums over all filters that are not quarantined, without SSTables' */
    uint64_t capacity;
    uint64_t layers;
    uint64_t full;      /* filters of fixed size that are full */
    int64_t counted_ms; /* monotonic; 0: never */
    int64_t busy_ms;

    uint64_t settings;                 /* internal: a hash of those it was made with */
    struct metrics_patterns *patterns; /* internal, during the pass */
    uint64_t *ids;
    size_t nids;
    size_t spare; /* places for filters that nobody has queried */
};

/* Whether it is recent enough, and made with the settings of now. */
bool metrics_choice_is_fresh(const struct metrics_choice *choice, struct server *server);

/* Begins a pass with the settings of now, for storage of zeros; -ENOMEM with nothing to undo. Then
 * metrics_choice_visit() for each name, then metrics_choice_end(). */
int metrics_choice_begin(struct metrics_choice *choice, struct server *server);
void metrics_choice_visit(void *choice, struct slice name, struct entry *entry);
void metrics_choice_end(struct metrics_choice *choice, uint64_t busy_ns);

void metrics_choice_deinit(struct metrics_choice *choice); /* as before its begin; idempotent */

/* ---- the reply ---- */

/* Counts of the web thread about itself. */
struct web_counts {
    uint64_t requests;
    uint64_t refused; /* without the password, or not from this machine */
    uint64_t closed;  /* connections closed over a limit of time or number */
};

/* Writes all families; those of single filters for chosen ones that the user may read. `out` remembers a failure. */
void metrics_write(struct server *server, const struct acl_user *user, const struct metrics_choice *choice,
                   const struct web_counts *counts, struct buf *out);
