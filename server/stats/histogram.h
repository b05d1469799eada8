/* histogram: how often a duration was seen, from a nanosecond to more than an hour.
 *
 * Counters by magnitude: each power of two is divided into 32 equal parts, so that a value read back is at most 1/32 above
 * the true one, and durations below 64 ns are exact. About 10 kB, always the same.
 *
 * Thread rule: one thread adds, any thread may read meanwhile (it sees each counter as it is at that moment). */
#ifndef BLOOMERY_HISTOGRAM_H
#define BLOOMERY_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#define HISTOGRAM_PARTS_LOG2 5  /* 32 parts of each power of two: errors of 3 % are below what durations vary by anyway */
#define HISTOGRAM_MAX_LOG2   42 /* 2^42 ns are 73 minutes; what takes longer counts as that long */
#define HISTOGRAM_BUCKETS    ((HISTOGRAM_MAX_LOG2 - HISTOGRAM_PARTS_LOG2 + 1) << HISTOGRAM_PARTS_LOG2)

/* Zero-initialise. */
struct histogram {
    _Atomic uint64_t counts[HISTOGRAM_BUCKETS];
};

/* Counts `n` durations of `ns` each. Thread: the one that adds. */
void histogram_add(struct histogram *histogram, uint64_t ns, uint64_t n);

/* Adds every counter of `from` to `sum`, which is the caller's own; and the reverse, for `base` an earlier state of what has
 * been summed. */
void histogram_sum(struct histogram *sum, const struct histogram *from);
void histogram_subtract(struct histogram *sum, const struct histogram *base);

uint64_t histogram_count(const struct histogram *histogram);

/* How many durations were shorter than 2^log2 ns; exact. `log2` from 6 to HISTOGRAM_MAX_LOG2 - 1. */
uint64_t histogram_count_below(const struct histogram *histogram, unsigned log2);

/* The duration in ns that `percentile` (0 to 100) per cent of those counted did not exceed, rounded up to the end of its
 * part; 0 when nothing was counted. */
uint64_t histogram_percentile(const struct histogram *histogram, double percentile);

#endif
