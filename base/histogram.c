#include "histogram.h"

#include <math.h>

static size_t bucket_of(uint64_t ns)
{
    return ns >> HISTOGRAM_MAX_LOG2 ? HISTOGRAM_BUCKETS - 1 : histogram_bucket(ns, HISTOGRAM_PARTS_LOG2);
}

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void set(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

void histogram_add(struct histogram *histogram, uint64_t ns, uint64_t n)
{
    _Atomic uint64_t *counter = &histogram->counts[bucket_of(ns)];
    set(counter, get(counter) + n);
}

void histogram_sum(struct histogram *sum, const struct histogram *from)
{
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        set(&sum->counts[i], get(&sum->counts[i]) + get(&from->counts[i]));
}

void histogram_subtract(struct histogram *sum, const struct histogram *base)
{
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        set(&sum->counts[i], get(&sum->counts[i]) - get(&base->counts[i]));
}

static uint64_t count_first(const struct histogram *histogram, size_t buckets)
{
    uint64_t n = 0;
    for (size_t i = 0; i < buckets; i++)
        n += get(&histogram->counts[i]);
    return n;
}

uint64_t histogram_count(const struct histogram *histogram)
{
    return count_first(histogram, HISTOGRAM_BUCKETS);
}

uint64_t histogram_count_upto(const struct histogram *histogram, uint64_t ns)
{
    return count_first(histogram, bucket_of(ns + 1));
}

uint64_t histogram_percentile(const struct histogram *histogram, double percentile)
{
    uint64_t total = histogram_count(histogram);
    double wanted = ceil((double)total * percentile / 100);
    uint64_t need = wanted < 1 ? 1 : (uint64_t)wanted, seen = 0;

    if (total == 0)
        return 0;
    if (need > total)
        need = total;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += get(&histogram->counts[i]);
        if (seen >= need)
            return histogram_bucket_end(i, HISTOGRAM_PARTS_LOG2);
    }
    return histogram_bucket_end(HISTOGRAM_BUCKETS - 1,
                                HISTOGRAM_PARTS_LOG2); /* the counters rose during the summing, beyond `total` */
}
