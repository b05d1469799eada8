/* histogram: counts durations from a nanosecond to more than an hour.
 *
 * Each power of two is divided into 32 equal parts, so that a value read back is at most 1/32 above the true one;
 * durations below 64 ns are exact. The size is fixed, about 10 kB.
 *
 * Thread rule: one thread adds; any thread may read meanwhile and sees each counter's value of that moment. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_PARTS_LOG2 5  /* 32 parts of each power of two: durations vary by more than this error of 3 % */
#define HISTOGRAM_MAX_LOG2   42 /* 2^42 ns are 73 minutes; longer durations count as this one */
#define HISTOGRAM_BUCKETS    ((HISTOGRAM_MAX_LOG2 - HISTOGRAM_PARTS_LOG2 + 1) << HISTOGRAM_PARTS_LOG2)

/* The bucket of a value if each power of two has 2^parts_log2 buckets. Values with up to parts_log2 + 1 bits are their
 * own bucket; of larger ones, the top parts_log2 + 1 bits count. */
static inline size_t histogram_bucket(uint64_t value, unsigned parts_log2)
{
    if (value >> (parts_log2 + 1) == 0)
        return (size_t)value;
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - parts_log2;
    return ((size_t)shift << parts_log2) + (size_t)(value >> shift);
}

/* The largest value of the bucket. */
static inline uint64_t histogram_bucket_end(size_t bucket, unsigned parts_log2)
{
    size_t parts = (size_t)1 << parts_log2;
    if (bucket < 2 * parts)
        return bucket;
    return ((uint64_t)(bucket % parts + parts + 1) << (bucket / parts - 1)) - 1;
}

/* Zero-initialise. */
struct histogram {
    _Atomic uint64_t counts[HISTOGRAM_BUCKETS];
};

/* Counts `n` durations of `ns` each. Thread: the one that adds. */
void histogram_add(struct histogram *histogram, uint64_t ns, uint64_t n);

/* Adds every counter of `from` to `sum`, which is the caller's own. histogram_subtract() subtracts `base`, an earlier
 * state of the counters in `sum`. */
void histogram_sum(struct histogram *sum, const struct histogram *from);
void histogram_subtract(struct histogram *sum, const struct histogram *base);

uint64_t histogram_count(const struct histogram *histogram);

/* The number of durations of at most `ns`, from 63 to 2^(HISTOGRAM_MAX_LOG2 - 1). It is exact where `ns` is 2^n - 1.
 * Elsewhere it omits the durations in the bucket of `ns`, which are at most 1/32 shorter. */
uint64_t histogram_count_upto(const struct histogram *histogram, uint64_t ns);

/* The percentile (0 to 100) of the durations in ns, rounded up to the end of its bucket; 0 without durations. */
uint64_t histogram_percentile(const struct histogram *histogram, double percentile);
