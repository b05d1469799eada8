#include "timing.h"

#include <stdlib.h>

#include "clock.h"
#include "config.h"
#include "slowlog.h"

void timing_init(struct timing *timing, struct stats *stats, struct slowlog *slowlog)
{
    *timing = (struct timing){.stats = stats, .slowlog = slowlog};
}

void timing_deinit(struct timing *timing)
{
    for (size_t i = 0; i < STATS_MAX_COMMANDS; i++) {
        free(atomic_load_explicit(&timing->histograms[i], memory_order_relaxed));
        atomic_store_explicit(&timing->histograms[i], NULL, memory_order_relaxed);
    }
}

void timing_refresh(struct timing *timing, const struct config *config)
{
    int64_t slow_usec = config->process.slowlog_log_slower_than;

    timing->slow_ns = slow_usec < 0 || config->process.slowlog_max_len == 0 ? UINT64_MAX : (uint64_t)slow_usec * 1000;
    timing->slowlog_len = (size_t)config->process.slowlog_max_len;
    timing->tracking = config->process.latency_tracking;
    timing->exact = timing->slow_ns < (uint64_t)TIMING_EXACT_USEC * 1000;
}

/* Without memory for the histogram its counts are lost; commandstats keeps its sums. */
static struct histogram *histogram_of(struct timing *timing, size_t counter)
{
    struct histogram *histogram = atomic_load_explicit(&timing->histograms[counter], memory_order_relaxed);

    if (!histogram) {
        histogram = calloc(1, sizeof(*histogram));
        atomic_store_explicit(&timing->histograms[counter], histogram, memory_order_release);
    }
    return histogram;
}

bool timing_record(struct timing *timing, size_t counter, uint64_t n, uint64_t ns)
{
    stats_add(&timing->stats->time_ns[counter], ns);
    struct histogram *histogram = timing->tracking ? histogram_of(timing, counter) : NULL;
    if (histogram)
        histogram_add(histogram, ns / n, n);
    return ns / n >= timing->slow_ns;
}

void timing_remember(struct timing *timing, struct slowlog_entry *entry, uint64_t ns)
{
    if (entry)
        slowlog_add(timing->slowlog, entry, clock_unix_ms() / 1000, (int64_t)(ns / 1000), timing->slowlog_len);
}
