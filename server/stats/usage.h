/* usage: counts the answers to queries per filter, without a measurable cost.
 *
 * Every worker would write a counter in the filter at each query, and so take the cache line of its header away from
 * the others. The counter would also cost bytes in each of millions of filters. So each worker has its own table, of
 * fixed size, by filter id. The table counts a few thousand filters exactly. When more are queried, it keeps the most
 * queried; a filter that was dropped and returns starts at 0. `since` is the time from which its numbers are complete.
 *
 * A batch on one filter counts in one step. Ids are never reused, so a filter that was replaced starts at 0.
 *
 * Thread: a table is written by its worker only; usage_read(), usage_list(), usage_forget() and usage_reset(): any. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct usage; /* of one worker */

struct usage_counts {
    uint64_t hits;   /* queries answered "present" */
    uint64_t misses; /* queries answered "absent" */
    uint64_t wrong;  /* hits that clients reported as false (BF.FALSEPOSITIVE) */
    int64_t since_s; /* Unix time since which these are complete; 0: nothing counted */
};

#define USAGE_SETS 512 /* a power of two */
#define USAGE_WAYS 4   /* filters in a set */

struct usage *usage_create(void); /* NULL without memory */

/* Counts answers; does nothing if `usage` is NULL. */
void usage_count(struct usage *usage, uint64_t id, uint64_t hits, uint64_t misses, uint64_t wrong);

/* Adds this table's counts of the filter to `sum`. */
void usage_read(const struct usage *usage, uint64_t id, struct usage_counts *sum);

/* A filter and how many of its queries were answered. */
struct usage_total {
    uint64_t id;
    uint64_t answers;
};
#define USAGE_FILTERS (USAGE_SETS * USAGE_WAYS)

/* Copies the filters that this table counts, in no order. Returns their number. */
size_t usage_list(const struct usage *usage, struct usage_total totals_out[USAGE_FILTERS]);

/* The filter's counts start at 0 again. Thread: any. */
void usage_forget(struct usage *usage, uint64_t id);

/* All counts start at 0 again. */
void usage_reset(struct usage *usage);
