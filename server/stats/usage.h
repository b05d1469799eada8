/* usage: what queries of single filters were answered, counted without a cost that can be measured.
 *
 * A counter in the filter itself would be written by every worker that answers queries of it, and so take the cache
 * line with the filter's header away from all the others, at each query; and it would cost every one of millions of
 * filters its bytes. So each worker counts for itself, in a table of fixed size by the filter's id: a few thousand
 * filters are counted exactly. Where more are queried, the table keeps those that are queried most; a filter that has
 * been dropped from it and comes back is counted anew. `since` says from when on the numbers are complete.
 *
 * A batch on one filter is counted at once. Ids are never reused, so a filter that was emptied or replaced starts at 0.
 *
 * Thread: a table is written by its worker only; usage_read() and usage_reset(): any. */
#ifndef BLOOMERY_USAGE_H
#define BLOOMERY_USAGE_H

#include <stdint.h>

struct usage; /* of one worker */

struct usage_counts {
    uint64_t hits;    /* queries answered "present" */
    uint64_t misses;  /* queries answered "absent" */
    uint64_t wrong;   /* of the hits, those that were reported to be false (BF.FALSEPOSITIVE) */
    int64_t since_s;  /* Unix time from when on these are complete; 0: nothing has been counted */
};

#define USAGE_SETS 512 /* a power of two */
#define USAGE_WAYS 4   /* filters in a set */

struct usage *usage_create(void); /* NULL without memory */
void usage_destroy(struct usage *usage);

/* Counts. `usage` may be NULL: nothing is counted. */
void usage_count(struct usage *usage, uint64_t id, uint64_t hits, uint64_t misses, uint64_t wrong);

/* Adds what this table has of the filter to `sum`. */
void usage_read(const struct usage *usage, uint64_t id, struct usage_counts *sum);

/* Everything starts at 0 again. */
void usage_reset(struct usage *usage);

#endif
